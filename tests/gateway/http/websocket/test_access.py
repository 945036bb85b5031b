"""Logins and permissions of WebSockets: the bypass matrix, and what a user may do by them."""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterator

import httpx
import jwt
import pytest

from tests.gateway.http.secret_node import PASSWORD, SecretNode, make_token, with_tokens
from tests.gateway.http.test_bypass_http import SPELLINGS
from tests.gateway.http.websocket.sockets import Socket, refusal
from tests.security.bypass import ORDERS
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.gateway.http.websocket.routes import PATHS

MALLORY = "mallory"
KINDS = {"producer": "", "consumer": "/s", "reader": "?messageId=earliest"}

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecretNode]:
    folder = tmp_path_factory.mktemp("sockets")
    with SecretNode(folder, with_tokens(folder), ("pulsar", "http")) as made:
        made.prepare(MALLORY)
        yield made


def token(user: str = MALLORY, **claims: object) -> str:
    return make_token(user, **claims)


def basic(password: str = PASSWORD) -> list[str]:
    text = base64.b64encode(f"{MALLORY}:{password}".encode()).decode()
    return [f"Authorization: Basic {text}"]


def test_every_path_is_in_the_matrix():
    assert {path.split("/")[2] for path in PATHS} == set(KINDS)


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
def test_no_path_leads_to_the_topic(world, kind, spelling, domain):
    before = world.state()
    status, _ = refusal(
        world.doors["http"], f"{kind}/{domain}/{spelling}{KINDS[kind]}", header=basic()
    )
    assert status in {400, 403, 404, 500}
    assert world.state() == before


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "header", [[], basic("wrong"), ["Authorization: Bearer x"], ["Authorization: Other x"]]
)
def test_a_login_is_needed(world, kind, header):
    path = f"{kind}/persistent/{ORDERS}{KINDS[kind]}"
    assert refusal(world.doors["http"], path, header=header)[0] == 401


@pytest.mark.parametrize(
    "text", ["", "x", token(exp=1), jwt.encode({"sub": MALLORY}, None, "none")]
)
def test_a_token_of_the_query_is_verified(world, text):
    path = f"reader/persistent/{ORDERS}?token={text}"
    assert refusal(world.doors["http"], path)[0] == 401


def test_a_token_of_the_query_is_for_websockets_only(world):
    url = f"http://{world.doors['http']}"
    for path in ("/admin/v2/tenants", f"/ws/v2/reader/persistent/{ORDERS}"):
        assert httpx.get(f"{url}{path}", params={"token": token()}).status_code == 401


def test_a_user_with_rights_produces_and_consumes(world, caplog):
    caplog.set_level(logging.DEBUG)
    address = world.doors["http"]
    world.allow(MALLORY, Operation.ALL, ResourceKind.TOPIC, ORDERS)
    world.allow(MALLORY, Operation.ALL, ResourceKind.GROUP, "s")
    try:
        consumer = Socket(address, f"consumer/persistent/{ORDERS}/s?token={token()}")
        producer = Socket(address, f"producer/persistent/{ORDERS}", header=basic())
        page = {"suppress_origin": False, "origin": "http://elsewhere.example"}
        reader = Socket(address, f"reader/persistent/{ORDERS}?token={token()}", **page)
        assert refusal(address, f"reader/persistent/{ORDERS}?token={token()}",
            header=basic(), **page)[0] == 403, "the browser's own password"  # fmt: skip
        producer.produce(b"one")
        assert (consumer.take(), reader.take()) == (b"one", b"one")
        for each in (producer, reader):
            each.close()
    finally:
        world.withdraw(MALLORY, Operation.ALL, ResourceKind.TOPIC, ORDERS)

    assert consumer.made.recv_data()[0] == 8, "without the right it is closed"
    consumer.close()
    assert token() not in caplog.text


def test_a_deleted_user_loses_its_websocket(world):
    world.put_user("leaver", None)
    topic = "public/default/leaving"
    world.make_topic("leaving")
    world.allow("leaver", Operation.ALL, ResourceKind.TOPIC, topic)
    reader = Socket(world.doors["http"], f"reader/persistent/{topic}?token={token('leaver')}")
    world.delete_user("leaver")

    assert reader.made.recv_data()[0] == 8
    reader.close()


def test_a_refused_client_is_in_the_audit_log(world):
    before = world.audit_log.read_text().count('"refused"')
    refusal(world.doors["http"], f"producer/persistent/{ORDERS}", header=basic())
    lines = [each for each in world.audit_log.read_text().splitlines() if '"refused"' in each]

    assert len(lines) > before
    assert ORDERS in lines[-1]
    assert "127.0.0.1" in lines[-1]
