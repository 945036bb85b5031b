"""Stopped at every step on the disk, a node finds groups, quotas and settings as they were told.

As test_every_step.py, which says how, with positions that are committed and removed, groups that
come and go, quotas, and settings of the broker and of groups. The long run tries every step, the
quick one some.
"""

from __future__ import annotations

from functools import partial
from random import Random

import pytest
from tests.crash.group_outside import GroupOutside
from tests.crash.world import World, stop_and_go_on

from trilogue.log.errors import LogError
from trilogue.node.errors import StartError

SAMPLE = 20
HOW = ["kill", "power"]
crash_and_go_on = partial(stop_and_go_on, GroupOutside)


@pytest.fixture(scope="module")
def steps() -> list[str]:
    world, outside = World(), GroupOutside()
    assert world.live(outside.script)
    assert outside.positions.wanted
    return list(world.fs.steps)


@pytest.mark.parametrize("how", HOW)
def test_stopped_at_some_steps_it_finds_groups_quotas_and_settings(
    steps: list[str], how: str, chance: Random
):
    for stop_at in sorted(chance.sample(range(1, len(steps) + 1), SAMPLE)):
        crash_and_go_on(stop_at, how)


@pytest.mark.parametrize("lies", [".journal", "/"])
def test_a_sync_that_was_left_out_is_found_out(steps: list[str], lies: str):
    """This test can fail: whichever sync is missing, some step shows it."""
    for stop_at in range(len(steps) - 1, 0, -3):
        try:
            crash_and_go_on(stop_at, "power", lies=[lies])
        except (AssertionError, LogError, StartError):
            return
    raise AssertionError("nobody noticed")


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("how", HOW)
def test_stopped_at_every_step_it_finds_groups_quotas_and_settings(steps: list[str], how: str):
    for stop_at in range(1, len(steps) + 1):
        crash_and_go_on(stop_at, how)
