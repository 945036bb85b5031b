"""The hash of keys that most Kafka clients agree on."""

from __future__ import annotations

_SEED, _FACTOR, _MASK32, _MASK31 = 0x9747B28C, 0x5BD1E995, 0xFFFFFFFF, 0x7FFFFFFF


def murmur2(key: bytes) -> int:
    """Murmur2 of 32 bits as Java's client computes it, without its sign."""
    size = len(key)
    value = _SEED ^ size
    whole = size & ~3
    for at in range(0, whole, 4):
        block = int.from_bytes(key[at : at + 4], "little") * _FACTOR & _MASK32
        block = (block ^ block >> 24) * _FACTOR & _MASK32
        value = value * _FACTOR & _MASK32 ^ block
    if whole < size:
        value = (value ^ int.from_bytes(key[whole:], "little")) * _FACTOR & _MASK32
    value = (value ^ value >> 13) * _FACTOR & _MASK32
    return (value ^ value >> 15) & _MASK31
