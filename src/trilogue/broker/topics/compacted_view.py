"""The compacted view of a partition: only the last message of each key, as of a moment (Pulsar).

Nothing is rewritten: other consumers still read every message. A view is a set of ranges of offsets
that consumers of the compacted topic skip, below its horizon: the end of the partition when the
view was built. It is a pure function of what is stored below the horizon, so only the horizon is
stored (with the topic, under COMPACTED), and the view is built again on demand after a restart.

    skipped  earlier messages of a key; tombstones (a key without a value) and what they delete;
             messages without a key; messages of an aborted transaction, which replace nothing
    kept     what cannot be decoded, as encrypted messages; and the very last message below the
             horizon, whatever it is: consumers that know of it wait for it

Kafka's `cleanup.policy=compact` (compaction.py) is different: it removes messages for everyone.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from trilogue.broker.errors import TooManyPositions
from trilogue.entry.compaction.compaction import open_entry
from trilogue.entry.entry import CONTROL, TRANSACTIONAL, EntryError, EntryHeader
from trilogue.entry.kafka.record_batch import read_header
from trilogue.entry.walk import walk_headers
from trilogue.log.segments.segment import AbortedTransaction

COMPACTED: Final = "pulsar.compacted"  # number of a partition -> its view's horizon, as JSON
KEYS_MAX: Final = 1_000_000
KEY_BYTES_MAX: Final = 64 << 20  # of all keys together


class CompactedView:
    """The offsets below `horizon` to skip: sorted ranges that do not touch."""

    __slots__ = ("_ends", "_starts", "horizon")

    def __init__(self, horizon: int, kept: Iterator[tuple[int, int]], start: int) -> None:
        self.horizon = horizon
        self._starts, self._ends = array("q"), array("q")
        at = start
        for first, end in kept:
            if at < first:
                self._starts.append(at)
                self._ends.append(first)
            at = max(at, end)
        if at < horizon:
            self._starts.append(at)
            self._ends.append(horizon)

    def removed(self) -> Iterator[tuple[int, int]]:
        """Iterate over the ranges to skip."""
        return zip(self._starts, self._ends, strict=True)

    def __len__(self) -> int:
        return len(self._starts)


class CompactedViewBuilder:
    """Builds the view from all entries below a horizon, in order."""

    def __init__(self, start: int, horizon: int) -> None:
        self._start = start
        self._horizon = horizon
        self._last: dict[bytes, int] = {}  # the last offset of each key that has a value
        self._whole: list[tuple[int, int]] = []  # entries that cannot be decoded
        self._newest = -1
        self._key_bytes = 0

    def add(self, entries: memoryview, aborted: Sequence[AbortedTransaction] = ()) -> None:
        """Add some entries; `aborted` are the aborted transactions among them.

        EntryError if they are damaged, TooManyPositions for too many keys.
        """
        for position, length, base, delta, *_ in walk_headers(entries):
            if base >= self._horizon:
                return
            header = read_header(entries[position : position + length])
            if header.attributes & CONTROL:
                continue
            if header.attributes & TRANSACTIONAL and any(
                each.holds(header.producer_id, base) for each in aborted
            ):
                continue
            self._add(entries[position : position + length], header, base, base + delta + 1)

    def _add(self, entry: memoryview, header: EntryHeader, base: int, end: int) -> None:
        try:
            opened = open_entry(entry, header)
        except EntryError:
            opened = None
        if opened is None:
            self._whole.append((base, end))
            self._newest = end - 1
            return
        for record in opened.records:
            self._newest = record.offset
            if record.key is None:
                continue
            known = record.key in self._last
            if record.is_tombstone:
                if known:
                    del self._last[record.key]
                    self._key_bytes -= len(record.key)
                continue
            if not known:
                self._key_bytes += len(record.key)
                if len(self._last) >= KEYS_MAX or self._key_bytes > KEY_BYTES_MAX:
                    raise TooManyPositions(f"more than {KEYS_MAX} keys cannot be compacted")
            self._last[record.key] = record.offset

    def view(self) -> CompactedView:
        """Return the view of all added entries."""
        kept = [(offset, offset + 1) for offset in self._last.values()]
        if self._newest >= 0:
            kept.append((self._newest, self._newest + 1))
        kept += self._whole
        return CompactedView(self._horizon, iter(sorted(kept)), self._start)


def compacted_horizons(settings: Mapping[str, str]) -> dict[int, int]:
    """Return the horizons of a topic's partitions, by their numbers."""
    text = settings.get(COMPACTED)
    return msgspec.json.decode(text, type=dict[int, int]) if text else {}
