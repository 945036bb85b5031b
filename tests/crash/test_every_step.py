"""Stopped at every step it takes on the disk, a node finds everything again: SQLite's way.

One deterministic life of 300 batches, with flushes, merges, compaction and retention, is cut short
at its n-th step, by a kill or by a power cut that leaves any part of what was not synced, in any
order. The next life finds what was promised, is sent again what was not, and goes on to the end.
Nothing waits in it and nothing is left to chance: the long run tries every step, the quick one
some, others each time (TRILOGUE_SEED repeats them).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest
from tests.crash.outside import Outside
from tests.crash.world import World

from trilogue.log.errors import LogError
from trilogue.node.errors import StartError

SAMPLE = 16
HOW = ["kill", "power"]


def whole_life(*, direct: bool) -> list[str]:
    world, outside = World(direct=direct), Outside()
    assert world.live(outside.script)
    return list(world.fs.steps)


@pytest.fixture(scope="module")
def steps() -> list[str]:
    return whole_life(direct=False)


def crash_and_go_on(
    stop_at: int, how: str, *, direct: bool = False, lies: Sequence[str] = ()
) -> None:
    """Cut the first life at a step; the second one must find all, and so must the third."""
    world, outside = World(direct=direct, lies=lies), Outside()
    was_whole = world.live(outside.script, stop_at=stop_at)
    assert not was_whole
    world.crash(Random(stop_at) if how == "power" else None)
    assert world.live(outside.script)
    world.crash(Random(stop_at) if how == "power" else None)
    assert world.live(outside.script)


def test_every_life_is_the_same(steps: list[str]) -> None:
    """Or the n-th step would not be the same one twice."""
    assert steps == whole_life(direct=False)


def test_the_life_has_everything_in_it(steps: list[str], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    whole_life(direct=False)

    done = Counter(record.getMessage() for record in caplog.records)
    kinds = Counter(step.split()[0] for step in steps)
    print(len(steps), kinds, done)
    assert kinds.keys() >= {"write", "sync", "create", "rename", "unlink", "sync_directory", "meta"}
    work = ("flush.done", "merge.done", "compaction.done", "retention.moved", "segment.removed")
    assert all(done[each] >= 5 for each in work)


@pytest.mark.parametrize("how", HOW)
def test_stopped_at_some_steps_it_finds_everything(
    steps: list[str], how: str, chance: Random
) -> None:
    for stop_at in sorted(chance.sample(range(1, len(steps) + 1), SAMPLE)):
        crash_and_go_on(stop_at, how, direct=bool(stop_at % 2))


@pytest.mark.parametrize("lies", [".journal", ".segment", ".tmp", "/"])
def test_a_sync_that_was_left_out_is_found_out(steps: list[str], lies: str) -> None:
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
def test_stopped_at_every_step_it_finds_everything(steps: list[str], how: str) -> None:
    """Past the page cache every other time: then all is written in whole blocks."""
    for stop_at in range(1, len(steps) + 1):
        crash_and_go_on(stop_at, how, direct=bool(stop_at % 2))
