"""Kafka Streams 4.3.1 with the streams protocol (KIP-1071), through restarts of both sides."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.brokers import Broker
from tests.conformance.clients import DEADLINE, IN_PROCESS, Record
from tests.conformance.clients.kafka_apps import ForeignKeyJoin, WordCount, wait
from tests.conformance.clients.kafka_tools import TOOLS_4
from tests.conformance.kafka.programs.test_streams import (
    CHANGELOG,
    PARTITIONS,
    REPARTITION,
    Lines,
    app_settings,
    counted,
    last_counts,
    make_topics,
    reached,
    streams,
    write,
)

GROUPS = "org.apache.kafka.tools.streams.StreamsGroupCommand"
STREAMS = {"group__protocol": "streams"}

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]


def app(broker: Broker, root: Path, **settings: object) -> WordCount:
    return streams(broker, root, "4.3.1", **STREAMS, **settings)


def tool(address: str, *words: str) -> str:
    got = TOOLS_4.run(GROUPS, "--bootstrap-server", address, *words)
    assert got.status == 0, got.text
    return got.text


def test_words_are_counted_by_a_streams_group(own_broker: Broker, tmp_path: Path):
    admin = make_topics(own_broker.address)
    lines = Lines()
    write(own_broker, lines.records(500))

    with app(own_broker, tmp_path) as one:
        counted(own_broker.address, lines)
        one.wait_for("state RUNNING")
        assert "Stable" in tool(own_broker.address, "--describe", "--group", "app", "--state")
        members = tool(own_broker.address, "--describe", "--group", "app", "--members")
        assert "ACTIVE" in members
        offsets = tool(own_broker.address, "--describe", "--group", "app", "--offsets")
        assert REPARTITION in offsets
        one.close()

    topics = admin.list_topics(timeout=DEADLINE).topics
    assert len(topics[REPARTITION].partitions) == PARTITIONS
    assert len(topics[CHANGELOG].partitions) == PARTITIONS
    assert "app" in tool(own_broker.address, "--list")
    tool(own_broker.address, "--delete", "--group", "app")
    assert "app" not in tool(own_broker.address, "--list")


@pytest.mark.long
def test_two_applications_count_on_through_a_kill_of_the_server_and_of_one(
    own_broker: Broker, tmp_path: Path
):
    """At least once: what was not committed may be counted again."""
    make_topics(own_broker.address)
    lines = Lines()
    write(own_broker, lines.records(500))
    with app(own_broker, tmp_path / "one") as one, app(own_broker, tmp_path / "two") as two:
        counted(own_broker.address, lines)
        wait("both", lambda: one.counts() and two.counts())
        assert not one.counts().keys() & two.counts().keys()
        own_broker.kill9()
        own_broker.start()
        write(own_broker, lines.records(500))
        wait("all words", lambda: reached(last_counts(own_broker.address), lines.counts))
        two.kill9()
        write(own_broker, lines.records(500))
        wait("all words", lambda: reached(last_counts(own_broker.address), lines.counts))
        wait("the store", lambda: one.counts() == last_counts(own_broker.address))
        assert "failed" not in one.output
        one.close()


@pytest.mark.long
def test_tables_are_joined_by_a_foreign_key(own_broker: Broker, tmp_path: Path):
    """One partition of customers: librdkafka's partitioner is not the one of Streams."""
    admin = AdminClient({"bootstrap.servers": own_broker.address, "log_level": 2})
    new = [NewTopic("orders", 3, 1), NewTopic("customers", 1, 1), NewTopic("joined", 1, 1)]
    for made in admin.create_topics(new).values():
        made.result(DEADLINE)
    customers = [Record(b"c%d" % n, b"name%d" % n) for n in range(5)]
    orders = [Record(b"o%d" % n, b"c%d:order%d" % (n % 5, n)) for n in range(40)]
    IN_PROCESS[0].write(own_broker.address, "customers", customers)
    IN_PROCESS[0].write(own_broker.address, "orders", orders)
    wanted = {f"o{n}": f"order{n}/name{n % 5}" for n in range(40)}

    chosen = app_settings(own_broker, tmp_path, **STREAMS)
    with ForeignKeyJoin(tmp_path / "app", "4.3.1", ("orders,customers", "joined"), chosen) as join:
        wait("all orders", lambda: last_values(own_broker.address) == wanted)
        IN_PROCESS[0].write(own_broker.address, "customers", [Record(b"c1", b"other")])
        wanted |= {f"o{n}": f"order{n}/other" for n in range(1, 40, 5)}
        wait("the other name", lambda: last_values(own_broker.address) == wanted)
        join.close()


def last_values(address: str) -> dict[str, str]:
    reader = Consumer({"bootstrap.servers": address, "group.id": "reader", "log_level": 2})
    try:
        place = TopicPartition("joined", 0, 0)
        end = reader.get_watermark_offsets(place, DEADLINE)[1]
        reader.assign([place])
        found: dict[str, str] = {}
        while place.offset < end:
            for record in reader.consume(1000, 0.2):
                found[record.key().decode()] = record.value().decode()
                place.offset = record.offset() + 1
        return found
    finally:
        reader.close()
