"""What the journal and snapshots say of durable subscriptions, in the formats of facts.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Final, NamedTuple

from trilogue.broker.acks import Acked
from trilogue.broker.facts import SUBSCRIPTION_KEY, VERSION, Reading

RANGES_IN_FACT: Final = 60_000  # of 16 bytes, below the size of a fact
NOTHING_BELOW: Final = -1  # a SUBSCRIPTION_ACKED that moves no mark

_HEAD: Final = Struct(">BQH")
_MADE: Final = Struct(">qq")
_OFFSET: Final = Struct(">q")
_RANGE: Final = Struct(">qq")
_COUNT: Final = Struct(">I")
_KEY: Final = Struct(">cQ")

Ranges = Sequence[tuple[int, int]]


class SubscriptionKey(NamedTuple):
    """What a subscription is found by."""

    partition_id: int
    name: str


class Made(NamedTuple):
    """A subscription as it began, or as it was at a flush cut."""

    key: SubscriptionKey
    acked: Acked
    made_ms: int
    properties: dict[str, str]


class AckedRanges(NamedTuple):
    """What was acked at once: everything below `until`, which may be -1, and ranges."""

    key: SubscriptionKey
    until: int
    ranges: Ranges


def encode_made(
    key: SubscriptionKey, mark: int, made_ms: int, properties: Mapping[str, str]
) -> bytes:
    """Write a SUBSCRIPTION_MADE."""
    return _head(key) + _MADE.pack(mark, made_ms) + _properties(properties)


def decode_made(payload: bytes) -> Made:
    """Read a SUBSCRIPTION_MADE."""
    with Reading("SUBSCRIPTION_MADE", payload) as reading:
        return _read_made(reading)


def encode_state(state: Made, ranges_max: int) -> bytes:
    """Write the snapshot of a subscription, with its lowest ranges."""
    key, acked, made_ms, properties = state
    packed = acked.packed(ranges_max)
    count = _COUNT.pack(len(packed) // _RANGE.size)
    return encode_made(key, acked.mark, made_ms, properties) + count + packed


def decode_state(payload: bytes) -> Made:
    """Read the snapshot of a subscription."""
    with Reading("subscription's snapshot", payload) as reading:
        made = _read_made(reading)
        (count,) = reading.take(_COUNT)
        acked = Acked.unpacked(made.acked.mark, reading.data(count * _RANGE.size))
        return made._replace(acked=acked)


def encode_gone(key: SubscriptionKey) -> bytes:
    """Write a SUBSCRIPTION_GONE."""
    return _head(key)


def decode_gone(payload: bytes) -> SubscriptionKey:
    """Read a SUBSCRIPTION_GONE."""
    with Reading("SUBSCRIPTION_GONE", payload) as reading:
        return _read_head(reading)


def encode_acked(key: SubscriptionKey, until: int, ranges: Ranges) -> bytes:
    """Write a SUBSCRIPTION_ACKED; at most RANGES_IN_FACT ranges."""
    parts = [_head(key), _OFFSET.pack(until), _COUNT.pack(len(ranges))]
    parts += [_RANGE.pack(start, end) for start, end in ranges]
    return b"".join(parts)


def decode_acked(payload: bytes) -> AckedRanges:
    """Read a SUBSCRIPTION_ACKED."""
    with Reading("SUBSCRIPTION_ACKED", payload) as reading:
        key = _read_head(reading)
        (until,) = reading.take(_OFFSET)
        (count,) = reading.take(_COUNT)
        packed = reading.data(count * _RANGE.size)
        ranges = [(start, end) for start, end in _RANGE.iter_unpack(packed)]
        return AckedRanges(key, until, ranges)


def encode_moved(key: SubscriptionKey, mark: int) -> bytes:
    """Write a SUBSCRIPTION_MOVED."""
    return _head(key) + _OFFSET.pack(mark)


def decode_moved(payload: bytes) -> tuple[SubscriptionKey, int]:
    """Read a SUBSCRIPTION_MOVED."""
    with Reading("SUBSCRIPTION_MOVED", payload) as reading:
        key = _read_head(reading)
        (mark,) = reading.take(_OFFSET)
        return key, mark


def encode_properties(key: SubscriptionKey, properties: Mapping[str, str]) -> bytes:
    """Write a SUBSCRIPTION_PROPERTIES."""
    return _head(key) + _properties(properties)


def decode_properties(payload: bytes) -> tuple[SubscriptionKey, dict[str, str]]:
    """Read a SUBSCRIPTION_PROPERTIES."""
    with Reading("SUBSCRIPTION_PROPERTIES", payload) as reading:
        return _read_head(reading), _read_properties(reading)


def subscription_key(key: SubscriptionKey) -> bytes:
    """Name the snapshot row of a subscription."""
    return _KEY.pack(SUBSCRIPTION_KEY, key.partition_id) + key.name.encode()


def _head(key: SubscriptionKey) -> bytes:
    name = key.name.encode()
    return _HEAD.pack(VERSION, key.partition_id, len(name)) + name


def _read_head(reading: Reading) -> SubscriptionKey:
    version, partition_id, name_size = reading.take(_HEAD)
    reading.known(version)
    return SubscriptionKey(partition_id, reading.text(name_size))


def _read_made(reading: Reading) -> Made:
    key = _read_head(reading)
    mark, made_ms = reading.take(_MADE)
    return Made(key, Acked(mark), made_ms, _read_properties(reading))


def _properties(properties: Mapping[str, str]) -> bytes:
    parts = [_COUNT.pack(len(properties))]
    for each in properties.items():
        for text in each:
            encoded = text.encode()
            parts += (_COUNT.pack(len(encoded)), encoded)
    return b"".join(parts)


def _read_properties(reading: Reading) -> dict[str, str]:
    (count,) = reading.take(_COUNT)
    found: dict[str, str] = {}
    for _ in range(count):
        (key_size,) = reading.take(_COUNT)
        key = reading.text(key_size)
        (value_size,) = reading.take(_COUNT)
        found[key] = reading.text(value_size)
    return found
