"""What the administrators of Python libraries have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Numbers = Mapping[str, int]
Rows = Iterable[tuple[str, int, int]]


class InPython:
    """Its verbs are its methods."""

    name: str

    @property
    def verbs(self) -> frozenset[str]:
        return frozenset(name for name in vars(type(self)) if not name.startswith("_"))

    def request(self, verb: str, address: str = "", **words: object) -> object:
        return getattr(self, verb)(address, **words)


def by_topic(rows: Rows) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for topic, partition, offset in rows:
        found.setdefault(topic, {})[partition] = offset
    return found
