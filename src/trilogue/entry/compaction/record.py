"""The view of an entry that compaction has, the same for all formats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from trilogue.entry.entry import EntryHeader


class EntryRecord(NamedTuple):
    """The fields that decide whether a record is retained. `timestamp` is in ms."""

    offset: int
    timestamp: int
    key: bytes | None
    is_tombstone: bool


class OpenEntry(Protocol):
    """An entry whose records were read."""

    @property
    def header(self) -> EntryHeader:
        """The header of the entry."""

    @property
    def records(self) -> Sequence[EntryRecord]:
        """The records in the order of their offsets."""

    @property
    def keeps_keyless(self) -> bool:
        """Whether messages without a key are retained."""

    def keeping(self, kept: Sequence[bool], horizon_ms: int | None = None) -> bytes:
        """Build the entry with only the records whose flag is set; at least one must be set."""
