"""Counts of what each principal has created of a bounded number: one leaves room for others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable


class CreatorCounts:
    """How many of the named things each principal has created since the start of the process.

    A principal may create as many as it leaves free: it alone half of all, two together two
    thirds. So there is room for a principal that has none. Clients without a name ("") are not
    told from each other, and have no bound of their own.
    """

    def __init__(self) -> None:
        self._creators: dict[Hashable, str] = {}
        self._counts: Counter[str] = Counter()

    def has_room(self, creator: str, free: int) -> bool:
        """Whether a principal may create one more, where so many are free."""
        return not creator or self._counts[creator] < free

    def count(self, creator: str) -> int:
        """Return how many a principal has."""
        return self._counts[creator]

    def add(self, name: Hashable, creator: str) -> None:
        """Note who has created it, unless that is known."""
        if creator and name not in self._creators:
            self._creators[name] = creator
            self._counts[creator] += 1

    def remove(self, name: Hashable) -> None:
        """Note that it is no longer here."""
        creator = self._creators.pop(name, None)
        if creator is not None:
            self._counts[creator] -= 1
            if not self._counts[creator]:
                del self._counts[creator]
