"""The members of groups as facts: after a restart they go on without a rebalance.

A group stores a row of itself and one of each member, when a generation is assigned (classic
groups) or a member has moved (consumer groups). What changed is one fact; snapshots keep the rows:

    GROUP_MEMBERS  u8 version 1 | u16 length, group | u32 count |
                   count x (u16 length, member id | u8 there | u32 length, row if it is there)

    key "m" | u16 length, group | member id     value  the row; without a member id the group's

The bytes of a row are the group's affair (classic/records.py, consumer/records.py). A change of
more than `FACT_BYTES` is several facts, the group's row in the last one. A member of more than
`ROW_BYTES_MAX` is not stored, nor its group: its members join again after a restart.

A response that gives a member its generation or epoch waits until the facts are durable
(`when_durable`): after a crash no generation is given a second time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from struct import Struct
from typing import Final, TypeVar

from trilogue.broker.errors import GroupUnavailable
from trilogue.broker.facts import (
    MEMBER_KEY,
    VERSION,
    ByteReader,
    FactJournal,
    FactKind,
    SnapshotRow,
)
from trilogue.broker.promise import Promise
from trilogue.log.errors import LogError

T = TypeVar("T")

GROUP: Final = ""  # in place of a member id: the row of the group itself
FACT_BYTES: Final = 256 << 10
ROW_BYTES_MAX: Final = 512 << 10

_HEAD: Final = Struct(">BH")
_COUNT: Final = Struct(">I")
_SIZE: Final = Struct(">H")
_ROW: Final = Struct(">BI")

Rows = Mapping[str, bytes]  # by member id; GROUP is the group's


class Membership:
    """The rows of this node's groups."""

    def __init__(self) -> None:
        self._journal: FactJournal | None = None
        self._groups: dict[str, dict[str, bytes]] = {}
        self._dirty: dict[tuple[str, str], None] = {}
        self._pending = 0  # facts that are not durable yet
        # Called before the fact of a change, with the group and the keys of the rows.
        self.on_change: Callable[[str, Collection[str]], None] = lambda _, __: None

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of groups that have rows."""
        return iter(list(self._groups))

    def attach(self, journal: FactJournal) -> None:
        """Begin to write facts."""
        self._journal = journal

    def rows(self, group: str) -> Rows:
        """Return the rows of a group."""
        return self._groups.get(group, {})

    # -- changes

    def store_all(self, group: str, rows: Rows) -> None:
        """Store a group as it is now: members without a row are removed."""
        gone = self.rows(group).keys() - rows.keys()
        self.store(group, {**dict.fromkeys(gone), **rows})

    def store(self, group: str, changes: Mapping[str, bytes | None]) -> None:
        """Store rows that changed, or remove them (None)."""
        had = self.rows(group)
        changed = {key: row for key, row in changes.items() if had.get(key) != row}
        if any(row is not None and len(row) > ROW_BYTES_MAX for row in changed.values()):
            self.forget(group)
        elif changed:
            self._write(group, changed)

    def forget(self, group: str) -> None:
        """Remove the rows of a group."""
        rows = self.rows(group)
        if rows:
            self._write(group, dict.fromkeys(rows))

    def release(self, gives_name: Callable[[str], bool]) -> None:
        """Forget the members of groups that another node coordinates now; their rows stay."""
        for name in list(filter(gives_name, self._groups)):
            del self._groups[name]

    @property
    def is_durable(self) -> bool:
        """Whether everything that was stored is durable."""
        return not self._pending

    def when_durable(self, promise: Promise[T]) -> Promise[T]:
        """Return a promise that is settled like this one, when what is stored then is durable."""
        delivered: Promise[T] = Promise()
        promise.then(lambda _: self._deliver(promise, delivered))
        return delivered

    def _deliver(self, promise: Promise[T], delivered: Promise[T]) -> None:
        if promise.error is not None:
            delivered.set_error(promise.error)
        elif not self._pending or self._journal is None:
            delivered.set_result(promise.result())
        else:

            def finish(problem: BaseException | None) -> None:
                if problem is None:
                    delivered.set_result(promise.result())
                else:
                    delivered.set_error(GroupUnavailable(f"membership is not stored: {problem}"))

            self._journal.on_commit(finish)

    # -- the start and the flush cut

    def replay(self, payload: bytes) -> None:
        """Apply a GROUP_MEMBERS of the journal; CorruptLog."""
        group, changes = decode_members(payload)
        self._set(group, changes)

    def load(self, key: bytes, row: bytes) -> None:
        """Apply a snapshot row; it need not be written to the next snapshot. CorruptLog."""
        group, member_id = decode_member_key(key)
        self._groups.setdefault(group, {})[member_id] = row

    def snapshot(self) -> list[SnapshotRow]:
        """Return the rows that changed since the last call."""
        dirty, self._dirty = self._dirty, {}
        return [
            SnapshotRow(member_key(*key), self._groups.get(key[0], {}).get(key[1])) for key in dirty
        ]

    # -- inside

    def _write(self, group: str, changes: dict[str, bytes | None]) -> None:
        self._set(group, changes)
        if self._journal is None:
            return
        self.on_change(group, changes.keys())
        own = {GROUP: changes.pop(GROUP)} if GROUP in changes else {}
        part: dict[str, bytes | None] = {}
        size = 0
        try:
            for member_id, row in changes.items():
                size += len(row or b"") + len(member_id)
                if part and size > FACT_BYTES:
                    self._add_fact(group, part)
                    part, size = {}, len(row or b"")
                part[member_id] = row
            self._add_fact(group, {**part, **own})
        except LogError:
            pass  # the next snapshot has it; the process may end before, as if no member had joined

    def _add_fact(self, group: str, changes: Mapping[str, bytes | None]) -> None:
        assert self._journal is not None
        self._journal.add_fact(FactKind.GROUP_MEMBERS, encode_members(group, changes))
        self._pending += 1
        self._journal.on_commit(self._committed)

    def _committed(self, _: BaseException | None) -> None:
        self._pending -= 1

    def _set(self, group: str, changes: Mapping[str, bytes | None]) -> None:
        rows = self._groups.setdefault(group, {})
        for member_id, row in changes.items():
            if row is None:
                rows.pop(member_id, None)
            else:
                rows[member_id] = row
            self._dirty[group, member_id] = None
        if not rows:
            del self._groups[group]


def encode_members(group: str, changes: Mapping[str, bytes | None]) -> bytes:
    """Encode a GROUP_MEMBERS."""
    name = group.encode()
    parts = [_HEAD.pack(VERSION, len(name)), name, _COUNT.pack(len(changes))]
    for member_id, row in changes.items():
        encoded = member_id.encode()
        parts += (_SIZE.pack(len(encoded)), encoded, _ROW.pack(row is not None, len(row or b"")))
        parts.append(row or b"")
    return b"".join(parts)


def decode_members(payload: bytes) -> tuple[str, dict[str, bytes | None]]:
    """Decode a GROUP_MEMBERS; CorruptLog."""
    with ByteReader("GROUP_MEMBERS", payload) as reader:
        version, size = reader.read_struct(_HEAD)
        reader.check_version(version)
        group = reader.read_text(size)
        changes: dict[str, bytes | None] = {}
        for _ in range(*reader.read_struct(_COUNT)):
            member_id = reader.read_text(*reader.read_struct(_SIZE))
            there, size = reader.read_struct(_ROW)
            row = reader.read_bytes(size)
            changes[member_id] = row if there else None
        return group, changes


def member_key(group: str, member_id: str) -> bytes:
    """Return the key of the snapshot row of a member, or of the group."""
    name = group.encode()
    return MEMBER_KEY + _SIZE.pack(len(name)) + name + member_id.encode()


def decode_member_key(key: bytes) -> tuple[str, str]:
    """Return the group and the member id of the key of a snapshot row; CorruptLog."""
    with ByteReader("GROUP_MEMBERS key", key) as reader:
        reader.read_bytes(len(MEMBER_KEY))
        group = reader.read_text(*reader.read_struct(_SIZE))
        return group, reader.read_text(len(key) - len(MEMBER_KEY) - 2 - len(group.encode()))
