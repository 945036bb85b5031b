"""Our Kafka client and command line at listeners with TLS and logins."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest

from tests.client.kafka.session_renewals import Renewals, check_renewals
from tests.security.test_kafka_logins import PASSWORD, SECRET, Secured
from tests.server import run_trilogue, start_server
from trilogue.cli.cluster import read_http_options
from trilogue.client.errors import ClientError, ServerUnreachable
from trilogue.client.kafka import Acks, KafkaClient
from trilogue.client.kafka.errors import AuthenticationFailed, KafkaError

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with Secured(tmp_path_factory.mktemp("node"), **{"kafka.sasl-session": "2s"}) as made:
        yield made


def options(node: Secured, listener: str, **more: Any) -> dict[str, Any]:
    protocol = {
        "kafka-ssl": "ssl",
        "kafka-sasl": "sasl_plaintext",
        "kafka-sasl-ssl": "sasl_ssl",
    }[listener]
    found = {"security_protocol": protocol, "request_timeout_s": 10.0}
    if "ssl" in protocol:
        found["ssl_ca_location"] = str(node.authority.certificate)
    return {**found, **more}


def login(
    user: str = "admin", password: str = PASSWORD, mechanism: str = "PLAIN"
) -> dict[str, str]:
    return {"sasl_mechanism": mechanism, "sasl_username": user, "sasl_password": password}


def run(node: Secured, listener: str, work: Any, **more: Any) -> Any:
    async def connect() -> Any:
        given = options(node, listener, **more)
        async with KafkaClient(node.doors[listener], **given) as client:
            return await work(client)

    return asyncio.run(connect())


async def send(client: KafkaClient) -> int:
    producer = await client.producer()
    return (await producer.send("own", b"x")).partition


@pytest.mark.parametrize("listener", ["kafka-sasl", "kafka-sasl-ssl"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_it_logs_in(node: Secured, listener: str, mechanism: str):
    assert run(node, listener, send, **login(mechanism=mechanism)) == 0


def test_it_logs_in_with_a_token(node: Secured):
    def token() -> str:
        return jwt.encode({"sub": "admin", "exp": int(time.time()) + 600}, SECRET, "HS256")

    more = {"sasl_mechanism": "OAUTHBEARER", "oauth_token": token}
    assert run(node, "kafka-sasl", send, **more) == 0


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_wrong_password_raises_at_once_and_advises_what_to_check(node: Secured, mechanism: str):
    with pytest.raises(AuthenticationFailed, match="check sasl_username and sasl_password"):
        run(node, "kafka-sasl", send, **login(password="wrong", mechanism=mechanism))


def test_a_mechanism_that_is_not_enabled_is_named(tmp_path: Path):
    with (
        Secured(tmp_path, **{"kafka.sasl-mechanisms": "SCRAM-SHA-512"}) as other,
        pytest.raises(AuthenticationFailed, match="it accepts SCRAM-SHA-512"),
    ):
        run(other, "kafka-sasl", send, **login())


def test_a_topic_that_is_denied_is_named(node: Secured):
    with pytest.raises(KafkaError, match="own"):
        run(node, "kafka-sasl", send, **login("alice"))


def test_certificates_are_checked(node: Secured):
    mine = node.authority.issue("own", common_name="ADMIN")
    files = {
        "ssl_certificate_location": str(mine.certificate),
        "ssl_key_location": str(mine.key),
    }
    assert run(node, "kafka-ssl", send, **files) == 0
    files["ssl_ca_location"] = str(node.stranger.certificate)
    with pytest.raises(ServerUnreachable, match="not trusted"):
        run(node, "kafka-ssl", send, **files)


def test_a_client_without_tls_at_a_tls_port_gets_an_error(node: Secured):
    async def fail() -> None:
        async with KafkaClient(node.doors["kafka-ssl"], request_timeout_s=2.0) as client:
            await send(client)

    with pytest.raises(ClientError):
        asyncio.run(fail())


@pytest.mark.parametrize(
    ("mechanism", "acks"),
    [
        ("SCRAM-SHA-512", Acks.ALL),
        pytest.param("PLAIN", Acks.NONE, marks=pytest.mark.full),
        pytest.param("PLAIN", Acks.ALL, marks=pytest.mark.full),
    ],
)
def test_a_session_is_renewed_on_its_connection(
    node: Secured, monkeypatch: pytest.MonkeyPatch, mechanism: str, acks: Acks
):
    """Sessions of two seconds."""
    counts, topic = Renewals(monkeypatch), f"renewed-{mechanism}-{acks.name}"

    async def work(client: KafkaClient) -> None:
        await check_renewals(client, topic, acks, counts)

    run(node, "kafka-sasl", work, **login(mechanism=mechanism))


@pytest.mark.full
def test_a_session_that_cannot_be_renewed_ends_its_connection(
    node: Secured, monkeypatch: pytest.MonkeyPatch
):
    """The function for tokens fails twice; the client connects again, as with any lost one."""
    counts, failures = Renewals(monkeypatch), []

    def token() -> str:
        if len(failures) < 2 and asyncio.current_task() in counts.tasks:
            failures.append("failed")
            raise OSError("the issuer of tokens does not respond")
        return jwt.encode({"sub": "admin", "exp": int(time.time()) + 600}, SECRET, "HS256")

    async def work(client: KafkaClient) -> None:
        producer = await client.producer()
        await producer.send("own", b"x")
        opened = counts.opened
        while counts.opened == opened or counts.renewed < 2:
            await producer.send("own", b"x")
            await asyncio.sleep(0.05)

    run(node, "kafka-sasl", work, sasl_mechanism="OAUTHBEARER", oauth_token=token)

    assert len(failures) == 2


@pytest.mark.full
def test_verbs_that_use_http_log_in_with_the_file(tmp_path: Path):
    """Doctor and subscriptions at a secured node, over HTTPS with the login of `--config`."""
    with start_server(tmp_path / "data", arguments=["--secure"]) as server:
        path = tmp_path / "data" / "clients" / "kafka.properties"
        where, kafka = f"https://{server.doors['https']}", server.doors["kafka-sasl-ssl"]
        for words in (("doctor", "--server", kafka), ("subscriptions", "list")):
            ran = run_trilogue(*words, "--config", str(path), "--http", where)
            assert ran.returncode == 0, ran.stderr + ran.stdout
            assert "fail" not in ran.stdout


def test_a_password_for_tls_is_not_sent_in_clear(tmp_path: Path, monkeypatch: Any):
    path = tmp_path / "client.conf"
    monkeypatch.setenv("TRILOGUE_CLIENT_CONFIG", str(path))
    login = "sasl.username=u\nsasl.password=p\n"
    path.write_text(f"security.protocol=SASL_SSL\n{login}")
    assert read_http_options("https://h:1") == {"user": "u:p"}
    assert read_http_options("h:1") == read_http_options("") == {}
    path.write_text(f"security.protocol=SASL_PLAINTEXT\n{login}")
    assert read_http_options("h:1") == {"user": "u:p"}


def call(node: Secured, folder: Path, *words: str, password: str = PASSWORD) -> Any:
    path = folder / "client.conf"
    path.write_text(
        f"bootstrap.servers={node.doors['kafka-sasl-ssl']}\nsecurity.protocol=SASL_SSL\n"
        f"sasl.mechanism=SCRAM-SHA-256\nsasl.username=admin\nsasl.password={password}\n"
        f"ssl.ca.location={node.authority.certificate}\n"
    )
    environment = {key: value for key, value in os.environ.items() if "TRILOGUE" not in key}
    return subprocess.run(
        [sys.executable, "-m", "trilogue.cli.main", *words, "--config", str(path)],
        input="a line\n",
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
        check=False,
    )


def test_the_command_line_takes_a_file(node: Secured, tmp_path: Path):
    made = call(node, tmp_path, "topics", "create", "by-cli")
    assert made.returncode == 0, made.stderr
    assert call(node, tmp_path, "produce", "by-cli").returncode == 0
    listed = call(node, tmp_path, "topics", "list")
    assert "by-cli" in listed.stdout
    read = call(node, tmp_path, "consume", "by-cli")
    assert "a line" in read.stdout, read.stderr
    line = f"trilogue topics describe --config {tmp_path / 'client.conf'} by-c"
    completed = subprocess.run(
        [sys.executable, "-m", "trilogue.cli.main", "complete", "--line", line],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "by-cli" in completed.stdout, completed.stderr

    refused = call(node, tmp_path, "topics", "list", password="wrong")
    assert refused.returncode == 1
    assert "check sasl_username and sasl_password" in refused.stderr
    assert refused.stderr.count("\n") == 1
