"""Stopped at every step it takes on the disk, a node finds what TubeMQ's clients were promised.

As test_every_step.py, which says how, with messages as TubeMQ's producers send them and groups
that confirm. The long run tries every step, the quick one some.
"""

from __future__ import annotations

from functools import partial
from random import Random

import pytest
from tests.crash.tubemq_outside import TubeOutside
from tests.crash.world import World, stop_and_go_on

from trilogue.log.errors import LogError
from trilogue.node.errors import StartError

SAMPLE = 10
HOW = ["kill", "power"]
crash_and_go_on = partial(stop_and_go_on, TubeOutside)


@pytest.fixture(scope="module")
def steps() -> list[str]:
    world, outside = World(), TubeOutside()
    assert world.live(outside.script)
    assert all(group.told > 50 for group in outside.groups)
    return list(world.fs.steps)


@pytest.mark.parametrize("how", HOW)
def test_stopped_at_some_steps_it_finds_what_was_promised(
    steps: list[str], how: str, chance: Random
):
    for stop_at in sorted(chance.sample(range(1, len(steps) + 1), SAMPLE)):
        crash_and_go_on(stop_at, how)


@pytest.mark.parametrize("lies", [".journal", "/"])
def test_a_sync_that_was_left_out_is_found_out(steps: list[str], lies: str):
    """This test can fail: whichever sync is missing, some step shows it."""
    for stop_at in range(len(steps) - 1, 0, -10):
        try:
            crash_and_go_on(stop_at, "power", lies=[lies])
        except (AssertionError, LogError, StartError):
            return
    raise AssertionError("nobody noticed")


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("how", HOW)
def test_stopped_at_every_step_it_finds_what_was_promised(steps: list[str], how: str):
    for stop_at in range(1, len(steps) + 1):
        crash_and_go_on(stop_at, how)
