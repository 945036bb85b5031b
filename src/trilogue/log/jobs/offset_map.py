"""Maps each key of a partition to its last offset, for compaction.

Keys are not kept, only 16 bytes of digest and eight of offset, in an open-addressing table: 32 to
64 bytes a key whatever its length, where a dict would take 185. Two keys with one digest would cost
a message; among 2^64 keys one such pair is to be expected.
"""

from __future__ import annotations

from array import array
from hashlib import blake2b
from typing import Final

DIGEST_SIZE: Final = 16
SLOT_SIZE: Final = DIGEST_SIZE + 8
_FIRST_SLOTS: Final = 1 << 10
_FILLED: Final = 0.75  # a fuller table makes searches long


def digest_of(key: bytes) -> bytes:
    """Return the digest of a key."""
    return blake2b(key, digest_size=DIGEST_SIZE).digest()


class OffsetMap:
    """A table of digests and offsets of at most `limit_bytes`; 1.5 times that while it grows."""

    __slots__ = ("_digests", "_mask", "_most_slots", "_offsets", "_room", "count")

    def __init__(self, limit_bytes: int) -> None:
        most = _FIRST_SLOTS
        while 2 * most * SLOT_SIZE <= limit_bytes:
            most *= 2
        self.count = 0
        self._most_slots = most
        self._make(_FIRST_SLOTS)

    def _make(self, slots: int) -> None:
        self._digests = bytearray(slots * DIGEST_SIZE)
        self._offsets = array("q", bytes(8 * slots))  # the offset plus one; 0: the slot is free
        self._mask = slots - 1
        self._room = int(slots * _FILLED)

    @property
    def key_limit(self) -> int:
        """How many keys it holds; a few more do no harm."""
        return int(self._most_slots * _FILLED)

    def put(self, digest: bytes, offset: int) -> None:
        """Record an offset of a key, unless a larger one is known."""
        at = self._find(digest)
        known = self._offsets[at]
        if offset < known:
            return
        self._offsets[at] = offset + 1
        if not known:
            self._digests[at * DIGEST_SIZE : (at + 1) * DIGEST_SIZE] = digest
            self.count += 1
            if self.count > self._room:
                self._grow()

    def get(self, digest: bytes) -> int:
        """Return the last offset of a key, or -1."""
        return self._offsets[self._find(digest)] - 1

    def _find(self, digest: bytes) -> int:
        """Return the slot of a digest, or the free slot where it belongs."""
        offsets, digests, mask = self._offsets, self._digests, self._mask
        at = int.from_bytes(digest[:8], "little") & mask
        while offsets[at] and digests[at * DIGEST_SIZE : (at + 1) * DIGEST_SIZE] != digest:
            at = (at + 1) & mask
        return at

    def _grow(self) -> None:
        """Double the table, even at the limit, so that a few keys too many fit."""
        digests, offsets = self._digests, self._offsets
        self._make(2 * len(offsets))
        for at, offset in enumerate(offsets):
            if offset:
                digest = bytes(digests[at * DIGEST_SIZE : (at + 1) * DIGEST_SIZE])
                place = self._find(digest)
                self._digests[place * DIGEST_SIZE : (place + 1) * DIGEST_SIZE] = digest
                self._offsets[place] = offset
