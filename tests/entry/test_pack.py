from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.entry.conftest import Room
from tests.entry.samples import varint

int64s = st.integers(-(2**63), 2**63 - 1)


def offsets(*ends: int) -> memoryview:
    return memoryview(array("i", ends)).cast("B")


def times(*values: int) -> memoryview:
    return memoryview(array("q", values)).cast("B")


@given(value=int64s)
def test_varint_size_equals_the_encoded_length(room: Room, value: int):
    assert room.pack.varint_size(value) == len(varint(value))


@given(deltas=st.tuples(int64s, st.integers(0, 2**31 - 1)))
def test_numbers_are_zigzag_varints(room: Room, deltas: tuple[int, int]):
    packer = room.pack.RecordPacker()

    packer.pack(deltas[1], deltas[0], None, None, ())

    body = b"\x00" + varint(deltas[0]) + varint(deltas[1]) + b"\x01\x01\x00"
    assert bytes(packer.packed()) == varint(len(body)) + body


def test_room_grows_and_is_used_again(room: Room):
    packer = room.pack.RecordPacker()
    for _ in range(3):
        packer.pack(0, 0, b"k" * 5000, b"v" * 100_000, ((b"h", b"x" * 3000),))
    first = bytes(packer.packed())
    packer.clear()

    for _ in range(3):
        packer.pack(0, 0, b"k" * 5000, b"v" * 100_000, ((b"h", b"x" * 3000),))

    assert bytes(packer.packed()) == first
    assert packer.used == len(first)


def test_a_column_that_is_not_whole_is_refused(room: Room):
    with pytest.raises(ValueError, match="fewer offsets"):
        room.pack.ByteInput(2, None, offsets(0, 1), memoryview(b"a"))
    with pytest.raises(ValueError, match="fewer offsets"):
        room.pack.ByteInput(1, None, offsets(0, 1), memoryview(b"a"), offset=1)
    with pytest.raises(ValueError, match="fewer validity bits"):
        room.pack.ByteInput(9, memoryview(b"\xff"), offsets(*range(10)), memoryview(bytes(9)))
    with pytest.raises(ValueError, match="fewer timestamps"):
        room.pack.ArrowRows(2, times(1))


@pytest.mark.parametrize("ends", [(0, 5), (-1, 1), (2, 1), (0, -1), (2**31 - 2, 2**31 - 1)])
def test_a_string_outside_its_column_is_refused(room: Room, ends: tuple[int, int]):
    rows = room.pack.ArrowRows(1, times(1))
    rows.set_values(room.pack.ByteInput(1, None, offsets(*ends), memoryview(b"abcd")))

    with pytest.raises(ValueError, match="outside"):
        room.pack.RecordPacker().pack_rows(rows, 0, 100)


def test_headers_outside_their_column_are_refused(room: Room):
    rows = room.pack.ArrowRows(1, times(1))
    names = room.pack.ByteInput(1, None, offsets(0, 1), memoryview(b"a"))
    for declared in (1, 2):  # the list ends after the declared rows; and after the existing ones
        lists = room.pack.ByteInput(1, None, offsets(0, 2), memoryview(b""), room=declared)
        rows.set_headers(lists, names, names)

        with pytest.raises(ValueError, match=r"outside|no row"):
            room.pack.RecordPacker().pack_rows(rows, 0, 100)


def test_rows_that_are_not_there_are_refused(room: Room):
    rows = room.pack.ArrowRows(1, times(1))
    for row in (-1, 1, 100):
        with pytest.raises(ValueError, match="no row"):
            room.pack.RecordPacker().pack_rows(rows, row, 100)


def test_one_row_is_always_packed(room: Room):
    rows = room.pack.ArrowRows(2, times(5, 3))
    rows.set_values(room.pack.ByteInput(2, None, offsets(0, 50, 100), memoryview(bytes(100))))
    packer = room.pack.RecordPacker()

    assert packer.pack_rows(rows, 0, 10) == 1
    assert packer.pack_rows(rows, 1, 10) == 2
    assert (packer.base_timestamp, packer.max_timestamp) == (3, 3)


def test_chosen_rows_are_packed_in_the_order_of_their_numbers(room: Room):
    rows = room.pack.ArrowRows(3, times(7, 8, 9))
    rows.set_values(room.pack.ByteInput(3, None, offsets(0, 1, 3, 6), memoryview(b"abbccc")))
    rows.choose(offsets(2, 0))
    packer, other = room.pack.RecordPacker(), room.pack.RecordPacker()

    assert packer.pack_rows(rows, 0, 1000) == rows.count == 2

    other.pack(0, 0, None, b"ccc", ())
    other.pack(1, -2, None, b"a", ())
    assert bytes(packer.packed()) == bytes(other.packed())
    assert (packer.base_timestamp, packer.max_timestamp) == (9, 9)


@pytest.mark.parametrize("number", [-1, 2, 2**31 - 1])
def test_a_chosen_row_that_is_not_there_is_refused(room: Room, number: int):
    rows = room.pack.ArrowRows(2, times(1, 2))
    rows.choose(offsets(0, number))

    with pytest.raises(ValueError, match="no row"):
        room.pack.RecordPacker().pack_rows(rows, 0, 1000)
