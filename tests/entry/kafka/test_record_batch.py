from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.entry.conftest import Room
from tests.entry.samples import (
    CODECS,
    build_by_aiokafka,
    build_by_kafka_python,
    header_of,
    patched,
    plain_records,
    read_by_aiokafka,
    read_by_kafka_python,
    record_bytes,
    record_lists,
    sealed,
    varint,
)
from tests.entry.vectors import JAVA_BATCHES, JAVA_PRODUCER, JAVA_RECORDS
from trilogue.entry.entry import (
    CorruptEntry,
    EntryError,
    EntryTooLarge,
    InvalidEntry,
    Record,
    UnsupportedCompression,
)

codecs = st.sampled_from(CODECS)


@given(records=record_lists(), codec=codecs)
def test_built_batch_is_read(room: Room, records: list[Record], codec: int):
    batch = room.kafka_batch.build_batch(records, codec=codec)

    assert room.kafka_batch.check_produced(batch) == header_of(batch)
    assert list(room.kafka_batch.iter_records(batch)) == records


@given(records=record_lists(holes=True), codec=codecs)
def test_holes_are_kept(room: Room, records: list[Record], codec: int):
    batch = room.kafka_batch.build_batch(records, codec=codec)

    header = header_of(batch)
    assert header.base_offset == records[0].offset
    assert header.last_offset == records[-1].offset
    assert header.record_count == len(records)
    assert list(room.kafka_batch.iter_records(batch)) == records


@given(records=record_lists(), codec=codecs)
def test_other_clients_read_what_we_build(room: Room, records: list[Record], codec: int):
    batch = room.kafka_batch.build_batch(records, codec=codec)

    assert read_by_aiokafka(batch) == records
    assert read_by_kafka_python(batch) == records


@given(records=record_lists(), codec=codecs)
def test_we_read_what_other_clients_build(room: Room, records: list[Record], codec: int):
    for build in (build_by_aiokafka, build_by_kafka_python):
        batch = build(records, codec)

        assert list(room.kafka_batch.iter_records(memoryview(batch))) == records


@given(records=record_lists())
def test_uncompressed_batches_are_byte_for_byte_those_of_others(room: Room, records: list[Record]):
    theirs = build_by_kafka_python(records, 0)

    ours = room.kafka_batch.build_batch(records)

    assert patched(ours, leader_epoch=0) == patched(theirs, leader_epoch=0)


GOLDEN = bytes.fromhex(
    "0000000000000000"  # base offset 0
    "00000051"  # 81 bytes follow
    "ffffffff"  # leader epoch: set by the broker
    "02"  # magic
    "54d81d36"  # crc-32c of all following bytes
    "0000"  # attributes: uncompressed, create time
    "00000001"  # last offset delta
    "0000018bcfe56800"  # base timestamp 1700000000000
    "0000018bcfe56805"  # max timestamp, 5 ms later
    "0000000000001234"  # producer id
    "0001"  # producer epoch
    "00000007"  # base sequence
    "00000002"  # two records
    "22"  # 17 bytes
    "00 00 00"  # attributes, time delta 0, offset delta 0
    "02 6b"  # key "k"
    "0a 68656c6c6f"  # value "hello"
    "02"  # one header
    "02 68 04 0102"  # "h": 01 02
    "1a"  # 13 bytes
    "00 0a 02"  # attributes, time delta 5, offset delta 1
    "01"  # key null
    "00"  # value empty
    "02"  # one header
    "0a 6e756c6c21 01"  # "null!": null
)
GOLDEN_RECORDS = [
    Record(0, 1700000000000, b"k", b"hello", (("h", b"\x01\x02"),)),
    Record(1, 1700000000005, None, b"", (("null!", None),)),
]


def test_golden_batch(room: Room):
    built = room.kafka_batch.build_batch(
        GOLDEN_RECORDS, producer_id=0x1234, producer_epoch=1, base_sequence=7
    )

    assert built.hex() == GOLDEN.hex()
    assert read_by_kafka_python(GOLDEN) == GOLDEN_RECORDS
    assert list(room.kafka_batch.iter_records(GOLDEN)) == GOLDEN_RECORDS
    header = room.kafka_batch.check_crc(GOLDEN)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (0x1234, 1, 7)


@pytest.mark.parametrize("codec", CODECS)
def test_batches_of_java_are_read(room: Room, codec: int):
    header = room.kafka_batch.check_produced(JAVA_BATCHES[codec])

    assert header.codec == codec
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == JAVA_PRODUCER
    assert list(room.kafka_batch.iter_records(JAVA_BATCHES[codec])) == JAVA_RECORDS


def test_built_batch_equals_that_of_java_byte_for_byte(room: Room):
    producer_id, producer_epoch, base_sequence = JAVA_PRODUCER

    batch = room.kafka_batch.build_batch(
        JAVA_RECORDS,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )

    assert batch.hex() == JAVA_BATCHES[0].hex()


def test_every_flipped_bit_of_the_records_ends_as_records_or_an_entry_error(room: Room):
    refused = 0
    for position in range(61, len(GOLDEN)):
        for bit in range(8):
            flipped = bytearray(GOLDEN)
            flipped[position] ^= 1 << bit
            with pytest.raises(CorruptEntry):
                room.kafka_batch.check_crc(flipped)
            try:
                list(room.kafka_batch.iter_records(flipped))
            except EntryError:
                refused += 1
    assert refused > 100


def test_every_cut_is_refused(room: Room):
    for size in range(len(GOLDEN)):
        with pytest.raises(EntryError):
            list(room.kafka_batch.iter_records(GOLDEN[:size]))
    for size in range(61, len(GOLDEN)):  # truncated, with a matching length
        with pytest.raises(CorruptEntry):
            list(room.kafka_batch.iter_records(patched(GOLDEN[:size], batch_length=size - 12)))


GOOD = record_bytes(0, 0, -1, 1, b"v", 0)
HOSTILE = {
    "nothing": b"",
    "empty record": varint(0),
    "negative size": varint(-1) + bytes(10),
    "size without end": b"\xff" * 12,
    "size of 11 bytes": b"\x80" * 10 + b"\x01" + bytes(20),
    "size over 64 bits": b"\xff" * 9 + b"\x02" + bytes(20),
    "size 2**31": record_bytes(0, 0, -1, 1, b"v", 0, size=2**31),
    "size 2**63 - 1": record_bytes(0, 0, -1, 1, b"v", 0, size=2**63 - 1),
    "size one more": record_bytes(0, 0, -1, 1, b"v", 0, size=len(GOOD)),
    "size one less": record_bytes(0, 0, -1, 1, b"v", 0, size=len(GOOD) - 2),
    "byte behind": GOOD + b"\x00",
    "record behind": GOOD + GOOD,
    "offset delta -1": record_bytes(0, -1, -1, 1, b"v", 0),
    "offset delta 1": record_bytes(0, 1, -1, 1, b"v", 0),
    "offset delta 2**63 - 1": record_bytes(0, 2**63 - 1, -1, 1, b"v", 0),
    "time over 64 bits": record_bytes(2**63 - 1, 0, -1, 1, b"v", 0),
    "time of 65 bits": record_bytes(b"\x80" * 9 + b"\x02", 0, -1, 1, b"v", 0),
    "time of 71 bits": record_bytes(b"\x80" * 10 + b"\x01", 0, -1, 1, b"v", 0),
    "key size 2**63 - 1": record_bytes(0, 0, 2**63 - 1, 1, b"v", 0),
    "sizes that overflow together": record_bytes(0, 0, 2**62, 2**62, b"v", 0),
    "key size -2": record_bytes(0, 0, -2, 1, b"v", 0),
    "key size 2**31 - 1": record_bytes(0, 0, 2**31 - 1, 1, b"v", 0),
    "key size -2**63": record_bytes(0, 0, -(2**63), 1, b"v", 0),
    "value size -2": record_bytes(0, 0, -1, -2, 0),
    "value one too large": record_bytes(0, 0, -1, 3, b"v", 0),
    "value 2**62": record_bytes(0, 0, -1, 2**62, b"v", 0),
    "no header count": record_bytes(0, 0, -1, 2, b"vv"),
    "header count -1": record_bytes(0, 0, -1, 1, b"v", -1),
    "header count 2**31 - 1": record_bytes(0, 0, -1, 1, b"v", 2**31 - 1),
    "header count 2**63 - 1": record_bytes(0, 0, -1, 1, b"v", 2**63 - 1),
    "one header, none there": record_bytes(0, 0, -1, 1, b"v", 1),
    "header key null": record_bytes(0, 0, -1, 1, b"v", 1, -1, -1),
    "header key too large": record_bytes(0, 0, -1, 1, b"v", 1, 100, b"k", -1),
    "header value -2": record_bytes(0, 0, -1, 1, b"v", 1, 1, b"k", -2),
    "header value too large": record_bytes(0, 0, -1, 1, b"v", 1, 1, b"k", 9, b"v"),
    "header behind": record_bytes(0, 0, -1, 1, b"v", 1, 1, b"k", -1, b"\x01\x01"),
}


@pytest.mark.parametrize("codec", [0, 4])
@pytest.mark.parametrize("records", HOSTILE.values(), ids=HOSTILE)
def test_hostile_records_are_corrupt(room: Room, records: bytes, codec: int):
    entry = sealed(records, codec=codec)

    with pytest.raises(CorruptEntry):
        list(room.kafka_batch.iter_records(entry))
    with pytest.raises(CorruptEntry):
        room.kafka_batch.first_record_at_or_after(entry, 2**62)


def test_good_record_by_hand_is_good(room: Room):
    """The table above is useful only if its pattern is right."""
    expected = [Record(0, 1000, None, b"v")]

    assert list(room.kafka_batch.iter_records(sealed(GOOD))) == expected


def test_offsets_never_go_back_inside_a_batch(room: Room):
    twice = record_bytes(0, 1, -1, -1, 0) * 2

    with pytest.raises(CorruptEntry):
        list(room.kafka_batch.iter_records(sealed(twice, count=2, last=5)))


def test_record_ends_at_its_size(room: Room):
    """Even where the next record would be valid at the real end of this one."""
    following = record_bytes(0, 1, -1, 1, b"v", 0)
    for size in (len(GOOD) - 2, len(GOOD), len(GOOD) + 1):
        first = record_bytes(0, 0, -1, 1, b"v", 0, size=size)

        with pytest.raises(CorruptEntry):
            list(room.kafka_batch.iter_records(sealed(first + following, count=2)))


def test_overlong_varints_are_read(room: Room):
    """The format allows them, and all readers must read the same values."""
    body = b"\x00\x00\x80\x00\x01\x82\x00v\x00"
    record = varint(len(body)) + body

    assert list(room.kafka_batch.iter_records(sealed(record))) == [Record(0, 1000, None, b"v")]


@pytest.mark.parametrize("codec", CODECS)
def test_a_count_that_cannot_be_is_refused_before_anything_is_built(room: Room, codec: int):
    entry = patched(sealed(GOOD, codec=codec), record_count=2**31 - 1, last_offset_delta=2**31 - 2)
    tracemalloc.start()

    with pytest.raises(CorruptEntry):
        room.kafka_batch.walk_records(entry)

    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1024 * 1024


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_bomb_is_too_large(room: Room, codec: int):
    bomb = sealed(record_bytes(0, 0, -1, 50_000_000, bytes(50_000_000), 0), codec=codec)
    tracemalloc.start()

    with pytest.raises(EntryTooLarge):
        next(room.kafka_batch.iter_records(bomb, limit=4_000_000))

    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12_000_000
    assert len(list(room.kafka_batch.iter_records(bomb, limit=60_000_000))) == 1


def test_many_tiny_records_are_not_all_objects_at_once(room: Room):
    tiny = b"".join(record_bytes(0, i, -1, -1, 0) for i in range(50_000))
    entry = sealed(tiny, count=50_000, codec=4)
    tracemalloc.start()

    assert sum(1 for _ in room.kafka_batch.iter_records(entry)) == 50_000

    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * len(tiny)


def test_codecs_and_formats_that_do_not_exist_are_refused(room: Room):
    with pytest.raises(UnsupportedCompression):
        list(room.kafka_batch.iter_records(patched(GOLDEN, attributes=5)))
    for attributes in (0x100, 0x200, 0x300):
        with pytest.raises(InvalidEntry):
            list(room.kafka_batch.iter_records(patched(GOLDEN, attributes=attributes)))


def test_an_entry_without_records_has_none(room: Room):
    """A batch remains without records after compaction has removed all."""
    for codec in CODECS:
        empty = patched(sealed(b"", count=0, last=9), attributes=codec)

        assert list(room.kafka_batch.iter_records(empty)) == []
        assert room.kafka_batch.first_record_at_or_after(empty, 0) is None


def test_header_keys_that_are_not_utf8_get_replacement_characters(room: Room):
    entry = sealed(record_bytes(0, 0, -1, -1, 1, 2, b"\xffa", -1))

    assert next(room.kafka_batch.iter_records(entry)).headers == (("\ufffda", None),)


@pytest.mark.parametrize("codec", CODECS)
def test_log_append_time_is_every_records_time(room: Room, codec: int):
    entry = bytearray(room.kafka_batch.build_batch(plain_records(5), codec=codec))

    room.kafka_batch.set_log_append_time(entry, 1_800_000_000_000)

    header = room.kafka_batch.check_crc(entry)
    assert header.log_append_time
    assert header.max_timestamp == 1_800_000_000_000
    assert header.codec == codec
    assert {r.timestamp for r in room.kafka_batch.iter_records(entry)} == {1_800_000_000_000}
    assert read_by_kafka_python(bytes(entry))[0].timestamp == 1_800_000_000_000


def test_log_append_time_leaves_what_follows_alone(room: Room):
    buffer = bytearray(GOLDEN + b"next entry")

    room.kafka_batch.set_log_append_time(buffer, 5)

    assert buffer[len(GOLDEN) :] == b"next entry"
    assert room.kafka_batch.check_crc(buffer).max_timestamp == 5


@given(records=record_lists(holes=True), codec=codecs, at=st.integers(0, 2**42))
def test_a_time_is_found_where_a_scan_finds_it(room: Room, records, codec: int, at: int):
    entry = room.kafka_batch.build_batch(records, codec=codec)
    for timestamp in (at, records[0].timestamp, max(r.timestamp for r in records) + 1):
        expected = next(
            ((r.offset, r.timestamp) for r in records if r.timestamp >= timestamp), None
        )

        assert room.kafka_batch.first_record_at_or_after(entry, timestamp) == expected


def test_a_time_is_found_where_the_client_left_the_largest_unset(room: Room):
    entry = patched(room.kafka_batch.build_batch(plain_records(3)), max_timestamp=-1)

    assert room.kafka_batch.first_record_at_or_after(entry, 1_700_000_000_001) == (
        1,
        1_700_000_000_001,
    )


def test_a_time_in_a_log_append_time_entry_is_its_first_record(room: Room):
    entry = bytearray(room.kafka_batch.build_batch(plain_records(3)))
    room.kafka_batch.set_log_append_time(entry, 500)

    assert room.kafka_batch.first_record_at_or_after(entry, 500) == (0, 500)
    assert room.kafka_batch.first_record_at_or_after(entry, 501) is None


def test_builder_counts_offsets_and_returns_its_size(room: Room):
    builder = room.kafka_batch.BatchBuilder(base_offset=100, leader_epoch=3, transactional=True)

    assert builder.size == 61
    assert [builder.append(None, b"v", timestamp=t) for t in (5, 9, 7)] == [100, 101, 102]
    assert builder.append(b"k", None, offset=110, timestamp=8) == 110
    assert builder.append(b"k", None, [("a", b"b")], timestamp=8) == 111
    size = builder.size
    batch = builder.build(producer_id=4, producer_epoch=0, base_sequence=0)

    header = room.kafka_batch.check_crc(batch)
    assert size == len(batch)
    assert (header.base_timestamp, header.max_timestamp) == (5, 9)
    assert (header.base_offset, header.last_offset, header.leader_epoch) == (100, 111, 3)
    assert header.is_transactional
    assert builder.count == 0
    assert builder.append(None, None) == 100, "the builder starts anew"


def test_builder_refuses_what_would_make_a_bad_batch(room: Room):
    builder = room.kafka_batch.BatchBuilder(base_offset=10)
    with pytest.raises(ValueError, match="needs a record"):
        builder.build()
    with pytest.raises(ValueError, match="needs a record"):
        room.kafka_batch.build_batch([])

    builder.append(None, None, offset=12)

    for offset in (9, 11, 12, 10 + 2**31):
        with pytest.raises(ValueError, match="offset"):
            builder.append(None, None, offset=offset)
    assert builder.append(None, None) == 13


def test_a_control_batch_is_never_taken_from_a_producer(room: Room):
    marker = room.kafka_batch.build_batch(
        [Record(5, 1, b"\0\0\0\1", bytes(6))], transactional=True, control=True, producer_id=9,
        producer_epoch=0,
    )  # fmt: skip

    assert header_of(marker).is_control
    with pytest.raises(InvalidEntry):
        room.kafka_batch.check_produced(marker)
