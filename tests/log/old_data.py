"""Data directories that older versions wrote, and a node on a copy of one.

tests/fixtures/data-v*.tar.xz, and beside each what a reader found in it (tools/make_fixture.py).
"""

from __future__ import annotations

import asyncio
import json
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trilogue.broker.facts import Protocol
from trilogue.broker.names import parse_kafka
from trilogue.broker.topics.partition import Partition
from trilogue.entry.kafka.record_batch import check_crc, iter_records
from trilogue.entry.pulsar.pulsar_batch import walk_messages
from trilogue.entry.walk import walk_headers
from trilogue.log.partition_log import SegmentSlice
from trilogue.node.node import Node
from trilogue.node.settings.sources import load_settings
from trilogue.node.settings.table import LISTENERS

FIXTURES = sorted((Path(__file__).parents[1] / "fixtures").glob("data-v*.tar.xz"))
DEADLINE_S = 60
MADE_MS = "made_ms"  # beside the data: when that was
OFF = tuple(f"listen.{door}=off" for door in LISTENERS if door != "kafka")
QUIET = ("listen.kafka=127.0.0.1:0", *OFF, "disk.reserve=0", "disk.min-free=0")


def unpacked(fixture: Path, folder: Path) -> Path:
    with tarfile.open(fixture) as archive:
        archive.extractall(folder, filter="data")
    (folder / MADE_MS).write_text(str(description(fixture)["made_ms"]))
    return folder / "data"


def description(fixture: Path) -> dict[str, Any]:
    return json.loads(fixture.with_name(fixture.name.replace(".tar.xz", ".json")).read_text())


async def in_node(data: Path, work: Callable[[Node], object], *, drain: bool = True) -> None:
    """Start a node, do something with it, and end it: in order, or just so.

    Its clock goes on from when the data was made: what is old is forgotten by rule.
    """
    at_ms, began = int((data.parent / MADE_MS).read_text()), time.monotonic()
    node = Node(
        load_settings(environment={}, assignments=[f"data={data}", *QUIET]),
        lambda: at_ms + int((time.monotonic() - began) * 1_000),
    )
    async with asyncio.timeout(DEADLINE_S):
        await node.start()
        try:
            work(node)
            await node._manifests.write()  # each start rewrites it, after a while
            if drain:
                await node.drain(asyncio.Event(), DEADLINE_S)
                assert node.failure is None
        finally:
            await node.close()


def run(data: Path, work: Callable[[Node], object], *, drain: bool = True) -> None:
    asyncio.run(in_node(data, work, drain=drain))


def partition(node: Node, topic: str, number: int) -> Partition:
    return node.storage.broker.cluster.topic(parse_kafka(topic)).partition(number)


def messages(where: Partition) -> list[list[object]]:
    """All there is to read, in the words of the JSON."""
    log = where.log
    found: list[list[object]] = []
    offset = log.start_offset
    while offset < log.high_watermark:
        read = log.read(offset, 1 << 20)
        data = read.run() if isinstance(read, SegmentSlice) else memoryview(b"".join(read.slices))
        found += messages_of(data, offset)
        *_, (_, _, base, delta, *_) = walk_headers(data)
        offset = base + delta + 1
    return found


def messages_of(data: memoryview, first: int) -> list[list[object]]:
    """The messages of whole entries from an offset on, in the words of the JSON."""
    found: list[list[object]] = []
    for at, length, *_ in walk_headers(data):
        check_crc(data[at : at + length])
        found += [
            [each.offset, spell(each.key), spell(each.value),
             [[name, spell(value)] for name, value in each.headers], each.timestamp]
            for each in iter_records(data[at : at + length]) if each.offset >= first
        ]  # fmt: skip
    return found


def check_pulsar(node: Node, expected: dict[str, Any]) -> None:
    """What Pulsar's clients wrote and acked, and what is known of who wrote it."""
    where = partition(node, expected["topic"], 0)
    log = where.log
    offset, found = log.start_offset, []
    while offset < log.high_watermark:
        read = log.read(offset, 1)
        data = read.run() if isinstance(read, SegmentSlice) else memoryview(b"".join(read.slices))
        header = check_crc(data)
        for each in walk_messages(data, header):
            row = [
                offset + each.batch_index,
                each.partition_key or "",
                (each.value or b"").decode(),
            ]
            found.append([*row, dict(sorted(each.properties))])
        offset += header.span
    assert found == [json.loads(row) for row in expected["messages"]]
    cursor = node.storage.broker.subscriptions.find_cursor(
        where.partition_id, expected["subscription"]
    )
    assert cursor is not None
    missing = cursor.missing(log.start_offset, log.high_watermark)
    assert [at for start, end in missing for at in range(start, end)] == expected["unacked"]
    assert where.last_sequence_id(expected["producer"]) == expected["last_sequence_id"]


def spell(data: bytes | None) -> str | None:
    return None if data is None else data.decode("latin-1")


def check(node: Node, expected: dict[str, Any]) -> None:
    """Check that everything in the JSON holds."""
    for row in expected["partitions"]:
        where = partition(node, row["topic"], row["partition"])
        assert where.log.start_offset == row["start_offset"]
        assert where.log.high_watermark == row["end_offset"]
        assert messages(where) == row["messages"]
    topics = {str(topic.name.name) for topic in node.storage.broker.cluster}
    others = {expected["pulsar"]["topic"]} if "pulsar" in expected else set()
    assert topics == {row["topic"] for row in expected["partitions"]} | others
    if others:
        check_pulsar(node, expected["pulsar"])
    for group, topic, number, offset, metadata in expected["positions"]:
        partition_id = partition(node, topic, number).partition_id
        found = node.storage.broker.committed_offsets.position(Protocol.KAFKA, group, partition_id)
        assert (-1001 if found is None else found.mark) == offset
        old_description = (
            "" if found is None else found.metadata.rstrip("\0")
        )  # the client's own addition
        assert old_description == metadata
