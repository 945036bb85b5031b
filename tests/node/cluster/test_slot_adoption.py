"""A node adopts slots one after the other, and starts again if it cannot."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from tests.broker.test_slot_adoption import FormerOwner, NextOwner
from trilogue.meta.errors import MetaError
from trilogue.node.cluster.adoption import SlotAdoption
from trilogue.node.cluster.hand_over import HandOver
from trilogue.node.storage import Storage

SLOTS = [0, 1]


class AdoptingNode:
    """A node without slots, which gets both slots of the former owner."""

    def __init__(self, rows: list[tuple[bytes, bytes]] | Exception) -> None:
        self.former = FormerOwner()
        self.next = NextOwner(self.former, set())
        self.next.give(set(SLOTS))
        self.ownership = self.next.broker.cluster.ownership
        self.hand_over = HandOver()
        self._rows = rows

    def snapshots(self) -> list[tuple[bytes, bytes]]:
        if isinstance(self._rows, Exception):
            raise self._rows
        return [*self.former.rows, *self._rows]

    async def adopt(self) -> list[list[int]]:
        """Adopt what the node has got; return which slots it served in each step of the loop."""
        log = SimpleNamespace(segments={}, adopt_segments=list)
        meta = SimpleNamespace(state=self.next.state, snapshots=self.snapshots)
        storage = SimpleNamespace(broker=self.next.broker, log=log, meta=meta)
        adoption = SlotAdoption(cast("Storage", storage), self.hand_over)
        task = asyncio.create_task(adoption.follow(self.ownership))
        seen = [self.ownership.served_slots()]
        while not task.done():
            await asyncio.sleep(0)
            if seen[-1] != (served := self.ownership.served_slots()):
                seen.append(served)
        await task
        return seen


def test_other_clients_are_answered_between_two_slots_that_are_adopted():
    node = AdoptingNode(rows=[])

    seen = asyncio.run(node.adopt())

    assert seen == [[], [0], [0, 1]]
    started = NextOwner(node.former, set(SLOTS))
    assert node.next.content(node.former.ids) == started.content(node.former.ids)
    assert not node.hand_over.wanted.is_set()


@pytest.mark.parametrize("error", [MetaError("away"), OSError("away")])
def test_a_node_that_cannot_read_the_rows_of_its_slots_starts_again(error: Exception):
    node = AdoptingNode(error)

    assert asyncio.run(node.adopt()) == [[]], "nothing is served without its state"
    assert node.hand_over.wanted.is_set()
    assert node.hand_over.owners == {}, "it stays the owner"


def test_a_slot_that_cannot_be_loaded_is_refused_until_the_start(monkeypatch: pytest.MonkeyPatch):
    node = AdoptingNode(rows=[])
    load = node.next.broker.adopt_slots
    monkeypatch.setattr(
        node.next.broker,
        "adopt_slots",
        lambda slots, rows: load(slots, [*rows, (b"\xff\0", b"")] if 1 in slots else rows),
    )

    assert asyncio.run(node.adopt()) == [[], [0]]
    assert node.hand_over.wanted.is_set()
