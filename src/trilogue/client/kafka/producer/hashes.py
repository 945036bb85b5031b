"""The hash of keys that most Kafka clients agree on.

Compiled together with hashes.pxd: a client hashes each new key, and Spark's sink a column of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import cython

if not cython.compiled:  # hashes.pxd imports the compiled version
    from trilogue.entry.memory import int32_at, int32_of, new_bytes, of_bytes

if TYPE_CHECKING:
    from trilogue.entry.pack import ByteInput

Int: TypeAlias = int  # the compiler would take a bare `int` for a Python object
Bytes: TypeAlias = bytes
View: TypeAlias = memoryview
Input: TypeAlias = "ByteInput"

_SEED, _FACTOR, _MASK32, _MASK31 = 0x9747B28C, 0x5BD1E995, 0xFFFFFFFF, 0x7FFFFFFF


def murmur2(key: Bytes) -> Int:
    """Murmur2 of 32 bits as Java's client computes it, without its sign."""
    return _hash(of_bytes(key), 0, len(key))


def assign_partitions(keys: Input, rows: Int, partitions: Int) -> bytearray:
    """Return the partition of each key of a column as int32, 0 where the key is null."""
    room = new_bytes(4 * rows)
    numbers = int32_of(room)
    for row in range(rows):
        size = keys.size_at(row)
        numbers[row] = _hash(keys.data, keys.start_at(row), size) % partitions if size >= 0 else 0
    return room


def group_rows(numbers: View, rows: Int, partitions: Int) -> tuple[bytearray, bytearray]:
    """Return rows in the order of their partitions, and where the rows of each end; int32 each.

    `numbers`: the partition of each row, int32. Raises `ValueError` where one is not there.
    """
    if len(numbers) < 4 * rows:
        raise ValueError("fewer numbers than rows")
    order_room, ends_room = new_bytes(4 * rows), new_bytes(4 * (partitions + 1))
    given, order, ends = int32_at(numbers), int32_of(order_room), int32_of(ends_room)
    for at in range(partitions + 1):
        ends[at] = 0
    for row in range(rows):
        at = given[row]
        if at < 0 or at >= partitions:
            raise ValueError(f"row {row} has partition {at} of {partitions}")
        ends[at + 1] += 1
    for at in range(partitions):
        ends[at + 1] += ends[at]
    for row in range(rows):
        at = given[row]
        order[ends[at]] = row
        ends[at] += 1  # in the end: where the rows of the next partition begin
    return order_room, ends_room


def _hash(data: View, pos: Int, size: Int) -> Int:
    value = _SEED ^ size
    end = pos + (size & ~3)
    while pos < end:
        block = _load(data, pos, 4) * _FACTOR & _MASK32
        block = (block ^ block >> 24) * _FACTOR & _MASK32
        value = value * _FACTOR & _MASK32 ^ block
        pos += 4
    if size & 3:
        value = (value ^ _load(data, pos, size & 3)) * _FACTOR & _MASK32
    value = (value ^ value >> 13) * _FACTOR & _MASK32
    return (value ^ value >> 15) & _MASK31


def _load(data: View, pos: Int, size: Int) -> Int:
    """Read a little-endian number of up to 4 bytes."""
    number = at = 0
    while at < size:
        number |= data[pos + at] << 8 * at
        at += 1
    return number
