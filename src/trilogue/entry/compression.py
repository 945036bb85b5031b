"""The codecs of Kafka's record batches, each with a hard limit on the decompressed size.

A decompression bomb costs its reader at most the limit: the output buffer is a multiple of the
compressed size, and where that does not suffice a mapping as large as the limit, of which only what
is written takes memory. A declared size is allocated only after a check that the compressed bytes
can expand to it.

The broker writes what every client can read: Java reads snappy only in xerial's framing

    82 'SNAPPY' 00 | version i32 | lowest readable version i32 | (size i32, raw snappy block)*

(other clients send one raw block; the broker reads both), and LZ4 only with independent blocks.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from struct import Struct
from typing import Final

import cramjam

from trilogue.entry.entry import Codec, CorruptEntry, EntryTooLarge, UnsupportedCompression

Buffer = bytes | bytearray | memoryview

_GZIP_WINDOW: Final = 31  # a window of 32 KiB (15), in gzip's wrapping (+16)
_GZIP_LEVEL: Final = 6
_ZSTD_LEVEL: Final = 3
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + bytes((0, 0, 0, 1, 0, 0, 0, 1))
_XERIAL_BLOCK: Final = 32 * 1024
_SNAPPY_MAX_RATIO: Final = 32  # three bytes expand to at most 64: 22 times
_LZ4_HEADER: Final = bytes.fromhex("04224d18 60 40 82")  # version 1, independent blocks, of 64 KiB
_LZ4_BLOCK: Final = 64 * 1024
_LZ4_RAW: Final = 0x80000000
_FIRST_OUTPUT: Final = 64 * 1024
_MAPPED_FROM: Final = 1024 * 1024  # bytes of an output; the heap of a thread would keep them
_SIZE: Final = Struct(">i")
_LZ4_SIZE: Final = Struct("<I")


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """Compress as Kafka's own client would, so that every Kafka client can read it.

    `level` is the codec's own (gzip 1 to 9, LZ4 1 to 17, zstd -131072 to 22), None its default.
    """
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            level = _GZIP_LEVEL if level is None else level
            packer = zlib.compressobj(level, zlib.DEFLATED, _GZIP_WINDOW)
            return packer.compress(data) + packer.flush()
        case Codec.SNAPPY:
            return _compress_snappy(data)
        case Codec.LZ4:
            return _compress_lz4(data, level)
        case Codec.ZSTD:
            level = _ZSTD_LEVEL if level is None else level
            return bytes(cramjam.zstd.compress(data, level=level))
    raise UnsupportedCompression(f"codec {codec} does not exist")


def decompress(codec: int, data: Buffer, limit: int) -> Buffer:
    """Decompress to at most `limit` bytes. Raises `EntryTooLarge`, or `CorruptEntry` if damaged."""
    match codec:
        case Codec.NONE:
            if len(data) > limit:
                raise EntryTooLarge(f"{len(data)} bytes where {limit} are allowed")
            return data
        case Codec.GZIP:
            return _decompress_gzip(data, limit)
        case Codec.SNAPPY:
            return _decompress_snappy(memoryview(data), limit)
        case Codec.LZ4:
            return _decompress_frame(cramjam.lz4, data, limit)
        case Codec.ZSTD:
            return _decompress_frame(cramjam.zstd, data, limit)
    raise UnsupportedCompression(f"codec {codec} does not exist")


def _allocate(size: int) -> memoryview:
    """Return memory for an output; what is large goes back to the system with its last view."""
    if size < _MAPPED_FROM:
        return memoryview(bytearray(size))
    return memoryview(mmap(-1, size, MAP_PRIVATE | MAP_ANONYMOUS))


def _decompress_gzip(data: Buffer, limit: int) -> Buffer:
    unpacker = zlib.decompressobj(_GZIP_WINDOW)
    try:
        out: Buffer = unpacker.decompress(data, min(limit + 1, _MAPPED_FROM))
        if len(out) == _MAPPED_FROM <= limit:
            out = _decompress_rest(unpacker, out, limit)
    except zlib.error as error:
        raise CorruptEntry(f"gzip: {error}") from error
    if len(out) > limit:
        raise EntryTooLarge(f"gzip: more than the {limit} bytes allowed")
    if not unpacker.eof:
        raise CorruptEntry("gzip: cut")
    if unpacker.unused_data:
        raise CorruptEntry("gzip: bytes after the end")
    return out


def _decompress_rest(unpacker: zlib._Decompress, piece: Buffer, limit: int) -> memoryview:
    """Return the first piece of an output with all that follow."""
    out, size = _allocate(limit), 0
    while piece:
        end = size + len(piece)
        if end > limit:
            del out  # or it lives as long as the error
            raise EntryTooLarge(f"gzip: more than the {limit} bytes allowed")
        out[size:end] = piece
        size = end
        piece = unpacker.decompress(unpacker.unconsumed_tail, _MAPPED_FROM)
    return out[:size]


def _decompress_frame(module: object, data: Buffer, limit: int) -> memoryview:
    """Decompress LZ4 or zstd frames into a small buffer, or into one as large as the limit."""
    room = min(limit, max(_FIRST_OUTPUT, 4 * len(data)))
    while True:
        out = _allocate(room)
        try:
            size = module.decompress_into(data, out)  # type: ignore[attr-defined]
        except cramjam.DecompressionError as error:
            del out  # or it lives as long as the error
            if "write whole buffer" not in str(error):
                raise CorruptEntry(f"{error}") from error
            if room >= limit:
                raise EntryTooLarge(f"more than the {limit} bytes allowed") from error
            room = limit
        else:
            return out[:size]


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    if level is not None:  # the slower way that saves more
        packer = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
        packer.compress(bytes(data))
        return bytes(packer.finish())
    out = bytearray(_LZ4_HEADER)
    view = memoryview(data)
    for start in range(0, len(view), _LZ4_BLOCK):
        block = view[start : start + _LZ4_BLOCK]
        packed = cramjam.lz4.compress_block(block, store_size=False)
        if len(packed) < len(block):
            out += _LZ4_SIZE.pack(len(packed))
            out += packed
        else:
            out += _LZ4_SIZE.pack(len(block) | _LZ4_RAW)
            out += block
    out += _LZ4_SIZE.pack(0)
    return bytes(out)


def _compress_snappy(data: Buffer) -> bytes:
    out = bytearray(_XERIAL_HEADER)
    view = memoryview(data)
    for start in range(0, len(view), _XERIAL_BLOCK):
        packed = cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK])
        out += _SIZE.pack(len(packed))
        out += packed
    return bytes(out)


def _decompress_snappy(data: memoryview, limit: int) -> memoryview:
    """Decompress in two passes: the first adds up the declared sizes before the allocation."""
    total = 0
    for block in _snappy_blocks(data):
        total += _snappy_size(block)
        if total > limit:
            raise EntryTooLarge(f"snappy: more than the {limit} bytes allowed")
    out = _allocate(total)
    pos = 0
    for block in _snappy_blocks(data):
        size = _snappy_size(block)
        try:
            written = cramjam.snappy.decompress_raw_into(block, out[pos : pos + size])
        except cramjam.DecompressionError as error:
            raise CorruptEntry(f"snappy: {error}") from error
        if written != size:
            raise CorruptEntry(f"snappy: a block of {written} bytes declares {size}")
        pos += size
    return out


def _snappy_size(block: memoryview) -> int:
    try:
        size = int(cramjam.snappy.decompress_raw_len(block))
    except cramjam.DecompressionError as error:
        raise CorruptEntry(f"snappy: {error}") from error
    if size > len(block) * _SNAPPY_MAX_RATIO:
        raise CorruptEntry(f"snappy: {len(block)} bytes cannot stand for {size}")
    return size


def _snappy_blocks(data: memoryview) -> Iterator[memoryview]:
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        yield data
        return
    if len(data) < len(_XERIAL_HEADER):
        raise CorruptEntry("snappy: the xerial header is cut")
    blocks_left = 64 + len(data) // 32  # real blocks hold kilobytes; stops empty ones
    pos = len(_XERIAL_HEADER)
    while pos < len(data):
        if len(data) - pos < _SIZE.size:
            raise CorruptEntry("snappy: a block's size is cut")
        (size,) = _SIZE.unpack_from(data, pos)
        pos += _SIZE.size
        if not 0 < size <= len(data) - pos:
            raise CorruptEntry(f"snappy: a block of {size} bytes, {len(data) - pos} are there")
        blocks_left -= 1
        if blocks_left < 0:
            raise CorruptEntry("snappy: too many blocks")
        yield data[pos : pos + size]
        pos += size
