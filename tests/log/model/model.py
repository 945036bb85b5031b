"""What the log promises, as lists: the model that every history is compared with.

`Model` should be readable as a definition of a log. Everything else in the model test (node.py,
machine.py) exists to cause faults.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

FACTS: Final = 0  # kept as if they were a partition


@dataclass
class Part:
    """A partition: its acknowledged entries, and the first offset that may still be read."""

    entries: list[bytes] = field(default_factory=list)
    start: int = 0

    @property
    def end(self) -> int:
        return max(self.start, end_of(self.entries[-1]) if self.entries else 0)

    def since(self, offset: int) -> list[bytes]:
        return [entry for entry in self.entries if end_of(entry) > max(offset, self.start)]


class Model:
    """What was acknowledged has to be there; what was only hoped for may be, in order."""

    def __init__(self) -> None:
        self.parts: dict[int, Part] = {}
        self.facts: list[bytes] = []
        self.hoped: list[tuple[int, bytes]] = []  # in the order they were written
        self.acknowledged = 0  # how many were acknowledged, ever

    def ack(self) -> None:
        partition_id, data = self.hoped.pop(0)
        self.acknowledged += 1
        if partition_id == FACTS:
            self.facts.append(data)
        elif partition_id in self.parts:  # else it was deleted meanwhile
            self.parts[partition_id].entries.append(data)

    def recovered(self, found: dict[int, list[bytes]], facts: list[bytes]) -> None:
        assert self.facts == facts[: len(self.facts)], "acknowledged facts are gone"
        for each, part in self.parts.items():
            acked = part.since(0)
            assert acked == found[each][: len(acked)], "acknowledged entries are gone"
        while self.hoped and (self.visible() != found or self.facts != facts):
            self.ack()
        assert (self.visible(), self.facts) == (found, facts), "not a first part of what was hoped"
        self.hoped.clear()

    def visible(self) -> dict[int, list[bytes]]:
        return {each: part.since(0) for each, part in self.parts.items()}


# -- entries -------------------------------------------------------------------------------------


def base_of(entry: bytes) -> int:
    return int.from_bytes(entry[:8], "big")


def end_of(entry: bytes) -> int:
    return base_of(entry) + int.from_bytes(entry[23:27], "big") + 1


def epoch_of(entry: bytes) -> int:
    return int.from_bytes(entry[12:16], "big")


def time_of(entry: bytes) -> int:
    """Return the largest timestamp in the header."""
    return int.from_bytes(entry[35:43], "big", signed=True)


def split(data: bytes | memoryview) -> list[bytes]:
    data, entries, at = bytes(data), [], 0
    while at < len(data):
        length = 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        entries.append(data[at : at + length])
        at += length
    assert at == len(data), "an entry was cut"
    return entries
