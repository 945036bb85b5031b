"""How long messages stay, seen by Pulsar's and Kafka's own clients: docs/reference/retention.md."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pulsar
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from tests.brokers import TrilogueForPulsar
from tests.conformance.pulsar.pulsar_admin import Admin
from tests.waiting import wait_until

WITHIN_S = 90.0
SHORT = {
    "journal.file-age": "100ms",
    "retention.check-every": "200ms",
    "subscriptions.check-every": "200ms",
    "segments.grace": "200ms",
}
NAMESPACE = "namespaces/public/default"
EARLIEST = pulsar.InitialPosition.Earliest


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrilogueForPulsar]:
    made = TrilogueForPulsar(tmp_path_factory.mktemp("retention") / "data", SHORT)
    made.start()
    yield made
    made.kill9()


@pytest.fixture
def admin(server: TrilogueForPulsar) -> Admin:
    return Admin(server.http)


@contextmanager
def connected(server: TrilogueForPulsar) -> Iterator[pulsar.Client]:
    opened = pulsar.Client(
        f"pulsar://{server.address}", logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    )
    try:
        yield opened
    finally:
        opened.close()


def policy(admin: Admin, topic: str, name: str, value: object) -> None:
    admin.request("POST", f"{admin.path(topic)}/{name}", value)


def send(opened: pulsar.Client, topic: str, count: int, size: int = 10) -> None:
    producer = opened.create_producer(topic)
    for _ in range(count):
        producer.send(bytes(size))
    producer.close()


def subscribe(opened: pulsar.Client, topic: str) -> pulsar.Consumer:
    return opened.subscribe(topic, "s", initial_position=EARLIEST)


def backlog(admin: Admin, topic: str) -> int:
    return admin.stats(topic)["subscriptions"]["s"]["msgBacklog"]


def offsets(server: TrilogueForPulsar, topic: str) -> tuple[int, int]:
    """The first offset there is and the next one, as Kafka clients see them."""
    consumer = Consumer({"bootstrap.servers": server.doors["kafka"], "group.id": "g"})
    try:
        return consumer.get_watermark_offsets(TopicPartition(topic, 0), 10)
    finally:
        consumer.close()


def test_unacked_messages_expire_and_stay_for_others(server: TrilogueForPulsar, admin: Admin):
    with connected(server) as opened:
        consumer = subscribe(opened, "ttl")
        send(opened, "ttl", 5)
        assert backlog(admin, "ttl") == 5
        policy(admin, "ttl", "messageTTL", 1)
        wait_until(lambda: backlog(admin, "ttl") == 0, "expiry")
        policy(admin, "ttl", "messageTTL", 1_000)
        send(opened, "ttl", 1)  # the consumer that was there goes on with what came later
        seen = [consumer.receive(60_000).message_id().entry_id()]
        while seen[-1] < 5:  # it has the expired ones in its own queue
            seen.append(consumer.receive(60_000).message_id().entry_id())
    assert offsets(server, "ttl") == (0, 6)


def test_acks_alone_delete_nothing_and_a_policy_of_zero_does(
    server: TrilogueForPulsar, admin: Admin
):
    with connected(server) as opened:
        consumer = subscribe(opened, "acked")
        send(opened, "acked", 10)
        messages = [consumer.receive(60_000) for _ in range(10)]
        for message in messages[:9]:
            consumer.acknowledge(message)
        wait_until(lambda: backlog(admin, "acked") == 1, "acks")
        policy(admin, "acked", "retention", {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0})
        send(opened, "other", 1)
        flushes = server.output.count("flush.done")
        send(opened, "other", 1)
        wait_until(lambda: server.output.count("flush.done") > flushes, "a flush")
        start, end = offsets(server, "acked")
        assert start <= 9 < end == 10  # the one that is not acked, and its run
        consumer.acknowledge(messages[9])
        wait_until(lambda: offsets(server, "acked") == (10, 10), "retention")


def test_a_retention_of_kafka_acts_under_a_slow_subscription(
    server: TrilogueForPulsar, admin: Admin
):
    with connected(server) as opened:
        subscribe(opened, "shared")
        send(opened, "shared", 5)
        kafka = AdminClient({"bootstrap.servers": server.doors["kafka"]})
        change = ConfigResource(ResourceType.TOPIC, "shared", {"retention.ms": "500"})
        for done in kafka.alter_configs([change]).values():
            done.result(60)
        wait_until(lambda: offsets(server, "shared") == (5, 5), "retention")
        assert backlog(admin, "shared") == 0


@pytest.mark.parametrize("overflow", ["producer_request_hold", "producer_exception"])
def test_no_producer_begins_while_too_much_waits(
    server: TrilogueForPulsar, admin: Admin, overflow: str
):
    topic = f"quota-{overflow.replace('_', '-')}"
    with connected(server) as opened:
        consumer = subscribe(opened, topic)
        send(opened, topic, 10, size=1_000)
        policy(
            admin, topic, "backlogQuota?backlogQuotaType=destination_storage",
            {"limitSize": 5_000, "policy": overflow},
        )  # fmt: skip
        with pytest.raises(pulsar.PulsarException) as caught:
            pulsar.Client(
                f"pulsar://{server.address}",
                operation_timeout_seconds=2 if overflow == "producer_request_hold" else 60,
                logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
            ).create_producer(topic)
        assert "Quota" in str(caught.value) or overflow == "producer_request_hold"
        for _ in range(10):
            consumer.acknowledge(consumer.receive(60_000))
        wait_until(lambda: backlog(admin, topic) == 0, "acks")
        send(opened, topic, 1)


def test_a_quota_that_evicts_leaves_the_newest(server: TrilogueForPulsar, admin: Admin):
    with connected(server) as opened:
        subscribe(opened, "evicted").close()
        send(opened, "evicted", 10, size=1_000)
        policy(
            admin, "evicted", "backlogQuota?backlogQuotaType=destination_storage",
            {"limitSize": 6_000, "policy": "consumer_backlog_eviction"},
        )  # fmt: skip
        wait_until(lambda: backlog(admin, "evicted") < 10, "eviction")
        consumer = subscribe(opened, "evicted")
        first = consumer.receive(60_000).message_id().entry_id()
        assert first == 10 - backlog(admin, "evicted") == 6  # four of 1.1 kB are left of six


def test_trim_applies_retention_at_once(tmp_path: Path):
    settings = {"journal.file-age": "100ms", "retention.check-every": "1h"}
    server = TrilogueForPulsar(tmp_path / "data", settings)
    server.start()
    try:
        admin = Admin(server.http)
        admin.make("kept")
        admin.make("trimmed")
        policy(admin, "trimmed", "retention", {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0})
        with connected(server) as opened:
            for topic in ("kept", "trimmed"):
                send(opened, topic, 10)

        def is_trimmed() -> bool:
            for topic in ("kept", "trimmed"):
                admin.request("POST", f"{admin.path(topic)}/trim")
            return offsets(server, "trimmed") == (10, 10)

        wait_until(is_trimmed, "messages removed", WITHIN_S)
        assert offsets(server, "kept") == (0, 10)
    finally:
        server.kill9()
