"""Policies set over HTTP and their effect on clients; the table of policies and its tests."""

from __future__ import annotations

import datetime as dt
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pulsar
import pytest

from tests.gateway.http.admin_client import Admin
from tests.waiting import wait_until
from trilogue.broker.topics.policies import POLICIES

TESTS = Path(__file__).resolve().parents[3]
SHARED, EXCLUSIVE = pulsar.ConsumerType.Shared, pulsar.ConsumerType.Exclusive
FAILOVER = pulsar.ConsumerType.Failover
SILENCE_MS = 300


def test_every_policy_that_is_served_has_a_test_and_the_others_a_reason():
    """What is accepted is enforced."""
    texts = [path.read_text() for path in TESTS.rglob("test_*.py")]
    known = {
        name
        for text in texts
        for name in re.findall(r"^(?:async )?def (test_\w+)", text, re.MULTILINE)
    }

    for row in POLICIES.values():
        assert bool(row.levels) != bool(row.refused), row.name
        assert row.refused or row.test in known, row.name


@pytest.fixture(scope="module")
def client(admin: Admin) -> Iterator[pulsar.Client]:
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    url = f"pulsar://{admin.server.doors['pulsar']}"
    made = pulsar.Client(url, operation_timeout_seconds=2, logger=quiet)
    yield made
    made.close()


@pytest.fixture
def topic(admin: Admin, request: pytest.FixtureRequest) -> str:
    """A topic in the test's own namespace."""
    name = f"{admin.namespace(request.node.name[-60:])}/t"
    admin.do("PUT", f"persistent/{name}")
    return name


def write(client: pulsar.Client, topic: str, count: int) -> None:
    producer = client.create_producer(f"persistent://{topic}", batching_enabled=False)
    for number in range(count):
        producer.send(b"%d" % number)
    producer.close()


def received(consumer: pulsar.Consumer) -> list[pulsar.Message]:
    """Return all messages until none arrives."""
    found = []
    try:
        while True:
            found.append(consumer.receive(SILENCE_MS))
    except pulsar.Timeout:
        return found


def receive_many(consumer: pulsar.Consumer, count: int) -> list[pulsar.Message]:
    return [consumer.receive(60_000) for _ in range(count)]


def test_a_consumer_with_too_much_unacked_waits(admin: Admin, client: pulsar.Client, topic: str):
    admin.do("POST", f"persistent/{topic}/maxUnackedMessagesOnConsumer", 2)
    consumer = client.subscribe(topic, "s", SHARED)
    write(client, topic, 5)

    first = receive_many(consumer, 2)
    assert received(consumer) == []
    for message in first:
        consumer.acknowledge(message)
    receive_many(consumer, 2)
    assert received(consumer) == []
    admin.do("POST", f"persistent/{topic}/maxUnackedMessagesOnConsumer", 0)
    receive_many(consumer, 1)
    assert received(consumer) == []
    consumer.close()


def test_a_subscription_with_too_much_unacked_waits(
    admin: Admin, client: pulsar.Client, topic: str
):
    home = topic.removesuffix("/t")
    admin.do("POST", f"namespaces/{home}/maxUnackedMessagesPerSubscription", 3)
    consumers = [client.subscribe(topic, "s", SHARED) for _ in range(2)]
    write(client, topic, 8)

    def describe() -> dict[str, object]:
        return admin.get(f"persistent/{topic}/stats")["subscriptions"]["s"]

    wait_until(lambda: describe()["blockedSubscriptionOnUnackedMsgs"] is True)
    first = [message for each in consumers for message in received(each)]
    unacked = describe()["unackedMessages"]

    assert 3 <= unacked < 8
    assert len(first) <= unacked
    for consumer in consumers:
        consumer.close()


def test_consumers_of_a_topic_are_limited(admin: Admin, client: pulsar.Client, topic: str):
    admin.do("POST", f"persistent/{topic}/maxConsumers", 2)
    consumers = [client.subscribe(topic, name) for name in ("a", "b")]

    with pytest.raises(pulsar.PulsarException):
        client.subscribe(topic, "c")

    for consumer in consumers:
        consumer.close()


def test_consumers_of_a_subscription_are_limited(admin: Admin, client: pulsar.Client, topic: str):
    admin.do("POST", f"persistent/{topic}/maxConsumersPerSubscription", 1)
    consumers = [client.subscribe(topic, name, SHARED) for name in ("a", "b")]

    with pytest.raises(pulsar.PulsarException):
        client.subscribe(topic, "a", SHARED)

    for consumer in consumers:
        consumer.close()


def test_subscriptions_of_a_topic_are_limited(admin: Admin, client: pulsar.Client, topic: str):
    admin.do("POST", f"persistent/{topic}/maxSubscriptionsPerTopic", 1)
    client.subscribe(topic, "a").close()

    with pytest.raises(pulsar.PulsarException):
        client.subscribe(topic, "b")
    assert admin("PUT", f"persistent/{topic}/subscription/b") == (
        412,
        {"reason": "Exceed the maximum number of subscriptions of the topic: 1"},
    )
    client.subscribe(topic, "a").close()


def test_types_of_subscriptions_that_are_not_enabled_are_refused(
    admin: Admin, client: pulsar.Client, topic: str
):
    admin.do("POST", f"persistent/{topic}/subscriptionTypesEnabled", ["Shared", "Failover"])

    with pytest.raises(pulsar.PulsarException):
        client.subscribe(topic, "s", EXCLUSIVE)
    client.subscribe(topic, "s", FAILOVER).close()


def test_a_subscription_is_made_by_mentioning_it_only_where_allowed(
    admin: Admin, client: pulsar.Client, topic: str
):
    no = {"allowAutoSubscriptionCreation": False}
    admin.do("POST", f"persistent/{topic}/autoSubscriptionCreation", no)

    with pytest.raises(pulsar.PulsarException):
        client.subscribe(topic, "s")
    admin.do("PUT", f"persistent/{topic}/subscription/s")
    client.subscribe(topic, "s").close()


def test_a_message_waits_for_its_time(admin: Admin, client: pulsar.Client, topic: str):
    """Where delayed delivery is disabled it is delivered at once."""
    consumer = client.subscribe(topic, "s", SHARED)
    producer = client.create_producer(f"persistent://{topic}")
    began = time.monotonic()
    producer.send(b"later", deliver_after=dt.timedelta(milliseconds=700))
    consumer.receive(60_000)
    took_s = time.monotonic() - began
    admin.do("POST", f"persistent/{topic}/delayedDelivery", {"active": False, "tickTime": 1000})
    producer.send(b"now", deliver_after=dt.timedelta(hours=1))

    assert took_s >= 0.6
    assert consumer.receive(60_000).data() == b"now"
    producer.close()
    consumer.close()


def test_numbers_may_be_texts(admin: Admin):
    """Go's suite sends them, and a real broker takes them."""
    path = "/admin/v2/namespaces/public/default/backlogQuota"
    quota = {"limit": "10240", "policy": "producer_request_hold"}

    assert admin("POST", path, quota)[0] == 204

    stored = admin.get("/admin/v2/namespaces/public/default/backlogQuotaMap")
    assert stored["destination_storage"]["limitSize"] == 10_240
    assert admin("POST", path, quota | {"limit": "many"})[0] in {400, 412}
    admin("DELETE", path)
