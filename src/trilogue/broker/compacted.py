"""The view of a partition that has of each key its last message only, as of a moment.

Nothing is rewritten: the messages stay for everybody else. A view is what those who ask for the
compacted topic do not get: ranges of offsets below its horizon, the end of what was there when it
was made. It is a pure function of what is stored below the horizon, so only the horizon is kept
(at the topic, under COMPACTED), and the view is made again when somebody wants it after a restart.

    gone   earlier messages of a key; tombstones (a key without a value) and what they end; messages
           without a key; what an aborted transaction wrote, which takes nothing's place
    stay   what nobody can look into, as encrypted messages; and the very last message below the
           horizon, whatever it is: readers who were told of it wait for it

Kafka's `cleanup.policy=compact` is another thing: it removes messages for all (compaction.py).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from trilogue.broker.errors import TooManyPositions
from trilogue.entry.compaction import open_entry
from trilogue.entry.entry import CONTROL, TRANSACTIONAL, EntryError, EntryHeader
from trilogue.entry.kafka_batch import read_header
from trilogue.entry.walk import walk_headers
from trilogue.log.segment import AbortedTransaction

COMPACTED: Final = "pulsar.compacted"  # number of a partition -> its view's horizon, as JSON
KEYS_MAX: Final = 1_000_000
KEY_BYTES_MAX: Final = 64 << 20  # of all keys together


class CompactedView:
    """Which offsets below `horizon` are passed over: ranges in order, apart from each other."""

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
        """The ranges that are passed over."""
        return zip(self._starts, self._ends, strict=True)

    def __len__(self) -> int:
        return len(self._starts)


class ViewBuilder:
    """Takes all entries below a horizon, in order, and says what the view of them is."""

    def __init__(self, start: int, horizon: int) -> None:
        self._start = start
        self._horizon = horizon
        self._last: dict[bytes, int] = {}  # the last offset of each key that has a value
        self._whole: list[tuple[int, int]] = []  # entries that nobody can look into
        self._newest = -1
        self._key_bytes = 0

    def add(self, entries: memoryview, aborted: Sequence[AbortedTransaction] = ()) -> None:
        """Take some entries, of which transactions were aborted.

        EntryError where they are damaged, TooManyPositions for many keys.
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
        """Say what everything that was taken comes to."""
        kept = [(offset, offset + 1) for offset in self._last.values()]
        if self._newest >= 0:
            kept.append((self._newest, self._newest + 1))
        kept += self._whole
        return CompactedView(self._horizon, iter(sorted(kept)), self._start)


def horizons_of(settings: Mapping[str, str]) -> dict[int, int]:
    """Return up to where a topic's partitions were compacted, by their numbers."""
    text = settings.get(COMPACTED)
    return msgspec.json.decode(text, type=dict[int, int]) if text else {}
