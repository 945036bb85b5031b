"""`serve --secure`: what a first start makes, what later starts obey, and certificates."""

from __future__ import annotations

import datetime as dt
import json
import ssl
import subprocess
from pathlib import Path

import httpx
import pulsar
import pytest
from confluent_kafka import Producer
from cryptography import x509

from tests.server import ServerDiedError, run_trilogue, start_server
from trilogue.cli.http_client import read_http_config
from trilogue.node.secure.certificates import AuthorityExpired, renew_certificates
from trilogue.node.secure.files import write_private

NOW = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
NAMES = {"localhost", "127.0.0.1", "::1", "broker.example"}
TENANTS = "/admin/v2/tenants"


def secrets_in(data: Path) -> dict[Path, bytes]:
    """Return the content of every private file, but for the log and meta."""
    paths = [path for folder in ("tls", "clients") for path in (data / folder).iterdir()]
    return {path: path.read_bytes() for path in [*paths, data / "secure.toml"]}


def credentials(data: Path) -> tuple[str, str]:
    user, _, password = read_http_config(data / "clients" / "http.conf")["user"].partition(":")
    return user, password


def test_a_first_start_makes_an_administrator_and_later_starts_are_secure(tmp_path):
    data = tmp_path / "data"
    with start_server(data, arguments=["--secure"]) as server:
        password = (data / "clients" / "admin.password").read_text().strip()
        assert credentials(data) == ("admin", password)
        assert str(data / "clients") in server.output
        assert password not in server.output
        assert get(server, TENANTS) == 401
        assert get(server, TENANTS, credentials(data)) == 200
        assert server.stop() == 0
    before = secrets_in(data)
    assert all(path.stat().st_mode & 0o077 == 0 for path in before)
    assert (data / "clients").stat().st_mode & 0o077 == 0
    assert (data / "tls").stat().st_mode & 0o077 == 0

    for arguments in [], ["--secure"]:
        listen = dict.fromkeys(("kafka", "pulsar"), "off")
        with start_server(data, arguments=arguments, listen=listen) as server:
            assert get(server, TENANTS) == 401
            assert server.stop() == 0
    after = secrets_in(data)
    unchanged = {path for path in before if path.suffix in {".pem", ".key", ".password", ".toml"}}
    assert {path: before[path] for path in unchanged} == {path: after[path] for path in unchanged}


def test_a_secured_directory_is_not_served_insecurely(tmp_path):
    data = tmp_path / "data"
    with start_server(data, arguments=["--secure"]) as server:
        assert server.stop() == 0

    with pytest.raises(ServerDiedError, match=r"was secured, and access.authenticate is off"):
        start_server(data, settings={"access.authenticate": False})
    (data / "secure.toml").rename(tmp_path / "secure.toml")
    with pytest.raises(ServerDiedError, match=r"was secured, and access.authenticate is off"):
        start_server(data)
    with start_server(data, arguments=["--insecure"]) as server:
        assert get(server, TENANTS) == 200


def test_a_first_start_that_was_interrupted_is_repeated(tmp_path):
    data = tmp_path / "data"
    with start_server(data, arguments=["--secure"]) as server:
        assert server.stop() == 0
    (data / "secure.toml").unlink()

    with start_server(data, arguments=["--secure"]) as server:
        assert get(server, TENANTS, credentials(data)) == 200
        assert server.stop() == 0
    (data / "secure.toml").unlink()
    (data / "clients" / "admin.password").unlink()
    with pytest.raises(ServerDiedError, match=r"the user admin exists"):
        start_server(data, arguments=["--secure"])


def test_config_shows_where_the_settings_of_a_secured_directory_are_from(tmp_path):
    data = tmp_path / "data"
    with start_server(data, arguments=["--secure"]) as server:
        assert server.stop() == 0

    shown = json.loads(run_trilogue("config", "--json", "--data", str(data)).stdout)

    assert shown["access.authorize"] == {"value": True, "origin": f"file {data / 'secure.toml'}"}
    assert shown["access.token-key"]["value"] == str(data / "access.token-key")


def get(server, path: str, auth: tuple[str, str] | None = None) -> int:
    return httpx.get(f"{server.http}{path}", auth=auth, timeout=60).status_code


def test_certificates_are_made_once_and_renewed_before_they_end(tmp_path):
    assert renew_certificates(tmp_path, NAMES, NOW)
    authority = (tmp_path / "ca.pem").read_bytes()
    assert not renew_certificates(tmp_path, NAMES, NOW + dt.timedelta(days=794))
    assert renew_certificates(tmp_path, NAMES, NOW + dt.timedelta(days=796))
    assert renew_certificates(tmp_path, {*NAMES, "other.example"}, NOW + dt.timedelta(days=797))
    assert not renew_certificates(tmp_path, NAMES, NOW + dt.timedelta(days=798))
    assert (tmp_path / "ca.pem").read_bytes() == authority

    found = x509.load_pem_x509_certificate((tmp_path / "server.pem").read_bytes())
    known = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert known.get_values_for_type(x509.DNSName) == [
        "broker.example",
        "localhost",
        "other.example",
    ]
    with pytest.raises(AuthorityExpired):
        renew_certificates(tmp_path, NAMES, NOW + dt.timedelta(days=3_651))


def test_openssl_trusts_the_certificate_under_each_name(tmp_path):
    renew_certificates(tmp_path, NAMES, dt.datetime.now(dt.UTC))
    for option, name in (
        ("-verify_hostname", "localhost"),
        ("-verify_hostname", "broker.example"),
        ("-verify_ip", "127.0.0.1"),
        ("-verify_ip", "::1"),
    ):
        command = ["openssl", "verify", "-x509_strict", "-purpose", "sslserver", option, name]
        command += ["-CAfile", str(tmp_path / "ca.pem"), str(tmp_path / "server.pem")]
        checked = subprocess.run(command, capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stderr


def test_python_trusts_the_certificate_and_no_other_name(tmp_path):
    renew_certificates(tmp_path, NAMES, dt.datetime.now(dt.UTC))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    client = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))

    assert shake_hands(client, server, "broker.example")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(client, server, "evil.example")


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext, name: str) -> bool:
    """Shake hands in memory; return whether both ends are done."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(4):
        for end in list(ends):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            ends.remove(end)
    return not ends


def test_private_files_are_private_and_replaced_at_once(tmp_path):
    path = tmp_path / "new" / "secret"
    write_private(path, b"a")
    write_private(path, b"b")

    assert path.read_bytes() == b"b"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert [one.name for one in path.parent.iterdir()] == ["secret"]


def test_clients_work_with_their_configurations_as_they_are(tmp_path):
    data = tmp_path / "data"
    with start_server(data, arguments=["--secure"]) as server:
        config = dict(
            line.split("=", 1) for line in (data / "clients/pulsar.conf").read_text().splitlines()
        )
        assert config["authPlugin"].endswith(".AuthenticationBasic")
        login = pulsar.AuthenticationBasic(auth_params_string=config["authParams"])
        client = pulsar.Client(
            config["brokerServiceUrl"],
            authentication=login,
            tls_trust_certs_file_path=config["tlsTrustCertsFilePath"],
            tls_validate_hostname=True,
        )
        topic = "persistent://public/default/orders"
        consumer = client.subscribe(topic, "billing")
        client.create_producer(topic).send(b"paid")
        assert consumer.receive(60_000).data() == b"paid"
        client.close()

        kafka = dict(
            line.split("=", 1)
            for line in (data / "clients/librdkafka.conf").read_text().splitlines()
        )
        assert kafka["security.protocol"] == "SASL_SSL"
        delivered: list[object] = []
        producer = Producer(kafka)
        producer.produce("orders", b"x", on_delivery=lambda error, _: delivered.append(error))
        producer.flush(60)
        assert delivered == [None]

        http_conf = data / "clients/http.conf"
        url = read_http_config(http_conf)["server"]
        assert url == f"https://{server.doors['https']}"
        command = ["curl", "-sSf", "-K", http_conf, f"{url}{TENANTS}"]
        answer = subprocess.run(command, capture_output=True, check=True)
        assert json.loads(answer.stdout) == ["public"]
        listed = run_trilogue("users", "list", "--config", str(http_conf))
        assert "admin" in listed.stdout, listed.stderr
        elsewhere = run_trilogue("users", "list", "--http", url)
        assert elsewhere.returncode
        assert "the server's certificate is not trusted" in elsewhere.stderr
