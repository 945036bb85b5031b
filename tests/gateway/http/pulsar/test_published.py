"""Messages that are produced over HTTP by Pulsar's /topics, and read by its clients."""

from __future__ import annotations

import base64
import itertools
import json

import httpx
import pytest

from tests.gateway.http.websocket.sockets import Socket
from tests.security.bypass import ORDERS
from tests.security.live_node import LiveNode
from tests.server import start_server
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.access.users import make_user
from trilogue.gateway.http.pulsar.published import PATHS

NUMBERS = itertools.count(1)
DEFINITION = b'{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
JSON_SCHEMA = json.dumps({"type": "JSON", "schema": base64.b64encode(DEFINITION).decode()})
PASSWORD = "a password of hers"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with start_server(tmp_path_factory.mktemp("node") / "data") as made:
        yield made


@pytest.fixture
def topic():
    return f"persistent/public/default/published-{next(NUMBERS)}"


def publish(server, path: str, *payloads: str, **fields) -> httpx.Response:
    body = {"messages": [{"payload": each} for each in payloads], **fields}
    return httpx.post(f"{server.http}/topics/{path}", json=body, timeout=60)


def test_messages_come_to_consumers(server, topic):
    consumer = Socket(server.doors["http"], f"consumer/{topic}/s?receiverQueueSize=2")
    message = {"payload": "one", "key": "k", "properties": {"a": "b"}, "eventTime": 1_000}
    reply = httpx.post(
        f"{server.http}/topics/{topic}", json={"messages": [message, {"payload": "two"}]}
    ).json()

    first, second = consumer.receive(), consumer.receive()
    consumer.close()
    assert [base64.b64decode(each["payload"]) for each in (first, second)] == [b"one", b"two"]
    assert (first["key"], first["properties"]) == ("k", {"a": "b"})
    assert first["eventTime"] == "1970-01-01T00:00:01.000Z"
    assert [each["errorCode"] for each in reply["messagePublishResults"]] == [0, 0]
    assert reply["schemaVersion"] == 0


def test_partitions_are_filled_in_turn_or_chosen(server, topic):
    assert httpx.put(f"{server.http}/admin/v2/{topic}/partitions", content=b"2").is_success

    spread = publish(server, topic, "a", "b", "c", "d").json()["messagePublishResults"]
    assert [each["messageId"].rpartition(":")[2] for each in spread] in (
        ["0", "1", "0", "1"],
        ["1", "0", "1", "0"],
    )
    chosen = publish(server, f"{topic}/partitions/1", "e").json()["messagePublishResults"]
    assert chosen[0]["messageId"].endswith(":2:1")


def test_a_topic_is_deleted_right_after_a_request(server, topic):
    for _ in range(3):
        assert publish(server, topic, "a").status_code == 200
        assert httpx.delete(f"{server.http}/admin/v2/{topic}", timeout=60).status_code == 204


def test_a_json_schema_is_added_and_checked(server, topic):
    assert publish(server, topic, '{"a": 1}', valueSchema=JSON_SCHEMA).status_code == 200
    namespace, _, name = topic.removeprefix("persistent/").rpartition("/")
    found = httpx.get(f"{server.http}/admin/v2/schemas/{namespace}/{name}/schema").json()

    assert (found["type"], found["data"].encode()) == ("JSON", DEFINITION)
    assert publish(server, topic, "text").status_code == 409, "another schema"
    assert publish(server, topic, "{", valueSchema=JSON_SCHEMA).status_code == 400


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("persistent/public/default/x", "{", 400),
        ("persistent/public/default/x", '{"messages": []}', 400),
        ("persistent/public/default/x", '{"messages": [{}], "schemaVersion": 0}', 400),
        ("persistent/public/default/x", '{"messages": [{}], "valueSchema": "{"}', 400),
        ("persistent/public/default/x", '{"messages": [{"eventTime": "now"}]}', 400),
        ("persistent/public/default/x/partitions/a", '{"messages": [{}]}', 400),
        ("persistent/public/nowhere/x", '{"messages": [{}]}', 404),
        ("volatile/public/default/x", '{"messages": [{}]}', 404),
        ("persistent/public/default/x", "[" * (1 << 20) + "[", 413),
        ("orders", "{}", 404),
    ],
)
def test_a_wrong_request_is_refused(server, path, body, status):
    reply = httpx.post(f"{server.http}/topics/{path}", content=body)
    assert (reply.status_code, bool(reply.json()["reason"])) == (status, True)


@pytest.mark.full
def test_a_login_and_the_right_to_produce_are_needed(tmp_path):
    settings = {"access.authenticate": "true", "access.authorize": "true"}
    with LiveNode(tmp_path, settings, ("pulsar", "http")) as world:
        world.make_topic("orders")
        users = world.node.storage.broker.users
        user = make_user("mallory", PASSWORD.encode(), world.node.now_ms(), key=world.key)
        world.write(users.plan_put(user))
        body = {"messages": [{"payload": "x"}]}
        tenant, namespace, name = ORDERS.split("/")
        parts = {"domain": "persistent", "tenant": tenant, "namespace": namespace, "topic": name}
        for path in PATHS:
            url = f"http://{world.doors['http']}{path.format(**parts, partition=0)}"
            assert httpx.post(url, json=body).status_code == 401
            assert httpx.post(url, json=body, auth=("mallory", "wrong")).status_code == 401
            assert httpx.post(url, json=body, auth=("mallory", PASSWORD)).status_code == 403
        topic = next(iter(world.node.storage.broker.cluster))
        assert topic.partitions[0].log.end_offset == 0

        world.allow("mallory", Operation.ALL, ResourceKind.TOPIC, ORDERS)
        url = f"http://{world.doors['http']}{PATHS[0].format(**parts)}"
        assert httpx.post(url, json=body, auth=("mallory", PASSWORD)).status_code == 200
        assert topic.partitions[0].log.end_offset == 1
        listener = world.node.gateways.listeners["pulsar"]
        assert listener.connections == 1, "requests of one login share a connection"
