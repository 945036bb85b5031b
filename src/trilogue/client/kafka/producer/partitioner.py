"""The choice of the partition of a message, the same as in other clients.

With a key: its hash modulo the number of partitions. Without: one partition until a batch's worth
of bytes went there, then another (KIP-480, KIP-794): fuller batches, and an even spread over time.
"""

from __future__ import annotations

import random
import zlib
from typing import Final

from trilogue.client.errors import ClientError
from trilogue.client.kafka.options import Hashing, Partitioner
from trilogue.client.kafka.producer.hashes import murmur2

KEYS_KEPT: Final = 10_000
"""Hashes that are remembered: most topics have few keys, and hashing takes longer than looking."""
KEY_SIZE: Final = 256
"""No longer keys are kept."""


class TopicPartitioner:
    """Chooses among the partitions of one topic."""

    __slots__ = ("_batch_bytes", "_current", "_dice", "_hash", "_hashes", "_left", "_own", "count")

    def __init__(
        self,
        count: int,
        batch_bytes: int,
        hashing: Hashing,
        own: Partitioner | None,
        dice: random.Random,
    ) -> None:
        self.count = count
        self._batch_bytes = self._left = batch_bytes
        self._hash = murmur2 if hashing is Hashing.MURMUR2 else zlib.crc32
        self._hashes: dict[bytes, int] = {}
        self._own = own
        self._dice = dice
        self._current = dice.randrange(count)

    def choose(self, key: bytes | None, size: int) -> int:
        """The partition of a message of `size` bytes."""
        if self._own is not None:
            number = self._own(key, self.count)
            if not 0 <= number < self.count:
                raise ClientError(f"the partitioner chose {number} of {self.count} partitions")
            return number
        if key is not None:
            found = self._hashes.get(key)
            if found is None:
                if len(self._hashes) >= KEYS_KEPT:
                    self._hashes.clear()
                found = self._hash(key)
                if len(key) <= KEY_SIZE:
                    self._hashes[key] = found
            return found % self.count
        if self._left <= 0:
            self._turn()
        self._left -= size
        return self._current

    def _turn(self) -> None:
        self._left = self._batch_bytes
        if self.count > 1:
            step = self._dice.randrange(1, self.count)
            self._current = (self._current + step) % self.count
