"""The same random operations of librdkafka here and at a real Kafka 4.3.1: the same answers.

A history creates a topic and produces, in and outside of transactions, deletes records, lists
offsets, reads, changes settings and partitions, and writes offsets of a group. Each answer is
compared: offsets, records, errors. `TRILOGUE_MODEL_SEED` and `TRILOGUE_HISTORIES` choose others.

Left out, since two servers cannot agree there: times that a server gives, `segment.bytes` (a real
one wants 1 MiB since 4.0), MAX_TIMESTAMP after records were deleted (a real one names a record that
is gone), `min.insync.replicas` (a new cluster of 4.3 has a dynamic default).
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from tools.servers.kafka import RealKafka

from tests.server import start_server
from tests.tools import require_jars
from tests.waiting import wait_until

pytestmark = [pytest.mark.java, pytest.mark.long, pytest.mark.timeout(1_800)]

VERSION: Final = "4.3.1"
LIMIT_S: Final = 90.0
RECORDS_MAX: Final = 100
CHANGES: Final = [
    ("retention.ms", "5000000"), ("retention.ms", "x"), ("cleanup.policy", "compact"),
    ("cleanup.policy", "delete"), ("cleanup.policy", "foo"), ("compression.type", "zstd"),
    ("compression.type", "zip"), ("delete.retention.ms", "-5"), ("max.message.bytes", "100000"),
    ("nonsense", "1"), ("unclean.leader.election.enable", "maybe"), ("segment.ms", "0"),
    ("flush.messages", "0"),
]  # fmt: skip
Record = tuple[int, bytes | None, bytes | None, int, list[tuple[str, bytes | None]] | None]


def result(future: Future[Any]) -> Any:
    """Return the result of a request, or the name of its error."""
    try:
        return future.result(LIMIT_S)
    except KafkaException as problem:
        return problem.args[0].name()


class Side:
    """One server, and the clients of it."""

    def __init__(self, address: str) -> None:
        self.options = {"bootstrap.servers": address, "linger.ms": 30}
        self.admin = AdminClient({"bootstrap.servers": address})
        self.producer = Producer({**self.options, "enable.idempotence": True})

    def create(self, topic: str, partitions: int, settings: Mapping[str, str]) -> Any:
        asked = self.admin.create_topics([NewTopic(topic, partitions, 1, config=dict(settings))])
        return result(asked[topic])

    def knows(self, topic: str, partitions: int) -> bool:
        """Return whether the clients, which ask again only now, know that many partitions."""
        return all(
            len(client.list_topics(topic, LIMIT_S).topics[topic].partitions) == partitions
            for client in (self.admin, self.producer)
        )

    def produce(self, topic: str, records: list[Record], producer: Producer | None = None) -> Any:
        """Return each record's error, partition and offset."""
        found: list[tuple[str, int, int | None]] = []

        def note(error: Any, message: Any) -> None:
            found.append((error.name() if error else "", message.partition(), message.offset()))

        made = producer or self.producer
        for partition, key, value, time_ms, headers in records:
            made.produce(
                topic, value, key, partition, on_delivery=note, timestamp=time_ms, headers=headers
            )
        assert made.flush(LIMIT_S) == 0
        return sorted(found, key=str)

    def transact(self, topic: str, records: list[Record], *, commit: bool) -> Any:
        """Write in a transaction of a new producer; return offsets, and the error of the end."""
        made = Producer({**self.options, "transactional.id": f"of-{topic}"})
        made.init_transactions(LIMIT_S)
        made.begin_transaction()
        offsets = self.produce(topic, records, made)
        try:
            (made.commit_transaction if commit else made.abort_transaction)(LIMIT_S)
        except KafkaException as problem:
            made.abort_transaction(LIMIT_S)
            return offsets, problem.args[0].name()
        return offsets, ""

    def list_offsets(self, topic: str, partitions: int, spec: Any, isolation: Any) -> Any:
        asked = self.admin.list_offsets(
            {TopicPartition(topic, number): spec for number in range(partitions)},
            isolation_level=isolation,
        )
        rows = [result(asked[one]) for one in sorted(asked, key=lambda one: one.partition)]
        return [row if isinstance(row, str) else row.offset for row in rows]

    def delete_records(self, topic: str, partition: int, offset: int) -> Any:
        asked = self.admin.delete_records([TopicPartition(topic, partition, offset)])
        rows = [result(each) for each in asked.values()]
        return [row if isinstance(row, str) else row.low_watermark for row in rows]

    def read(self, topic: str, partition: int, start: int, isolation: str) -> Any:
        """Return the records from an offset to the end, and how it ended."""
        consumer = Consumer(
            {
                **self.options,
                "group.id": "reader",
                "isolation.level": isolation,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
            }
        )
        consumer.assign([TopicPartition(topic, partition, start)])
        found: list[object] = []
        while len(found) < RECORDS_MAX:
            message = consumer.poll(LIMIT_S)
            if message is None or message.error():
                found.append(message and message.error().name())
                break
            content = message.key(), message.value(), message.timestamp(), message.headers()
            found.append((message.offset(), *content))
        consumer.close()
        return found

    def change(self, topic: str, key: str, value: str, operation: AlterConfigOpType) -> Any:
        entry = ConfigEntry(key, value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        (changed,) = self.admin.incremental_alter_configs([resource]).values()
        return result(changed)

    def describe(self, topic: str, key: str) -> Any:
        """Return a setting, its source, and whether it is a default."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        (described,) = self.admin.describe_configs([resource]).values()
        after = result(described).get(key)
        return after and (after.value, after.source, after.is_default)

    def add_partitions(self, topic: str, count: int) -> Any:
        return result(self.admin.create_partitions([NewPartitions(topic, count)])[topic])

    def commit(self, group: str, places: list[TopicPartition]) -> Any:
        """Return the answer to a change of a group's offsets, and its offsets after it."""
        admin = self.admin
        asked = [ConsumerGroupTopicPartitions(group, places)]
        changed = self._rows(admin.alter_consumer_group_offsets(asked)[group])
        listed = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
        return changed, self._rows(listed[group])

    @staticmethod
    def _rows(future: Future[Any]) -> Any:
        found = result(future)
        if isinstance(found, str):
            return found
        return sorted(
            (one.partition, one.offset, one.error.name() if one.error else "")
            for one in found.topic_partitions
        )

    def delete_group(self, group: str) -> Any:
        return result(self.admin.delete_consumer_groups([group])[group])


class Comparison:
    """One topic at both servers."""

    def __init__(self, sides: list[Side], seed: int) -> None:
        self.sides = sides
        self.chance = random.Random(seed)
        self.topic = f"t{seed}"
        self.group = f"g{seed}"
        self.partitions = self.chance.randint(1, 3)
        self.now_ms = time.time_ns() // 1_000_000
        self.has_deleted = False
        self.trace: list[tuple[str, object]] = []

    def both(self, what: str, do: Callable[[Side], Any]) -> Any:
        """Do it at both; AssertionError where the answers differ."""
        real, ours = (do(side) for side in self.sides)
        self.trace.append((what, real))
        assert ours == real, f"{self.topic}: {what} after {self.trace[-6:-1]}"
        return real

    def run(self, steps: int) -> None:
        settings = self.choose_settings()
        made = self.both("create", lambda side: side.create(self.topic, self.partitions, settings))
        if made is not None:
            return
        self.wait_for_leaders()
        operations = [
            self.produce, self.produce, self.transact, self.transact, self.list_offsets,
            self.list_offsets, self.delete_records, self.read, self.read, self.change,
            self.change, self.add_partitions, self.commit, self.delete_group,
        ]  # fmt: skip
        for _ in range(steps):
            self.chance.choice(operations)()

    def choose_settings(self) -> dict[str, str]:
        chance, settings = self.chance, dict[str, str]()
        if chance.random() < 0.3:
            settings["cleanup.policy"] = chance.choice(["compact", "delete", "compact,delete"])
        if chance.random() < 0.3:
            settings["max.message.bytes"] = chance.choice(["1000", "2000000", "-1", "abc"])
        if chance.random() < 0.1:
            settings["nonsense"] = "1"
        return settings

    def wait_for_leaders(self) -> None:
        """Wait until a real broker, which takes a while, leads each partition for its clients."""
        spec, isolation = OffsetSpec.latest(), IsolationLevel.READ_COMMITTED
        for side in self.sides:
            wait_until(lambda side=side: side.knows(self.topic, self.partitions), "its leaders")
            wait_until(
                lambda side=side: (
                    not any(
                        isinstance(each, str)
                        for each in side.list_offsets(self.topic, self.partitions, spec, isolation)
                    )
                ),
                "offsets",
            )

    def records(self) -> list[Record]:
        """One partition's: the order in which batches of several leave is the client's."""
        chance, partition = self.chance, self.chance.randrange(self.partitions)
        headers = [None, [], [("h", b"1"), ("h", None)]]
        return [
            (
                partition,
                chance.choice([None, b"", b"a", b"b", b"c"]),
                chance.choice([None, b"", chance.randbytes(50), chance.randbytes(700)]),
                self.now_ms - chance.randrange(100_000),
                chance.choice(headers),
            )
            for _ in range(chance.randint(1, 6))
        ]

    def produce(self) -> None:
        records = self.records()
        self.both("produce", lambda side: side.produce(self.topic, records))

    def transact(self) -> None:
        records, commit = self.records(), self.chance.random() < 0.6
        self.both("transact", lambda side: side.transact(self.topic, records, commit=commit))

    def list_offsets(self) -> None:
        specs = [OffsetSpec.earliest(), OffsetSpec.latest()]
        specs.append(OffsetSpec.for_timestamp(self.now_ms - self.chance.randrange(100_000)))
        if not self.has_deleted:
            specs.append(OffsetSpec.max_timestamp())
        spec = self.chance.choice(specs)
        isolation = self.chance.choice(list(IsolationLevel))
        self.both(
            f"list {type(spec).__name__} {isolation}",
            lambda side: side.list_offsets(self.topic, self.partitions, spec, isolation),
        )

    def delete_records(self) -> None:
        partition, offset = self.place(), self.chance.choice([0, 1, 2, 5, -1, 100])
        self.has_deleted = True
        self.both("delete", lambda side: side.delete_records(self.topic, partition, offset))

    def read(self) -> None:
        partition, start = self.place(), self.chance.choice([0, 1, 3, -2])
        isolation = self.chance.choice(["read_committed", "read_uncommitted"])
        self.both(
            f"read {partition} from {start} {isolation}",
            lambda side: side.read(self.topic, partition, start, isolation),
        )

    def change(self) -> None:
        key, value = self.chance.choice(CHANGES)
        operation = self.chance.choice(list(AlterConfigOpType))
        self.both(
            f"{operation.name} {key}={value}",
            lambda side: side.change(self.topic, key, value, operation),
        )
        described = partial(Side.describe, topic=self.topic, key=key)
        with suppress(AssertionError):  # a real broker's view is behind its controller's
            wait_until(lambda: described(self.sides[0]) == described(self.sides[1]), timeout_s=5)
        self.both(f"describe {key}", described)

    def add_partitions(self) -> None:
        count = max(1, self.partitions + self.chance.choice([-1, 0, 1]))
        error = self.both(
            f"partitions {count}", lambda side: side.add_partitions(self.topic, count)
        )
        if error is None:
            self.partitions = count
            self.wait_for_leaders()

    def commit(self) -> None:
        number = self.chance.randrange(self.partitions + 1)
        place = TopicPartition(self.topic, number, self.chance.choice([0, 3, 50]))
        self.both(f"commit {place}", lambda side: side.commit(self.group, [place]))

    def delete_group(self) -> None:
        self.both("delete group", lambda side: side.delete_group(self.group))

    def place(self) -> int:
        return self.chance.randrange(self.partitions)


@pytest.fixture
def sides(tmp_path: Path) -> Iterator[list[Side]]:
    """A real Kafka, and ours."""
    require_jars(VERSION)
    (tmp_path / "kafka").mkdir()
    real = RealKafka(tmp_path / "kafka", version=VERSION, heap="512m")
    try:
        real.start()
        with start_server(tmp_path / "data") as server:
            made = [Side(real.address), Side(server.kafka)]
            for side in made:  # confluent-kafka 2.16 crashes if a coordinator is not there yet
                side.create("first", 1, {})
                wait_until(
                    lambda side=side: side.delete_group("none") == "GROUP_ID_NOT_FOUND",
                    "a coordinator",
                )
            yield made
    finally:
        real.kill9()


def test_random_operations_have_the_answers_of_a_real_kafka(sides: list[Side]) -> None:
    first = int(os.environ.get("TRILOGUE_MODEL_SEED", "1"))
    for seed in range(first, first + int(os.environ.get("TRILOGUE_HISTORIES", "60"))):
        Comparison(sides, seed).run(random.Random(-seed).randint(4, 16))
