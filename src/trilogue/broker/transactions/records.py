"""Transactional ids as the journal and the snapshots have them.

    TRANSACTION_SAVED    u8 version 1 | u16 length, id | u8 state | i64 producer id | i16 epoch |
                         i64 former producer id | i16 former epoch | i32 timeout_ms |
                         i64 started_ms | i64 changed_ms | u32 count | count x u64 partition id |
                         u16 count | count x (u16 length, group) |
                         u32 count | count x (u32 length, CURSOR_MOVE)
                         u8 version 2 has then u16 length, owner |
                         u32 count | count x (u32 length, ACK)
    TRANSACTION_GREW     u8 version 1 | u16 length, id | i64 changed_ms |
                         u32 count | count x u64 partition id | u16 count | count x group
    TRANSACTION_OFFSETS  u8 version 1 | u16 length, id | u32 length, CURSOR_MOVE
    TRANSACTION_FORGOTTEN  u8 version 1 | u16 length, id
    TRANSACTION_ACKED    u8 version 1 | u16 length, id | u32 length, ACK

    ACK                  i64 created_ms of the subscription | SUBSCRIPTION_ACKED

At the flush cut each id that changed has one row, key "t" | id, value TRANSACTION_SAVED.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum, unique
from struct import Struct
from typing import Final, NamedTuple

from trilogue.broker.cursors.cursor_facts import (
    NOTHING_BELOW,
    Ranges,
    decode_acked,
    encode_acked,
)
from trilogue.broker.cursors.position import PositionKey
from trilogue.broker.facts import VERSION, ByteReader, CursorMoves, decode_moves, encode_moves

NO_PRODUCER: Final = -1
NO_EPOCH: Final = -1
ACKS_VERSION: Final = 2  # of a TRANSACTION_SAVED with an owner or acks


@unique
class TransactionState(IntEnum):
    """The state of a transactional id. Numbers are on disk; those of Kafka's log are the same."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def is_ending(self) -> bool:
        """Whether the outcome is decided and not everything that follows is durable."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


PREPARED: Final = {True: TransactionState.PREPARE_COMMIT, False: TransactionState.PREPARE_ABORT}
COMPLETE: Final = {True: TransactionState.COMPLETE_COMMIT, False: TransactionState.COMPLETE_ABORT}


class TransactionRow(NamedTuple):
    """What is stored of one transactional id, without what its transaction contains."""

    transactional_id: str
    state: TransactionState
    producer_id: int
    epoch: int
    former_producer_id: int  # that had the id before the epochs were used up, or -1
    former_epoch: int  # of the producer that ended the last transaction, or -1
    timeout_ms: int
    started_ms: int  # of the transaction, or -1
    changed_ms: int
    owner: str = ""  # the principal of the Pulsar client that began it

    @property
    def last_identities(self) -> tuple[tuple[int, int], ...]:
        """The identity that the present one replaced: a request of it may be a repeated one."""
        if self.former_epoch == NO_EPOCH:
            return ()
        former_id = self.former_producer_id
        return ((self.producer_id if former_id == NO_PRODUCER else former_id, self.former_epoch),)


class DeferredAck(NamedTuple):
    """Acks of one subscription in a transaction: they take effect if it commits.

    `created_ms` is the subscription's: another one with its name gets none of them.
    """

    key: PositionKey
    created_ms: int
    until: int  # everything below is acked, or NOTHING_BELOW
    ranges: Ranges = ()

    @property
    def subscription(self) -> tuple[PositionKey, int]:
        """The subscription, as one that another of its name cannot be."""
        return self.key, self.created_ms

    @property
    def is_empty(self) -> bool:
        """Whether it names its subscription only: another node has the acks (branch_acks.py)."""
        return self.until == NOTHING_BELOW and not self.ranges

    def without_acks(self) -> DeferredAck:
        """Return the one that names the same subscription only."""
        return self._replace(until=NOTHING_BELOW, ranges=())


class TransactionContent(NamedTuple):
    """What a transaction contains: partitions, groups, positions and acks to commit with it."""

    partition_ids: tuple[int, ...] = ()
    groups: tuple[str, ...] = ()
    offsets: tuple[CursorMoves, ...] = ()
    acks: tuple[DeferredAck, ...] = ()


_HEAD = Struct(">BH")
_ROW = Struct(">BqhqhiqqI")
_TIME = Struct(">qI")
_ID = Struct(">Q")
_MS = Struct(">q")
_SHORT = Struct(">H")
_COUNT = Struct(">I")


def encode_saved(row: TransactionRow, content: TransactionContent) -> bytes:
    """Encode a TRANSACTION_SAVED."""
    (
        transactional_id,
        state,
        producer_id,
        epoch,
        former_producer_id,
        former_epoch,
        timeout_ms,
        started_ms,
        changed_ms,
        owner,
    ) = row
    version = ACKS_VERSION if owner or content.acks else VERSION
    numbers = (state, producer_id, epoch, former_producer_id, former_epoch, timeout_ms)
    ids = content.partition_ids
    fixed = _ROW.pack(*numbers, started_ms, changed_ms, len(ids))
    parts = [_head(transactional_id, version), fixed]
    parts += map(_ID.pack, ids)
    parts.append(_encode_groups(content.groups))
    parts.append(_COUNT.pack(len(content.offsets)))
    for moves in content.offsets:
        payload = encode_moves(moves)
        parts += (_COUNT.pack(len(payload)), payload)
    if version == ACKS_VERSION:
        name = owner.encode()
        parts += (_SHORT.pack(len(name)), name, _COUNT.pack(len(content.acks)))
        parts += map(encode_ack, content.acks)
    return b"".join(parts)


def decode_saved(payload: bytes) -> tuple[TransactionRow, TransactionContent]:
    """Decode a TRANSACTION_SAVED; CorruptLog."""
    with ByteReader("TRANSACTION_SAVED", payload) as reader:
        version, size = reader.read_struct(_HEAD)
        if version != ACKS_VERSION:
            reader.check_version(version)
        transactional_id = reader.read_text(size)
        state, a, b, c, d, e, f, g, count = reader.read_struct(_ROW)
        row = TransactionRow(transactional_id, TransactionState(state), a, b, c, d, e, f, g)
        ids = tuple(reader.read_struct(_ID)[0] for _ in range(count))
        groups = _read_groups(reader)
        (count,) = reader.read_struct(_COUNT)
        offsets = tuple(_read_moves(reader) for _ in range(count))
        acks: tuple[DeferredAck, ...] = ()
        if version == ACKS_VERSION:
            row = row._replace(owner=reader.read_text(reader.read_struct(_SHORT)[0]))
            (count,) = reader.read_struct(_COUNT)
            acks = tuple(_read_ack(reader) for _ in range(count))
        return row, TransactionContent(ids, groups, offsets, acks)


def encode_grew(
    transactional_id: str, changed_ms: int, partition_ids: Iterable[int], groups: Iterable[str]
) -> bytes:
    """Encode a TRANSACTION_GREW."""
    ids = tuple(partition_ids)
    parts = [_head(transactional_id), _TIME.pack(changed_ms, len(ids)), *map(_ID.pack, ids)]
    return b"".join(parts) + _encode_groups(tuple(groups))


def decode_grew(payload: bytes) -> tuple[str, int, tuple[int, ...], tuple[str, ...]]:
    """Decode a TRANSACTION_GREW: id, time, partitions, groups; CorruptLog."""
    with ByteReader("TRANSACTION_GREW", payload) as reader:
        transactional_id = _read_head(reader)
        changed_ms, count = reader.read_struct(_TIME)
        ids = tuple(reader.read_struct(_ID)[0] for _ in range(count))
        return transactional_id, changed_ms, ids, _read_groups(reader)


def encode_offsets(transactional_id: str, moves: CursorMoves) -> bytes:
    """Encode a TRANSACTION_OFFSETS."""
    payload = encode_moves(moves)
    return _head(transactional_id) + _COUNT.pack(len(payload)) + payload


def decode_offsets(payload: bytes) -> tuple[str, CursorMoves]:
    """Decode a TRANSACTION_OFFSETS; CorruptLog."""
    with ByteReader("TRANSACTION_OFFSETS", payload) as reader:
        return _read_head(reader), _read_moves(reader)


def encode_pending_ack(transactional_id: str, ack: DeferredAck) -> bytes:
    """Encode a TRANSACTION_ACKED."""
    return _head(transactional_id) + encode_ack(ack)


def decode_pending_ack(payload: bytes) -> tuple[str, DeferredAck]:
    """Decode a TRANSACTION_ACKED; CorruptLog."""
    with ByteReader("TRANSACTION_ACKED", payload) as reader:
        return _read_head(reader), _read_ack(reader)


def encode_forgotten(transactional_id: str) -> bytes:
    """Encode a TRANSACTION_FORGOTTEN."""
    return _head(transactional_id)


def decode_forgotten(payload: bytes) -> str:
    """Decode a TRANSACTION_FORGOTTEN; CorruptLog."""
    with ByteReader("TRANSACTION_FORGOTTEN", payload) as reader:
        return _read_head(reader)


def _head(transactional_id: str, version: int = VERSION) -> bytes:
    name = transactional_id.encode()
    return _HEAD.pack(version, len(name)) + name


def _read_head(reader: ByteReader) -> str:
    version, size = reader.read_struct(_HEAD)
    reader.check_version(version)
    return reader.read_text(size)


def _encode_groups(groups: tuple[str, ...]) -> bytes:
    parts = [_SHORT.pack(len(groups))]
    for group in groups:
        name = group.encode()
        parts += (_SHORT.pack(len(name)), name)
    return b"".join(parts)


def _read_groups(reader: ByteReader) -> tuple[str, ...]:
    (count,) = reader.read_struct(_SHORT)
    return tuple(reader.read_text(reader.read_struct(_SHORT)[0]) for _ in range(count))


def _read_moves(reader: ByteReader) -> CursorMoves:
    (size,) = reader.read_struct(_COUNT)
    return decode_moves(reader.read_bytes(size))


def encode_ack(ack: DeferredAck) -> bytes:
    """Encode an ACK with its length."""
    payload = _MS.pack(ack.created_ms) + encode_acked(ack.key, ack.until, ack.ranges)
    return _COUNT.pack(len(payload)) + payload


def _read_ack(reader: ByteReader) -> DeferredAck:
    (size,) = reader.read_struct(_COUNT)
    (created_ms,) = reader.read_struct(_MS)
    key, until, ranges = decode_acked(reader.read_bytes(size - _MS.size))
    return DeferredAck(key, created_ms, until, ranges)
