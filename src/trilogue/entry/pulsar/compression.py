"""The codecs of Pulsar's payloads, each with a hard limit on the decompressed size.

The metadata has the uncompressed size of a payload. Before anything is allocated, that size is
checked against the reader's limit and against the maximum ratio of the codec; the decompressed
payload must have exactly that size. The formats:

    LZ4     one raw block: no frame, no length before it
    ZLIB    RFC 1950; Java ends with a sync flush instead of a final block and its checksum
    ZSTD    one frame
    SNAPPY  one raw block, which begins with its length
"""

from __future__ import annotations

import zlib
from enum import IntEnum
from typing import Final

import cramjam

from trilogue.entry.compression import Buffer
from trilogue.entry.entry import CorruptEntry, EntryTooLarge, UnsupportedCompression


class PulsarCodec(IntEnum):
    """CompressionType of the protocol; other numbers than in Kafka's batches."""

    NONE = 0
    LZ4 = 1
    ZLIB = 2
    ZSTD = 3
    SNAPPY = 4


_ZLIB_LEVEL: Final = 6
_ZSTD_LEVEL: Final = 3
_LZ4_MAX_RATIO: Final = 255
_ZLIB_MAX_RATIO: Final = 1032
_SNAPPY_MAX_RATIO: Final = 32  # three bytes expand to at most 64: 22 times
_SLACK: Final = 64  # bytes of headers
_FIRST_OUTPUT: Final = 64 * 1024


def compress(codec: int, data: Buffer) -> bytes:
    """Compress for all Pulsar clients; the caller sets the size in the metadata."""
    match codec:
        case PulsarCodec.NONE:
            return bytes(data)
        case PulsarCodec.LZ4:
            return bytes(cramjam.lz4.compress_block(data, store_size=False))
        case PulsarCodec.ZLIB:
            return zlib.compress(data, _ZLIB_LEVEL)
        case PulsarCodec.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=_ZSTD_LEVEL))
        case PulsarCodec.SNAPPY:
            return bytes(cramjam.snappy.compress_raw(data))
    raise UnsupportedCompression(f"compression type {codec} does not exist")


def decompress(codec: int, data: Buffer, uncompressed_size: int, limit: int) -> Buffer:
    """Decompress to exactly `uncompressed_size` bytes, at most `limit`.

    Raises `EntryTooLarge` above the limit, `CorruptEntry` for damaged bytes or another size. The
    size is ignored without compression: only some clients set it.
    """
    if codec == PulsarCodec.NONE:
        if len(data) > limit:
            raise EntryTooLarge(f"{len(data)} bytes where {limit} are allowed")
        return data
    if uncompressed_size > limit:
        raise EntryTooLarge(f"{uncompressed_size} bytes where {limit} are allowed")
    out: Buffer
    match codec:
        case PulsarCodec.LZ4:
            out = _lz4(data, uncompressed_size)
        case PulsarCodec.ZLIB:
            out = _zlib(data, uncompressed_size)
        case PulsarCodec.ZSTD:
            out = _zstd(data, uncompressed_size)
        case PulsarCodec.SNAPPY:
            out = _snappy(data, uncompressed_size)
        case _:
            raise UnsupportedCompression(f"compression type {codec} does not exist")
    if len(out) != uncompressed_size:
        raise CorruptEntry(f"{len(out)} bytes uncompressed, declared as {uncompressed_size}")
    return out


def _possible(name: str, data: Buffer, size: int, ratio: int) -> None:
    if size > len(data) * ratio + _SLACK:
        raise CorruptEntry(f"{name}: {len(data)} bytes cannot stand for {size}")


def _lz4(data: Buffer, size: int) -> memoryview:
    _possible("lz4", data, size, _LZ4_MAX_RATIO)
    out = bytearray(size)
    try:
        written = cramjam.lz4.decompress_block_into(data, out, output_len=size)
    except cramjam.DecompressionError as error:
        raise CorruptEntry(f"lz4: {error}") from error
    return memoryview(out)[:written]


def _zlib(data: Buffer, size: int) -> bytes:
    _possible("zlib", data, size, _ZLIB_MAX_RATIO)
    unpacker = zlib.decompressobj()
    try:
        return unpacker.decompress(data, size + 1)
    except zlib.error as error:
        raise CorruptEntry(f"zlib: {error}") from error


def _zstd(data: Buffer, size: int) -> memoryview:
    """Decompress into a buffer that grows: a small frame may declare gigabytes."""
    room = min(size, max(_FIRST_OUTPUT, 4 * len(data)))
    while True:
        out = bytearray(room)
        try:
            written = cramjam.zstd.decompress_into(data, out)
        except cramjam.DecompressionError as error:
            if "write whole buffer" not in str(error) or room >= size:
                raise CorruptEntry(f"zstd: {error}") from error
            room = min(size, 4 * room)
        else:
            return memoryview(out)[:written]


def _snappy(data: Buffer, size: int) -> memoryview:
    _possible("snappy", data, size, _SNAPPY_MAX_RATIO)
    try:
        declared = int(cramjam.snappy.decompress_raw_len(data))
        if declared != size:
            raise CorruptEntry(f"snappy: {declared} bytes, declared as {size}")
        out = bytearray(size)
        written = cramjam.snappy.decompress_raw_into(data, out)
    except cramjam.DecompressionError as error:
        raise CorruptEntry(f"snappy: {error}") from error
    return memoryview(out)[:written]
