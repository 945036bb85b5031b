"""Work in steps: small work at once, larger work in turns, and no group before another for ever."""

from __future__ import annotations

import pytest

from tests.broker.fakes import FakeTimers
from trilogue.broker.groups.consumer.steps import (
    PAUSE_S,
    REST_S_A_STEP,
    STEPS_AT_A_TIME,
    STEPS_AT_ONCE,
    StepScheduler,
)
from trilogue.log.steps import Steps


class Taken:
    """What was done, in order."""

    def __init__(self) -> None:
        self.timers = FakeTimers()
        self.turns = StepScheduler(self.timers)
        self.steps: list[str] = []
        self.ended: list[tuple[str, int]] = []

    def work(self, name: str, count: int) -> Steps[None]:
        for _ in range(count):
            self.steps.append(name)
            yield

    def start(self, name: str, count: int):
        return self.turns.start(
            self.work(name, count), lambda steps: self.ended.append((name, steps))
        )


def test_small_work_is_done_at_once():
    taken = Taken()

    assert taken.start("a", STEPS_AT_ONCE - 1).ended
    assert taken.ended == [("a", STEPS_AT_ONCE - 1)]
    assert not taken.turns


def test_work_that_follows_larger_work_waits_for_a_turn_unless_it_is_small():
    taken = Taken()
    assert taken.start("a", 5).ended

    assert taken.start("small", 0).ended
    assert not taken.start("b", 5).ended
    assert taken.steps == ["a"] * 5 + ["b"]
    taken.timers.advance(PAUSE_S)
    assert taken.ended == [("a", 5), ("small", 0), ("b", 5)]

    taken.timers.advance(5 * REST_S_A_STEP)
    assert taken.start("c", 5).ended
    taken.timers.advance(5 * REST_S_A_STEP)
    assert (len(taken.turns), taken.timers.pending) == (0, 0)


def test_larger_work_takes_turns_with_others():
    taken = Taken()
    taken.start("a", 2 * STEPS_AT_A_TIME + STEPS_AT_ONCE)
    assert taken.steps == ["a"] * STEPS_AT_ONCE
    taken.start("b", 2)
    assert taken.steps[STEPS_AT_ONCE:] == ["b"]  # the loop has enough to do already

    taken.steps.clear()
    taken.timers.advance(PAUSE_S)
    assert taken.steps == ["a"] * STEPS_AT_A_TIME
    taken.timers.advance(PAUSE_S)
    assert taken.ended == [("b", 2)]
    taken.timers.advance(1)
    assert taken.ended == [("b", 2), ("a", 2 * STEPS_AT_A_TIME + STEPS_AT_ONCE)]
    assert (len(taken.turns), taken.timers.pending) == (0, 0)


def test_a_mistake_in_some_work_does_not_keep_other_work_waiting():
    taken = Taken()

    def mistaken() -> Steps[None]:
        yield from taken.work("a", STEPS_AT_ONCE + 1)
        raise ValueError("a mistake")

    bad = taken.turns.start(mistaken(), lambda _: None)
    taken.start("b", STEPS_AT_A_TIME)

    with pytest.raises(ValueError, match="a mistake"):
        taken.timers.advance(PAUSE_S)
    assert bad.ended
    taken.timers.advance(1)
    assert taken.ended == [("b", STEPS_AT_A_TIME)]
    assert (len(taken.turns), taken.timers.pending) == (0, 0)


def test_work_that_is_stopped_goes_no_further():
    taken = Taken()
    work = taken.start("a", 1_000)

    work.stop()
    taken.timers.advance(1)

    assert taken.steps == ["a"] * STEPS_AT_ONCE
    assert (taken.ended, taken.timers.pending) == ([], 0)
