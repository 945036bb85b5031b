"""Which principal has created a transactional id: one alone leaves room for others."""

from __future__ import annotations

from collections import Counter

from trilogue.broker.errors import TooManyTransactions


class CreatedIds:
    """The ids that each principal has created since the start of the process.

    A principal may create as many as it leaves free: it alone half of all, two together two
    thirds. So there is room for a principal that has none. Clients without a name ("") are not
    told from each other, and have no bound of their own.
    """

    def __init__(self) -> None:
        self._creators: dict[str, str] = {}
        self._counts: Counter[str] = Counter()

    def check_room(self, creator: str, free: int) -> None:
        """Raise TooManyTransactions unless a principal may create one of so many free ids."""
        if creator and self._counts[creator] >= free:
            raise TooManyTransactions(
                f"{creator} has {self._counts[creator]} transactional ids, and {free} are free"
            )

    def add(self, name: str, creator: str) -> None:
        """Note who has created an id."""
        if creator:
            self._creators[name] = creator
            self._counts[creator] += 1

    def remove(self, name: str) -> None:
        """Note that an id is no longer here."""
        creator = self._creators.pop(name, None)
        if creator is not None:
            self._counts[creator] -= 1
            if not self._counts[creator]:
                del self._counts[creator]
