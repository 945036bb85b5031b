"""A node that is stopped at any step on the disk recovers everything that clients rely on.

One deterministic life of a workload is cut short at its n-th step, by a kill or by a power cut that
leaves any part of the unsynced data in any order, as SQLite tests its own recovery. The next life
checks what was acked, resends what was not, and goes on to the end. The simulation has no waits and
no other source of chance: the long run tries every step, the quick run a sample, another one each
time (TRILOGUE_SEED repeats it).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from random import Random

import pytest

from tests.crash.kafka.group_workload import GroupWorkload
from tests.crash.log_workload import BacklogWorkload, LogWorkload
from tests.crash.pulsar.pulsar_workload import PulsarWorkload
from tests.crash.tubemq.tubemq_workload import TubeMQWorkload
from tests.crash.world import Workload, World, stop_and_go_on
from trilogue.log.errors import LogError
from trilogue.node.errors import StartError


@dataclass(frozen=True)
class Case:
    """A workload, and how much of it the quick run tries."""

    make: Callable[[], Workload]
    sample: int
    """The number of steps that the quick run tries."""
    lies: tuple[str, ...] = ()
    """Suffixes of files ("/": of folders) whose missing sync must fail some step."""
    stride: int = 1
    """The distance of the steps that are tried for a missing sync."""


CASES = {
    "log": Case(LogWorkload, 12, (".journal", ".segment", ".tmp", "/"), 11),
    "backlog": Case(BacklogWorkload, 12, (".segment",), 3),
    "groups": Case(GroupWorkload, 12, (".journal", "/"), 3),
    "pulsar": Case(PulsarWorkload, 8),
    "tubemq": Case(TubeMQWorkload, 10, (".journal", "/"), 11),
}
STEP_KINDS = {"write", "sync", "create", "rename", "unlink", "sync_directory", "meta"}

each_case = pytest.mark.parametrize("name", CASES)
each_end = pytest.mark.parametrize("how", ["kill", "power"])


def run_whole_life(name: str) -> tuple[list[str], Workload]:
    """The steps of one life that is not cut short, and its workload."""
    world, workload = World(), CASES[name].make()
    assert world.live(workload.script)
    return list(world.fs.steps), workload


@cache
def steps_of(name: str) -> list[str]:
    return run_whole_life(name)[0]


@each_case
def test_every_life_is_the_same(name: str) -> None:
    """Otherwise the n-th step of two runs would differ."""
    assert run_whole_life(name)[0] == steps_of(name)


@each_case
def test_the_life_has_everything_in_it(name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    steps, workload = run_whole_life(name)

    workload.check_coverage(Counter(record.getMessage() for record in caplog.records))
    if name == "log":
        assert {step.split()[0] for step in steps} >= STEP_KINDS


@each_end
@each_case
def test_stopped_at_some_steps_it_finds_everything(name: str, how: str, chance: Random) -> None:
    case, steps = CASES[name], steps_of(name)
    for stop_at in sorted(chance.sample(range(1, len(steps) + 1), case.sample)):
        stop_and_go_on(case.make, stop_at, how)


@pytest.mark.parametrize(
    ("name", "lies"), [(name, lies) for name, case in CASES.items() for lies in case.lies]
)
def test_a_sync_that_was_left_out_is_found_out(name: str, lies: str) -> None:
    """Proves that the tests can fail: whichever sync is missing, some step shows it."""
    case, steps = CASES[name], steps_of(name)
    for stop_at in range(len(steps) - 1, 0, -case.stride):
        try:
            stop_and_go_on(case.make, stop_at, "power", lies=[lies])
        except (AssertionError, LogError, StartError):
            return
    raise AssertionError("no step has shown the missing sync")


@pytest.mark.long
@pytest.mark.timeout(3600)
@each_end
@each_case
def test_stopped_at_every_step_it_finds_everything(name: str, how: str) -> None:
    for stop_at in range(1, len(steps_of(name)) + 1):
        stop_and_go_on(CASES[name].make, stop_at, how)
