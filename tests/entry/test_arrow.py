from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.entry.conftest import Room
from tests.entry.samples import (
    CODECS,
    patched,
    plain_records,
    read_by_aiokafka,
    record_bytes,
    record_lists,
    sealed,
)
from trilogue.entry.entry import CorruptEntry, EntryError, EntryTooLarge, InvalidEntry, Record
from trilogue.entry.kafka.record_batch import build_batch, iter_records, set_log_append_time

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
codecs = st.sampled_from(CODECS)


def rows_of(batches: list[pa.RecordBatch]) -> list[dict[str, object]]:
    for batch in batches:
        batch.validate(full=True)
    return [row for batch in batches for row in batch.to_pylist()]


def read(room: Room, entries: bytes, *span: int, **options) -> list[dict[str, object]]:
    reader = room.arrow.ArrowReader("flights", 3, *span, **options)
    return rows_of([*reader.feed(entries), *reader.flush()])


def expected_row(record: Record, kind: int = 0) -> dict[str, object]:
    headers = [{"key": key, "value": value} for key, value in record.headers]
    return {
        "key": record.key,
        "value": record.value,
        "topic": "flights",
        "partition": 3,
        "offset": record.offset,
        "timestamp": EPOCH + timedelta(milliseconds=record.timestamp),
        "timestampType": kind,
        "headers": headers or None,
    }


def chain(count: int, each: int = 4) -> tuple[list[Record], bytes]:
    """Return consecutive batches."""
    records = plain_records(count)
    batches = [build_batch(records[at : at + each]) for at in range(0, count, each)]
    return records, b"".join(batches)


def test_schema_is_that_of_sparks_kafka_source(room: Room):
    assert room.arrow.arrow_schema().to_string() == (
        "key: binary\nvalue: binary\ntopic: string\npartition: int32\noffset: int64\n"
        "timestamp: timestamp[us, tz=UTC]\ntimestampType: int32\n"
        "headers: list<element: struct<key: string, value: binary>>\n"
        "  child 0, element: struct<key: string, value: binary>\n"
        "      child 0, key: string\n      child 1, value: binary"
    )


@given(records=record_lists(holes=True), codec=codecs)
def test_every_record_becomes_a_row(room: Room, records: list[Record], codec: int):
    rows = read(room, build_batch(records, codec=codec))

    assert rows == [expected_row(record) for record in records]


@given(records=record_lists(), columns=st.permutations(range(8)), count=st.integers(1, 8))
def test_any_columns_in_any_order(room: Room, records, columns: list[int], count: int):
    names = [room.arrow.COLUMNS[i] for i in columns[:count]]

    rows = read(room, build_batch(records), columns=names)

    assert [list(row) for row in rows] == [names] * len(records)
    assert rows == [{name: expected_row(r)[name] for name in names} for r in records]


@given(
    count=st.integers(1, 30), each=st.integers(1, 9), start=st.integers(0, 32),
    end=st.integers(0, 32), rows_per_batch=st.integers(1, 9),
)  # fmt: skip
def test_offsets_outside_the_range_are_left_out(
    room: Room, *, count: int, each: int, start: int, end: int, rows_per_batch: int
):
    records, entries = chain(count, each)
    reader = room.arrow.ArrowReader("flights", 3, start, end, rows_per_batch=rows_per_batch)

    batches = [*reader.feed(entries), *reader.flush()]

    assert rows_of(batches) == [expected_row(r) for r in records if start <= r.offset < end]
    assert all(0 < batch.num_rows <= rows_per_batch for batch in batches)
    assert reader.next_offset == max(start, min(count, end))
    assert reader.done == (reader.next_offset >= end)


def test_fetches_follow_each_other(room: Room):
    """A fetch begins with the entry that contains the offset and may end within an entry."""
    records, entries = chain(20)
    starts = [pos for pos, *_ in room.walk.walk_headers(entries)]
    reader = room.arrow.ArrowReader("flights", 3, 2, rows_per_batch=7)
    batches = []

    batches += reader.feed(entries[: starts[1] + 30])
    assert reader.next_offset == 4
    batches += reader.feed(entries[starts[1] : starts[4] - 1])
    assert reader.next_offset == 12
    batches += reader.feed(entries)
    batches += reader.flush()

    assert rows_of(batches) == [expected_row(record) for record in records[2:]]
    assert [batch.num_rows for batch in batches] == [7, 7, 4]
    assert list(reader.flush()) == []


def test_next_offset_is_behind_the_rows_that_were_handed_over(room: Room):
    entries = build_batch(plain_records(10))
    reader = room.arrow.ArrowReader("flights", 3, 1, rows_per_batch=4)

    seen = [(batch.num_rows, reader.next_offset) for batch in reader.feed(entries)]

    assert seen == [(4, 5), (4, 9)]
    assert reader.next_offset == 10


def test_full_is_also_a_number_of_bytes(room: Room):
    entries = build_batch(plain_records(10, value=b"x" * 100))
    reader = room.arrow.ArrowReader("flights", 3, bytes_per_batch=300)

    assert [batch.num_rows for batch in reader.feed(entries)] == [3, 3, 3]
    assert [batch.num_rows for batch in reader.flush()] == [1]


def test_control_batches_are_skipped_but_count(room: Room):
    marker = build_batch([Record(2, 1, b"\0\0\0\1", b"")], transactional=True, control=True)
    entries = build_batch(plain_records(2)) + marker
    reader = room.arrow.ArrowReader("flights", 3)

    rows = rows_of([*reader.feed(entries), *reader.flush()])

    assert [row["offset"] for row in rows] == [0, 1]
    assert reader.next_offset == 3


def transaction(base: int, producer_id: int, *, commit: bool) -> bytes:
    """Two records, then the marker that ends them."""
    fields = {"producer_id": producer_id, "producer_epoch": 0}
    records = [Record(base + i, 1, None, b"%d" % producer_id) for i in range(2)]
    kind = b"\0\0\0\1" if commit else b"\0\0\0\0"
    return build_batch(records, transactional=True, base_sequence=0, **fields) + build_batch(
        [Record(base + 2, 1, kind, bytes(6))], transactional=True, control=True, **fields
    )


def test_aborted_transactions_are_left_out(room: Room):
    entries = (
        transaction(0, 5, commit=True)
        + transaction(3, 5, commit=False)
        + transaction(6, 6, commit=True)
        + transaction(9, 5, commit=True)
    )
    reader = room.arrow.ArrowReader("flights", 3, columns=["offset"])

    rows = rows_of([*reader.feed(entries, aborted=[(5, 3)]), *reader.flush()])

    assert [row["offset"] for row in rows] == [0, 1, 6, 7, 9, 10]
    assert reader.next_offset == 12


def test_an_abort_before_the_first_offset_ends_there(room: Room):
    entries = transaction(3, 5, commit=False) + transaction(6, 5, commit=True)
    reader = room.arrow.ArrowReader("flights", 3, 6, columns=["offset"])

    rows = rows_of([*reader.feed(entries, aborted=[(5, 3)]), *reader.flush()])

    assert [row["offset"] for row in rows] == [6, 7]


def test_log_append_time_is_set_per_row(room: Room):
    records, _ = chain(12)
    stamped = bytearray(build_batch(records[4:8]))
    set_log_append_time(stamped, 1000)
    entries = build_batch(records[:4]) + stamped + build_batch(records[8:])

    rows = read(room, entries, columns=["timestampType", "timestamp"], rows_per_batch=6)

    assert [row["timestampType"] for row in rows] == [0] * 4 + [1] * 4 + [0] * 4
    assert {row["timestamp"] for row in rows[4:8]} == {EPOCH + timedelta(seconds=1)}


def test_times_that_arrow_cannot_hold_stay_at_the_border(room: Room):
    entry = sealed(record_bytes(0, 0, -1, -1, 0), base_timestamp=2**62, max_timestamp=2**62)
    reader = room.arrow.ArrowReader("flights", 3, columns=["timestamp"])

    (batch,) = [*reader.feed(entry), *reader.flush()]

    assert batch.column(0).cast(pa.int64()).to_pylist() == [(2**63 - 1) // 1000 * 1000]


def test_header_keys_that_are_not_utf8_get_replacement_characters(room: Room):
    good = record_bytes(0, 0, -1, -1, 1, 1, b"a", -1)
    bad = record_bytes(0, 1, -1, -1, 1, 2, b"\xffb", 1, b"v")

    rows = read(room, sealed(good + bad, count=2), columns=["headers"])

    assert rows == [
        {"headers": [{"key": "a", "value": None}]},
        {"headers": [{"key": "\ufffdb", "value": b"v"}]},
    ]


def test_the_first_entry_of_a_fetch_is_never_cut(room: Room):
    entries = build_batch(plain_records(2))
    for size in range(1, len(entries)):
        with pytest.raises(CorruptEntry):
            read(room, entries[:size])
    assert read(room, b"") == []


def test_damage_is_an_entry_error_before_a_row_is_handed_over(room: Room):
    records, entries = chain(8)
    size = len(entries) // 2
    for position in range(16, size):  # before it: what the broker sets, and the length
        flipped = bytearray(entries)
        flipped[size + position] ^= 0x10
        reader = room.arrow.ArrowReader("flights", 3)
        with pytest.raises(EntryError):
            list(reader.feed(flipped))

        assert reader.next_offset == 4
        assert rows_of(list(reader.flush())) == [expected_row(r) for r in records[:4]]


@pytest.mark.parametrize("position", range(61, 90))
def test_damage_under_a_right_checksum_is_an_entry_error_or_other_rows(room: Room, position: int):
    for bit in range(8):
        flipped = bytearray(build_batch(plain_records(2)))
        flipped[position] ^= 1 << bit
        try:
            read(room, patched(bytes(flipped)))
        except CorruptEntry:
            continue


def test_bombs_are_too_large(room: Room):
    bomb = sealed(record_bytes(0, 0, -1, 5_000_000, bytes(5_000_000), 0), codec=4)

    with pytest.raises(EntryTooLarge):
        read(room, bomb, limit=1_000_000)
    assert len(read(room, bomb, limit=6_000_000)) == 1


def test_other_formats_are_refused(room: Room):
    with pytest.raises(InvalidEntry):
        read(room, patched(build_batch(plain_records(1)), attributes=0x100))


def test_columns_that_do_not_exist_are_refused(room: Room):
    with pytest.raises(ValueError, match="colour"):
        room.arrow.ArrowReader("flights", 3, columns=["key", "colour"])
    with pytest.raises(ValueError, match="a column is needed"):
        room.arrow.ArrowReader("flights", 3, columns=[])


def arrow_rows(records: list[Record], schema: pa.Schema) -> pa.RecordBatch:
    wanted = set(schema.names)
    rows = [{k: v for k, v in expected_row(r).items() if k in wanted} for r in records]
    return pa.RecordBatch.from_pylist(rows, schema=schema)


@given(
    records=record_lists(max_size=30), codec=codecs, max_bytes=st.integers(61, 2000), data=st.data()
)
def test_rows_become_entries_that_hold_them(
    room: Room, records: list[Record], codec: int, max_bytes: int, data: st.DataObject
):
    batch = arrow_rows(records, room.arrow.arrow_schema())
    start = data.draw(st.integers(0, len(records)))
    batch = batch.slice(start, data.draw(st.integers(0, len(records) - start)))

    entries = room.arrow.build_from_arrow(batch, codec, max_bytes, timestamp_ms=1)

    built = []
    for entry in entries:
        header = room.kafka_batch.check_produced(entry)
        assert header.codec == codec
        assert codec or header.record_count == 1 or len(entry) <= max_bytes
        assert header.max_timestamp == max(r.timestamp for r in iter_records(entry))
        built += read_by_aiokafka(entry)
    kept = records[start : start + batch.num_rows]
    assert [r[1:] for r in built] == [r[1:] for r in kept]


def test_entries_are_filled_before_the_next_is_begun(room: Room):
    records = plain_records(100)
    batch = arrow_rows(records, room.arrow.arrow_schema(["key", "value", "timestamp"]))

    entries = room.arrow.build_from_arrow(batch, 0, 400, timestamp_ms=1)

    for entry, following in pairwise(entries):
        first = len(build_batch([next(iter_records(following))])) - 61
        assert 400 - first - 2 < len(entry) <= 400


def test_sequences_go_on_from_entry_to_entry(room: Room):
    batch = arrow_rows(plain_records(10), room.arrow.arrow_schema(["value"]))

    entries = room.arrow.build_from_arrow(
        batch, 0, 150, timestamp_ms=1, producer_id=8, producer_epoch=2, base_sequence=2**31 - 3
    )

    headers = [room.kafka_batch.check_produced(entry) for entry in entries]
    sequence = 2**31 - 3
    for header in headers:
        assert (header.producer_id, header.producer_epoch) == (8, 2)
        assert header.base_sequence == sequence
        sequence = (sequence + header.record_count) % 2**31
    assert len(headers) > 2


def test_missing_columns_are_null_and_the_current_time(room: Room):
    batch = pa.record_batch({"value": pa.array(["text", None], pa.string())})

    (entry,) = room.arrow.build_from_arrow(batch, 0, 1000, timestamp_ms=777)

    assert list(iter_records(entry)) == [Record(0, 777, None, b"text"), Record(1, 777, None, None)]


def test_times_of_any_kind_are_taken(room: Room):
    for kind, value in (
        (pa.timestamp("us", tz="UTC"), 5_000_000),
        (pa.timestamp("us"), 5_000_000),
        (pa.timestamp("ns", tz="UTC"), 5_000_000_000),
        (pa.timestamp("s"), 5),
        (pa.int64(), 5000),
    ):
        column = pa.array([0, value, None], kind).slice(1)
        batch = pa.record_batch({"value": pa.array([b"a", b"b"]), "timestamp": column})

        (entry,) = room.arrow.build_from_arrow(batch, 0, 1000, timestamp_ms=777)

        assert [r.timestamp for r in iter_records(entry)] == [5000, 777]


def test_times_before_1970_are_refused(room: Room):
    batch = pa.record_batch({"timestamp": pa.array([-2], pa.int64())})

    with pytest.raises(ValueError, match="1970"):
        room.arrow.build_from_arrow(batch, 0, 1000, timestamp_ms=1)


def test_columns_of_other_byte_types_are_taken(room: Room):
    batch = pa.record_batch(
        {
            "key": pa.array(["a", "a"]).dictionary_encode(),
            "value": pa.array([b"x", None], pa.large_binary()),
            "headers": pa.nulls(2, room.arrow.arrow_schema().field("headers").type),
        }
    )

    (entry,) = room.arrow.build_from_arrow(batch, 0, 1000, timestamp_ms=1)

    assert list(iter_records(entry)) == [Record(0, 1, b"a", b"x"), Record(1, 1, b"a", None)]


def test_headers_without_a_key_are_refused(room: Room):
    kind = room.arrow.arrow_schema().field("headers").type
    batch = pa.record_batch({"headers": pa.array([[{"key": None, "value": b""}]], kind)})

    with pytest.raises(ValueError, match="needs a key"):
        room.arrow.build_from_arrow(batch, 0, 1000, timestamp_ms=1)


def test_no_rows_are_no_entries(room: Room):
    empty = arrow_rows([], room.arrow.arrow_schema())

    assert room.arrow.build_from_arrow(empty, 0, 1000, timestamp_ms=1) == []
