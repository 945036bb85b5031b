"""Walking what readers of committed messages may see: shared by doors that read entry by entry.

An entry is hidden when it is a transaction's marker, or when its transaction was aborted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trilogue.entry.entry import TRANSACTIONAL
from trilogue.entry.walk import walk_headers
from trilogue.log.partition_log import Cold, Hot
from trilogue.log.segment import AbortedTransaction

FORMAT_AT, ATTRIBUTES_AT = 21, 22  # of an entry: bytes


def entries_from(
    slices: Sequence[memoryview], start: int
) -> Iterator[tuple[int, int, int, int, int, memoryview]]:
    """Where the entries are, from the one that contains `start` on.

    Gives (position, length, base offset, last offset delta, producer id, the view it is in).
    """
    for view in slices:
        for at, length, base, delta, _, producer_id, _, _ in walk_headers(view):
            if base + delta >= start:
                yield at, length, base, delta, producer_id, view


def is_aborted(
    attributes: int, base: int, producer_id: int, aborted: Sequence[AbortedTransaction]
) -> bool:
    """Whether an entry with these (low) attributes belongs to one of these transactions."""
    return bool(attributes & TRANSACTIONAL) and any(
        each.holds(producer_id, base) for each in aborted
    )


def hot_end(found: Hot, offset: int, stable_end: int) -> int:
    """Where entries in memory end that were read from an offset on."""
    return found.next_offset if found.next_offset >= 0 else max(offset, stable_end)


def cold_end(cold: Cold, view: memoryview, offset: int, stable_end: int) -> int:
    """The same of entries from a segment; without any, where that segment's ends."""
    end = cold.next_offset
    if len(view):
        _, _, base, last_offset_delta, *_ = walk_headers(view)[-1]
        end = base + last_offset_delta + 1
    return min(end, max(stable_end, offset))
