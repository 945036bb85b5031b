"""Administrative acts of Pulsar, TubeMQ and HTTP are lines of the audit log: each of their rows.

Those of Kafka are in test_audit_kafka.py, those of users, ACLs and the REST proxy in
test_audit_http.py, those of the console in gateway/http/console.
"""

from __future__ import annotations

import asyncio
import functools
import json
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import httpx
import msgspec
import pulsar
import pytest
from pulsar.schema import JsonSchema, Record, String

from tests.gateway.http.pulsar.test_access import VALUES, with_access
from tests.security.live_node import LiveNode
from trilogue.broker.access.audit import AuditLog
from trilogue.broker.access.authorizer import CLUSTER, Operation, Resource
from trilogue.broker.access.client_access import ALLOW_ALL, ClientAccess
from trilogue.gateway.http.pulsar import routes as pulsar_routes
from trilogue.gateway.http.registry import routes as registry_routes
from trilogue.gateway.http.registry import subjects
from trilogue.gateway.http.tubemq import routes as web_routes
from trilogue.gateway.http.tubemq.web_api_request import master_response
from trilogue.gateway.pulsar.commands import TABLE as COMMANDS
from trilogue.gateway.tubemq.methods import BROKER, MASTER, refuse_broker

PULSAR_ACTS = {"getOrCreateSchema", "producer", "subscribe", "unsubscribe"}
"""They add schemas and delete subscriptions; test_acts_of_a_pulsar_client has their lines."""
PULSAR_DATA = {
    "connect", "authResponse", "ping", "pong", "partitionMetadata", "lookupTopic",
    "getTopicsOfNamespace", "watchTopicList", "watchTopicListClose", "send", "close_producer",
    "flow", "ack", "redeliverUnacknowledgedMessages", "seek", "getLastMessageId", "consumerStats",
    "close_consumer", "getSchema", "tcClientConnectRequest", "newTxn", "addPartitionToTxn",
    "addSubscriptionToTxn", "endTxn",
}  # fmt: skip
READS_BY_POST = {subjects.look_up, subjects.test_all, subjects.test_one}


def read_path(path: str) -> str:
    return re.sub(r"\{(\w+)(:\w+)?\}", lambda found: VALUES.get(found[1], "1"), path)


def send(app: Any, method: str, path: str) -> tuple[httpx.Response, list[dict[str, object]]]:
    """Return the response, and the lines of the audit log."""
    lines: list[dict[str, object]] = []
    audit = AuditLog(lines.append, lambda: 0)
    access = ClientAccess(ALLOW_ALL, audit, protocol="http", host="192.0.2.7")

    async def request() -> httpx.Response:
        transport = httpx.ASGITransport(with_access(app, access))
        async with httpx.AsyncClient(transport=transport, base_url="http://node") as client:
            return await client.request(method, path, content=b"{}")

    return asyncio.run(request()), lines


def stub(route: Any) -> Any:
    """Return a route whose handler does nothing."""

    @functools.wraps(route.handler)
    def handle(_request: object) -> object:
        return {}

    return msgspec.structs.replace(route, handler=handle)


def test_each_pulsar_command_has_a_row():
    assert {row.field for row in COMMANDS} == PULSAR_ACTS | PULSAR_DATA
    assert not PULSAR_ACTS & PULSAR_DATA


def test_no_tubemq_method_is_an_administrative_act():
    for method in (*MASTER, *BROKER):
        is_data = method.operation in {Operation.READ, Operation.WRITE}
        assert is_data or method.handler is refuse_broker, method


def test_each_change_of_pulsars_administration_is_one_line(monkeypatch: pytest.MonkeyPatch):
    routes = [stub(each) for each in pulsar_routes.all_routes() if "{rest" not in each.path]
    monkeypatch.setattr(pulsar_routes, "all_routes", lambda: routes)
    gateway: Any = SimpleNamespace(
        broker=SimpleNamespace(
            cluster=SimpleNamespace(find_topic=lambda _name: None),
            namespaces=SimpleNamespace(exists=lambda _name: False),
        ),
        catch_up=None,
    )
    app = pulsar_routes.build_pulsar_app(gateway)
    count = 0
    for route in routes:
        for method in route.methods.split():
            response, lines = send(app, method, read_path(route.path))
            assert response.is_success, (method, route.path, response.text)
            if method in {"GET", "HEAD"}:
                assert lines == []
            else:
                count += 1
                [line] = lines
                assert (line["event"], line["address"]) == ("done", "192.0.2.7")
                assert str(line["resource"]).startswith(route.resource.value)
    assert count > 100


def test_each_change_of_schemas_is_one_line(monkeypatch: pytest.MonkeyPatch):
    known = registry_routes.all_routes()
    monkeypatch.setattr(registry_routes.RegistryRequest, "check_scope", lambda *_: None)
    for route in known:
        is_read = route.method == "GET" or route.handler in READS_BY_POST
        made = stub(route)
        monkeypatch.setattr(registry_routes, "all_routes", lambda made=made: [made])
        if route.handler is subjects.register:
            monkeypatch.setattr(subjects, "register", made.handler)
        app = registry_routes.build_registry_app(SimpleNamespace(catch_up=None))  # type: ignore[arg-type]
        path = registry_routes.ROOT + read_path(route.path)
        response, lines = send(app, route.method, path)
        assert response.is_success, (route, response.text)
        assert [line["event"] for line in lines] == ([] if is_read else ["done"]), route


def test_each_change_of_tubemqs_web_api_is_one_line(monkeypatch: pytest.MonkeyPatch):
    cluster = Resource(*CLUSTER)
    monkeypatch.setattr(web_routes, "_named_resources", lambda *_: [cluster])
    monkeypatch.setattr(web_routes, "_find_master", lambda *_: "")
    for method in web_routes.TABLE.values():
        made = msgspec.structs.replace(method, handler=lambda _request: master_response([]))
        monkeypatch.setattr(web_routes, "TABLE", {method.name: made})
        app = web_routes.build_tubemq_app(SimpleNamespace(), "token")  # type: ignore[arg-type]
        path = (
            f"/webapi.htm?method={method.name}&confModAuthToken=token&createUser=ann&modifyUser=ann"
        )
        response, lines = send(app, "POST", path)
        assert response.json()["result"], (method, response.text)
        assert [line["operation"] for line in lines] == [method.name] * method.changes


class Order(Record):  # type: ignore[misc]
    """A message."""

    name = String()


@pytest.fixture
def node(tmp_path: Any) -> Iterator[LiveNode]:
    with LiveNode(tmp_path, {}, ("pulsar",)) as made:
        yield made


def test_acts_of_a_pulsar_client(node: LiveNode):
    """A schema that is new, by producer and consumer, and a subscription that is deleted."""
    node.make_topic("audited")
    node.make_topic("consumed")
    client = pulsar.Client(f"pulsar://{node.doors['pulsar']}")
    try:
        for _ in range(2):  # the second time it is known
            client.create_producer("audited", schema=JsonSchema(Order)).close()
        consumer = client.subscribe("audited", "s", schema=JsonSchema(Order))
        consumer.unsubscribe()
        client.create_reader("audited", pulsar.MessageId.earliest).close()
        client.subscribe("consumed", "s", schema=JsonSchema(Order)).close()
    finally:
        client.close()

    lines = [json.loads(line) for line in node.audit_log.read_text().splitlines()]
    assert all(line["event"] == "done" and line["protocol"] == "pulsar" for line in lines), lines
    assert all(line["address"] == "127.0.0.1" and line["principal"] for line in lines), lines
    assert [(line["operation"], line["resource"]) for line in lines] == [
        ("add schema", "topic public/default/audited"),
        ("delete subscription", "topic public/default/audited"),
        ("add schema", "topic public/default/consumed"),
    ]
