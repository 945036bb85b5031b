"""Facts about the positions of share groups, and their snapshots (formats: broker/facts.py)."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from trilogue.broker.cursors.cursor_facts import (
    Ranges,
    encode_head,
    encode_ranges,
    read_head,
    read_ranges,
)
from trilogue.broker.cursors.position import Position, PositionKey
from trilogue.broker.facts import SHARE_KEY, ByteReader, Protocol

RANGES_IN_FACT: Final = 40_000  # of 20 bytes at most, below the size of a fact
NOTHING_BELOW: Final = -1  # a SHARE_ACKED that moves no mark

_OFFSET: Final = Struct(">q")
_COUNT: Final = Struct(">I")
_RANGE: Final = Struct(">qq")
_DELIVERED: Final = Struct(">qqI")
_KEY: Final = Struct(">cQ")


class UnackedRange(NamedTuple):
    """Offsets that are not acknowledged, and how often they were delivered."""

    start: int
    end: int
    deliveries: int


class ShareAckFact(NamedTuple):
    """What one SHARE_ACKED contains."""

    key: PositionKey
    until: int  # everything below is done; or NOTHING_BELOW
    done: Ranges  # acknowledged, rejected, or delivered too often
    released: Sequence[UnackedRange]


class SharePosition(Position):
    """The position of a share group in a partition, and how often records were delivered.

    Offsets of the position are done: acknowledged, or never delivered again. `delivered` has counts
    of offsets above the mark that were given back, as they are durable.
    """

    __slots__ = ("delivered", "gone", "key")

    def __init__(self, key: PositionKey, mark: int) -> None:
        super().__init__(mark)
        self.key = key
        self.delivered: list[UnackedRange] = []  # sorted, without overlaps
        self.gone = False  # deleted, perhaps with its partition

    def count_deliveries(self, released: Sequence[UnackedRange]) -> None:
        """Take over the counts of offsets that were given back."""
        for each in released:
            self._cut(each.start, each.end)
            self.delivered.append(each)
        self.delivered.sort()

    def forget_deliveries(self, done: Ranges) -> None:
        """Forget the counts of offsets that are done, and of those below the mark."""
        if not self.delivered:
            return
        for start, end in done:
            self._cut(start, end)
        if self.delivered and self.delivered[0].start < self.mark:
            self._cut(self.delivered[0].start, self.mark)
        self.delivered.sort()

    def reset(self, mark: int) -> None:
        """Begin again at an offset."""
        super().reset(mark)
        self.delivered.clear()

    def _cut(self, start: int, end: int) -> None:
        """Remove the counts of a range; the rest is not sorted afterwards."""
        kept: list[UnackedRange] = []
        for each in self.delivered:
            if each.end <= start or end <= each.start:
                kept.append(each)
                continue
            if each.start < start:
                kept.append(each._replace(end=start))
            if end < each.end:
                kept.append(each._replace(start=end))
        self.delivered = kept


def share_key(partition_id: int, group: str) -> PositionKey:
    """Return the key of a share group's position."""
    return PositionKey(Protocol.KAFKA, group, partition_id)


def snapshot_key(key: PositionKey) -> bytes:
    """Return the key of a position's snapshot row."""
    return _KEY.pack(SHARE_KEY, key.partition_id) + key.name.encode()


def encode_started(key: PositionKey, mark: int) -> bytes:
    """Encode a SHARE_STARTED."""
    return encode_head(key) + _OFFSET.pack(mark)


def decode_started(payload: bytes) -> SharePosition:
    """Decode a SHARE_STARTED; CorruptLog."""
    with ByteReader("SHARE_STARTED", payload) as reader:
        key = read_head(reader, Protocol.KAFKA)
        return SharePosition(key, *reader.read_struct(_OFFSET))


def encode_removal(key: PositionKey) -> bytes:
    """Encode a SHARE_DELETED."""
    return encode_head(key)


def decode_removal(payload: bytes) -> PositionKey:
    """Decode a SHARE_DELETED; CorruptLog."""
    with ByteReader("SHARE_DELETED", payload) as reader:
        return read_head(reader, Protocol.KAFKA)


def encode_acked(fact: ShareAckFact) -> bytes:
    """Encode a SHARE_ACKED of at most RANGES_IN_FACT ranges."""
    head = encode_head(fact.key) + _OFFSET.pack(fact.until)
    return head + encode_ranges(fact.done) + _encode_delivered(fact.released)


def decode_acked(payload: bytes) -> ShareAckFact:
    """Decode a SHARE_ACKED; CorruptLog."""
    with ByteReader("SHARE_ACKED", payload) as reader:
        key = read_head(reader, Protocol.KAFKA)
        (until,) = reader.read_struct(_OFFSET)
        return ShareAckFact(key, until, read_ranges(reader), _read_delivered(reader))


def encode_snapshot(position: SharePosition, ranges_max: int) -> bytes:
    """Encode the snapshot of a position, with its lowest ranges."""
    packed = position.pack_ranges(ranges_max)
    head = encode_started(position.key, position.mark) + _COUNT.pack(len(packed) // _RANGE.size)
    return head + packed + _encode_delivered(position.delivered[:ranges_max])


def decode_snapshot(payload: bytes) -> SharePosition:
    """Decode the snapshot of a position; CorruptLog."""
    with ByteReader("share group's snapshot", payload) as reader:
        key = read_head(reader, Protocol.KAFKA)
        position = SharePosition(key, *reader.read_struct(_OFFSET))
        (count,) = reader.read_struct(_COUNT)
        position.unpack_ranges(reader.read_bytes(count * _RANGE.size))
        position.delivered = _read_delivered(reader)
        return position


def _encode_delivered(delivered: Sequence[UnackedRange]) -> bytes:
    return _COUNT.pack(len(delivered)) + b"".join(_DELIVERED.pack(*each) for each in delivered)


def _read_delivered(reader: ByteReader) -> list[UnackedRange]:
    (count,) = reader.read_struct(_COUNT)
    packed = reader.read_bytes(count * _DELIVERED.size)
    return [UnackedRange(*each) for each in _DELIVERED.iter_unpack(packed)]
