"""Message sets of magic 0 and 1 by hand, and the requests that carry them.

As raw.py: written against the protocol's description, sharing nothing with our own codec.
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple
from zlib import crc32

from tools.servers.probe import call

from tests.conformance.raw import FETCH, PRODUCE, leader_of, text

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
APPEND_TIME = 8


class Message(NamedTuple):
    """One message of a set as it stands there; a wrapper is one too."""

    offset: int
    magic: int
    attributes: int
    timestamp: int  # -1 in magic 0
    key: bytes | None
    value: bytes | None


class Answer(NamedTuple):
    """The one partition of a Produce or Fetch response."""

    error: int
    offset: int  # base offset, or high watermark
    time: int = -1
    records: bytes = b""


def sized(value: bytes | None) -> bytes:
    return struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value


def message(
    value: bytes | None,
    key: bytes | None = None,
    *,
    magic: int = 1,
    offset: int = 0,
    timestamp: int = 1_600_000_000_000,
    attributes: int = 0,
    crc: int | None = None,
) -> bytes:
    """One message."""
    body = struct.pack(">bb", magic, attributes)
    body += struct.pack(">q", timestamp) if magic else b""
    body += sized(key) + sized(value)
    checked = struct.pack(">I", crc32(body) if crc is None else crc) + body
    return struct.pack(">qi", offset, len(checked)) + checked


def wrapper(inner: bytes, *, magic: int = 1, offset: int = 0, **more: int) -> bytes:
    """One message with these inside, compressed by gzip."""
    packed = gzip.compress(inner, mtime=0)
    return message(packed, magic=magic, offset=offset, **{"attributes": GZIP, **more})


def read_set(data: bytes) -> Iterator[Message]:
    """The whole messages of a set; what is cut at its end is left out."""
    at = 0
    while at + 12 <= len(data):
        offset, size = struct.unpack_from(">qi", data, at)
        if size < 0 or at + 12 + size > len(data):
            return
        crc, magic, attributes = struct.unpack_from(">Ibb", data, at + 12)
        assert magic in {0, 1}, f"magic {magic} at {at}"
        assert crc == crc32(data[at + 16 : at + 12 + size])
        pos = at + 18
        timestamp = -1
        if magic:
            (timestamp,) = struct.unpack_from(">q", data, pos)
            pos += 8
        key, pos = read_sized(data, pos)
        value, pos = read_sized(data, pos)
        at += 12 + size
        assert pos == at, "bytes after the value"
        yield Message(offset, magic, attributes, timestamp, key, value)


def read_sized(data: bytes, pos: int) -> tuple[bytes | None, int]:
    (size,) = struct.unpack_from(">i", data, pos)
    pos += 4
    return (None, pos) if size < 0 else (data[pos : pos + size], pos + size)


def produce(
    address: str, version: int, topic: str, records: bytes | None, *, acks: int = -1
) -> Answer:
    """One Produce v0-v2 to partition 0."""
    body = struct.pack(">hii", acks, 10_000, 1) + text(topic) + struct.pack(">ii", 1, 0)
    answer = call(leader_of(address, topic, 0), PRODUCE, version, body + sized(records))
    at = 4 + len(text(topic)) + 4
    _, error, offset = struct.unpack_from(">ihq", answer, at)
    time = struct.unpack_from(">q", answer, at + 14)[0] if version >= 2 else -1
    return Answer(error, offset, time)


def fetch(
    address: str,
    version: int,
    topic: str,
    offset: int,
    *,
    max_bytes: int = 1 << 20,
    max_wait_ms: int = 0,
    all_max_bytes: int = 50 << 20,
) -> Answer:
    """One Fetch v0-v3 of partition 0."""
    body = struct.pack(">iii", -1, max_wait_ms, 1)
    body += struct.pack(">i", all_max_bytes) if version >= 3 else b""
    body += struct.pack(">i", 1) + text(topic)
    body += struct.pack(">iiqi", 1, 0, offset, max_bytes)
    leader = leader_of(address, topic, 0)
    answer = call(leader, FETCH, version, body, timeout=60.0 + max_wait_ms / 1000)
    at = (4 if version >= 1 else 0) + 4 + len(text(topic)) + 4
    _, error, high_watermark, size = struct.unpack_from(">ihqi", answer, at)
    records = answer[at + 18 : at + 18 + max(size, 0)]
    return Answer(error, high_watermark, -1, records)


def messages(records: bytes) -> list[Message]:
    """All messages of an answer, wrappers opened, with absolute offsets."""
    return list(opened(read_set(records)))


def opened(found: Iterable[Message]) -> Iterator[Message]:
    for each in found:
        if not each.attributes & 7:
            yield each
            continue
        inner = list(read_set(unpacked(each)))
        first = each.offset - inner[-1].offset if each.magic else 0
        for one in inner:
            assert one.magic == each.magic
            time = each.timestamp if each.attributes & APPEND_TIME else one.timestamp
            yield one._replace(offset=first + one.offset, timestamp=time)


def unpacked(wrapped: Message) -> bytes:
    import cramjam

    assert wrapped.value is not None
    codec = wrapped.attributes & 7
    if codec == GZIP:
        return gzip.decompress(wrapped.value)
    if codec == LZ4:
        frame = bytearray(wrapped.value)
        if wrapped.magic == 0:  # its header's checksum is wrong: over the frame's magic too
            assert frame[:7].hex() == "04224d1860401a"
            frame[6] = 0x82
        return bytes(cramjam.lz4.decompress(bytes(frame)))
    assert codec == SNAPPY
    out, at = b"", 16
    while at < len(wrapped.value):  # xerial's stream
        (size,) = struct.unpack_from(">i", wrapped.value, at)
        out += bytes(cramjam.snappy.decompress_raw(wrapped.value[at + 4 : at + 4 + size]))
        at += 4 + size
    return out
