"""Kafka Streams, unmodified, counts words on our broker: its topics, its groups, its restarts.

At least once (exactly once wants transactions). Every count is compared with Python's own.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from tests.brokers import Broker
from tests.conformance.clients import DEADLINE, IN_PROCESS, Record
from tests.conformance.clients.kafka_apps import WordCount, wait
from tests.conformance.raw import EARLIEST, list_offset

VERSIONS = ["3.9.1", "4.3.1"]
PARTITIONS = 2
INPUT, OUTPUT = "lines", "counted"
REPARTITION = "app-words-repartition"
CHANGELOG = "app-counts-changelog"
WORDS = [f"word{number}" for number in range(60)]

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]


class Lines:
    """Lines of words that are the same in every run, and how often each word is in them."""

    def __init__(self) -> None:
        self.random = random.Random(7)
        self.counts: Counter[str] = Counter()

    def records(self, count: int) -> list[Record]:
        made = []
        for number in range(count):
            words = self.random.choices(WORDS, k=8)
            self.counts.update(words)
            made.append(Record(b"line-%d" % number, " ".join(words).encode()))
        return made


def make_topics(address: str) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": address, "log_level": 2})
    new = [NewTopic(INPUT, PARTITIONS, 1), NewTopic(OUTPUT, PARTITIONS, 1)]
    for made in admin.create_topics(new).values():
        made.result(DEADLINE)
    return admin


def app_settings(broker: Broker, root: Path, **settings: object) -> dict[str, object]:
    return {
        "application.id": "app",
        "bootstrap.servers": broker.address,
        "state.dir": root / "state",
        "commit.interval.ms": 100,
        "repartition.purge.interval.ms": 100,
        "replication.factor": 1,
        "statestore.cache.max.bytes": 0,
        "session.timeout.ms": 6000,  # a member that closes does not leave: it may be restarted
        **{name.replace("__", "."): value for name, value in settings.items()},
    }


def streams(broker: Broker, root: Path, version: str = "3.9.1", **settings: object) -> WordCount:
    chosen = app_settings(broker, root, **settings)
    return WordCount(root / "app", version, (INPUT, OUTPUT), chosen)


def write(broker: Broker, records: list[Record]) -> None:
    IN_PROCESS[0].write(broker.address, INPUT, records)


def last_counts(address: str) -> dict[str, int]:
    """The last value of each word in the output topic."""
    reader = Consumer({"bootstrap.servers": address, "group.id": "reader", "log_level": 2})
    last: dict[str, int] = {}
    try:
        for partition in range(PARTITIONS):
            place = TopicPartition(OUTPUT, partition, 0)
            left = reader.get_watermark_offsets(place, DEADLINE)[1]
            reader.assign([place])
            while place.offset < left:
                for record in reader.consume(1000, 0.2):
                    assert record.error() is None
                    last[record.key().decode()] = int.from_bytes(record.value(), "big")
                    place.offset = record.offset() + 1
        return last
    finally:
        reader.close()


def counted(address: str, lines: Lines) -> None:
    """Wait until the output topic has the counts that Python computed."""
    wanted = sum(lines.counts.values())
    wait(f"{wanted} words", lambda: sum(last_counts(address).values()) >= wanted)
    assert last_counts(address) == lines.counts


@pytest.mark.parametrize(
    "version", [VERSIONS[0], pytest.param(VERSIONS[1], marks=pytest.mark.long)]
)
def test_words_are_counted_as_python_counts_them(own_broker: Broker, tmp_path: Path, version: str):
    admin = make_topics(own_broker.address)
    lines = Lines()
    write(own_broker, lines.records(500))

    with streams(own_broker, tmp_path, version, group__protocol="classic") as app:
        counted(own_broker.address, lines)
        assert app.counts() == lines.counts

        app.wait_for("state RUNNING")
        topics = admin.list_topics(timeout=DEADLINE).topics
        assert len(topics[REPARTITION].partitions) == PARTITIONS
        assert len(topics[CHANGELOG].partitions) == PARTITIONS
        assert policy(admin, CHANGELOG) == "compact"
        assert policy(admin, REPARTITION) == "delete"
        wait("what was read of the repartition topic is deleted", lambda: purged(own_broker))
        app.close()


def policy(admin: AdminClient, topic: str) -> str:
    (resource,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    return resource.result(DEADLINE)["cleanup.policy"].value


def purged(broker: Broker) -> bool:
    """As Streams does with DeleteRecords."""
    return all(
        list_offset(broker.address, REPARTITION, partition, EARLIEST) > 0
        for partition in range(PARTITIONS)
    )


@pytest.mark.long
@pytest.mark.parametrize("version", VERSIONS)
def test_a_store_comes_back_from_its_changelog(own_broker: Broker, tmp_path: Path, version: str):
    make_topics(own_broker.address)
    lines = Lines()
    write(own_broker, lines.records(300))
    with streams(own_broker, tmp_path, version) as app:
        counted(own_broker.address, lines)
        app.close()

    shutil.rmtree(tmp_path / "state")
    write(own_broker, lines.records(300))
    with streams(own_broker, tmp_path, version) as app:
        counted(own_broker.address, lines)
        assert app.counts() == lines.counts
        app.close()


@pytest.mark.long
@pytest.mark.parametrize("version", VERSIONS)
def test_counts_go_on_over_a_kill_of_the_server(own_broker: Broker, tmp_path: Path, version: str):
    """The application lives on. At least once: what was not committed may be counted again."""
    make_topics(own_broker.address)
    lines = Lines()
    with streams(own_broker, tmp_path, version) as app:
        for _ in range(2):
            write(own_broker, lines.records(2000))
            wait("some words", lambda: last_counts(own_broker.address))
            own_broker.kill9()
            own_broker.start()
            write(own_broker, lines.records(500))
            wait("all words", lambda: reached(last_counts(own_broker.address), lines.counts))
        wait("the store", lambda: app.counts() == last_counts(own_broker.address))
        app.close()


@pytest.mark.long
@pytest.mark.parametrize("version", VERSIONS)
def test_an_application_that_was_killed_loses_no_word(
    own_broker: Broker, tmp_path: Path, version: str
):
    """At least once: what was not committed is counted again, and nothing is left out."""
    make_topics(own_broker.address)
    lines = Lines()
    write(own_broker, lines.records(1000))
    with streams(own_broker, tmp_path, version) as app:
        wait("some words", lambda: last_counts(own_broker.address))
        app.kill9()

    write(own_broker, lines.records(500))
    wanted = lines.counts
    with streams(own_broker, tmp_path, version) as app:
        wait("all words", lambda: reached(last_counts(own_broker.address), wanted))
        app.close()


def reached(counts: dict[str, int], wanted: Counter[str]) -> bool:
    return all(counts.get(word, 0) >= count for word, count in wanted.items())


@pytest.mark.long
def test_two_applications_share_the_partitions(own_broker: Broker, tmp_path: Path):
    make_topics(own_broker.address)
    lines = Lines()
    write(own_broker, lines.records(300))
    with streams(own_broker, tmp_path / "one") as one:
        counted(own_broker.address, lines)
        with streams(own_broker, tmp_path / "two") as two:
            two.wait_for("state RUNNING")
            write(own_broker, lines.records(300))
            counted(own_broker.address, lines)
            two.close()
        write(own_broker, lines.records(300))
        counted(own_broker.address, lines)
        one.wait_for("state RUNNING")
        one.close()
