"""Lookups in a partition that may have to read a segment's footer.

Segments answer from their footers, which are read when a segment is opened and may wait for a disk.
So a result is either known at once, or a `SegmentLookup` to be run in a thread. What it needs from
memory was copied when it was made, so that later appends and flushes cannot make it inconsistent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from trilogue.log.segments.segment import EpochStart

T = TypeVar("T")


class SegmentLookup(msgspec.Struct, Generic[T], frozen=True):
    """A lookup in segments: `run` returns its result, in a thread, or raises as a read does."""

    run: Callable[[], T]


# -- owner epochs ------------------------------------------------------------------------------


class EpochEnd(NamedTuple):
    """The largest epoch up to the requested one and its end offset; -1, -1: not known here."""

    epoch: int
    end_offset: int


UNKNOWN_EPOCH: Final = EpochEnd(-1, -1)


def end_of_epoch(
    epoch: int, starts: Iterable[EpochStart], start_offset: int, below: int = -1
) -> EpochEnd | int:
    """Return the end offset of an epoch, or, if it has no entries, the largest epoch before it.

    `starts` are by offset. `below` is the largest epoch up to the requested one before `starts`, -1
    when there is none. Epochs that ended below `start_offset` are ignored. Where only later epochs
    are known, the requested one has no entries and ends where those begin.
    """
    for owner_epoch, first_offset in starts:
        if first_offset <= start_offset:
            below = -1
        if owner_epoch > epoch:
            return EpochEnd(epoch if below < 0 else below, max(first_offset, start_offset))
        below = owner_epoch
    return below


def epoch_of(offset: int, starts: Sequence[EpochStart], owner_epoch: int) -> int:
    """Return the epoch that assigned an offset: one of `starts`, else the owner's."""
    found = owner_epoch
    for epoch, first_offset in reversed(starts):
        found = epoch
        if first_offset <= offset:
            break
    return found


def epochs_within(
    inputs: Sequence[Sequence[EpochStart]], base_offset: int, end_offset: int
) -> list[EpochStart]:
    """Return where owner epochs begin in a range of offsets; `inputs` are by offset."""
    found: list[EpochStart] = []
    for starts in inputs:
        for start in starts:
            if start.start_offset >= end_offset:
                break
            if not found or start.start_offset <= base_offset:
                found = [EpochStart(start.owner_epoch, base_offset)]
            elif found[-1].owner_epoch != start.owner_epoch:
                found.append(start)
    return found


def first_found(searches: Sequence[Callable[[], int | None]], otherwise: int | None) -> int | None:
    """Return the first result that is not None, else `otherwise`."""
    for search in searches:
        found = search()
        if found is not None:
            return found
    return otherwise
