"""What is asked of a partition besides its entries, where a file may have to be read for it.

Segments answer from their footers, which are read when a segment is opened and may wait for a disk.
So an answer is either there, or `Later`: to be fetched in a thread. What is needed from memory was
taken along when the question was asked, so that nothing that moves meanwhile can tear the answer.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

from trilogue.log.hot import HotAppendTimes
from trilogue.log.segment import EpochStart

T = TypeVar("T")

STEP: Final = 16 << 10  # bytes of the tail with one append time: what is in doubt comes before it
NO_TIME: Final = -1


@dataclass(frozen=True, slots=True)
class Later(Generic[T]):
    """An answer that lies in segments: `run` finds it, in a thread, or raises as a read does."""

    run: Callable[[], T]


# -- owner epochs ------------------------------------------------------------------------------


class EpochEnd(NamedTuple):
    """The largest epoch up to the one asked for, and where it ended; -1, -1: not known here."""

    epoch: int
    end_offset: int


UNKNOWN_EPOCH: Final = EpochEnd(-1, -1)


def end_of_epoch(
    epoch: int, starts: Iterable[EpochStart], start_offset: int, below: int = -1
) -> EpochEnd | int:
    """Find where an epoch ended in starts of epochs, by offset; else the largest epoch up to it.

    `below` is the largest epoch up to the one asked for before these, -1 when there is none. What
    began and ended below `start_offset` is forgotten. Where only later epochs are known the one
    asked for had nothing, and ended where those begin.
    """
    for owner_epoch, first_offset in starts:
        if first_offset <= start_offset:
            below = -1
        if owner_epoch > epoch:
            return EpochEnd(epoch if below < 0 else below, max(first_offset, start_offset))
        below = owner_epoch
    return below


def epoch_of(offset: int, starts: Sequence[EpochStart], owner_epoch: int) -> int:
    """Say which of the epochs before the owner's gave out an offset, else the owner's."""
    found = owner_epoch
    for epoch, first_offset in reversed(starts):
        found = epoch
        if first_offset <= offset:
            break
    return found


def epochs_within(
    inputs: Sequence[Sequence[EpochStart]], base_offset: int, end_offset: int
) -> list[EpochStart]:
    """Say where owner epochs begin in a part of what segments hold; `inputs` are by offset."""
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


# -- append times ------------------------------------------------------------------------------


class AppendTimes(HotAppendTimes):
    """When the entries of a tail became durable, in steps of some kilobytes.

    Frames have the broker's time; it may jump back. For each step the latest time of a frame with
    entries in it is kept, so that a search never passes over what it looks for.
    """

    __slots__ = ("_ends", "_times")

    def __init__(self) -> None:
        self.newest = NO_TIME
        self._next = STEP
        self._ends: array[int] | None = None  # position where each step ends
        self._times: array[int] | None = None

    def _step(self, end: int) -> None:
        if self._ends is None or self._times is None:
            self._ends, self._times = array("q"), array("q")
        self._ends.append(end)
        self._times.append(self.newest)
        self._next = end + STEP
        self.newest = NO_TIME

    def find(self, timestamp_ms: int, position: int, end: int) -> int | None:
        """Where to begin, from a position on, so that nothing of this time or later is missed."""
        at = position
        if self._ends is not None and self._times is not None:
            for number in range(bisect_right(self._ends, position), len(self._ends)):
                if self._times[number] >= timestamp_ms:
                    return at
                at = self._ends[number]
        return at if at < end and self.newest >= timestamp_ms else None

    def drop_before(self, position: int, end: int) -> None:
        """Forget what was dropped from the tail, which ends at `end`."""
        if position >= end:
            self._ends = self._times = None
            self._next = end + STEP
            self.newest = NO_TIME
        elif self._ends is not None and self._times is not None:
            gone = bisect_right(self._ends, position)
            del self._ends[:gone], self._times[:gone]


def first_found(searches: Sequence[Callable[[], int | None]], otherwise: int | None) -> int | None:
    """Return what the first search finds that finds anything."""
    for search in searches:
        found = search()
        if found is not None:
            return found
    return otherwise
