"""What the log knows of transactions: which are open on a partition, and which were aborted.

The log does not run transactions. It sees entries that say they belong to one (a producer has one
open at a time) and markers that end one, and answers two questions of readers of committed data:

    how far may I read?    the stable end: the first offset of the oldest open transaction, or the
                           high watermark when none is open
    what do I pass over?   the aborted transactions that have entries in what I read

Both follow what is durable, never what was only appended. What is durable and not yet in a segment
stands here, in `Transactions`; a partition that never saw a transaction has none. A flush writes
down in the segment's footer which transactions ended there aborted (where the *marker* lies, as in
Kafka's own index), and beside them which were still open at the end of what it holds: a row whose
last offset is `OPEN`. So a reader in one segment knows whether it has to ask the next one: only if
a transaction was open there that began before the end of what it reads. A row too many costs a
look, a row too few would show aborted messages: who rewrites segments chooses by `rows_within`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias

from trilogue.entry.control import Outcome, read_marker
from trilogue.entry.entry import CONTROL, EntryError, EntryHeader
from trilogue.log.segment import OPEN, AbortedTransaction

OpenTransactions: TypeAlias = Sequence[tuple[int, int]]  # producer id, first offset

_last_offset: Final = itemgetter(2)


class Event(NamedTuple):
    """What a transactional entry does: it writes (no outcome), or ends what its producer wrote."""

    producer_id: int
    base_offset: int
    outcome: Outcome | None


def event_of(
    entry: bytes | bytearray | memoryview, header: EntryHeader, base_offset: int
) -> Event | None:
    """Say what a transactional entry does to transactions; None for a marker that ends none.

    A marker that cannot be read ends none either: wherever it is met it is taken for the same.
    """
    if not header.attributes & CONTROL:
        return Event(header.producer_id, base_offset, None)
    try:
        marker = read_marker(entry, header)
    except EntryError:
        return None
    return None if marker is None else Event(header.producer_id, base_offset, marker.outcome)


class Transactions:
    """The transactions of one partition, as of the last entry that was applied."""

    __slots__ = ("_pending", "aborted", "open")

    def __init__(self, open_transactions: OpenTransactions = ()) -> None:
        """Begin with those that were open before what is applied."""
        in_order = sorted(open_transactions, key=itemgetter(1))
        self.open: dict[int, int] = dict(in_order)  # the oldest first: a new one goes to the end
        self.aborted: list[AbortedTransaction] = []  # by last offset, which is the marker's
        self._pending: deque[Event] = deque()

    @property
    def first_open(self) -> int | None:
        """The first offset of the oldest open transaction."""
        return next(iter(self.open.values()), None)

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to remember."""
        return not (self.open or self.aborted or self._pending)

    def open_rows(self) -> tuple[tuple[int, int], ...]:
        """The open transactions: producer id, first offset; the oldest first."""
        return tuple(self.open.items())

    def appended(self, event: Event) -> None:
        """Note what is not durable yet; `advance` applies it."""
        self._pending.append(event)

    def advance(self, end_offset: int) -> None:
        """Apply what was noted below an offset: it is durable now."""
        pending = self._pending
        while pending and pending[0].base_offset < end_offset:
            self.apply(pending.popleft())

    def apply(self, event: Event) -> None:
        """Take over what a durable entry did; entries come in the order of their offsets."""
        producer_id, base_offset, outcome = event
        if outcome is None:
            self.open.setdefault(producer_id, base_offset)
            return
        first_offset = self.open.pop(producer_id, None)
        if first_offset is None or outcome is Outcome.COMMIT:
            return  # a marker where nothing is open is none of our business
        stable_end = base_offset + 1 if self.first_open is None else self.first_open
        self.aborted.append(AbortedTransaction(producer_id, first_offset, base_offset, stable_end))

    def forget_below(self, end_offset: int) -> None:
        """Let go of those that ended below: they are in segments, or nobody may read there."""
        del self.aborted[: bisect_left(self.aborted, end_offset, key=_last_offset)]

    def rows(self, floor: int, end_offset: int) -> list[AbortedTransaction]:
        """What belongs into a segment that holds entries of offsets `floor` to `end_offset`."""
        kept = bisect_left(self.aborted, floor, key=_last_offset)
        first = self.first_open
        stable_end = end_offset if first is None else first
        return [
            *self.aborted[kept:],
            *(AbortedTransaction(who, since, OPEN, stable_end) for who, since in self.open.items()),
        ]


def stable_end_of(open_transactions: OpenTransactions, start_offset: int, end_offset: int) -> int:
    """Say up to where no transaction is open, given those that are.

    Where retention took the beginning of one, the rest of it is still not to be read: the stable
    end stands at the start of the partition then, as in Kafka.
    """
    first = min((first for _, first in open_transactions), default=end_offset)
    return min(end_offset, max(first, start_offset))


def overlapping(
    rows: Sequence[AbortedTransaction], from_offset: int, to_offset: int
) -> tuple[list[AbortedTransaction], bool]:
    """Choose the aborted transactions that matter to who reads entries in [from, to).

    `rows` are one segment's, or the tail's, by last offset. Also says whether later ones may matter
    too. Those of a transaction that had begun before `to` and ended before `from` do not.
    """
    found = []
    goes_on = False
    for row in rows[bisect_left(rows, from_offset, key=_last_offset) :]:
        if row.last_offset == OPEN:
            goes_on |= row.first_offset < to_offset
        elif row.first_offset < to_offset:
            found.append(row)
    return found, goes_on


def rows_within(
    inputs: Sequence[Sequence[AbortedTransaction]], base_offset: int, end_offset: int
) -> list[AbortedTransaction]:
    """Choose the rows for a part of what segments hold; for who rewrites them.

    `inputs` are the partition's rows of each segment, by offset; the new segment holds entries of
    [base, end). A transaction that was aborted behind its end counts as open there.
    """
    ended: list[AbortedTransaction] = []
    going_on: list[AbortedTransaction] = []
    for rows in inputs:
        for row in rows:
            if row.last_offset < base_offset or row.first_offset >= end_offset:
                continue
            if row.last_offset < end_offset:
                ended.append(row)
            elif row.last_offset != OPEN or rows is inputs[-1]:  # else it ended in the next one
                going_on.append(row._replace(last_offset=OPEN))
    return ended + sorted(going_on, key=itemgetter(1))
