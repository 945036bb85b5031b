"""CRC-32C (Castagnoli), the checksum of entries, journal frames and segment blocks.

Checksums can be combined: the bytes that an entry's checksum covers need not be read again for the
checksum of the frame or block around it. With the checksums of A and B known, that of A+B is A's,
shifted over as many zero bytes as B has, XOR B's. The shift is linear, so tables for 1, 2, 4, ...
bytes do it in a few look-ups, for any size.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from functools import cache
from importlib.machinery import PathFinder
from types import ModuleType
from typing import Protocol

WORTH_COMBINING = 32 << 10
"""Bytes from which combining is cheaper than computing, also uncompiled."""

_POLYNOMIAL = 0x82F63B78
_Tables = tuple[list[int], list[int], list[int], list[int]]


def _load_extension() -> ModuleType:
    """Return the extension module of the package crc32c without the package.

    Its `__init__` imports importlib.metadata and argparse, which takes as long as a tenth of all
    other imports of a server.
    """
    package = importlib.util.find_spec("crc32c")
    folders = None if package is None else package.submodule_search_locations
    found = PathFinder.find_spec("_crc32c", folders)
    if found is None or found.loader is None:
        raise ImportError("the package crc32c has no extension module")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


class _Checksum(Protocol):
    def __call__(self, data: bytes | bytearray | memoryview, value: int = 0, /) -> int: ...


crc32c: _Checksum = _load_extension().crc32c
"""Return the checksum of the data, continued from `value`, the checksum of the bytes before.

It is the function of the extension itself: one around it costs as much as the sum of 2 KiB.
"""


def combine(first: int, second: int, size: int) -> int:
    """Return the checksum of A+B from those of A and of B, which has `size` bytes."""
    power = 0
    while size and first:  # nothing moves zero
        if size & 1:
            a, b, c, d = _mover(power)
            first = a[first & 255] ^ b[first >> 8 & 255] ^ c[first >> 16 & 255] ^ d[first >> 24]
        size >>= 1
        power += 1
    return first ^ second


def crc32c_around(
    data: bytes | bytearray | memoryview, known: Iterable[tuple[int, int, int]], value: int = 0
) -> int:
    """Return the checksum of data whose parts [start, end) have checksums that are `known`."""
    at = 0
    for start, end, checksum in known:
        value = combine(crc32c(data[at:start], value), checksum, end - start)
        at = end
    return crc32c(data[at:], value)


@cache
def _mover(power: int) -> _Tables:
    """Tables that move a checksum over 2**power zero bytes, one a byte of the checksum."""
    if power:
        a, b, c, d = _mover(power - 1)
        columns = []
        for bit in range(32):  # twice over half as many
            once = (a, b, c, d)[bit >> 3][1 << (bit & 7)]
            columns.append(a[once & 255] ^ b[once >> 8 & 255] ^ c[once >> 16 & 255] ^ d[once >> 24])
    else:
        columns = [_over_one_byte(1 << bit) for bit in range(32)]
    tables: list[list[int]] = []
    for byte in range(4):
        table = [0]
        for column in columns[8 * byte : 8 * byte + 8]:
            table += [entry ^ column for entry in table]
        tables.append(table)
    return tables[0], tables[1], tables[2], tables[3]


def _over_one_byte(value: int) -> int:
    for _ in range(8):
        value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
    return value
