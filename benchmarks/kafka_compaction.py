"""Compaction beside a real Kafka: how fast it is, its CPU, and what others notice of it.

A leg fills a topic with versions of the same keys while `min.compaction.lag.ms` holds compaction
off, ends the segment, and lets it run. First on an idle server, for rate and CPU; then the same
with another topic while one producer sends and one consumer reads, beside as long without
compaction. The rate counts bytes of messages in the dirty part, from the change of the setting
until all of it is compacted: a wait for the next look at the topics is in it, 100 ms at most.

Both servers have their own limits of the rate: a real Kafka none, ours `merge.rate`, 64 MiB/s.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from benchmarks.drivers import Result, nothing
from benchmarks.gates import KAFKA, TRILOGUE, Figures
from benchmarks.kafka_legs import THROUGH, Leg
from benchmarks.measure import Meter
from benchmarks.rows import SHORT_S, Row, Stage
from benchmarks.servers import ADMIN, Contender, Kafka, Trilogue, create_topic, delete_topic

MESSAGES, KEYS, SIZE = 240_000, 40_000, 1_000
SHORT_MESSAGES = 24_000  # of a run that only looks whether it works
TRANSACTION = 1_000  # messages; every fifth transaction is aborted
ABORTED_EVERY = 5
RATE = 500
BESIDE_S = 8.0  # at least: a hundredth of it are 40 messages
WARM_S = 3.0  # a consumer's first fetches wait
LIMIT_S = 60.0
POLL_S = 0.02
NEVER = str(10**15)
SETTINGS = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "min.compaction.lag.ms": NEVER,
    "segment.ms": NEVER,
}
BROKER = "1"  # librdkafka takes no empty name, which would be all of them
CHECK_EVERY_MS = "100"
FIRST_MESSAGE = "first"  # of a new segment


class CompactedTopic:
    """A topic whose compaction waits until it is released."""

    def __init__(self, stage: Stage, server: Contender, *, transactional: bool) -> None:
        self.server = server
        self.name = f"compacted-{next(stage.numbers)}"
        self.messages = SHORT_MESSAGES if stage.seconds < SHORT_S else MESSAGES
        self._admin = AdminClient({"bootstrap.servers": server.address, **ADMIN})
        create_topic(server.address, self.name, 1, SETTINGS)
        self._fill(transactional=transactional)
        self._end = self._end_segment()
        server.empty_tail()

    @property
    def mb(self) -> float:
        """Megabytes of messages."""
        return self.messages * SIZE / 1e6

    def release(self) -> None:
        """Let compaction begin."""
        self._alter("min.compaction.lag.ms", "0")

    def wait_compacted(self) -> None:
        """Wait until all but the last segment is compacted."""
        deadline = time.monotonic() + LIMIT_S
        while self._compacted_end() < self._end:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.server.name} does not compact {self.name}")
            time.sleep(POLL_S)

    def delete(self) -> None:
        """Remove it with what compaction has left."""
        delete_topic(self.server.address, self.name)

    def _fill(self, *, transactional: bool) -> None:
        """Write versions of the keys."""
        own = {"transactional.id": self.name} if transactional else {}
        producer = Producer({"bootstrap.servers": self.server.address, "linger.ms": 5, **own})
        if transactional:
            producer.init_transactions(LIMIT_S)
        for number in range(self.messages // TRANSACTION):
            if transactional:
                producer.begin_transaction()
            self._write(producer, number)
            if transactional and number % ABORTED_EVERY == ABORTED_EVERY - 1:
                producer.abort_transaction(LIMIT_S)
            elif transactional:
                producer.commit_transaction(LIMIT_S)

    def _write(self, producer: Producer, seed: int) -> None:
        """Write messages with random keys and values, which no codec makes smaller."""
        failures: list[KafkaError] = []

        def delivered(problem: KafkaError | None, _message: Message) -> None:
            if problem is not None:
                failures.append(problem)

        generator = random.Random(seed)
        keys = KEYS * self.messages // MESSAGES
        value = generator.randbytes(SIZE)
        for at in range(TRANSACTION):
            key = f"{generator.randrange(keys):010}"
            producer.produce(self.name, value[at:] + value[:at], key, on_delivery=delivered)
            producer.poll(0)
        if producer.flush(LIMIT_S) or failures:
            raise RuntimeError(f"{self.name} was not written: {failures[:1]}")

    def _end_segment(self) -> int:
        """Begin a new segment, and return the offset of its message."""
        if isinstance(self.server, Kafka):
            self._alter("segment.ms", "1")
            time.sleep(0.1)
        offsets: list[int] = []
        producer = Producer({"bootstrap.servers": self.server.address})
        producer.produce(
            self.name,
            b"",
            FIRST_MESSAGE,
            on_delivery=lambda _problem, message: offsets.append(message.offset() or 0),
        )
        producer.flush(LIMIT_S)
        if isinstance(self.server, Kafka):
            self._alter("segment.ms", NEVER)
        return offsets[0]

    def _alter(self, key: str, value: str) -> None:
        alter(self._admin, ResourceType.TOPIC, self.name, key, value)

    def _compacted_end(self) -> int:
        """Return the offset up to which a server has compacted, by its own records."""
        if isinstance(self.server, Trilogue):
            return self._logged_end(self.server)
        checkpoint = self.server.data / "cleaner-offset-checkpoint"
        rows = [line.split() for line in checkpoint.read_text().splitlines()]
        return max(
            (int(row[2]) for row in rows if len(row) == 3 and row[0] == self.name), default=0
        )

    def _logged_end(self, server: Trilogue) -> int:
        """Return what the newest process has logged; this topic is the only one that is due."""
        assert server.server is not None
        found = re.findall(r"compaction\.done.*?\bend_offset[=\": ]+(\d+)", server.server.output)
        return max(map(int, found), default=0)


def alter(admin: AdminClient, kind: ResourceType, name: str, key: str, value: str) -> None:
    """Set a setting of a topic or of the brokers."""
    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(kind, name, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(LIMIT_S)


def compaction_leg(stem: str, *, transactional: bool) -> Leg:
    """Compaction alone, and beside a producer and a consumer."""

    def leg(stage: Stage, server: Contender) -> Figures:
        admin = AdminClient({"bootstrap.servers": server.address, **ADMIN})
        alter(admin, ResourceType.BROKER, BROKER, "log.cleaner.backoff.ms", CHECK_EVERY_MS)
        figures = compact_alone(stage, server, transactional=transactional)
        seconds = max(figures["compaction_s"], stage.at_least(BESIDE_S))
        topic = stage.fresh_topic(stem, server, 1)
        without = through(stage, server, topic, seconds)
        beside = CompactedTopic(stage, server, transactional=transactional)
        figures |= through(stage, server, topic, seconds, beside.release)
        beside.wait_compacted()
        beside.delete()
        delete_topic(server.address, topic)
        figures["quiet_p99_ms"] = without["p99_ms"]
        return figures

    return leg


def compact_alone(stage: Stage, server: Contender, *, transactional: bool) -> Figures:
    """Return the rate, and CPU by input, of compaction on an idle server."""
    topic = CompactedTopic(stage, server, transactional=transactional)
    stage.settle()
    meter, began = Meter(server.pid), time.monotonic()
    topic.release()
    topic.wait_compacted()
    seconds = time.monotonic() - began
    stage.settle()
    cpu_s = meter.read().cpu_s
    topic.delete()
    return {
        "compaction_s": seconds,
        "compacted_mb_per_s": topic.mb / seconds,
        "cpu_ms_per_mb": cpu_s * 1e3 / topic.mb,
    }


def through(
    stage: Stage,
    server: Contender,
    topic: str,
    seconds: float,
    begin: Callable[[], None] = nothing,
) -> Figures:
    """Send and read for so long, and return how late messages are."""

    stage.settle()
    result: Result = stage.drivers.rdkafka(
        "through", server.address, topic, settings=THROUGH, begin=begin,
        size=100, rate=RATE, partitions=1, warmup=WARM_S, seconds=seconds,
    )  # fmt: skip
    return {"p50_ms": result["p50_ms"], "p99_ms": result["p99_ms"]}


ROWS = tuple(
    Row(
        name,
        f"{MESSAGES:,} messages of {SIZE:,} B with {KEYS:,} keys, {data}: rate and CPU of their "
        f"compaction alone; p99 of {RATE:,} messages/s of 100 B, from producer to consumer, beside "
        "it and as long without it.",
        "",
        0,
        compaction_leg(name, transactional=transactional),
        rounds_max=1,
        servers=(KAFKA, TRILOGUE),
    )
    for name, data, transactional in (
        ("compaction", "without transactions", False),
        (
            "compaction-of-transactions",
            f"{TRANSACTION:,} a transaction of which every fifth is aborted",
            True,
        ),
    )
)
