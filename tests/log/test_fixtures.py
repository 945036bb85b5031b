"""Data of an older version opens, reads as it did, and goes on; data of a newer one is left alone.

tests/fixtures/data-v*.tar.xz are data directories as released formats had them. Next to each is a
record of its content at that time (tools/make_fixture.py). They are never regenerated.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import sqlite3
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.log.old_data import (
    FIXTURES,
    check,
    description,
    messages_of,
    partition,
    run,
    unpacked,
)
from trilogue.broker.topics.partition import Partition
from trilogue.entry.checksum import crc32c
from trilogue.entry.entry import Record
from trilogue.entry.kafka.record_batch import build_batch
from trilogue.log.clock import wall_clock_ms
from trilogue.log.errors import NewerFormat
from trilogue.log.files import OsFileSystem
from trilogue.log.journal.frame import BLOCK, decode_file_header, iter_frames
from trilogue.log.segments.sealed import SealedLog
from trilogue.log.segments.segment import HEADER, HEADER_CHECKED, TRAILER, TRAILER_CHECKED
from trilogue.log.segments.segment_reader import SegmentReader
from trilogue.node.errors import StartError
from trilogue.node.node import Node

NEWER = 99


@pytest.fixture(params=FIXTURES, ids=lambda path: path.name.removesuffix(".tar.xz"))
def fixture(request: pytest.FixtureRequest) -> Path:
    return request.param


def batch_of(producer_id: int, row: dict[str, int]) -> memoryview:
    """A batch that claims to be this one of this producer; what it holds does not count."""
    records = [Record(at, 1_000, None, b"again") for at in range(row["last_offset_delta"] + 1)]
    made = build_batch(
        records,
        producer_id=producer_id,
        producer_epoch=row["epoch"],
        base_sequence=row["base_sequence"],
    )
    return memoryview(made)


def check_producers(node: Node, expected: dict[str, Any]) -> None:
    """A batch that was stored is not stored again, and the next one is."""
    for row in expected["partitions"]:
        where = partition(node, row["topic"], row["partition"])
        for producer_id, batches in row["producers"].items():
            for batch in batches:
                again = where.append(batch_of(int(producer_id), batch), now_ms=wall_clock_ms())
                assert again.duplicate
                assert again.base_offset == batch["base_offset"]
            last = batches[-1]
            following = last["base_sequence"] + last["last_offset_delta"] + 1
            added = {**last, "base_sequence": following, "base_offset": row["end_offset"]}
            add(where, row, int(producer_id), added)
            batches[:] = [*batches, added][-5:]
        add(where, row, -1, {"epoch": -1, "base_sequence": -1, "last_offset_delta": 2})


def add(where: Partition, row: dict[str, Any], producer_id: int, batch: dict[str, int]) -> None:
    """Append a batch, and note in the JSON what must be read from now on."""
    appended = where.append(batch_of(producer_id, batch), now_ms=wall_clock_ms())
    assert not appended.duplicate
    assert appended.base_offset == row["end_offset"]
    for at in range(batch["last_offset_delta"] + 1):
        row["messages"].append([row["end_offset"] + at, None, "again", [], 1_000])
    row["end_offset"] += batch["last_offset_delta"] + 1


def test_there_are_fixtures():
    assert len(FIXTURES) >= 2


def test_data_of_an_older_version_is_read(fixture: Path, tmp_path: Path):
    """Before a flush by this version and after it, and once more after a start."""
    data, expected = unpacked(fixture, tmp_path), description(fixture)

    run(data, lambda node: check(node, expected))
    run(data, lambda node: check(node, expected), drain=False)
    run(data, lambda node: check(node, expected))


def test_data_of_an_older_version_accepts_appends(fixture: Path, tmp_path: Path):
    """Appends, after them an end without a flush, and a start that finds all of it."""
    data, expected = unpacked(fixture, tmp_path), description(fixture)

    run(data, lambda node: check_producers(node, expected), drain=False)
    run(data, lambda node: check(node, expected))
    run(data, lambda node: check_producers(node, expected))
    run(data, lambda node: check(node, expected))


def test_readers_without_a_broker_read_what_an_older_version_sealed(fixture: Path, tmp_path: Path):
    data, expected = unpacked(fixture, tmp_path), description(fixture)

    sealed = SealedLog(data)

    for row in expected["partitions"]:
        topic = sealed.topic("public", "default", row["topic"])
        partition_id = topic.partitions[row["partition"]]
        start, end = sealed.range_of(partition_id)
        found = [
            message
            for records in sealed.read(partition_id)
            for message in messages_of(records, start)
        ]
        assert start == row["start_offset"]
        assert found == [message for message in row["messages"] if message[0] < end]
        assert found or not end - start


# ── newer than we are ─────────────────────────────────────────────────────────────────────────


def newer_directory(data: Path) -> str:
    (data / "format").write_text(f"trilogue data format {NEWER}\n")
    return f"data format {NEWER}"


def newer_meta(data: Path) -> str:
    connection = sqlite3.connect(data / "meta.sqlite")
    connection.execute(f"PRAGMA user_version = {NEWER}")
    connection.close()
    return f"meta has format {NEWER}"


def newer_meta_in_its_log(data: Path) -> str:
    """As a kill leaves it: the version is in SQLite's write-ahead log only."""
    kept = data.with_name("kept")
    kept.mkdir()
    connection = sqlite3.connect(data / "meta.sqlite")
    connection.execute(f"PRAGMA user_version = {NEWER}")
    for path in data.glob("meta.sqlite*"):
        shutil.copy2(path, kept)
    connection.close()
    shutil.copytree(kept, data, dirs_exist_ok=True)
    assert (data / "meta.sqlite-wal").stat().st_size
    return f"meta has format {NEWER}"


def newer_manifest(data: Path) -> str:
    path = data / "segments" / "manifest.json"
    path.write_bytes(re.sub(rb'"format":\d+', b'"format":%d' % NEWER, path.read_bytes(), count=1))
    return f"manifest format {NEWER}"


def newer_journal(data: Path) -> str:
    path = newest_journal(data)
    block = bytearray(path.read_bytes()[:BLOCK])
    struct.pack_into(">I", block, 12, NEWER)
    struct.pack_into(">I", block, 8, crc32c(memoryview(block)[12:]))
    overwrite(path, 0, block)
    return f"journal format {NEWER}"


def newer_frame(data: Path) -> str:
    path = newest_journal(data)
    view = memoryview(path.read_bytes())
    header = decode_file_header(view)
    assert header is not None
    frame = next(iter_frames(view, header))
    content = bytearray(view[frame.position : frame.position + frame.length])
    content[8] = NEWER
    struct.pack_into(">I", content, 4, crc32c(memoryview(content)[8:], header.seed))
    overwrite(path, frame.position, content)
    return f"frame format {NEWER}"


def newest_journal(data: Path) -> Path:
    """The newest file that has a frame."""
    for path in sorted((data / "journal").glob("*.journal"), reverse=True):
        view = memoryview(path.read_bytes())
        header = decode_file_header(view)
        if header is not None and next(iter_frames(view, header), None) is not None:
            return path
    raise AssertionError("no file has a frame")


def overwrite(path: Path, position: int, data: bytes | bytearray) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def digests(data: Path) -> dict[str, str]:
    """All that counts: a look into SQLite's file leaves an empty log and an index beside it."""
    return {
        str(path.relative_to(data)): hashlib.blake2b(path.read_bytes()).hexdigest()
        for path in sorted(data.rglob("*"))
        if path.is_file() and path.suffix != ".sqlite-shm" and path.stat().st_size
    }


PARTS = [
    newer_directory,
    newer_meta,
    newer_meta_in_its_log,
    newer_manifest,
    newer_journal,
    newer_frame,
]


@pytest.mark.parametrize("make_newer", PARTS)
def test_data_of_a_newer_version_is_refused_and_stays_as_it_is(
    fixture: Path, tmp_path: Path, make_newer: Callable[[Path], str]
):
    data = unpacked(fixture, tmp_path)
    complaint = make_newer(data)
    before = digests(data)

    with pytest.raises(StartError, match=complaint) as refused:
        run(data, lambda node: None)

    assert str(data) in str(refused.value)
    assert digests(data) == before


@pytest.mark.parametrize("part", ["header", "trailer"])
def test_a_segment_of_a_newer_version_is_refused_when_it_is_read(
    fixture: Path, tmp_path: Path, part: str
):
    data = unpacked(fixture, tmp_path)
    path = min((data / "segments").glob("*.segment"))
    content = bytearray(path.read_bytes())
    if part == "header":
        struct.pack_into(">H", content, 8, NEWER)
        checksum = crc32c(memoryview(content)[:HEADER_CHECKED])
        struct.pack_into(">I", content, HEADER.size - 4, checksum)
    else:
        at = len(content) - TRAILER.size
        struct.pack_into(">I", content, at + 64, NEWER)
        checksum = crc32c(memoryview(content)[at : at + TRAILER_CHECKED])
        struct.pack_into(">I", content, at + 68, checksum)
    path.write_bytes(content)

    with pytest.raises(NewerFormat, match=f"segment format {NEWER}"):
        SegmentReader.open(OsFileSystem(), path)
    assert path.read_bytes() == content
