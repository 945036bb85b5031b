"""What is remembered of groups besides their positions: their kind, and since when they are empty.

Positions expire some time after the last member has gone, and administration tools show groups
without members. So a group writes a fact when it gets its first member and when it loses its last
one, and snapshots keep it (its members: membership.py):

    GROUP_SAVED    u8 version 1 | u8 kind (0 classic, 1 consumer, 2 share, 3 streams) |
                  i64 empty since, ms, or -1 while it has members | u16 length, name |
                  u16 length, protocol type
    GROUP_DELETED    u8 version 1 | u16 length, name

No request waits for these facts, so a crash may take the last ones back; that costs some
time before an expiry. A group that had members when the process ended, and none that are stored, is
empty from the next start.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from contextlib import suppress
from struct import Struct
from typing import Final, NamedTuple

from trilogue.broker.facts import GROUP_KEY, VERSION, ByteReader, FactJournal, FactKind, SnapshotRow
from trilogue.broker.groups.group import CLASSIC, CONSUMER, SHARE, STREAMS
from trilogue.log.errors import LogError

OCCUPIED: Final = -1  # a group that is not empty is so since no time
KINDS: Final = (CLASSIC, CONSUMER, SHARE, STREAMS)  # by their numbers on disk
PROTOCOL_TYPE_BYTES_MAX: Final = 1_024  # kept of a protocol type; a longer one is cut

_KEPT: Final = Struct(">BBqH")
_SIZE: Final = Struct(">H")
_GONE: Final = Struct(">BH")


class GroupRecord(NamedTuple):
    """What is remembered of one group."""

    type: str
    protocol_type: str
    empty_since_ms: int  # or OCCUPIED


class GroupRecords:
    """The records of this node's groups, by name."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._journal: FactJournal | None = None
        self._records: dict[str, GroupRecord] = {}
        self._dirty: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._records)

    def attach(self, journal: FactJournal, occupied: Container[str] = ()) -> None:
        """Begin to write facts; of the groups that had members only `occupied` still have some."""
        self._journal = journal
        self.note_empty(list(self._records), occupied)

    def note_empty(self, names: Iterable[str], occupied: Container[str]) -> None:
        """Note of groups that were read which of them have no members any more."""
        for name in names:
            record = self._records.get(name)
            if record is None or record.empty_since_ms != OCCUPIED or name in occupied:
                continue
            self._set(name, record._replace(empty_since_ms=self._now_ms()))

    def names(self) -> list[str]:
        """Return every name that has a record."""
        return [*self._records]

    def get(self, name: str) -> GroupRecord | None:
        """Return the record of a group, if it ever had a member."""
        return self._records.get(name)

    def mark_occupied(self, name: str, type_: str, protocol_type: str) -> None:
        """Note that a group has a member."""
        self._keep(name, GroupRecord(type_, _cut(protocol_type), OCCUPIED))

    def mark_empty(self, name: str, type_: str, protocol_type: str) -> None:
        """Note that a group has lost its last member this moment."""
        self._keep(name, GroupRecord(type_, _cut(protocol_type), self._now_ms()))

    def forget(self, name: str) -> None:
        """Remember nothing of a group any more."""
        if self._records.pop(name, None) is not None:
            self._dirty[name] = None
            self._add_fact(FactKind.GROUP_DELETED, encode_removal(name))

    def release(self, gives_name: Callable[[str], bool]) -> None:
        """Forget groups that another node coordinates now; their rows stay."""
        for name in list(filter(gives_name, self._records)):
            del self._records[name]

    def replay(self, kind: int, payload: bytes) -> None:
        """Take over a fact found in the journal at start."""
        if kind == FactKind.GROUP_DELETED:
            name = decode_removal(payload)
            self._records.pop(name, None)
            self._dirty[name] = None
        else:
            self._set(*decode_kept(payload))

    def load(self, payload: bytes) -> None:
        """Take over a snapshot row; it need not be written to the next snapshot."""
        name, record = decode_kept(payload)
        self._records[name] = record

    def snapshot(self) -> list[SnapshotRow]:
        """Return the rows that changed since the last call."""
        dirty, self._dirty = self._dirty, {}
        return [self._row(name) for name in dirty]

    def _row(self, name: str) -> SnapshotRow:
        record = self._records.get(name)
        key = GROUP_KEY + name.encode()
        return SnapshotRow(key, None if record is None else encode_kept(name, record))

    def _keep(self, name: str, record: GroupRecord) -> None:
        if self._records.get(name) != record:
            self._set(name, record)
            self._add_fact(FactKind.GROUP_SAVED, encode_kept(name, record))

    def _set(self, name: str, record: GroupRecord) -> None:
        self._records[name] = record
        self._dirty[name] = None

    def _add_fact(self, kind: FactKind, payload: bytes) -> None:
        if self._journal is None:
            return
        # What the journal does not take now the next snapshot has, unless the process ends first.
        with suppress(LogError):
            self._journal.add_fact(kind, payload, True)


def encode_kept(name: str, record: GroupRecord) -> bytes:
    """Write a GROUP_SAVED."""
    encoded_name, protocol_type = name.encode(), record.protocol_type.encode()
    kind = KINDS.index(record.type)
    head = _KEPT.pack(VERSION, kind, record.empty_since_ms, len(encoded_name)) + encoded_name
    return head + _SIZE.pack(len(protocol_type)) + protocol_type


def decode_kept(payload: bytes) -> tuple[str, GroupRecord]:
    """Read a GROUP_SAVED."""
    with ByteReader("GROUP_SAVED", payload) as reader:
        version, kind, empty_since_ms, size = reader.read_struct(_KEPT)
        reader.check_version(version)
        if kind >= len(KINDS):
            raise ValueError(f"a group of kind {kind}")
        name = reader.read_text(size)
        (size,) = reader.read_struct(_SIZE)
        return name, GroupRecord(KINDS[kind], reader.read_text(size), empty_since_ms)


def encode_removal(name: str) -> bytes:
    """Write a GROUP_DELETED."""
    encoded_name = name.encode()
    return _GONE.pack(VERSION, len(encoded_name)) + encoded_name


def decode_removal(payload: bytes) -> str:
    """Read a GROUP_DELETED."""
    with ByteReader("GROUP_DELETED", payload) as reader:
        version, size = reader.read_struct(_GONE)
        reader.check_version(version)
        return reader.read_text(size)


def _cut(protocol_type: str) -> str:
    return protocol_type.encode()[:PROTOCOL_TYPE_BYTES_MAX].decode(errors="ignore")
