"""Facts about the cursors of subscriptions, and their snapshots (formats: broker/facts.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Final, NamedTuple

from trilogue.broker.cursors.position import Cursor, PositionKey
from trilogue.broker.facts import SUBSCRIPTION_KEY, VERSION, ByteReader, Protocol

RANGES_IN_FACT: Final = 60_000  # of 16 bytes, below the size of a fact
NOTHING_BELOW: Final = -1  # a SUBSCRIPTION_ACKED that moves no mark

_HEAD: Final = Struct(">BQH")
_CREATED: Final = Struct(">qq")
_OFFSET: Final = Struct(">q")
_RANGE: Final = Struct(">qq")
_COUNT: Final = Struct(">I")
_KEY: Final = Struct(">cQ")

Ranges = Sequence[tuple[int, int]]


class AckFact(NamedTuple):
    """What one SUBSCRIPTION_ACKED contains: everything below `until`, or -1, and ranges."""

    key: PositionKey
    until: int
    ranges: Ranges


def encode_created(cursor: Cursor) -> bytes:
    """Encode a SUBSCRIPTION_CREATED; ranges are not part of it."""
    fields = _CREATED.pack(cursor.mark, cursor.created_ms)
    return encode_head(cursor.key) + fields + _encode_properties(cursor.properties)


def decode_created(payload: bytes) -> Cursor:
    """Decode a SUBSCRIPTION_CREATED."""
    with ByteReader("SUBSCRIPTION_CREATED", payload) as reader:
        return _read_cursor(reader)


def encode_snapshot(cursor: Cursor, ranges_max: int) -> bytes:
    """Encode the snapshot of a cursor, with its lowest ranges."""
    packed = cursor.pack_ranges(ranges_max)
    return encode_created(cursor) + _COUNT.pack(len(packed) // _RANGE.size) + packed


def decode_snapshot(payload: bytes) -> Cursor:
    """Decode the snapshot of a cursor."""
    with ByteReader("subscription's snapshot", payload) as reader:
        cursor = _read_cursor(reader)
        (count,) = reader.read_struct(_COUNT)
        cursor.unpack_ranges(reader.read_bytes(count * _RANGE.size))
        return cursor


def subscription_key(partition_id: int, name: str) -> PositionKey:
    """Return the key of a subscription's cursor."""
    return PositionKey(Protocol.PULSAR, name, partition_id)


def encode_removal(key: PositionKey) -> bytes:
    """Encode a SUBSCRIPTION_DELETED."""
    return encode_head(key)


def decode_removal(payload: bytes) -> PositionKey:
    """Decode a SUBSCRIPTION_DELETED."""
    with ByteReader("SUBSCRIPTION_DELETED", payload) as reader:
        return read_head(reader, Protocol.PULSAR)


def encode_acked(key: PositionKey, until: int, ranges: Ranges) -> bytes:
    """Encode a SUBSCRIPTION_ACKED; at most RANGES_IN_FACT ranges."""
    return encode_head(key) + _OFFSET.pack(until) + encode_ranges(ranges)


def decode_acked(payload: bytes) -> AckFact:
    """Decode a SUBSCRIPTION_ACKED."""
    with ByteReader("SUBSCRIPTION_ACKED", payload) as reader:
        key = read_head(reader, Protocol.PULSAR)
        (until,) = reader.read_struct(_OFFSET)
        return AckFact(key, until, read_ranges(reader))


def encode_moved(key: PositionKey, mark: int) -> bytes:
    """Encode a SUBSCRIPTION_MOVED."""
    return encode_head(key) + _OFFSET.pack(mark)


def decode_moved(payload: bytes) -> tuple[PositionKey, int]:
    """Decode a SUBSCRIPTION_MOVED."""
    with ByteReader("SUBSCRIPTION_MOVED", payload) as reader:
        key = read_head(reader, Protocol.PULSAR)
        (mark,) = reader.read_struct(_OFFSET)
        return key, mark


def encode_properties(key: PositionKey, properties: Mapping[str, str]) -> bytes:
    """Encode a SUBSCRIPTION_PROPERTIES."""
    return encode_head(key) + _encode_properties(properties)


def decode_properties(payload: bytes) -> tuple[PositionKey, dict[str, str]]:
    """Decode a SUBSCRIPTION_PROPERTIES."""
    with ByteReader("SUBSCRIPTION_PROPERTIES", payload) as reader:
        return read_head(reader, Protocol.PULSAR), _read_properties(reader)


def snapshot_key(key: PositionKey) -> bytes:
    """Return the key of a cursor's snapshot row."""
    return _KEY.pack(SUBSCRIPTION_KEY, key.partition_id) + key.name.encode()


def encode_head(key: PositionKey) -> bytes:
    """Encode what each fact about a position begins with."""
    name = key.name.encode()
    return _HEAD.pack(VERSION, key.partition_id, len(name)) + name


def read_head(reader: ByteReader, protocol: Protocol) -> PositionKey:
    """Decode it; CorruptLog."""
    version, partition_id, name_size = reader.read_struct(_HEAD)
    reader.check_version(version)
    return PositionKey(protocol, reader.read_text(name_size), partition_id)


def encode_ranges(ranges: Ranges) -> bytes:
    """Encode ranges of offsets, with their number before them."""
    return _COUNT.pack(len(ranges)) + b"".join(_RANGE.pack(*each) for each in ranges)


def read_ranges(reader: ByteReader) -> list[tuple[int, int]]:
    """Decode ranges of offsets; CorruptLog."""
    (count,) = reader.read_struct(_COUNT)
    packed = reader.read_bytes(count * _RANGE.size)
    return [(start, end) for start, end in _RANGE.iter_unpack(packed)]


def _read_cursor(reader: ByteReader) -> Cursor:
    key = read_head(reader, Protocol.PULSAR)
    mark, created_ms = reader.read_struct(_CREATED)
    return Cursor(key, mark, created_ms, _read_properties(reader))


def _encode_properties(properties: Mapping[str, str]) -> bytes:
    parts = [_COUNT.pack(len(properties))]
    for each in properties.items():
        for text in each:
            encoded = text.encode()
            parts += (_COUNT.pack(len(encoded)), encoded)
    return b"".join(parts)


def _read_properties(reader: ByteReader) -> dict[str, str]:
    (count,) = reader.read_struct(_COUNT)
    found: dict[str, str] = {}
    for _ in range(count):
        (key_size,) = reader.read_struct(_COUNT)
        key = reader.read_text(key_size)
        (value_size,) = reader.read_struct(_COUNT)
        found[key] = reader.read_text(value_size)
    return found
