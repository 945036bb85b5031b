"""The settings on the page for the suites of Pulsar's clients have the roles that these expect."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from types import SimpleNamespace

import httpx
import jwt
import pulsar
import pytest

from tests.docs.page import ROOT
from tests.security.certificates import Authority
from tests.server import start_server

PAGE = (ROOT / "docs/how-to/serve-the-suites-of-pulsars-clients.md").read_text()
PASSWORD = "123456"
SECRET = b"a secret of thirty-two bytes or more"
LISTENERS = ("pulsar", "pulsar-ssl", "http", "https")
SILENT = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
OPEN, PRIVATE = "persistent://public/default/suites", "persistent://private/auth/suites"

pytestmark = pytest.mark.full


def block(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    """A server with the page's settings, on free ports, with keys and certificates of its own."""
    folder = tmp_path_factory.mktemp("suites")
    authority = Authority(folder)
    broker = authority.issue("server", common_name="localhost")
    certificates, tokens = folder / "integration-tests/certs", folder / "integration-tests/tokens"
    for each in (certificates, tokens):
        each.mkdir(parents=True)
    shutil.copy(broker.certificate, certificates / "broker-cert.pem")
    shutil.copy(broker.key, certificates / "broker-key.pem")
    shutil.copy(authority.certificate, certificates / "cacert.pem")
    (tokens / "secret.key").write_bytes(SECRET)
    (folder / "users").write_text(f"admin:{PASSWORD}\n")
    for each in (certificates / "broker-key.pem", tokens / "secret.key", folder / "users"):
        each.chmod(0o600)
    settings = re.sub(r'"(users|integration-tests/\S+)"', rf'"{folder}/\1"', block("toml"))
    settings = re.sub(r"\[advertise\]\n(.+\n)+", "", settings)
    (folder / "suites.toml").write_text(settings)
    listen = dict.fromkeys(LISTENERS, "127.0.0.1:0")
    config = [f"--config={folder / 'suites.toml'}"]
    with start_server(folder / "data", listen=listen, arguments=config) as server:
        script = block("bash").replace("localhost:8080", server.doors["http"])
        subprocess.run(["bash", "-ec", script], check=True, capture_output=True)
        yield SimpleNamespace(
            server=server, authority=authority, client=authority.issue("c", common_name="localhost")
        )


def token(user: str) -> pulsar.Authentication:
    return pulsar.AuthenticationToken(jwt.encode({"sub": user}, SECRET, algorithm="HS256"))


def send(served: SimpleNamespace, listener: str, login: object, topic: str) -> None:
    scheme = {"pulsar-ssl": "pulsar+ssl"}.get(listener, listener)
    client = pulsar.Client(
        f"{scheme}://localhost:{served.server.doors[listener].rpartition(':')[2]}",
        authentication=login,
        tls_trust_certs_file_path=str(served.authority.certificate),
        tls_validate_hostname=True,
        operation_timeout_seconds=60,
        logger=SILENT,
    )
    try:
        client.create_producer(topic).send(b"x")
    finally:
        client.close()


CASES = (
    ("none", OPEN, True, LISTENERS),
    ("none", PRIVATE, False, LISTENERS),
    ("token", PRIVATE, True, LISTENERS),
    ("token of another", PRIVATE, False, LISTENERS),
    ("basic", PRIVATE, True, LISTENERS),
    ("tls", PRIVATE, True, ("pulsar-ssl", "https")),
)


@pytest.mark.parametrize(
    ("method", "topic", "is_allowed", "listener"),
    [(*case, listener) for *case, listeners in CASES for listener in listeners],
)
def test_each_method_has_the_role_that_the_suites_expect(
    served: SimpleNamespace, method: str, topic: str, is_allowed: bool, listener: str
):
    login = {
        "none": lambda: None,
        "token": lambda: token("token-principal"),
        "token of another": lambda: token("another"),
        "basic": lambda: pulsar.AuthenticationBasic("admin", PASSWORD),
        "tls": lambda: pulsar.AuthenticationTLS(
            str(served.client.certificate), str(served.client.key)
        ),
    }[method]()
    if is_allowed:
        send(served, listener, login, topic)
        return
    # The library reports the status 403 of a lookup as a failed connection.
    refusal = pulsar.ConnectError if listener.startswith("http") else pulsar.AuthorizationError
    with pytest.raises(refusal):
        send(served, listener, login, topic)


def test_the_anonymous_role_administers_its_tenant_and_no_other(served: SimpleNamespace):
    admin = f"{served.server.http}/admin/v2"

    assert httpx.put(f"{admin}/namespaces/public/suites").is_success
    assert httpx.put(f"{admin}/namespaces/private/suites").status_code == 403
    assert httpx.get(f"{admin}/tenants").status_code == 403
    basic = ("admin", PASSWORD)
    assert httpx.get(f"{admin}/tenants", auth=basic).json() == ["private", "public"]
