"""Keep a small data directory of today's formats for the tests of every later version.

    python -m tools.make_fixture 1      # tests/fixtures/data-v1-{closed,killed}.tar.xz and .json

The number is the next free one; run it again, with the next number, when a version of anything on
disk changes, before a release. Kept fixtures are never made again. A real server is written to by
foreign clients and by raw requests: topics with several partitions, every codec, headers, nulls, an
idempotent producer, positions, messages that retention took, a deleted topic; what Pulsar's clients
leave (fixture_pulsar.py); several segments, and journal frames that no segment has. Once it is
killed, once it ends in order. The JSON has, in terms of the protocols, what a reader must find:
nothing in it comes from reading our own files but the versions.
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import sqlite3
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.server import Server, start_server

from tools import fixture_pulsar
from trilogue.client.kafka.cluster import KafkaCluster
from trilogue.client.kafka.consumer.batch_reader import BatchReader
from trilogue.client.kafka.model import EARLIEST, LATEST
from trilogue.entry.kafka.record_batch import iter_records, read_header
from trilogue.entry.walk import walk_headers
from trilogue.log.journal import frame
from trilogue.log.segments import manifest, segment

PLACE = Path(__file__).resolve().parent.parent / "tests" / "fixtures"
SIZE_MAX = 200 << 10
TOPICS = {
    "orders": (3, {"retention.ms": "-1"}),
    "worn": (2, {"retention.ms": "86400000"}),  # by the records' own times
    "dropped": (1, {"retention.ms": "-1"}),
}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
OLD_MS, NEW_MS = 1_000_000_000_000, 4_000_000_000_000  # long over, and far from over
GROUP = "readers"
SMALL = {"journal.file-size": "64KiB", "disk.reserve": "0", "disk.min-free": "0"}
QUICK = {
    **SMALL, "journal.file-age": "1s", "retention.check-every": "1s", "segments.grace": "1s",
}  # fmt: skip
PATIENCE = 30.0
IDEMPOTENT: dict[str, object] = {"enable.idempotence": True, "batch.num.messages": 3}


class Writer:
    """Sends what a fixture holds, and notes none of it: what counts is what can be read."""

    def __init__(self, server: Server, seed: int) -> None:
        self.server = server
        self.random = random.Random(seed)

    def producer(self, **settings: object) -> Producer:
        return Producer(
            {"bootstrap.servers": self.server.kafka, "acks": "all", "linger.ms": 5, **settings}
        )

    def send(
        self, topic: str, partition: int, count: int, *, first_ms: int, **settings: object
    ) -> None:
        producer = self.producer(**settings)
        for number in range(count):
            words = self.random.choices(["apple", "pear", "plum", "Zwetschge", "水果"], k=9)
            value = f"{topic}-{partition} {number}: {' '.join(words)}".encode()
            producer.produce(
                topic,
                self.random.choice([value, value, value * 3, b"", None]),
                f"key {number % 7}".encode() if number % 3 else None,
                partition,
                timestamp=first_ms + number,
                headers=[("trace", b"\x00\xff"), ("none", None)] if number % 5 == 0 else [],
            )
        assert producer.flush(PATIENCE) == 0

    def commit(self, moves: dict[tuple[str, int], int], about: str) -> None:
        consumer = Consumer({"bootstrap.servers": self.server.kafka, "group.id": GROUP})
        places = [
            TopicPartition(topic, partition, offset, about)
            for (topic, partition), offset in moves.items()
        ]
        for done in consumer.commit(offsets=places, asynchronous=False):
            assert done.error is None, done.error
        consumer.close()


def make(number: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        with start_server(data, settings=QUICK) as server:
            write_oldest(Writer(server, 1))
            fixture_pulsar.deduplicate(server)
            fixture_pulsar.write(server, "dawn")
            assert server.stop() == 0
        with start_server(data, settings=QUICK) as server:
            write_old(Writer(server, 4))
            fixture_pulsar.write(server, "noon")
            assert server.stop() == 0
        with start_server(data, settings={**SMALL, "retention.check-every": "1h"}) as server:
            write_new(Writer(server, 2), 20)
            fixture_pulsar.write(server, "evening")
            found = asyncio.run(read(server))
            server.kill9()
        keep(data, f"data-v{number}-killed", found)
        with start_server(data, settings={**SMALL, "retention.check-every": "1h"}) as server:
            write_new(Writer(server, 3), 7)
            fixture_pulsar.write(server, "night")
            found = asyncio.run(read(server))
            assert server.stop() == 0
        keep(data, f"data-v{number}-closed", found)


def write_oldest(writer: Writer) -> None:
    """What ends up in the first segments, and of one topic all goes again."""
    server = writer.server
    admin = AdminClient({"bootstrap.servers": server.kafka})
    made = admin.create_topics(
        [NewTopic(name, count, 1, config=config) for name, (count, config) in TOPICS.items()]
    )
    for future in made.values():
        future.result(PATIENCE)
    writer.send("dropped", 0, 5, first_ms=NEW_MS)
    for partition in range(2):
        writer.send("worn", partition, 12 + partition, first_ms=OLD_MS)
    for at, codec in enumerate(CODECS):
        more: dict[str, object] = {"compression.type": codec, "batch.num.messages": 6}
        writer.send("orders", at % 3, 15, first_ms=NEW_MS + 100 * at, **more)
    writer.send("orders", 1, 25, first_ms=NEW_MS, **IDEMPOTENT)
    writer.commit({("orders", 0): 4, ("orders", 1): 9, ("orders", 2): 2}, "at noon")
    for future in admin.delete_topics(["dropped"]).values():
        future.result(PATIENCE)
    until(lambda: starts(server, "worn", 2) == [12, 13])


def write_old(writer: Writer) -> None:
    """What a second segment holds of the same partitions."""
    for at, codec in enumerate(CODECS):
        more: dict[str, object] = {"compression.type": codec, "batch.num.messages": 3}
        writer.send("orders", (at + 1) % 3, 7, first_ms=NEW_MS + 1000 * at, **more)
    writer.send("worn", 1, 9, first_ms=NEW_MS, **IDEMPOTENT)


def write_new(writer: Writer, count: int) -> None:
    """What stays in the journal, when it is killed now."""
    for at, codec in enumerate(CODECS[:3]):
        more: dict[str, object] = {"compression.type": codec, "batch.num.messages": 4}
        writer.send("orders", at, count, first_ms=NEW_MS + 1000, **more)
    writer.send("orders", 2, count, first_ms=NEW_MS, **IDEMPOTENT)
    writer.send("worn", 0, count, first_ms=NEW_MS)
    writer.commit({("orders", 0): count, ("worn", 0): 12 + count // 2}, "in the evening")


def starts(server: Server, topic: str, partitions: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": server.kafka, "group.id": "nobody"})
    found = [
        consumer.get_watermark_offsets(TopicPartition(topic, number), PATIENCE)[0]
        for number in range(partitions)
    ]
    consumer.close()
    return found


def until(done: Any) -> None:
    ends = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < ends, "it does not come"
        time.sleep(0.1)


# ── what there is to read ─────────────────────────────────────────────────────────────────────


async def read(server: Server) -> dict[str, Any]:
    """Return what a reader finds; bytes are spelled as latin-1."""
    cluster = KafkaCluster(server.kafka, client_id="fixture")
    consumer = BatchReader(cluster)
    await cluster.refresh([name for name in TOPICS if name != "dropped"])
    partitions = [
        await read_partition(consumer, topic, number)
        for topic, view in sorted(cluster.topics.items())
        for number in sorted(view.leaders)
    ]
    await cluster.close()
    return {
        "partitions": partitions,
        "positions": positions(server),
        "pulsar": fixture_pulsar.read(server),
    }


async def read_partition(consumer: BatchReader, topic: str, number: int) -> dict[str, Any]:
    where = (topic, number)
    start = (await consumer.offsets({where: EARLIEST}))[where]
    end = (await consumer.offsets({where: LATEST}))[where]
    messages: list[list[object]] = []
    producers: dict[int, list[dict[str, int]]] = {}
    offset = start
    while offset < end:
        fetched = await consumer.fetch(topic, number, offset, max_bytes=1 << 20, max_wait_ms=500)
        for entry in entries(fetched.records):
            header = read_header(entry)
            offset = header.base_offset + header.last_offset_delta + 1
            if header.producer_id >= 0:
                producers.setdefault(header.producer_id, []).append(
                    {
                        "epoch": header.producer_epoch,
                        "base_sequence": header.base_sequence,
                        "last_offset_delta": header.last_offset_delta,
                        "base_offset": header.base_offset,
                    }
                )
            messages += [
                [each.offset, spell(each.key), spell(each.value),
                 [[name, spell(value)] for name, value in each.headers], each.timestamp]
                for each in iter_records(entry)
            ]  # fmt: skip
    return {
        "topic": topic,
        "partition": number,
        "start_offset": start,
        "end_offset": end,
        "messages": messages,
        "producers": {str(each): batches[-5:] for each, batches in producers.items()},
    }


def entries(records: memoryview) -> Iterator[memoryview]:
    for position, length, *_ in walk_headers(records, cut_is_end=True):
        yield records[position : position + length]


def spell(data: bytes | None) -> str | None:
    return None if data is None else data.decode("latin-1")


def positions(server: Server) -> list[list[object]]:
    consumer = Consumer({"bootstrap.servers": server.kafka, "group.id": GROUP})
    places = [
        TopicPartition(topic, number)
        for topic, (count, _) in TOPICS.items()
        for number in range(count)
        if topic != "dropped"
    ]
    found = consumer.committed(places, PATIENCE)
    consumer.close()
    return [[GROUP, each.topic, each.partition, each.offset, each.metadata or ""] for each in found]


# ── keeping it ────────────────────────────────────────────────────────────────────────────────


def versions(data: Path) -> dict[str, int]:
    connection = sqlite3.connect(data / "meta.sqlite")
    (meta,) = connection.execute("PRAGMA user_version").fetchone()
    connection.close()
    return {
        "directory": int((data / "format").read_text().split()[-1]),
        "journal": frame.VERSION,
        "manifest": manifest.FORMAT_VERSION,
        "meta": meta,
        "segment": segment.FORMAT_VERSION,
    }


def keep(data: Path, name: str, found: dict[str, Any]) -> None:
    copy = data.with_name("copy")
    shutil.copytree(data, copy)
    facts = {"versions": versions(copy), "made_ms": time.time_ns() // 1_000_000, **found}
    shutil.rmtree(copy)
    archive = PLACE / f"{name}.tar.xz"
    assert not archive.exists(), f"{archive} is kept for ever"
    with tarfile.open(archive, "w:xz", preset=9) as packed:
        packed.add(data, "data", filter=plain)
    (PLACE / f"{name}.json").write_text(spelled(facts) + "\n")
    size = archive.stat().st_size
    print(f"{archive.name}: {size} bytes")
    assert size < SIZE_MAX


def spelled(facts: dict[str, Any]) -> str:
    """JSON with a line for each message."""
    partitions = facts.pop("partitions")
    head = json.dumps(facts, indent=1, sort_keys=True).removesuffix("\n}")
    parts = []
    for each in partitions:
        messages = ",\n  ".join(json.dumps(message) for message in each.pop("messages"))
        parts.append(json.dumps(each)[:-1] + f', "messages": [\n  {messages}]}}')
    return head + ',\n "partitions": [\n ' + ",\n ".join(parts) + "]\n}"


def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    make(int(sys.argv[1]))
