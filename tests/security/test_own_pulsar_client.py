"""Our Pulsar client at listeners with TLS and logins, over the binary protocol and HTTPS."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest

from tests.security.certificates import Authority
from tests.security.live_node import LiveNode
from tests.server import start_server
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.access.users import make_user
from trilogue.client.errors import ClientError, InvalidOption
from trilogue.client.pulsar import PulsarClient, PulsarError
from trilogue.client.pulsar.client_config import read_client_config

SECRET = "a secret of thirty-two bytes, or more"
TOPIC = "orders-partition-0"
pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[LiveNode]:
    folder = tmp_path_factory.mktemp("node")
    server = authority.issue("server", common_name="localhost")
    key = folder / "token.key"
    key.write_text(SECRET)
    key.chmod(0o600)
    settings = {
        "access.authenticate": "true",
        "access.authorize": "true",
        "access.token-key": key,
        "tls.certificate": server.certificate,
        "tls.key": server.key,
        "tls.client-ca": authority.certificate,
        "tls.client-certificates": "optional",
        "tls.principal-rules": "RULE:^CN=([A-Za-z]+),O=acme$/$1/L",
    }
    with LiveNode(folder, settings, ("pulsar", "pulsar-ssl", "https")) as live:
        live.make_topic("orders")
        for operation in (Operation.WRITE, Operation.READ):
            live.allow("alice", operation, ResourceKind.TOPIC, "public/default/orders")
        users = live.node.storage.broker.users
        live.write(users.plan_put(make_user("alice", b"wonder", live.node.now_ms(), key=live.key)))
        yield live


def make_token(node: LiveNode, user: str = "alice", life_s: int = 600) -> str:
    now_s = node.node.now_ms() // 1_000
    return jwt.encode({"sub": user, "iat": now_s, "exp": now_s + life_s}, SECRET, "HS256")


SCHEMES = {"pulsar": "pulsar", "pulsar-ssl": "pulsar+ssl", "https": "https"}


def send_one(node: LiveNode, authority: Authority, listener: str, **login: Any) -> None:
    async def work() -> None:
        trust = str(authority.certificate) if listener != "pulsar" else ""
        url = f"{SCHEMES[listener]}://{node.doors[listener]}"
        async with PulsarClient(url, tls_trust_certs_file_path=trust, **login) as client:
            await (await client.producer(TOPIC)).send(b"x")

    asyncio.run(work())


@pytest.mark.parametrize(
    ("listener", "method"),
    [
        (listener, method)
        for listener in SCHEMES
        for method in ("token", "supplier", "basic", "tls")
        if (listener, method) != ("pulsar", "tls")
    ],
)
def test_it_logs_in(node: LiveNode, authority: Authority, listener: str, method: str):
    mine = authority.issue("mine", common_name="ALICE")
    logins: dict[str, dict[str, Any]] = {
        "token": {"token": make_token(node)},
        "supplier": {"token": lambda: make_token(node)},
        "basic": {"username": "alice", "password": "wonder"},
        "tls": {
            "tls_certificate_file_path": str(mine.certificate),
            "tls_private_key_file_path": str(mine.key),
        },
    }
    send_one(node, authority, listener, **logins[method])


@pytest.mark.parametrize("listener", list(SCHEMES))
def test_wrong_login_raises_at_once_and_advises_what_to_check(
    node: LiveNode, authority: Authority, listener: str
):
    for login in ({}, {"username": "alice", "password": "hunter2"}, {"token": "hunter2"}):
        with pytest.raises(PulsarError, match="check token, or username and password") as refused:
            send_one(node, authority, listener, **login)
        assert "hunter2" not in str(refused.value)


def test_a_missing_permission_is_named(node: LiveNode, authority: Authority):
    with pytest.raises(PulsarError, match=r"orders.*AuthorizationError.*can grant"):
        send_one(node, authority, "pulsar-ssl", token=make_token(node, "mallory"))


@pytest.mark.parametrize("listener", ["pulsar-ssl", "https"])
def test_a_stranger_s_certificate_is_not_trusted(
    node: LiveNode, authority: Authority, listener: str, tmp_path: Path
):
    stranger = Authority(tmp_path, "stranger")
    with pytest.raises(ClientError, match=r"not trusted|CERTIFICATE_VERIFY_FAILED"):
        send_one(node, stranger, listener, token=make_token(node))


def test_a_login_is_renewed_on_the_same_connection(node: LiveNode, authority: Authority):
    """Each token lives three seconds; the broker requests the next one before that."""
    renewed, loop_of = threading.Event(), []

    def supply() -> str:
        loop_of.append(1)
        if len(loop_of) > 2:  # the lookup's connection is the producer's
            renewed.set()
        return make_token(node, life_s=3)

    async def work() -> None:
        url = f"pulsar+ssl://{node.doors['pulsar-ssl']}"
        trust = str(authority.certificate)
        async with PulsarClient(url, token=supply, tls_trust_certs_file_path=trust) as client:
            producer = await client.producer(TOPIC)
            connections = set()
            while not renewed.is_set():
                await producer.send(b"x")
                connections.update(map(id, client._pool._shared._open.values()))
            await producer.send(b"x")
        assert len(connections) == 1

    asyncio.run(work())


def test_options_that_do_not_fit_are_refused_and_secrets_are_not_shown():
    for options, problem in (
        ({"username": "u"}, "together"),
        ({"username": "u", "password": "p", "token": "t"}, "one of them"),
        ({"tls_certificate_file_path": "c"}, "together"),
        ({"tls_trust_certs_file_path": "/none"}, "No such file"),
        ({"username": "u:v", "password": "p"}, "colon"),
    ):
        with pytest.raises(InvalidOption, match=problem):
            PulsarClient("pulsar+ssl://h:1", **options)
    client = PulsarClient("pulsar://h:1", username="u", password="hunter2")
    assert "hunter2" not in repr(client.options) + repr(client.options.security)


def test_client_files_of_pulsar_are_read(tmp_path: Path):
    path, token = tmp_path / "client.conf", tmp_path / "token"
    token.write_text("fresh\n")
    head = "brokerServiceUrl=pulsar+ssl://h:1/\nwebServiceUrl=https://h:2/\n"
    prefix = "authPlugin=org.apache.pulsar.client.impl.auth.Authentication"
    cases = {
        f"{prefix}Token\nauthParams=token:t\n": {"token": "t"},
        f'{prefix}Token\nauthParams={{"token":"t"}}\n': {"token": "t"},
        f"{prefix}Basic\nauthParams=u:p:q\n": {"username": "u", "password": "p:q"},
        f"{prefix}Basic\nauthParams={json.dumps({'userId': 'u', 'password': 'p'})}\n": {
            "username": "u",
            "password": "p",
        },
        f"{prefix}Tls\nauthParams=tlsCertFile:/c,tlsKeyFile:/k\n": {
            "tls_certificate_file_path": "/c",
            "tls_private_key_file_path": "/k",
        },
        "authPlugin=\nauthParams=\n": {},
    }
    for lines, expected in cases.items():
        path.write_text(head + lines)
        url, options = read_client_config(path)
        assert (url, options) == (
            "pulsar+ssl://h:1/",
            {"tls_validate_hostname": True, **expected},
        )
    path.write_text(f"{head}{prefix}Token\nauthParams=file://{token}\n")
    assert read_client_config(path)[1]["token"]() == "fresh"
    for lines, problem in (
        (f"{prefix}Athenz\n", "AuthenticationAthenz: only"),
        (f"{prefix}Basic\nauthParams=hunter2\n", "^(?!.*hunter2)"),
        ("tlsAllowInsecureConnection=true\n", "line 1: tlsAllowInsecure"),
    ):
        path.write_text(lines)
        with pytest.raises(InvalidOption, match=problem):
            read_client_config(path)


@pytest.mark.full
def test_the_file_of_a_secured_node_is_read(tmp_path: Path):
    with start_server(tmp_path / "data", arguments=["--secure"]):
        url, options = read_client_config(tmp_path / "data" / "clients" / "pulsar.conf")

        async def work() -> bytes:
            async with (
                PulsarClient(url, **options) as client,
                await client.subscribe("secured", "s") as consumer,
            ):
                await (await client.producer("secured")).send(b"x")
                return (await consumer.receive(timeout_s=60)).value

        assert asyncio.run(work()) == b"x"
