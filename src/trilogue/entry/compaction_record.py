"""What compaction sees of an entry, whatever its format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from trilogue.entry.entry import EntryHeader


class EntryRecord(NamedTuple):
    """What decides whether a record stays. `timestamp` is in ms; a tombstone has no value."""

    offset: int
    timestamp: int
    key: bytes | None
    is_tombstone: bool


class OpenEntry(Protocol):
    """An entry that was looked into."""

    @property
    def header(self) -> EntryHeader:
        """Its header."""

    @property
    def records(self) -> Sequence[EntryRecord]:
        """Its messages, in order."""

    @property
    def keeps_keyless(self) -> bool:
        """Whether messages without a key stay."""

    def keeping(self, kept: Sequence[bool], horizon_ms: int | None = None) -> bytes:
        """Build it anew with the messages whose flag is set, of which there is one at least."""
