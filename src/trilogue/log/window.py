"""A window: the frame that fills while the one before it commits.

Its memory is page-aligned and block-sized, so that it goes to disk past the page cache as it lies;
everything is copied into it, because direct writes take no pieces of other alignment (measured: not
slower than gathering). Entries are written where they will lie on disk; facts, which are few and
small, wait in a list until the window closes. What runs for each entry stands in hot.py.
"""

from __future__ import annotations

from trilogue.entry.checksum import crc32c_around
from trilogue.log.files import BLOCK
from trilogue.log.frame import FACT, FRAME_HEADER, encode_frame_header, padded
from trilogue.log.hot import HotWindow
from trilogue.log.memory import aligned


class Window(HotWindow):
    """One frame in the making."""

    __slots__ = (
        "append_time_ms",
        "fact_count",
        "sequence",
    )

    def __init__(self, capacity: int) -> None:
        self.view = aligned(padded(capacity))
        self.reset()

    def reset(self) -> None:
        """Make it empty again."""
        self.used = FRAME_HEADER
        self.limit = len(self.view)
        self.entry_count = 0
        self.fact_count = 0
        self.facts = []
        self.known = []
        self.followers = []
        self.marks = []
        self.waiters = []
        self.sequence = 0
        self.append_time_ms = 0

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to commit."""
        return not self.entry_count and not self.facts

    def sum_up(self) -> None:
        """Compute the checksum of the entries now: the disk is busy, and then it need not wait.

        Only for a window that was closed; `seal` has but the header and the facts to add.
        """
        parts = [(start - FRAME_HEADER, end - FRAME_HEADER, crc) for start, end, crc in self.known]
        checksum = crc32c_around(self.view[FRAME_HEADER : self.used], parts)
        self.known = [(FRAME_HEADER, self.used, checksum)]

    def seal(
        self,
        *,
        seed: int,
        flags: int,
        sequence: int,
        durable_through: int,
        node_id: int,
        node_epoch: int,
        append_time_ms: int,
    ) -> memoryview:
        """Complete the frame and return it with its padding, as it goes to disk."""
        view = self.view
        end = facts_at = self.used
        for kind, payload in self.facts:
            FACT.pack_into(view, end, kind, 0, len(payload))
            end += FACT.size
            view[end : end + len(payload)] = payload
            end += len(payload)
        self.fact_count = len(self.facts)
        self.sequence = sequence
        self.append_time_ms = append_time_ms
        encode_frame_header(
            view[:end],
            seed=seed,
            flags=flags,
            sequence=sequence,
            durable_through=durable_through,
            node_id=node_id,
            node_epoch=node_epoch,
            append_time_ms=append_time_ms,
            entry_count=self.entry_count,
            fact_count=self.fact_count,
            facts_at=facts_at,
            known=self.known,
        )
        size = padded(end)
        view[end:size] = _ZEROS[: size - end]
        return view[:size]


_ZEROS = memoryview(bytes(BLOCK))
