from __future__ import annotations

import random

import pytest

from tests.entry.conftest import Room
from tests.entry.samples import (
    CODECS,
    build_by_aiokafka,
    build_by_kafka_python,
    header_of,
    patched,
    plain_records,
    record_bytes,
    sealed,
)
from trilogue.entry.compression import compress
from trilogue.entry.entry import (
    CorruptEntry,
    EntryError,
    EntryHeader,
    InvalidEntry,
    UnsupportedCompression,
)

BATCH = build_by_kafka_python(plain_records(3), 0)
IDEMPOTENT = patched(BATCH, producer_id=7, producer_epoch=1, base_sequence=20)
TRANSACTIONAL, CONTROL, LOG_APPEND_TIME = 0x10, 0x20, 0x08


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda b: memoryview(bytearray(b))])
def test_a_batch_is_taken_from_any_buffer(room: Room, kind):
    assert room.walk.check_produced(kind(BATCH)) == header_of(BATCH)


@pytest.mark.parametrize("codec", CODECS)
def test_batches_of_other_clients_are_taken(room: Room, codec: int):
    for build in (build_by_kafka_python, build_by_aiokafka):
        batch = build(plain_records(20), codec)

        header = room.walk.check_produced(memoryview(batch))

        assert header == header_of(batch)
        assert header.codec == codec
        assert header.record_count == header.span == 20
        assert header.length == len(batch)


@pytest.mark.parametrize("size", [*range(7, 24), 983, 984, 985, 5_000])
def test_the_checksum_of_a_batch_of_any_size_is_computed(room: Room, size: int):
    sent = bytearray(sealed(b"x" * size))  # small and large batches have different code

    assert room.walk.check_produced(sent).length == len(sent)
    for at in (21, 61, len(sent) - 1):
        sent[at] ^= 1
        with pytest.raises(CorruptEntry):
            room.walk.check_produced(sent)
        sent[at] ^= 1


def test_formats_in_returns_the_formats_of_all_entries(room: Room):
    pulsar = patched(BATCH, attributes=1 << 8)
    tubemq = patched(BATCH, attributes=2 << 8 | 4)

    assert room.walk.formats_in(b"") == 0
    assert room.walk.formats_in(BATCH + IDEMPOTENT) == 0b001
    assert room.walk.formats_in(memoryview(BATCH + pulsar + BATCH)) == 0b011
    assert room.walk.formats_in(pulsar + tubemq) == 0b110


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48, 2**31 - 1])
def test_formats_are_not_looked_for_beyond_the_bytes(room: Room, length: int):
    damaged = bytearray(BATCH + BATCH)
    damaged[8:12] = length.to_bytes(4, "big", signed=True)

    with pytest.raises(CorruptEntry):
        room.walk.formats_in(damaged)
    with pytest.raises(CorruptEntry):
        room.walk.formats_in(BATCH + BATCH[:-1])


@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_last_header_is_that_of_the_whole_walk(room: Room, count: int):
    whole = b"".join([BATCH, IDEMPOTENT, BATCH, IDEMPOTENT, BATCH][:count])

    assert room.walk.last_header(memoryview(whole)) == room.walk.walk_headers(whole)[-1]
    for damaged in (b"", whole[:-1], whole[:60], whole + BATCH[:-1]):
        with pytest.raises(CorruptEntry):
            room.walk.last_header(damaged)


def test_header_is_read_where_it_stands(room: Room):
    second = patched(IDEMPOTENT, base_offset=2**62, leader_epoch=5)
    buffer = b"123" + second + b"rest"

    header = room.walk.read_header(buffer, 3)

    assert header == header_of(second)
    assert type(header) is EntryHeader
    assert (header.base_offset, header.leader_epoch) == (2**62, 5)


def test_header_beyond_the_buffer_is_corrupt(room: Room):
    for pos in (-1, len(BATCH) - 60, len(BATCH), 10**9):
        with pytest.raises(CorruptEntry):
            room.walk.read_header(BATCH, pos)


def test_every_cut_is_refused(room: Room):
    for size in range(len(BATCH)):
        with pytest.raises(EntryError):
            room.walk.check_produced(BATCH[:size])
        with pytest.raises(EntryError):
            room.walk.read_header(BATCH[:size])


def test_every_flipped_bit_is_refused_unless_it_is_the_brokers(room: Room):
    for position in range(len(IDEMPOTENT)):
        for bit in range(8):
            flipped = bytearray(IDEMPOTENT)
            flipped[position] ^= 1 << bit
            if position < 8 or 12 <= position < 16:  # base offset, leader epoch: overwritten
                room.walk.check_produced(flipped)
            else:
                with pytest.raises(EntryError):
                    room.walk.check_produced(flipped)


REFUSED = {
    "magic 0": (InvalidEntry, {"magic": 0}),
    "magic 1": (InvalidEntry, {"magic": 1}),
    "magic 3": (InvalidEntry, {"magic": 3}),
    "control bit": (InvalidEntry, {"attributes": CONTROL}),
    "log append time": (InvalidEntry, {"attributes": LOG_APPEND_TIME}),
    "delete horizon": (InvalidEntry, {"attributes": 0x40}),
    "bit 7": (InvalidEntry, {"attributes": 0x80}),
    "format pulsar": (InvalidEntry, {"attributes": 0x100}),
    "format tubemq": (InvalidEntry, {"attributes": 0x200}),
    "bit 15": (InvalidEntry, {"attributes": -0x8000}),
    "codec 5": (UnsupportedCompression, {"attributes": 5}),
    "codec 7": (UnsupportedCompression, {"attributes": 7}),
    "no records": (InvalidEntry, {"record_count": 0, "last_offset_delta": -1}),
    "none, delta 0": (InvalidEntry, {"record_count": 0, "last_offset_delta": 0}),
    "fewer than said": (InvalidEntry, {"record_count": 2}),
    "more than said": (InvalidEntry, {"record_count": 4}),
    "hole": (InvalidEntry, {"last_offset_delta": 3}),
    "negative count": (InvalidEntry, {"record_count": -1}),
    "negative delta": (InvalidEntry, {"last_offset_delta": -2}),
    "two thousand million": (
        InvalidEntry,
        {"record_count": 2**31 - 1, "last_offset_delta": 2**31 - 2},
    ),
    "base time -2": (InvalidEntry, {"base_timestamp": -2}),
    "max time -2": (InvalidEntry, {"max_timestamp": -2}),
    "time backwards": (InvalidEntry, {"base_timestamp": 2000, "max_timestamp": 1999}),
    "producer -2": (InvalidEntry, {"producer_id": -2}),
    "epoch -1": (InvalidEntry, {"producer_id": 1, "base_sequence": 0}),
    "sequence -1": (InvalidEntry, {"producer_id": 1, "producer_epoch": 0}),
    "transactional without producer": (InvalidEntry, {"attributes": TRANSACTIONAL}),
    "wrong crc": (CorruptEntry, {"crc": 1}),
    "length 48": (CorruptEntry, {"batch_length": 48}),
    "length 0": (CorruptEntry, {"batch_length": 0}),
    "length -1": (CorruptEntry, {"batch_length": -1}),
    "length one more": (CorruptEntry, {"batch_length": len(BATCH) - 12 + 1}),
    "length one less": (InvalidEntry, {"batch_length": len(BATCH) - 12 - 1}),
    "length 2 GiB": (CorruptEntry, {"batch_length": 2**31 - 1}),
}


@pytest.mark.parametrize(("error", "fields"), REFUSED.values(), ids=REFUSED)
def test_invalid_fields_of_a_produced_batch_are_refused(room: Room, error, fields):
    with pytest.raises(error):
        room.walk.check_produced(patched(BATCH, **fields))


TAKEN = {
    "no times": {"base_timestamp": -1, "max_timestamp": -1},
    "largest time unset": {"max_timestamp": -1},
    "no producer, but a sequence": {"base_sequence": 0, "producer_epoch": 0},
    "highest sequence": {"producer_id": 2**63 - 1, "producer_epoch": 2**15 - 1, "base_sequence": 9},
    "transactional": {
        "attributes": TRANSACTIONAL, "producer_id": 0, "producer_epoch": 0, "base_sequence": 0,
    },
    "any base offset": {"base_offset": -5, "leader_epoch": 2**31 - 1},
}  # fmt: skip


@pytest.mark.parametrize("fields", TAKEN.values(), ids=TAKEN)
def test_unusual_fields_of_a_produced_batch_are_accepted(room: Room, fields):
    batch = patched(BATCH, **fields)

    assert room.walk.check_produced(batch) == header_of(batch)


def test_two_batches_are_refused(room: Room):
    with pytest.raises(InvalidEntry):
        room.walk.check_produced(BATCH + BATCH)


def test_a_message_set_of_old_is_refused(room: Room):
    import struct

    old = struct.pack(">qiIbbii1s", 0, 15, 0, 1, 0, -1, 1, b"x") + bytes(60)

    with pytest.raises(InvalidEntry):
        room.walk.check_produced(old)


def test_checking_does_not_look_at_the_records(room: Room):
    nonsense = sealed(b"\xff" * 70, count=10)

    assert room.walk.check_produced(nonsense).record_count == 10


def test_a_compressed_count_is_not_judged_by_the_compressed_size(room: Room):
    many = b"".join(record_bytes(0, i, -1, -1, 0) for i in range(10_000))
    batch = sealed(compress(4, many), count=10_000, codec=4)

    assert len(batch) < 70_000
    assert room.walk.check_produced(batch).record_count == 10_000


def test_base_and_epoch_are_set_without_touching_the_checksum(room: Room):
    entry = bytearray(BATCH)

    room.walk.set_base(memoryview(entry), 2**40, 17)

    header = room.walk.check_produced(entry)
    assert (header.base_offset, header.leader_epoch) == (2**40, 17)
    assert entry[16:] == BATCH[16:]
    assert entry[8:12] == BATCH[8:12]


def test_base_is_set_at_the_borders(room: Room):
    entry = bytearray(BATCH)
    for base, epoch in ((2**63 - 1, 2**31 - 1), (-1, -1), (0, 0)):
        room.walk.set_base(entry, base, epoch)

        assert room.walk.read_header(entry)[:3:2] == (base, epoch)


def test_base_is_not_set_where_it_cannot_be(room: Room):
    with pytest.raises(BufferError):
        room.walk.set_base(memoryview(BATCH), 1, 1)
    with pytest.raises(CorruptEntry):
        room.walk.set_base(bytearray(60), 1, 1)


def test_only_contiguous_bytes_are_walked(room: Room):
    with pytest.raises(BufferError):
        room.walk.walk_headers(memoryview(bytearray(BATCH * 2))[::2])


def walked(batch: bytes, pos: int) -> tuple[int, ...]:
    h = header_of(batch)
    return (
        pos, h.length, h.base_offset, h.last_offset_delta, h.max_timestamp,
        h.producer_id, h.producer_epoch, h.base_sequence,
    )  # fmt: skip


def test_entries_are_walked_one_after_the_other(room: Room):
    first = patched(IDEMPOTENT, base_offset=2**63 - 10)
    second = patched(sealed(b"", count=0, last=2**31 - 1), max_timestamp=-1)
    buffer = b"xx" + first + second + BATCH + b"rest"
    end = len(buffer) - 4

    found = room.walk.walk_headers(buffer, 2, end)

    assert found == [
        walked(first, 2),
        walked(second, 2 + len(first)),
        walked(BATCH, end - len(BATCH)),
    ]
    assert room.walk.walk_headers(buffer, 2, 2) == []
    assert room.walk.walk_headers(b"") == []


def test_a_cut_entry_is_corrupt_or_ends_the_walk_where_cuts_are_usual(room: Room):
    buffer = BATCH + IDEMPOTENT
    for size in range(len(BATCH) + 1, len(buffer)):
        with pytest.raises(CorruptEntry):
            room.walk.walk_headers(buffer, 0, size)
        with pytest.raises(CorruptEntry):
            room.walk.walk_headers(buffer[:size])

        assert room.walk.walk_headers(buffer[:size], cut_is_end=True) == [walked(BATCH, 0)]


def test_a_walk_outside_the_buffer_is_corrupt(room: Room):
    for pos, end in ((-1, None), (0, len(BATCH) + 1), (-100, len(BATCH)), (0, 2**62)):
        with pytest.raises(CorruptEntry):
            room.walk.walk_headers(BATCH, pos, end)


@pytest.mark.parametrize("cut_is_end", [False, True])
def test_hostile_headers_end_a_walk_with_an_entry_error(room: Room, cut_is_end: bool):
    for fields in (
        {"batch_length": -1},
        {"batch_length": -(2**31)},
        {"batch_length": 0},
        {"batch_length": 48},
        {"magic": 1},
        {"last_offset_delta": -1},
    ):
        with pytest.raises(EntryError):
            room.walk.walk_headers(BATCH + patched(BATCH, **fields), cut_is_end=cut_is_end)


def test_any_bytes_are_walked_without_harm(room: Room):
    dice = random.Random(7)
    for _ in range(2000):
        buffer = bytearray(BATCH + IDEMPOTENT)
        for _ in range(dice.randrange(1, 6)):
            buffer[dice.randrange(len(buffer))] = dice.choice((0, 1, 127, 128, 255))
        for check in (room.walk.check_produced, room.walk.walk_headers, room.walk.read_header):
            try:
                check(buffer)
            except EntryError:
                continue
