"""Fact records: small fast facts that travel in the journal's frames, and their snapshots in meta.

A fact has a kind (in the frame) and a payload that starts with a version byte; big-endian. An
unknown kind or version stops the start, because skipping it could lose an acknowledged position.

    CURSOR_MOVE     u8 version 1 | u8 protocol | i64 committed_ms | u16 length, name | u32 count |
                    count x (u64 partition id | i64 offset | i32 owner epoch | u16 length, metadata)
                    u8 version 2 has i64 retention_ms after committed_ms: how long the positions
                    are kept instead of the broker's retention
    CURSORS_REMOVED u8 version 1 | u8 protocol | u16 length, name | u8 all | u32 count |
                    count x u64 partition id; with `all` 1 every position of the name is removed
    PRODUCER_MARK   u8 version 1 | u64 partition id | i64 producer id | i16 epoch | i64 active_ms |
                    u64 written | u8 count |
                    count x (i32 base sequence | i32 last offset delta | i64 base offset |
                             i64 append time)

GROUP_SAVED and GROUP_DELETED, what is stored of a group besides positions, are in
broker/groups/records.py, GROUP_MEMBERS in broker/groups/membership.py, facts of transactions in
broker/transactions/records.py, batch_commits.py and pending_offsets.py. Facts of durable
subscriptions are in broker/cursors/cursor_facts.py; all begin with
u8 version 1 | u64 partition id | u16 length, name:

    SUBSCRIPTION_CREATED     ... i64 mark | i64 made_ms | properties
    SUBSCRIPTION_DELETED     ...
    SUBSCRIPTION_ACKED       ... i64 acked until, or -1 | u32 count | count x (i64 start | i64 end)
    SUBSCRIPTION_MOVED       ... i64 mark; everything above is not acked
    SUBSCRIPTION_PROPERTIES  ... properties
    properties =             u32 count | count x (u32 length, key | u32 length, value)

Facts of share groups are in broker/cursors/share_facts.py; all begin as those of subscriptions do,
with the group in place of the name:

    SHARE_STARTED            ... i64 mark; nothing above it is done
    SHARE_ACKED              ... i64 done until, or -1 | u32 count | count x (i64 start | i64 end) |
                             delivered
    SHARE_DELETED            ...
    delivered =              u32 count | count x (i64 start | i64 end | u32 delivery count)

At the flush cut the state that results from facts and entries is written to meta, one row for each
position and producer that changed since the previous cut:

    key  "c" | u8 protocol | u64 partition id | name       value  CURSOR_MOVE of that one position
    key  "p" | u64 partition id | i64 producer id          value  PRODUCER_MARK
    key  "s" | u64 partition id | name                     value  SUBSCRIPTION_CREATED, then
                                                           u32 count | count x i64 start |
                                                           count x i64 end
    key  "h" | u64 partition id | group                    value  SHARE_STARTED, then u32 count |
                                                           count x i64 start |
                                                           count x i64 end | delivered
    key  "q" | u64 partition id | u64 producer key         value  broker/producers/deduplication.py
    key  "g" | name                                        value  GROUP_SAVED
    key  "m" | u16 length, group | member id               value  broker/groups/membership.py
    key  "t" | transactional id                            value  TRANSACTION_SAVED
    key  "b" | application id                              value  BATCH_COMMITTED
    key  "o" | u16 length, group | i64 producer id         value  broker/transactions/
                                                           pending_offsets.py
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum, unique
from itertools import chain
from struct import Struct
from struct import error as struct_error
from typing import NamedTuple, Self
from typing import Protocol as Port

from trilogue.log.errors import CorruptLog

VERSION = 1
RETENTION_VERSION = 2  # of a CURSOR_MOVE with a retention of its own
DEFAULT_RETENTION = -1  # of positions: the broker's setting
BATCHES_MAX = 5  # of one producer in a mark

CURSOR_KEY = b"c"
PRODUCER_KEY = b"p"
SUBSCRIPTION_KEY = b"s"
SEQUENCE_KEY = b"q"
GROUP_KEY = b"g"
MEMBER_KEY = b"m"
TRANSACTION_KEY = b"t"
BATCH_KEY = b"b"
PENDING_KEY = b"o"
SHARE_KEY = b"h"
PENDING_ACKS_KEY = b"a"


@unique
class FactKind(IntEnum):
    """The kind of a fact. Numbers are on disk and never reused."""

    CURSOR_MOVE = 1
    PRODUCER_MARK = 2
    SUBSCRIPTION_CREATED = 3
    SUBSCRIPTION_DELETED = 4
    SUBSCRIPTION_ACKED = 5
    SUBSCRIPTION_MOVED = 6
    SUBSCRIPTION_PROPERTIES = 7
    CURSORS_REMOVED = 8
    GROUP_SAVED = 9
    GROUP_DELETED = 10
    TRANSACTION_SAVED = 11
    TRANSACTION_GREW = 12
    TRANSACTION_OFFSETS = 13
    TRANSACTION_FORGOTTEN = 14
    TRANSACTION_ACKED = 15
    BATCH_COMMITTED = 16
    GROUP_MEMBERS = 17
    PENDING_OFFSETS = 18
    PENDING_OFFSETS_ENDED = 19
    PENDING_ACKS = 20
    PENDING_ACKS_ENDED = 21
    SHARE_STARTED = 24
    SHARE_ACKED = 25
    SHARE_DELETED = 26


SUBSCRIPTION_KINDS = frozenset(
    range(FactKind.SUBSCRIPTION_CREATED, FactKind.SUBSCRIPTION_PROPERTIES + 1)
)
GROUP_KINDS = frozenset({FactKind.GROUP_SAVED, FactKind.GROUP_DELETED})
PENDING_KINDS = frozenset(range(FactKind.PENDING_OFFSETS, FactKind.PENDING_ACKS_ENDED + 1))
SHARE_KINDS = frozenset(range(FactKind.SHARE_STARTED, FactKind.SHARE_DELETED + 1))
TRANSACTION_KINDS = frozenset(range(FactKind.TRANSACTION_SAVED, FactKind.TRANSACTION_ACKED + 1))


@unique
class Protocol(IntEnum):
    """The protocol whose position it is. Numbers are on disk."""

    KAFKA = 0
    PULSAR = 1
    TUBEMQ = 2


class FactJournal(Port):
    """What the broker needs of the journal to write facts."""

    def add_fact(self, kind: int, payload: bytes, acks_from_memory: bool = False, /) -> None:
        """Put a fact into the window that is being filled."""

    def on_commit(self, callback: Callable[[BaseException | None], None], /) -> None:
        """Call back when everything added so far is durable, or never will be."""


class CursorMove(NamedTuple):
    """The new position of one partition: everything below `offset` is acked.

    A negative offset means that there is no position, and is returned as it was committed: kafkajs
    commits -2 or -1 to start over from the first or the last message.
    """

    partition_id: int
    offset: int
    owner_epoch: int = -1
    metadata: str = ""


class CursorMoves(NamedTuple):
    """The positions that one commit moved."""

    protocol: Protocol
    name: str
    committed_ms: int
    moves: Sequence[CursorMove]
    retention_ms: int = DEFAULT_RETENTION  # how long the positions are kept


class CursorRemoval(NamedTuple):
    """Positions of one name that were removed: on these partitions, or on all (None)."""

    protocol: Protocol
    name: str
    partition_ids: Sequence[int] | None


class WrittenBatch(NamedTuple):
    """One batch of a producer that is in the log. `append_time_ms` is -1 under CreateTime."""

    base_sequence: int
    last_offset_delta: int
    base_offset: int
    append_time_ms: int


class ProducerMark(NamedTuple):
    """The state of one producer in one partition."""

    partition_id: int
    producer_id: int
    epoch: int
    active_ms: int
    written: int
    batches: tuple[WrittenBatch, ...]  # oldest first


class SnapshotRow(NamedTuple):
    """A row for meta; None deletes."""

    key: bytes
    value: bytes | None


_MOVES = Struct(">BBqH")
_KEPT_MOVES = Struct(">BBqqH")
_HEAD = Struct(">BB")
_MOVED = Struct(">qH")
_KEPT_MOVED = Struct(">qqH")
_GONE = Struct(">BBH")
_ALL = Struct(">BI")
_ID = Struct(">Q")
_COUNT = Struct(">I")
_MOVE = Struct(">QqiH")
_MARK = Struct(">BQqhqQB")
_BATCH = Struct(">iiqq")
_BATCHES = [Struct(">" + "iiqq" * count) for count in range(BATCHES_MAX + 1)]
_CURSOR_KEY = Struct(">cBQ")
_PRODUCER_KEY = Struct(">cQq")


def encode_moves(moves: CursorMoves) -> bytes:
    """Encode a CURSOR_MOVE."""
    name = moves.name.encode()
    protocol, committed_ms, retention_ms = moves.protocol, moves.committed_ms, moves.retention_ms
    if retention_ms == DEFAULT_RETENTION:
        head = _MOVES.pack(VERSION, protocol, committed_ms, len(name))
    else:
        kept = protocol, committed_ms, retention_ms
        head = _KEPT_MOVES.pack(RETENTION_VERSION, *kept, len(name))
    parts = [head, name, _COUNT.pack(len(moves.moves))]
    for move in moves.moves:
        metadata = move.metadata.encode()
        parts += (
            _MOVE.pack(move.partition_id, move.offset, move.owner_epoch, len(metadata)),
            metadata,
        )
    return b"".join(parts)


def decode_moves(payload: bytes) -> CursorMoves:
    """Decode a CURSOR_MOVE; CorruptLog."""
    with ByteReader("CURSOR_MOVE", payload) as reader:
        (version, protocol), retention_ms = reader.read_struct(_HEAD), DEFAULT_RETENTION
        if version != RETENTION_VERSION:
            reader.check_version(version)
            committed_ms, name_size = reader.read_struct(_MOVED)
        else:
            committed_ms, retention_ms, name_size = reader.read_struct(_KEPT_MOVED)
        name = reader.read_text(name_size)
        (count,) = reader.read_struct(_COUNT)
        moves: list[CursorMove] = []
        for _ in range(count):
            partition_id, offset, owner_epoch, metadata_size = reader.read_struct(_MOVE)
            metadata = reader.read_text(metadata_size)
            moves.append(CursorMove(partition_id, offset, owner_epoch, metadata))
        return CursorMoves(Protocol(protocol), name, committed_ms, moves, retention_ms)


def encode_removal(gone: CursorRemoval) -> bytes:
    """Encode a CURSORS_REMOVED."""
    name, ids = gone.name.encode(), gone.partition_ids
    head = _GONE.pack(VERSION, gone.protocol, len(name)) + name
    return head + _ALL.pack(ids is None, len(ids or ())) + b"".join(map(_ID.pack, ids or ()))


def decode_removal(payload: bytes) -> CursorRemoval:
    """Decode a CURSORS_REMOVED; CorruptLog."""
    with ByteReader("CURSORS_REMOVED", payload) as reader:
        version, protocol, name_size = reader.read_struct(_GONE)
        reader.check_version(version)
        name = reader.read_text(name_size)
        everything, count = reader.read_struct(_ALL)
        ids = [reader.read_struct(_ID)[0] for _ in range(count)]
        return CursorRemoval(Protocol(protocol), name, None if everything else ids)


def encode_mark(mark: ProducerMark) -> bytes:
    """Encode a PRODUCER_MARK."""
    count = len(mark.batches)
    head = _MARK.pack(
        VERSION,
        mark.partition_id,
        mark.producer_id,
        mark.epoch,
        mark.active_ms,
        mark.written,
        count,
    )
    return head + _BATCHES[count].pack(*chain.from_iterable(mark.batches))


def decode_mark(payload: bytes) -> ProducerMark:
    """Decode a PRODUCER_MARK; CorruptLog."""
    with ByteReader("PRODUCER_MARK", payload) as reader:
        version, partition_id, producer_id, epoch, active_ms, written, count = reader.read_struct(
            _MARK
        )
        reader.check_version(version)
        if count > BATCHES_MAX:
            raise ValueError(f"{count} batches")
        batches = tuple(WrittenBatch(*reader.read_struct(_BATCH)) for _ in range(count))
        return ProducerMark(partition_id, producer_id, epoch, active_ms, written, batches)


def cursor_key(protocol: Protocol, name: str, partition_id: int) -> bytes:
    """Return the key of the snapshot row of a position."""
    return _CURSOR_KEY.pack(CURSOR_KEY, protocol, partition_id) + name.encode()


def producer_key(partition_id: int, producer_id: int) -> bytes:
    """Return the key of the snapshot row of a producer."""
    return _PRODUCER_KEY.pack(PRODUCER_KEY, partition_id, producer_id)


class ByteReader:
    """Reads a payload field by field.

    As a context manager it turns whatever does not fit, and bytes left over, into CorruptLog.
    """

    def __init__(self, kind: str, payload: bytes) -> None:
        self._kind = kind
        self._payload = payload
        self._position = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if isinstance(error, struct_error | ValueError):
            raise CorruptLog(f"a {self._kind} fact is malformed: {error}") from error
        if error is None and self._position != len(self._payload):
            raise CorruptLog(f"a {self._kind} fact has bytes left over")

    def read_struct(self, fields: Struct) -> tuple[int, ...]:
        """Return the next numbers."""
        values = fields.unpack_from(self._payload, self._position)
        self._position += fields.size
        return values

    def read_text(self, size: int) -> str:
        """Return the next `size` bytes as text."""
        return self.read_bytes(size).decode()

    def read_bytes(self, size: int) -> bytes:
        """Return the next `size` bytes."""
        end = self._position + size
        if end > len(self._payload):
            raise ValueError("cut inside a text")
        data = self._payload[self._position : end]
        self._position = end
        return data

    def check_version(self, version: int) -> None:
        """Refuse an unknown version: CorruptLog."""
        if version != VERSION:
            raise CorruptLog(f"a {self._kind} fact has version {version}; this program knows 1")
