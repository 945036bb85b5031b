"""Offsets that a group's coordinator keeps for transactions of another node, until they end.

A transaction commits offsets with its end. If its coordinator is also the group's, the transaction
has them (transaction.py). Otherwise they are here, by group and producer: its coordinator sends the
outcome, and an outcome that comes again finds nothing.

    PENDING_OFFSETS        u8 version 1 | i64 producer id | u32 length, CURSOR_MOVE
    PENDING_OFFSETS_ENDED  u8 version 1 | i64 producer id | u16 length, group

Committed offsets are in the journal before the end of the pending ones, so a crash between the two
commits them once more before any other transaction can move them. At the flush cut each group and
producer that changed has one row, key "o" | u16 length, group | i64 producer id, value u32 count |
count x (u32 length, CURSOR_MOVE).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final, NamedTuple

from trilogue.broker.errors import TooManyTransactions, convert_log_error
from trilogue.broker.facts import (
    PENDING_KEY,
    VERSION,
    ByteReader,
    CursorMove,
    CursorMoves,
    FactJournal,
    FactKind,
    SnapshotRow,
    decode_moves,
    encode_moves,
)
from trilogue.broker.transactions.transaction import count_positions
from trilogue.log.errors import LogError

_HEAD: Final = Struct(">Bq")
_SIZE: Final = Struct(">I")
_NAME_SIZE: Final = Struct(">H")
_PRODUCER: Final = Struct(">q")


class PendingKey(NamedTuple):
    """The offsets of one group in the transaction that a producer has open."""

    group: str
    producer_id: int


class PendingOffsets:
    """The pending offsets of the groups that this node coordinates."""

    def __init__(
        self,
        commit_offsets: Callable[[str, Sequence[CursorMove]], object],
        *,
        keys_max: int,
        positions_max: int,
        positions_in_all_max: int,
    ) -> None:
        self._commit_offsets = commit_offsets
        self._keys_max = keys_max
        self._positions_max = positions_max  # of one key
        self._positions_in_all_max = positions_in_all_max
        self._journal: FactJournal
        self._pending: dict[PendingKey, list[CursorMoves]] = {}
        self._counts: dict[PendingKey, int] = {}  # of positions
        self._count = 0
        self._by_group: dict[str, dict[PendingKey, None]] = {}
        self._durable: dict[PendingKey, tuple[CursorMoves, ...]] = {}
        self._dirty: dict[PendingKey, None] = {}

    def attach(self, journal: FactJournal) -> None:
        """Begin to serve: the log has recovered."""
        self._journal = journal

    def __len__(self) -> int:
        return len(self._pending)

    def partition_ids(self, group: str) -> set[int]:
        """Return the partitions whose offsets of a group transactions may still move."""
        return {
            move.partition_id
            for key in self._by_group.get(group, ())
            for moves in self._pending[key]
            for move in moves.moves
        }

    def add(self, producer_id: int, moves: CursorMoves) -> None:
        """Keep offsets; they are durable at the journal's next commit.

        Raises TooManyTransactions, StorageFailed, DiskFull, TooLarge.
        """
        key = PendingKey(moves.name, producer_id)
        if key not in self._pending and len(self._pending) >= self._keys_max:
            raise TooManyTransactions(f"up to {self._keys_max} transactions move offsets here")
        if self._counts.get(key, 0) + count_positions(moves) > self._positions_max:
            raise TooManyTransactions(f"a transaction moves up to {self._positions_max} positions")
        if self._count + count_positions(moves) > self._positions_in_all_max:
            raise TooManyTransactions(f"up to {self._positions_in_all_max} positions are pending")
        payload = encode_moves(moves)
        head = _HEAD.pack(VERSION, producer_id) + _SIZE.pack(len(payload))
        self._add_fact(FactKind.PENDING_OFFSETS, head + payload)
        self._put(key, moves)
        self._save_when_durable(key)

    def end(self, group: str, producer_id: int, *, commit: bool) -> None:
        """Commit or drop what a producer has pending; nothing pending is no error.

        Raises as `add`, and what committing offsets raises.
        """
        key = PendingKey(group, producer_id)
        pending = self._pending.get(key)
        if pending is None:
            return
        if commit:
            newest = {move.partition_id: move for moves in pending for move in moves.moves}
            self._commit_offsets(group, tuple(newest.values()))
        name = group.encode()
        head = _HEAD.pack(VERSION, producer_id)
        self._add_fact(FactKind.PENDING_OFFSETS_ENDED, head + _NAME_SIZE.pack(len(name)) + name)
        self._drop(key)
        self._save_when_durable(key)

    def release(self, gives_name: Callable[[str], bool]) -> None:
        """Forget what is pending in groups that another node coordinates now; its rows stay."""
        for key in [each for each in self._pending if gives_name(each.group)]:
            self._drop(key)
            self._durable.pop(key, None)

    def _put(self, key: PendingKey, moves: CursorMoves) -> None:
        self._pending.setdefault(key, []).append(moves)
        self._counts[key] = self._counts.get(key, 0) + count_positions(moves)
        self._count += count_positions(moves)
        self._by_group.setdefault(key.group, {})[key] = None

    def _drop(self, key: PendingKey) -> None:
        if self._pending.pop(key, None) is None:
            return
        self._count -= self._counts.pop(key)
        keys = self._by_group[key.group]
        del keys[key]
        if not keys:
            del self._by_group[key.group]

    def _add_fact(self, kind: FactKind, payload: bytes) -> None:
        try:
            self._journal.add_fact(kind, payload)
        except LogError as error:
            raise convert_log_error(error) from error

    def _save_when_durable(self, key: PendingKey) -> None:
        pending = tuple(self._pending.get(key, ()))

        def committed(problem: BaseException | None) -> None:
            if problem is None:
                self._save(key, pending)

        self._journal.on_commit(committed)

    def _save(self, key: PendingKey, pending: tuple[CursorMoves, ...]) -> None:
        if pending:
            self._durable[key] = pending
        else:
            self._durable.pop(key, None)
        self._dirty[key] = None

    # -- the flush cut and the start

    def snapshot(self) -> list[SnapshotRow]:
        """Return the rows that changed since the last call, as far as they are durable."""
        dirty, self._dirty = self._dirty, {}
        rows = []
        for key in dirty:
            pending = self._durable.get(key)
            value = None if pending is None else _encode_row(pending)
            rows.append(SnapshotRow(_encode_key(key), value))
        return rows

    def load(self, key: bytes, value: bytes) -> None:
        """Take over a snapshot row; CorruptLog."""
        (producer_id,) = _PRODUCER.unpack_from(key, len(key) - _PRODUCER.size)
        with ByteReader("row of pending offsets", value) as reader:
            (count,) = reader.read_struct(_SIZE)
            pending = [
                decode_moves(reader.read_bytes(reader.read_struct(_SIZE)[0])) for _ in range(count)
            ]
        for moves in pending:
            self._put(PendingKey(moves.name, producer_id), moves)
        self._durable[PendingKey(pending[0].name, producer_id)] = tuple(pending)

    def replay(self, kind: int, payload: bytes) -> None:
        """Take over a fact found in the journal at start; CorruptLog."""
        with ByteReader("PENDING_OFFSETS", payload) as reader:
            version, producer_id = reader.read_struct(_HEAD)
            reader.check_version(version)
            if kind == FactKind.PENDING_OFFSETS:
                moves = decode_moves(reader.read_bytes(reader.read_struct(_SIZE)[0]))
                key = PendingKey(moves.name, producer_id)
                self._put(key, moves)
            else:
                group = reader.read_text(reader.read_struct(_NAME_SIZE)[0])
                key = PendingKey(group, producer_id)
                self._drop(key)
        self._save(key, tuple(self._pending.get(key, ())))


def _encode_key(key: PendingKey) -> bytes:
    name = key.group.encode()
    return PENDING_KEY + _NAME_SIZE.pack(len(name)) + name + _PRODUCER.pack(key.producer_id)


def _encode_row(pending: Sequence[CursorMoves]) -> bytes:
    parts = [_SIZE.pack(len(pending))]
    for moves in pending:
        payload = encode_moves(moves)
        parts += (_SIZE.pack(len(payload)), payload)
    return b"".join(parts)
