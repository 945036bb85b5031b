"""Ids (partition ids, producer ids) from durable blocks, allocated one by one without waiting.

A block counts as used up the moment it is allocated; what is left of it when the process ends is
never used. So no id comes twice, and none is made from a clock.
"""

from __future__ import annotations

from collections import deque

from trilogue.meta.errors import NoIdsLeft
from trilogue.meta.operations import IdBlock


class IdPool:
    """The blocks in memory, by kind."""

    __slots__ = ("_ranges",)

    def __init__(self) -> None:
        self._ranges: dict[str, deque[range]] = {}

    def add(self, block: IdBlock) -> None:
        """Add a block, which must be durable."""
        ranges = self._ranges.setdefault(block.kind, deque())
        ranges.append(range(block.first, block.first + block.count))

    def available(self, kind: str) -> int:
        """Return how many ids can be taken without waiting."""
        return sum(map(len, self._ranges.get(kind, ())))

    def take_id(self, kind: str) -> int:
        """Return the next id; NoIdsLeft."""
        ranges = self._ranges.get(kind)
        if not ranges:
            raise NoIdsLeft(f"no {kind} ids at hand")
        first = ranges[0][0]
        ranges[0] = ranges[0][1:]
        if not ranges[0]:
            ranges.popleft()
        return first
