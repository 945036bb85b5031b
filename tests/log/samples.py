"""Entries, segments and sealed journal files made to measure, with a plain dict as their model."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
from hypothesis import strategies as st
from msgspec.structs import replace

from trilogue.entry.checksum import crc32c
from trilogue.entry.header import HEADER, HEADER_SIZE
from trilogue.log.files import File, FileSystem, OsFileSystem
from trilogue.log.journal.frame import (
    BLOCK,
    FACT,
    FRAME_HEADER,
    PREFIX,
    FileHeader,
    encode_file_header,
    encode_frame_header,
    padded,
)
from trilogue.log.segments.segment import Block, EpochStart, SegmentHeader, SegmentWriter
from trilogue.log.segments.segment_info import FlushJob, SegmentInfo, segment_name

CLUSTER = bytes(range(16))
INCARNATION = 0xFEEDBEEF


class Sample(msgspec.Struct, frozen=True):
    """One entry and what is known of it from outside."""

    partition_id: int
    base: int
    span: int = 1
    size: int = HEADER_SIZE
    epoch: int = 1
    base_ms: int = 1000
    max_ms: int = 1000

    @property
    def end(self) -> int:
        return self.base + self.span

    @property
    def data(self) -> bytes:
        """Bytes that differ from those of every other entry, with a true checksum."""
        body = random.Random(repr(self)).randbytes(self.size - HEADER_SIZE)
        head = (self.base, self.size - 12, self.epoch, 2)
        tail = (0, self.span - 1, self.base_ms, self.max_ms, -1, -1, -1, self.span)
        crc = crc32c(HEADER.pack(*head, 0, *tail)[21:] + body)
        return HEADER.pack(*head, crc, *tail) + body


def samples(
    partition_id: int, count: int, *, base: int = 0, span: int = 1, size: int = 168
) -> list[Sample]:
    """Consecutive entries whose times grow with their offsets."""
    return [
        Sample(partition_id, at, span, size, base_ms=at, max_ms=at + span - 1)
        for at in range(base, base + count * span, span)
    ]


@st.composite
def logs(draw: st.DrawFn, *, partitions: int = 4, entries: int = 30) -> list[Sample]:
    """Entries of several partitions, in the order of arrival, holes between them included."""
    ends = dict.fromkeys(
        draw(st.sets(st.integers(1, 2**63 - 1), min_size=1, max_size=partitions)), 0
    )
    made = []
    for _ in range(draw(st.integers(1, entries))):
        partition_id = draw(st.sampled_from(sorted(ends)))
        base = ends[partition_id] + draw(st.sampled_from([0, 0, 0, 1, 50]))
        span = draw(st.sampled_from([1, 1, 2, 100]))
        size = draw(st.one_of(st.integers(61, 300), st.sampled_from([9_000, 120_000, 300_000])))
        first = draw(st.integers(-1, 2000))
        last = draw(st.integers(first, 2001))
        made.append(Sample(partition_id, base, span, size, 1, first, last))
        ends[partition_id] = base + span
    return made


def write_segment(
    files: FileSystem,
    directory: Path,
    entries: list[Sample],
    *,
    segment_id: int = 1,
    entries_per_block: int = 5,
) -> SegmentInfo:
    """Write entries to a segment without a journal."""
    name = segment_name(segment_id)
    file = files.open(directory / name, create=True)
    writer = SegmentWriter(file, SegmentHeader(segment_id, 0, 1, 7, CLUSTER, 1234))
    for partition_id in sorted({entry.partition_id for entry in entries}):
        mine = [entry for entry in entries if entry.partition_id == partition_id]
        writer.begin(partition_id, [EpochStart(mine[0].epoch, mine[0].base)])
        for at in range(0, len(mine), entries_per_block):
            some = mine[at : at + entries_per_block]
            times = (min(e.base_ms for e in some), max(e.max_ms for e in some), 5000, 5000)
            block = Block(some[0].base, some[-1].end, len(some), *times)
            writer.block(block, b"".join(entry.data for entry in some))
    info = writer.finish(name, 1, 1)
    file.close()
    return info


def write_frames(
    file: File,
    frames: list[list[Sample]],
    *,
    first_sequence: int = 1,
    incarnation: int = INCARNATION,
    facts: tuple[bytes, ...] = (),
) -> None:
    """Write a journal file as the journal would."""
    header = FileHeader(1, incarnation, CLUSTER)
    file.pwrite(encode_file_header(header), 0)
    position = BLOCK
    for number, entries in enumerate(frames):
        body = b"".join(PREFIX.pack(e.partition_id, e.epoch, 0) + e.data for e in entries)
        tail = b"".join(FACT.pack(7, 0, len(fact)) + fact for fact in facts)
        frame = memoryview(bytearray(FRAME_HEADER) + body + tail)
        encode_frame_header(
            frame,
            seed=header.seed,
            flags=0,
            sequence=first_sequence + number,
            durable_through=first_sequence + number - 1,
            node_id=1,
            node_epoch=7,
            append_time_ms=5000 + number,
            entry_count=len(entries),
            fact_count=len(facts),
            facts_at=FRAME_HEADER + len(body),
        )
        file.pwrite(frame, position)
        position += padded(len(frame))
    file.pwrite(bytes(BLOCK), position)


def sealed(
    directory: Path,
    frames: list[list[Sample]],
    *,
    files: FileSystem | None = None,
    name: str = "0000000000000001.journal",
    first_sequence: int = 1,
    **changes: object,
) -> FlushJob:
    """Write one journal file and order its flush; everything in it is known and wanted."""
    files = files or OsFileSystem()
    file = files.open(directory / name, create=True)
    write_frames(file, frames, first_sequence=first_sequence, facts=(b"fact",))
    file.sync()
    file.close()
    job = FlushJob(
        journal_paths=(str(directory / name),),
        segment_path=str(directory / segment_name(1)),
        segment_id=1,
        last_sequence=first_sequence + len(frames) - 1,
        flushed_through=first_sequence - 1,
        flushed_ends={},
        known=frozenset(entry.partition_id for entries in frames for entry in entries),
        start_offsets={},
        cluster_id=CLUSTER,
        node_id=1,
        node_epoch=7,
        now_ms=1234,
        incarnations=(INCARNATION,),
    )
    return replace(job, **changes)  # type: ignore[arg-type]
