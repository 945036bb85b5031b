# ruff: noqa: ERA001 -- the next line is for the compiler
# cython: annotation_typing=False
"""Whether producers have to wait: for the disk, or until the tail is in segments.

`Log` owns one, and counts sealed files in it. Compiled (pressure.pxd adds the types), since it is
asked once per small produce request; uncompiled it is plain Python. See docs/decisions/0181.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trilogue.log.journal.commit_cycle import CommitCycle

if TYPE_CHECKING:
    from trilogue.log.journal.journal import Journal
    from trilogue.log.tail.chunks import Budget


class LogPressure:
    """How much waits for the disk or lies in memory, and the limits of both."""

    __slots__ = (
        "_budget",
        "_bytes_high",
        "_cycle",
        "_entries_high",
        "_journal",
        "_queued_max",
        "is_stuck",
        "sealed_entries",
    )

    def __init__(
        self,
        journal: Journal,
        budget: Budget,
        *,
        queued_max: int,
        bytes_high: float,
        entries_high: float,
    ) -> None:
        self.sealed_entries = 0  # of files that wait for a flush
        self.is_stuck = False  # whether flushes keep failing: nobody waits for them
        self._journal = journal
        self._cycle: CommitCycle = journal.cycle
        self._budget = budget
        self._queued_max = queued_max
        self._bytes_high = bytes_high
        self._entries_high = entries_high

    def is_high(self) -> bool:
        """Whether producers should be paused."""
        if self._journal.queued >= self._queued_max:
            return True
        return not self.is_stuck and self.is_tail_full()

    def is_tail_full(self) -> bool:
        """Whether the tail has as many bytes or entries as it may, before appends are refused."""
        if self._budget.used >= self._bytes_high:
            return True
        entries = self.sealed_entries
        file = self._cycle.file
        if file is not None:
            entries += file.entry_count
        return entries >= self._entries_high
