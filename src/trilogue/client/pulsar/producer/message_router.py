"""The choice of the partition of a message, the same as in other clients.

With a key: its hash modulo the number of partitions. Without: one after the other, changing with
each batch, or always the same one.
"""

from __future__ import annotations

import random
from typing import Final

from trilogue.client.pulsar.options import Hashing, Routing

MASK31: Final = 0x7FFFFFFF
_MASK32: Final = 0xFFFFFFFF


def java_string_hash(key: str) -> int:
    """Java's String.hashCode, without its sign: over UTF-16 units."""
    units = key.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & _MASK32
    return value & MASK31


def murmur3(data: bytes) -> int:
    """Murmur3 x86 32 with seed 0, without its sign."""
    value = 0
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        mixed = _mixed(int.from_bytes(data[at : at + 4], "little"))
        value ^= mixed
        value = ((value << 13 | value >> 19) & _MASK32) * 5 + 0xE6546B64 & _MASK32
    if whole < len(data):
        value ^= _mixed(int.from_bytes(data[whole:], "little"))
    value ^= len(data)
    value = (value ^ value >> 16) * 0x85EBCA6B & _MASK32
    value = (value ^ value >> 13) * 0xC2B2AE35 & _MASK32
    return (value ^ value >> 16) & MASK31


def _mixed(block: int) -> int:
    block = block * 0xCC9E2D51 & _MASK32
    return (block << 15 | block >> 17) * 0x1B873593 & _MASK32


class MessageRouter:
    """Chooses among the partitions of one topic."""

    def __init__(
        self, partitions: int, routing: Routing, hashing: Hashing, dice: random.Random
    ) -> None:
        self._partitions = partitions
        self._hashing = hashing
        self._turns = routing is Routing.ROUND_ROBIN
        self._current = dice.randrange(partitions)

    def partition_of_key(self, key: str) -> int:
        """The partition of a key."""
        if self._hashing is Hashing.MURMUR3:
            return murmur3(key.encode()) % self._partitions
        return java_string_hash(key) % self._partitions

    @property
    def keyless_partition(self) -> int:
        """The partition of messages without a key, as of now."""
        return self._current

    def turn(self) -> None:
        """A batch without keys is full: the next partition's turn."""
        if self._turns:
            self._current = (self._current + 1) % self._partitions
