"""Records what a real Kafka's cleaner does to a partition, round by round.

    python -m tools.kafka_cleaner 3.9.1 DIRECTORY > tests/vectors/log/cleaned-kafka-3.9.1.hex

Each round appends (plain, idempotent and transactional producers, tombstones, aborted data), rolls
the segment, saves the partition's log, lets the cleaner run up to the active segment, and saves the
log again. Delete retention is two seconds, which pass before each round.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from tools.servers.kafka import RealKafka

TOPIC = "t"
RETENTION_MS = 2000
NEVER = str(10**15)
DEADLINE_S = 60
SETTINGS = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.0001",
    "min.compaction.lag.ms": NEVER,
    "delete.retention.ms": str(RETENTION_MS),
    "segment.ms": NEVER,
    "file.delete.delay.ms": "100",
}
CLEANER = {
    "log.cleaner.backoff.ms": 200,
    "log.cleaner.dedupe.buffer.size": 8 << 20,
    "log.retention.check.interval.ms": 1000,
}

Pair = tuple[str, str | None]


class Room:
    """A partition of a real Kafka, and four producers."""

    def __init__(self, kafka: RealKafka) -> None:
        base = {"bootstrap.servers": kafka.address, "linger.ms": 50}
        self.admin = AdminClient({"bootstrap.servers": kafka.address})
        self.log = kafka.data / f"{TOPIC}-0"
        self.checkpoint = kafka.data / "cleaner-offset-checkpoint"
        new = NewTopic(TOPIC, 1, 1, config=SETTINGS)
        self.admin.create_topics([new])[TOPIC].result(DEADLINE_S)
        self.plain = Producer(base)
        self.idempotent = Producer({**base, "enable.idempotence": True})
        self.first = Producer({**base, "transactional.id": "first"})
        self.second = Producer({**base, "transactional.id": "second"})
        for each in (self.first, self.second):
            each.init_transactions(DEADLINE_S)

    def put(self, producer: Producer, *pairs: Pair, headers: object = None) -> None:
        """Write one batch."""
        for key, value in pairs:
            producer.produce(TOPIC, key=key, value=value, headers=headers)
        assert not producer.flush(DEADLINE_S)

    def alter(self, key: str, value: str) -> None:
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[entry])
        self.admin.incremental_alter_configs([resource])[resource].result(DEADLINE_S)

    def roll(self) -> int:
        """Begin a new segment; returns its first offset."""
        self.alter("segment.ms", "1")
        time.sleep(0.3)
        self.put(self.plain, ("roll", "x"))
        self.alter("segment.ms", NEVER)
        return max(int(path.stem) for path in self.log.glob("*.log"))

    def content(self) -> bytes:
        return b"".join(path.read_bytes() for path in sorted(self.log.glob("*.log")))

    def clean(self, end: int) -> None:
        """Let the cleaner run up to an offset."""
        self.alter("min.compaction.lag.ms", "0")
        until = time.monotonic() + DEADLINE_S
        while self.cleaned_to() < end:
            assert time.monotonic() < until, "the cleaner does not run"
            time.sleep(0.05)
        self.alter("min.compaction.lag.ms", NEVER)
        time.sleep(0.5)

    def cleaned_to(self) -> int:
        if not self.checkpoint.exists():
            return 0
        rows = [line.split() for line in self.checkpoint.read_text().splitlines()]
        return max((int(row[2]) for row in rows if len(row) == 3 and row[0] == TOPIC), default=0)


def first_round(room: Room) -> None:
    """Everything that the rules are about."""
    headers = [("h", b"\x01"), ("n", None)]
    room.put(room.plain, ("a", "1"), ("b", "1"), ("c", "1"), headers=headers)
    room.put(room.plain, ("a", "2"), ("gone", "1"))
    room.put(room.idempotent, ("i", "1"), ("j", "1"))
    room.put(room.idempotent, ("i", "2"))
    room.first.begin_transaction()
    room.put(room.first, ("a", "committed"), ("x", "committed"))
    room.second.begin_transaction()
    room.put(room.second, ("b", "aborted"), ("y", "aborted"))
    room.put(room.plain, ("gone", None), ("k", "1"))
    room.put(room.second, ("z", "aborted"))
    room.first.commit_transaction(DEADLINE_S)
    room.second.abort_transaction(DEADLINE_S)
    room.first.begin_transaction()
    room.put(room.first, ("q", "1"))
    room.first.commit_transaction(DEADLINE_S)
    room.put(room.plain, ("c", "2"), ("d", "1"))
    room.put(room.plain, ("c", None))
    room.put(room.plain, ("i", "3"), ("q", "2"))
    room.put(room.plain, ("stays 1", "1"))


def second_round(room: Room) -> None:
    room.put(room.plain, ("x", "2"), ("d", None))
    room.put(room.idempotent, ("j", "2"))
    room.put(room.plain, ("stays 2", "1"))


def third_round(room: Room) -> None:
    room.put(room.plain, ("a", "9"), ("m", "1"))
    room.put(room.plain, ("stays 3", "1"))


def fourth_round(room: Room) -> None:
    room.put(room.plain, ("m", "2"))
    room.put(room.plain, ("stays 4", "1"))


def fifth_round(room: Room) -> None:
    room.put(room.plain, ("m", None))
    room.put(room.plain, ("stays 5", "1"))


ROUNDS: tuple[Callable[[Room], None], ...] = (
    first_round,
    second_round,
    third_round,
    fourth_round,
    fifth_round,
)


def record(room: Room) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield the end of each round, and the log before and after it."""
    for append in ROUNDS:
        append(room)
        time.sleep(RETENTION_MS / 1000 + 0.2)
        end = room.roll()
        before = room.content()
        room.clean(end)
        yield end, before, room.content()


def main() -> None:
    """Record, and write it to standard output."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("version")
    parser.add_argument("directory", type=Path)
    chosen = parser.parse_args()
    kafka = RealKafka(chosen.directory, version=chosen.version, heap="512m", settings=CLEANER)
    kafka.start()
    try:
        print(f"# What the cleaner of Kafka {chosen.version} leaves of a partition, in")
        print(
            "# lines of round, end offset, before or after, and the log. See tools/kafka_cleaner.py"
        )
        for number, (end, before, after) in enumerate(record(Room(kafka)), 1):
            print(f"{number} {end} before {before.hex()}")
            print(f"{number} {end} after {after.hex()}")
    finally:
        kafka.kill9()


if __name__ == "__main__":
    main()
