"""What a node does that cannot give slots away while it serves: it starts again, for the same."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, nullcontext
from types import SimpleNamespace

import pytest

from trilogue.log.errors import LogError
from trilogue.meta.errors import MetaError
from trilogue.node.cluster import slot_release
from trilogue.node.cluster.hand_over import HandOver
from trilogue.node.cluster.slot_release import SlotRelease

OWNERS = {3: 2, 5: 7}


class Stages:
    """A node of which one stage of a release fails, and the stages that it came to."""

    def __init__(self, stage: str, error: Exception | None) -> None:
        self._stage, self._error = stage, error
        self.reached: list[str] = []
        self.hand_over = HandOver()
        self.maintenance = SimpleNamespace(paused=self._pause)
        self.metadata_writer = SimpleNamespace(finish=self._stage_of("finish"))
        self.flusher = SimpleNamespace(flush_added=self._stage_of("flush", result=True))
        self.storage = SimpleNamespace(
            broker=SimpleNamespace(
                holding_ends=lambda _: nullcontext(),
                is_ending_in=lambda _: False,
                release_slots=lambda _: self._reach("release"),
                forget_slots=lambda _: iter([self._reach("forget")]),
            ),
            meta=SimpleNamespace(write=self._stage_of("write")),
            fence=None,
        )

    def _reach(self, stage: str) -> None:
        self.reached.append(stage)
        if stage == self._stage and self._error is not None:
            raise self._error

    def _stage_of(self, stage: str, *, result: object = None):
        async def run(*_: object) -> object:
            self._reach(stage)
            return result if stage != self._stage else False

        return run

    def holding(self) -> nullcontext[None]:
        self._reach("hold")
        return nullcontext()

    @asynccontextmanager
    async def _pause(self):
        self._reach("pause")
        yield


def give(stage: str, error: Exception | None) -> Stages:
    node = Stages(stage, error)
    asyncio.run(SlotRelease(node).give(OWNERS))
    return node


def test_a_node_whose_stages_succeed_goes_on():
    node = give("none", None)

    assert node.reached == ["pause", "finish", "release", "flush", "write", "forget"]
    assert not node.hand_over.wanted.is_set()


def test_ends_are_held_in_turns_while_one_waits_for_a_node_that_is_away(monkeypatch):
    monkeypatch.setattr(slot_release, "HOLD_S", 0.0)
    node = Stages("none", None)
    looks = iter([True, True, False])
    broker = node.storage.broker
    broker.is_ending_in = lambda _: next(looks)
    broker.holding_ends = lambda _: node.holding()
    asyncio.run(SlotRelease(node).give(OWNERS))

    assert node.reached == ["pause", "finish", *["hold"] * 3, "release", "flush", "write", "forget"]


@pytest.mark.parametrize(
    ("stage", "error"),
    [
        ("pause", TimeoutError()),
        ("finish", MetaError("away")),
        ("flush", LogError("the journal")),
        ("flush", None),  # a full disk
        ("write", MetaError("another node has the fence")),
        ("write", ConnectionResetError()),
    ],
)
def test_a_stage_that_fails_lets_the_node_start_again_and_give_the_slots(stage, error):
    node = give(stage, error)

    assert node.reached[-1] == stage
    assert node.hand_over.wanted.is_set()
    assert node.hand_over.owners == OWNERS


def test_after_the_change_of_owner_nothing_is_left_to_give():
    """The owners are in meta; the node that starts again has only to forget the slots."""
    node = give("forget", OSError("a journal"))

    assert node.hand_over.wanted.is_set()
    assert node.hand_over.owners == {}
