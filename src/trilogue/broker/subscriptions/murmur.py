"""Murmur3 (x86, 32 bits, seed 0): the hash of a key in a Key_Shared subscription.

Clients compute the same number when they choose key ranges, so the function is fixed.
"""

from __future__ import annotations

from functools import lru_cache
from struct import iter_unpack
from typing import Final

_MASK: Final = 0xFFFFFFFF
_C1: Final = 0xCC9E2D51
_C2: Final = 0x1B873593


@lru_cache(maxsize=1 << 14)
def key_hash(key: bytes) -> int:
    """Hash a key to 31 bits."""
    whole = len(key) & ~3
    state = 0
    for (word,) in iter_unpack("<I", key[:whole]):
        state ^= _mixed(word)
        state = (state << 13 | state >> 19) & _MASK
        state = (state * 5 + 0xE6546B64) & _MASK
    if len(key) > whole:
        state ^= _mixed(int.from_bytes(key[whole:], "little"))
    state ^= len(key)
    state = (state ^ state >> 16) * 0x85EBCA6B & _MASK
    state = (state ^ state >> 13) * 0xC2B2AE35 & _MASK
    return (state ^ state >> 16) & 0x7FFFFFFF


def _mixed(word: int) -> int:
    word = word * _C1 & _MASK
    word = (word << 15 | word >> 17) & _MASK
    return word * _C2 & _MASK
