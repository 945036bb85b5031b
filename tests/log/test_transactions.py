"""Open and aborted transactions: as in Kafka's index, in memory, in segments, after restarts."""

from __future__ import annotations

from pathlib import Path
from struct import iter_unpack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.log.ledger import data, flush_all, marker, retain
from tests.log.rig import CLUSTER, DATA, Rig, header_of
from trilogue.entry.control import Outcome
from trilogue.entry.entry import Record
from trilogue.entry.kafka.record_batch import build_batch
from trilogue.entry.walk import read_header, walk_headers
from trilogue.log.partition_log import (
    AbortedLookup,
    PartitionLog,
    SegmentSlice,
    TailSlice,
)
from trilogue.log.segments.manifest import Manifest, write_manifest
from trilogue.log.segments.sealed import SealedLog
from trilogue.log.segments.segment import OPEN, AbortedTransaction
from trilogue.log.transactions import (
    Transactions,
    overlapping,
    read_transaction_step,
    rows_within,
    stable_end_of,
)

VECTORS = Path(__file__).parents[1] / "vectors" / "entry"
KAFKAS_INDEX = ">hqqqq"  # version, and the fields of one of our rows
A, B = 7, 8  # producers
ABORT, COMMIT = Outcome.ABORT, Outcome.COMMIT


def vector(name: str) -> bytes:
    lines = (VECTORS / name).read_text().splitlines()
    return bytes.fromhex("".join(line.partition("#")[0].replace(" ", "") for line in lines))


def aborted(partition: PartitionLog, start: int, end: int) -> list[AbortedTransaction]:
    found = partition.aborted(start, end)
    return found.run(end) if isinstance(found, AbortedLookup) else found


def read(partition: PartitionLog, offset: int, until: int, max_bytes: int = 1 << 20) -> list[int]:
    """The base offsets of what a reader of committed data gets."""
    found = partition.read(offset, max_bytes, until=until)
    entries = found.run() if isinstance(found, SegmentSlice) else b"".join(found.slices)
    return [each[2] for each in walk_headers(entries)]


@pytest.fixture
def rig() -> Rig:
    made = Rig(partitions=2)
    made.open()
    return made


def write(rig: Rig, *entries: bytes) -> None:
    for entry in entries:
        rig.commit(1, memoryview(entry))


# ── beside Kafka ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("log", "index"),
    [
        ("transactions-kafka-3.9.1.hex", "aborted-index-kafka-3.9.1.hex"),
        ("transactions-kafka-4.3.1.hex", "aborted-index-kafka-4.3.1.hex"),
        (
            "overlapping-transactions-kafka-3.9.1.hex",
            "overlapping-aborted-index-kafka-3.9.1.hex",
        ),
    ],
)
def test_aborted_transactions_are_those_of_kafkas_index(rig: Rig, log: str, index: str):
    entries = vector(log)
    for at, length, *_ in walk_headers(entries):
        write(rig, entries[at : at + length])

    theirs = [AbortedTransaction(*row[1:]) for row in iter_unpack(KAFKAS_INDEX, vector(index))]
    partition = rig.log.partition(1)
    assert len(theirs) >= 2
    assert aborted(partition, 0, partition.end_offset) == theirs
    flush_all(rig)
    assert aborted(partition, 0, partition.end_offset) == theirs


# ── in memory ─────────────────────────────────────────────────────────────────────────────────


def test_the_stable_end_is_where_the_oldest_open_transaction_begins(rig: Rig):
    partition = rig.log.partition(1)
    seen = []
    for entry in (
        data(None),  # 0
        data(A, 2),  # 1, 2
        data(B),  # 3
        marker(A, COMMIT),  # 4
        data(A),  # 5
        marker(B, ABORT),  # 6
        marker(A, ABORT),  # 7
    ):
        write(rig, entry)
        seen.append(partition.stable_end)

    assert seen == [1, 1, 1, 3, 3, 5, 8]


def test_markers_that_are_not_durable_move_neither_stable_end_nor_aborted_list(rig: Rig):
    partition = rig.log.partition(1)
    write(rig, data(A))

    rig.append(1, memoryview(marker(A, ABORT)))
    rig.append(1, memoryview(data(B)))
    assert (partition.stable_end, aborted(partition, 0, 3)) == (0, [])

    rig.log.journal.on_commit(lambda _: None)
    rig.loop.run()
    assert (partition.stable_end, aborted(partition, 0, 3)) == (2, [(A, 0, 1, 2)])


def test_a_partition_without_transactions_remembers_nothing(rig: Rig):
    write(rig, data(None), data(None))
    assert rig.log.partition(1)._appender.transactions is None

    write(rig, data(A), marker(A, COMMIT))
    flush_all(rig)

    assert rig.log.partition(1)._appender.transactions is None


def test_a_marker_where_nothing_is_open_is_harmless(rig: Rig):
    write(rig, marker(A, ABORT), data(None), marker(B, COMMIT), marker(A, ABORT))

    partition = rig.log.partition(1)
    assert (partition.stable_end, aborted(partition, 0, 4)) == (4, [])


def test_a_control_batch_that_ends_nothing_leaves_the_transaction_open(rig: Rig):
    other = build_batch(
        [Record(0, 1, b"\x00\x00\x00\x02", b"\x00" * 6)],
        transactional=True,
        control=True,
        producer_id=A,
        producer_epoch=0,
    )
    broken = build_batch(
        [Record(0, 1, b"\x00", None)],
        transactional=True,
        control=True,
        producer_id=A,
        producer_epoch=0,
    )
    write(rig, data(A), other, broken)

    assert rig.log.partition(1).stable_end == 0
    rig.restart()
    assert rig.log.partition(1).stable_end == 0


def test_a_reader_of_committed_data_stops_at_the_stable_end(rig: Rig):
    write(rig, data(None, 3), data(None), data(A), data(None))
    partition = rig.log.partition(1)
    assert partition.stable_end == 4

    assert read(partition, 0, 4) == [0, 3]
    assert read(partition, 3, 4) == [3]
    assert read(partition, 4, 4) == read(partition, 5, 4) == read(partition, 6, 4) == []
    assert read(partition, 0, 4, 1) == [0]


def test_a_read_returns_where_its_entries_end(rig: Rig):
    write(rig, data(None, 3), data(A, 2), data(None))
    partition = rig.log.partition(1)

    ends = []
    for max_bytes, until in ((1, 6), (1 << 20, 3), (1 << 20, 6)):
        found = partition.read(0, max_bytes, until=until)
        assert isinstance(found, TailSlice)
        ends.append(found.next_offset)

    assert ends == [3, 3, 6]


# ── in segments ───────────────────────────────────────────────────────────────────────────────


def test_a_marker_far_behind_is_found_over_several_segments(rig: Rig):
    write(rig, data(None), data(A))  # 0, 1
    flush_all(rig)
    write(rig, data(None), data(B), marker(B, COMMIT))  # 2, 3, 4
    flush_all(rig)
    partition = rig.log.partition(1)
    assert aborted(partition, 0, 5) == []
    assert partition.stable_end == 1

    write(rig, marker(A, ABORT))  # 5
    assert partition.stable_end == 6
    assert aborted(partition, 0, 2) == [(A, 1, 5, 6)]
    assert aborted(partition, 0, 1) == []

    flush_all(rig)
    assert aborted(partition, 0, 2) == [(A, 1, 5, 6)]
    assert aborted(partition, 0, 1) == []
    rig.restart()
    assert aborted(rig.log.partition(1), 0, 2) == [(A, 1, 5, 6)]


def test_segments_behind_the_last_open_transaction_are_not_read(rig: Rig):
    write(rig, data(A), marker(A, ABORT), data(None), data(B))
    flush_all(rig)
    write(rig, marker(B, ABORT))
    flush_all(rig)
    partition = rig.log.partition(1)
    rig.log.readers.close()
    opened = len(rig.log.readers._handles)

    assert aborted(partition, 0, 3) == [(A, 0, 1, 2)]
    assert len(rig.log.readers._handles) == opened + 1

    assert aborted(partition, 0, 4) == [(A, 0, 1, 2), (B, 3, 4, 5)]
    assert len(rig.log.readers._handles) == opened + 2


def test_a_cold_reader_of_committed_data_stops_at_the_stable_end(rig: Rig):
    write(rig, *(data(None, 2) for _ in range(20)), data(A), *(data(None) for _ in range(20)))
    flush_all(rig)
    partition = rig.log.partition(1)

    assert partition.stable_end == 40
    for _ in range(2):  # the second time the place is known
        assert read(partition, 0, 40) == list(range(0, 40, 2))
        assert read(partition, 39, 40) == [38]
        assert read(partition, 0, 40, 1) == [0]
        assert read(partition, 0, 40, 400) == [0, 2, 4, 6]
        assert read(partition, 40, 40) == []
    assert len(read(partition, 0, partition.high_watermark)) == 41


def test_open_transactions_survive_flush_and_kill(rig: Rig):
    write(rig, data(None), data(A), data(B))
    result = flush_all(rig)
    assert result.open_transactions == {1: ((A, 1), (B, 2))}
    assert rig.ranges[1].stable_end == 1

    rig.restart()
    assert rig.log.partition(1).stable_end == 1
    write(rig, marker(A, COMMIT))
    assert rig.log.partition(1).stable_end == 2
    rig.restart()
    assert rig.log.partition(1).stable_end == 2

    write(rig, marker(B, ABORT))
    assert flush_all(rig).open_transactions == {1: ()}
    assert rig.ranges[1].stable_end == 5
    assert aborted(rig.log.partition(1), 0, 5) == [(B, 2, 4, 5)]


def test_only_partitions_with_transactions_are_named_in_a_flush(rig: Rig):
    write(rig, data(None))
    rig.commit(2, memoryview(data(A)))

    assert flush_all(rig).open_transactions == {2: ((A, 0),)}


# ── retention ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("flushed", [True, False])
def test_where_retention_took_the_beginning_the_rest_is_not_to_be_read_either(
    rig: Rig, flushed: bool
):
    """Kafka clamps the last stable offset to the start of the log, too."""
    write(rig, data(A), data(None), data(None))
    if flushed:
        flush_all(rig)
    retain(rig, 1, 2)
    assert rig.log.partition(1).stable_end == 2

    rig.restart()
    assert rig.log.partition(1).stable_end == 2
    if not flushed:
        flush_all(rig)
        rig.restart()
    partition = rig.log.partition(1)
    assert partition.stable_end == 2

    write(rig, marker(A, ABORT))
    assert partition.stable_end == 4
    assert aborted(partition, 2, 4) == [(A, 0, 3, 4)]


# ── rows ──────────────────────────────────────────────────────────────────────────────────────


def test_the_stable_end_lies_between_start_and_end():
    assert stable_end_of((), 3, 10) == 10
    assert stable_end_of([(A, 5), (B, 4)], 3, 10) == 4
    assert stable_end_of([(A, 2)], 3, 10) == 3
    assert stable_end_of([(A, 12)], 3, 10) == 10


@given(st.data())
def test_rewritten_segments_answer_as_the_old_ones_did(data_: st.DataObject):
    """Merge, and cut elsewhere: every reader finds the same aborted transactions."""
    transactions, inputs, ends, at = Transactions(), [], [], 0
    cuts = data_.draw(st.lists(st.integers(1, 8), min_size=1, max_size=4))
    for size in cuts:
        floor = at
        for _ in range(size):
            producer = data_.draw(st.sampled_from([A, B, 9]))
            entry = data_.draw(
                st.sampled_from([data(producer), marker(producer, COMMIT), marker(producer, ABORT)])
            )
            step = read_transaction_step(entry, read_header(entry), at)
            assert step is not None
            transactions.apply(step)
            at += 1
        inputs.append(transactions.rows(floor, at))
        transactions.forget_below(at)
        ends.append(at)
    cut = data_.draw(st.integers(1, at))
    outputs = [rows_within(inputs, base, end) for base, end in ((0, cut), (cut, at)) if base < end]
    for rows in outputs:
        assert rows == sorted(rows, key=lambda row: row.last_offset)
    for start in range(at):
        for end in range(start + 1, at + 1):
            olds = chained(inputs, ends, start, end)
            assert chained(outputs, [cut, at], start, end) == olds


def chained(
    segments: list[list[AbortedTransaction]], ends: list[int], start: int, end: int
) -> list[AbortedTransaction]:
    found: list[AbortedTransaction] = []
    for rows, segment_end in zip(segments, ends, strict=False):
        if segment_end <= start:
            continue
        some, goes_on = overlapping(rows, start, end)
        found += some
        if not goes_on and segment_end >= end:
            break
    return found


def test_a_transaction_that_ended_between_merged_segments_is_not_open_any_more():
    inputs = [[AbortedTransaction(A, 1, OPEN, 1)], [AbortedTransaction(B, 7, OPEN, 7)]]

    assert rows_within(inputs, 0, 10) == [AbortedTransaction(B, 7, OPEN, 7)]
    assert overlapping(rows_within(inputs, 0, 10), 0, 7) == ([], False)


def test_events_name_whose_transaction_it_is():
    entry = data(A, 2)
    assert read_transaction_step(entry, header_of(memoryview(entry)), 40) == (A, 40, None)
    entry = marker(B, ABORT, producer_epoch=3)
    assert read_transaction_step(entry, header_of(memoryview(entry)), 41) == (B, 41, ABORT)


# ── without a broker ──────────────────────────────────────────────────────────────────────────


def test_readers_of_sealed_data_know_what_was_aborted_and_where_to_stop(rig: Rig):
    write(rig, data(A), data(None), data(B))  # 0, 1, 2
    flush_all(rig)
    write(rig, marker(A, ABORT), data(None))  # 3, 4
    flush_all(rig)
    manifest = Manifest(CLUSTER, 1, rig.flushed_through, (), rig.ranges, tuple(rig.segments))
    write_manifest(rig.fs, rig.directory.segments, manifest)

    sealed = SealedLog(DATA, files=rig.fs)

    assert sealed.range_of(1) == (0, 2)
    assert sealed.aborted(1) == [(A, 0, 3, 2)]
    assert sealed.aborted(1, 0, 1) == [(A, 0, 3, 2)]
    sealed.close()
