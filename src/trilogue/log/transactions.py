"""Which transactions are open on a partition, and which were aborted.

The log does not run transactions. Entries carry their membership in a transaction (a producer has
one open at a time), markers end one, and from both the log derives what readers of committed data
need:

    where to stop    the stable end: the first offset of the oldest open transaction, or the
                     high watermark when none is open
    what to skip     the aborted transactions that have entries in the range that was read

Both follow what is durable, never what was only appended. `Transactions` holds what is durable and
not yet in a segment; a partition without transactions has none. A flush writes to the segment's
footer which transactions ended there aborted (where the *marker* lies, as in Kafka's own index),
and which were still open at the end of the segment: a row whose last offset is `OPEN`. So a reader
of one segment knows whether it has to read the next one: only if a transaction was open there that
began before the end of what it reads. A superfluous row costs a lookup, a missing one would show
aborted messages: code that rewrites segments chooses rows by `rows_within`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias

from trilogue.entry.control import Outcome, read_marker
from trilogue.entry.entry import CONTROL, EntryError, EntryHeader
from trilogue.log.segments.segment import OPEN, AbortedTransaction

OpenTransactions: TypeAlias = Sequence[tuple[int, int]]  # producer id, first offset

_last_offset: Final = itemgetter(2)


class TransactionStep(NamedTuple):
    """What a transactional entry does: it writes (no outcome), or ends what its producer wrote."""

    producer_id: int
    base_offset: int
    outcome: Outcome | None


def read_transaction_step(
    entry: bytes | bytearray | memoryview, header: EntryHeader, base_offset: int
) -> TransactionStep | None:
    """Return what a transactional entry does to transactions; None for a marker that ends none.

    A marker that cannot be read ends none either; all callers treat it the same.
    """
    if not header.attributes & CONTROL:
        return TransactionStep(header.producer_id, base_offset, None)
    try:
        marker = read_marker(entry, header)
    except EntryError:
        return None
    return (
        None if marker is None else TransactionStep(header.producer_id, base_offset, marker.outcome)
    )


class Transactions:
    """The transactions of one partition, as of the last entry that was applied."""

    __slots__ = ("_pending", "aborted", "open")

    def __init__(self, open_transactions: OpenTransactions = ()) -> None:
        """Start with the transactions that were open before the first applied entry."""
        in_order = sorted(open_transactions, key=itemgetter(1))
        self.open: dict[int, int] = dict(in_order)  # the oldest first: a new one goes to the end
        self.aborted: list[AbortedTransaction] = []  # by last offset, which is the marker's
        self._pending: deque[TransactionStep] = deque()

    @property
    def first_open(self) -> int | None:
        """The first offset of the oldest open transaction."""
        return next(iter(self.open.values()), None)

    @property
    def is_idle(self) -> bool:
        """Whether no transaction is open, aborted or pending."""
        return not (self.open or self.aborted or self._pending)

    def open_rows(self) -> tuple[tuple[int, int], ...]:
        """The open transactions: producer id, first offset; the oldest first."""
        return tuple(self.open.items())

    def appended(self, step: TransactionStep) -> None:
        """Queue the step of an entry that is not durable yet; `advance` applies it."""
        self._pending.append(step)

    def advance(self, end_offset: int) -> None:
        """Apply the queued steps below an offset: their entries are durable now."""
        pending = self._pending
        while pending and pending[0].base_offset < end_offset:
            self.apply(pending.popleft())

    def apply(self, step: TransactionStep) -> None:
        """Apply the step of a durable entry; entries come in the order of their offsets."""
        producer_id, base_offset, outcome = step
        if outcome is None:
            self.open.setdefault(producer_id, base_offset)
            return
        first_offset = self.open.pop(producer_id, None)
        if first_offset is None or outcome is Outcome.COMMIT:
            return  # a marker without an open transaction has no effect
        stable_end = base_offset + 1 if self.first_open is None else self.first_open
        self.aborted.append(AbortedTransaction(producer_id, first_offset, base_offset, stable_end))

    def forget_below(self, end_offset: int) -> None:
        """Drop aborted transactions that ended below: segments have them, or nothing reads them."""
        del self.aborted[: bisect_left(self.aborted, end_offset, key=_last_offset)]

    def rows(self, floor: int, end_offset: int) -> list[AbortedTransaction]:
        """Return the rows for a segment with the entries of offsets `floor` to `end_offset`."""
        kept = bisect_left(self.aborted, floor, key=_last_offset)
        first = self.first_open
        stable_end = end_offset if first is None else first
        return [
            *self.aborted[kept:],
            *(
                AbortedTransaction(producer, since, OPEN, stable_end)
                for producer, since in self.open.items()
            ),
        ]


def stable_end_of(open_transactions: OpenTransactions, start_offset: int, end_offset: int) -> int:
    """Return the stable end that these open transactions give.

    If retention removed the beginning of a transaction, the rest of it is still not readable: the
    stable end is then the partition's start offset, as in Kafka.
    """
    first = min((first for _, first in open_transactions), default=end_offset)
    return min(end_offset, max(first, start_offset))


def overlapping(
    rows: Sequence[AbortedTransaction], from_offset: int, to_offset: int
) -> tuple[list[AbortedTransaction], bool]:
    """Return the aborted transactions that matter to a reader of entries in [from, to).

    `rows` are those of one segment, or of the tail, by last offset. The second value is whether
    rows of later segments may matter too. Transactions that began before `to` and ended before
    `from` do not.
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
    """Return the rows for a new segment that holds entries of [base, end) of its inputs.

    `inputs` are the partition's rows of each segment, by offset. A transaction that was aborted
    after `end` counts as open there.
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
