"""CRC-32C (Castagnoli), the checksum of entries, journal frames and segment blocks."""

from __future__ import annotations

from crc32c import crc32c as _crc32c


def crc32c(data: bytes | bytearray | memoryview, value: int = 0) -> int:
    """Return the checksum of the data; given a value, go on from there."""
    return int(_crc32c(data, value))
