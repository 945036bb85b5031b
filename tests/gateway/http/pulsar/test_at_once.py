"""Concurrent changes by two administrators, limits on what a topic stores, and headers."""

from __future__ import annotations

import asyncio
import json

import httpx
import pulsar
import pytest

from tests.gateway.http.admin_client import V2, Admin

SIZE = {"limitSize": 9, "policy": "producer_exception"}
AGE = {"limitTime": 9, "policy": "producer_exception"}


@pytest.fixture
def name(admin: Admin, request: pytest.FixtureRequest) -> str:
    return admin.namespace(request.node.name[-60:].replace("[", "-").replace("]", ""))


@pytest.mark.parametrize("kind", ["namespaces", "persistent"])
def test_concurrent_changes_of_two_backlog_quotas_both_apply(
    admin: Admin, name: str, kind: str
) -> None:
    path = f"{V2}/{kind}/{name}"
    if kind == "persistent":
        path += "/t"
        admin.do("PUT", path)

    async def at_once() -> list[httpx.Response]:
        size, age = json.dumps(SIZE), json.dumps(AGE)
        async with httpx.AsyncClient(base_url=admin.client.base_url, timeout=60) as client:
            return await asyncio.gather(
                client.post(f"{path}/backlogQuota", content=size),
                client.post(f"{path}/backlogQuota?backlogQuotaType=message_age", content=age),
            )

    for _ in range(5):
        assert [each.status_code for each in asyncio.run(at_once())] == [204, 204]
        assert set(admin.get(f"{path}/backlogQuotaMap")) == {"destination_storage", "message_age"}
        for one in ("destination_storage", "message_age"):
            admin.do("DELETE", f"{path}/backlogQuota?backlogQuotaType={one}")


def test_size_of_topic_properties_is_limited(admin: Admin, name: str) -> None:
    path = f"persistent/{name}/t"
    admin.do("PUT", path)
    admin.do("PUT", f"{path}/properties", {"a": "x" * 700_000})

    status, response = admin("PUT", f"{path}/properties", {"b": "x" * 700_000})

    assert (status, response) == (412, {"reason": "at most 1048576 bytes are kept"})
    assert list(admin.get(f"{path}/properties")) == ["a"]


def test_properties_in_a_header_are_json_whatever_is_in_them(admin: Admin, name: str) -> None:
    """A real broker's header is JSON; it has to stay on one line, in ASCII."""
    texts = {"quote": 'a"b', "slash": "a\\b", "größe": "ü\u2028", "line": "a\r\nx: y"}
    url = f"pulsar://{admin.server.doors['pulsar']}"
    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = client.create_producer(f"persistent://{name}/t")
    producer.send(b"x", properties=texts, partition_key="back\\slash", event_timestamp=2**63)
    client.close()

    answer = admin.request("GET", f"persistent/{name}/t/examinemessage")

    assert json.loads(answer.headers["X-Pulsar-PROPERTY"]) == texts
    assert answer.headers["X-Pulsar-partition-key"] == "back\\slash"
    assert answer.headers["X-Pulsar-event-time"] == "9999-12-31T23:59:59.000Z"
