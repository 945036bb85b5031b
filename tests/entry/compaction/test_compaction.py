"""Compaction of one entry, compared with Kafka's own cleaner."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tools.servers.java import jars

from tests.entry.conftest import INSTALLED, PURE, Room
from tests.entry.samples import (
    CODECS,
    patched,
    plain_records,
    read_by_aiokafka,
    read_by_kafka_python,
    record_bytes,
    record_lists,
    sealed,
)
from tests.tools import require_jars, require_program
from trilogue.entry.compaction.compaction import (
    KafkaEntry,
    delete_horizon,
    emptied,
    open_entry,
    outcome_of,
)
from trilogue.entry.control import Outcome, build_marker
from trilogue.entry.entry import (
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    CorruptEntry,
    EntryTooLarge,
    Format,
    Record,
)
from trilogue.entry.kafka.record_batch import build_batch, check_crc, iter_records, read_header

NOW = 1_700_000_000_000
RELEASE = "3.9.1"  # later releases do not export these classes
PROGRAM = Path(__file__).with_name("Clean.java")


@dataclass(frozen=True)
class Sample:
    """A stored entry and the flags of the records to retain."""

    entry: bytes
    kept: tuple[bool, ...]
    horizon_ms: int | None = None  # to be set

    @property
    def records(self) -> list[Record]:
        return list(iter_records(self.entry))

    @property
    def expected(self) -> list[Record]:
        return [each for each, kept in zip(self.records, self.kept, strict=True) if kept]

    def rewritten(self) -> bytes:
        found = opened(self.entry)
        return found.keeping(self.kept, self.horizon_ms)


def opened(entry: bytes) -> KafkaEntry:
    found = open_entry(entry, read_header(entry))
    assert found is not None
    return found


@st.composite
def samples(draw: st.DrawFn, codecs: Sequence[int] = CODECS) -> Sample:
    records = draw(record_lists(holes=True))
    entry = build_batch(
        records,
        codec=draw(st.sampled_from(codecs)),
        base_offset=records[0].offset - draw(st.integers(0, min(3, records[0].offset))),
        leader_epoch=draw(st.integers(0, 9)),
        producer_id=draw(st.integers(0, 2**63 - 1)),
        producer_epoch=draw(st.integers(0, 2**15 - 1)),
        base_sequence=draw(st.integers(0, 2**31 - 1)),
    )
    header = read_header(entry)
    flags = header.attributes
    for each in (LOG_APPEND_TIME, TRANSACTIONAL, DELETE_HORIZON):
        flags |= each if draw(st.booleans()) else 0
    more = draw(st.integers(0, 5))  # the last records went before
    entry = patched(
        entry, attributes=flags, last_offset_delta=min(header.last_offset_delta + more, 2**31 - 1)
    )
    size = len(records)
    kept = draw(st.lists(st.booleans(), min_size=size, max_size=size).filter(any))
    has_horizon = flags & DELETE_HORIZON
    horizon = None if has_horizon else draw(st.none() | st.integers(NOW, NOW + 10**9))
    return Sample(entry, tuple(kept), horizon)


@given(sample=samples())
def test_rewritten_batch_contains_the_kept_records_unchanged(sample: Sample):
    before = read_header(sample.entry)

    rewritten = sample.rewritten()

    after = check_crc(rewritten)
    assert list(iter_records(rewritten)) == sample.expected
    assert after.record_count == len(sample.expected)
    for name in (
        "base_offset", "last_offset_delta", "leader_epoch", "producer_id", "producer_epoch",
        "base_sequence", "codec", "is_transactional", "log_append_time", "format",
    ):  # fmt: skip
        assert getattr(after, name) == getattr(before, name), name


@given(sample=samples())
def test_max_timestamp_is_that_of_the_kept_records(sample: Sample):
    after = read_header(sample.rewritten())

    assert after.max_timestamp == max(record.timestamp for record in sample.expected)


@given(sample=samples())
def test_a_delete_horizon_stands_in_the_base_time_and_stays(sample: Sample):
    before = delete_horizon(read_header(sample.entry))

    after = read_header(sample.rewritten())

    horizon = sample.horizon_ms if before is None else before
    assert delete_horizon(after) == horizon
    assert after.base_timestamp == (sample.expected[0].timestamp if horizon is None else horizon)


@given(sample=samples())
def test_other_clients_read_rewritten_batches(sample: Sample):
    rewritten = sample.rewritten()

    for read in (read_by_aiokafka, read_by_kafka_python):
        assert [each[:5] for each in read(rewritten)] == [each[:5] for each in sample.expected]


def test_header_names_that_are_no_text_are_kept_to_the_byte():
    odd = record_bytes(0, 0, 1, b"k", 1, b"v", 1, 2, b"\xff\xfe", 3, b"abc")
    gone = record_bytes(0, 1, 1, b"k", 1, b"v", 0)
    entry = sealed(odd + gone, count=2, base_offset=7)

    rewritten = opened(entry).keeping((True, False))

    assert rewritten.endswith(odd)
    assert read_header(rewritten).last_offset == 8


@pytest.mark.parametrize("delta", [2**63 - 10**6, 10**6 - 2**63])
def test_times_out_of_this_world_keep_their_base(delta: int):
    """A delta from another base exceeds 64 bits: the entry gets no delete horizon."""
    first = record_bytes(-delta, 0, 1, b"a", 1, b"v", 0)
    second = record_bytes(delta, 1, 1, b"b", -1, 0)
    entry = sealed(first + second, count=2, base_timestamp=0, max_timestamp=2**63 - 1)

    rewritten = opened(entry).keeping((True, True), NOW)

    assert [each.timestamp for each in iter_records(rewritten)] == [-delta, delta]
    assert delete_horizon(read_header(rewritten)) is None


@given(sample=samples(), is_control=st.booleans())
def test_an_emptied_entry_keeps_its_place_and_its_producer(sample: Sample, is_control: bool):
    before = read_header(sample.entry)
    flags = before.attributes | (CONTROL if is_control else 0)
    before = read_header(patched(sample.entry, attributes=flags))

    entry = emptied(before)

    after = check_crc(entry)
    assert len(entry) == 61
    assert list(iter_records(entry)) == []
    assert after.is_control == is_control
    assert (after.codec, delete_horizon(after)) == (0, None)
    for name in (
        "base_offset", "last_offset_delta", "leader_epoch", "producer_id", "producer_epoch",
        "base_sequence", "is_transactional", "log_append_time", "max_timestamp",
    ):  # fmt: skip
        assert getattr(after, name) == getattr(before, name), name
    for read in (read_by_aiokafka, read_by_kafka_python):
        assert read(entry) == []


def test_the_keys_of_an_entry_are_listed():
    records = [Record(3, 9, b"a", b"1"), Record(5, 8, None, b""), Record(6, 7, b"", None)]
    entry = build_batch(records, codec=4)

    assert opened(entry).records == [
        (3, 9, b"a", False),
        (5, 8, None, False),
        (6, 7, b"", True),
    ]


def test_a_tubemq_message_has_no_key_and_stays():
    entry = patched(build_batch(plain_records(1)), attributes=Format.TUBEMQ << 8)

    found = open_entry(entry, read_header(entry))

    assert found is not None
    assert found.keeps_keyless
    assert [(each.key, each.is_tombstone) for each in found.records] == [(None, False)]
    assert found.keeping([True]) == entry


def test_a_tubemq_message_that_names_a_key_is_left_alone():
    """It is retained, and readers of other protocols see its key: so are its tombstones."""
    record = Record(0, 0, None, b"trilogue.key=a")
    entry = patched(build_batch([record]), attributes=Format.TUBEMQ << 8)

    assert open_entry(entry, read_header(entry)) is None


def test_records_that_are_not_in_order_are_an_error():
    entry = sealed(b"\x99" * 20)

    with pytest.raises(CorruptEntry):
        open_entry(entry, read_header(entry))


def test_too_many_bytes_are_an_error():
    entry = build_batch(plain_records(9, value=bytes(1000)), codec=4)

    with pytest.raises(EntryTooLarge):
        open_entry(entry, read_header(entry), limit=5000)


@pytest.mark.parametrize("outcome", Outcome)
def test_marker_contains_the_outcome_of_its_transaction(outcome: Outcome):
    marker = build_marker(
        outcome, producer_id=7, producer_epoch=1, coordinator_epoch=2, timestamp_ms=NOW
    )

    header = read_header(marker)
    assert outcome_of(marker, header) is outcome
    assert outcome_of(emptied(header), read_header(emptied(header))) is None


@given(sample=samples(), data=st.data())
def test_arrow_reads_rewritten_batches(room: Room, sample: Sample, data: st.DataObject):
    header = read_header(sample.entry)
    rewritten = sample.rewritten()
    later = patched(rewritten, base_offset=header.last_offset + 1)
    entries = [emptied(header), later] if data.draw(st.booleans()) else [rewritten]
    reader = room.arrow.ArrowReader("t", 0, header.base_offset, columns=("offset", "value"))

    batches = [*reader.feed(b"".join(entries)), *reader.flush()]

    values = [value for batch in batches for value in batch.column("value").to_pylist()]
    assert values == [record.value for record in sample.expected]
    assert reader.next_offset == read_header(entries[-1]).last_offset + 1


@given(records=record_lists(holes=True), base=st.integers(0, NOW), data=st.data())
def test_twins_keep_the_same_bytes(records: list[Record], base: int, data: st.DataObject):
    entry = build_batch(records)
    flags = st.lists(st.booleans(), min_size=len(records), max_size=len(records))
    kept = bytes(data.draw(flags))

    def packed(room: Room) -> bytes:
        packer = room.pack.RecordPacker()
        walker = room.kafka_batch.walk_records(entry)
        assert packer.pack_kept(walker, kept, base) == sum(kept)
        return bytes(packer.packed())

    assert packed(INSTALLED) == packed(PURE)
    keys = [room.kafka_batch.walk_records(entry).read_keys(99) for room in (INSTALLED, PURE)]
    assert keys[0] == keys[1]


# ── Kafka's own cleaner ───────────────────────────────────────────────────────────────────────


class Cleaner:
    """A Java process that answers each line with the batch that Kafka's cleaner makes of it."""

    def __init__(self, release: str) -> None:
        self._process = subprocess.Popen(
            ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{jars(release)}/*", str(PROGRAM)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True, bufsize=1,
        )  # fmt: skip

    def clean(self, sample: Sample, *, empty_transaction: bool = False) -> bytes:
        offsets = ",".join(str(record.offset) for record in sample.expected) or "-"
        now, horizon = NOW, sample.horizon_ms
        wait = 0 if horizon is None else horizon - now
        words = (sample.entry.hex(), offsets, now, wait, str(empty_transaction).lower())
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        return bytes.fromhex(self._process.stdout.readline().strip())

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture(scope="module")
def cleaner() -> Iterator[Cleaner]:
    require_program("javac")
    require_jars(RELEASE)
    process = Cleaner(RELEASE)
    yield process
    process.close()


few = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))


def as_kafka_would(sample: Sample) -> Sample:
    """Kafka sets a horizon exactly where a tombstone is kept and none is known."""
    known = delete_horizon(read_header(sample.entry)) is not None
    tombstones = any(record.value is None for record in sample.expected)
    return replace(sample, horizon_ms=NOW + 5000 if tombstones and not known else None)


@pytest.mark.java
@few
@given(sample=samples(codecs=(0,)))
def test_rewritten_batch_equals_that_of_kafkas_cleaner_byte_for_byte(
    cleaner: Cleaner, sample: Sample
):
    sample = as_kafka_would(sample)

    theirs = cleaner.clean(sample)

    if all(sample.kept) and sample.horizon_ms is None:
        assert theirs == sample.entry  # an unchanged batch is not rewritten by either
    else:
        assert sample.rewritten().hex() == theirs.hex()


@pytest.mark.java
@few
@given(sample=samples(codecs=(1, 2, 3, 4)))
def test_compressed_entries_keep_what_kafkas_cleaner_keeps(cleaner: Cleaner, sample: Sample):
    sample = replace(as_kafka_would(sample), kept=(*sample.kept[:-1], False))
    if not any(sample.kept):
        return
    sample = as_kafka_would(sample)

    ours, theirs = sample.rewritten(), cleaner.clean(sample)

    assert list(iter_records(ours)) == list(iter_records(theirs))
    both = [read_header(each)._replace(length=0, crc=0) for each in (ours, theirs)]
    assert both[0] == both[1]


@pytest.mark.java
@few
@given(sample=samples(), is_control=st.booleans())
def test_an_emptied_entry_is_byte_for_byte_kafkas(
    cleaner: Cleaner, sample: Sample, is_control: bool
):
    entry = sample.entry
    if is_control:
        entry = patched(entry, attributes=read_header(entry).attributes | CONTROL)
    sample = Sample(entry, (False,) * len(sample.kept))

    assert emptied(read_header(entry)).hex() == cleaner.clean(sample).hex()


@pytest.mark.java
@pytest.mark.parametrize("outcome", Outcome)
def test_a_lonely_markers_horizon_is_set_as_kafka_sets_it(cleaner: Cleaner, outcome: Outcome):
    marker = build_marker(
        outcome, producer_id=7, producer_epoch=1, coordinator_epoch=2, timestamp_ms=5
    )
    sample = Sample(marker, (True,), NOW + 86_400_000)

    assert sample.rewritten().hex() == cleaner.clean(sample, empty_transaction=True).hex()
