"""Runs machines for a number of steps, always the same ones for the same seed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from types import ModuleType

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from tests.log.model.machine import Steps
from trilogue.log.jobs import compaction, compaction_files, merge, merge_plan
from trilogue.log.jobs import flush as jobs
from trilogue.node.background import compaction as compacting
from trilogue.node.background import merge as merging

HISTORY = 100  # steps of one history at most
BATCH = 25  # histories that one seed makes
PHASES = (Phase.generate, Phase.shrink)
SMALL: tuple[tuple[ModuleType, str, int], ...] = (
    (jobs, "BLOCK_TARGET", 4096),
    (merge, "BLOCK_TARGET", 4096),
    (merge, "LARGE", 2048),
    (compaction_files, "BLOCK_TARGET", 4096),
    (compaction, "WHOLE", 2048),
    (compacting, "TARGET_BYTES", 30_000),
    (merge_plan, "FIRST_LEVEL_MIN", 2),
    (merge_plan, "FIRST_LEVEL_DUE", 3),
    (merge_plan, "FIRST_LEVEL_BYTES", 80_000),
    (merge_plan, "LARGE_BYTES", 12_000),
    (merge_plan, "LARGE_EXTENT", 3_000),
    (merge_plan, "REST_MS", 5_000),
    (merge_plan, "SMALL_BYTES", 5_000),
    (merge_plan, "SMALL_MIN", 3),
    (merge_plan, "OWN_BYTES", 10_000),
    (merge_plan, "OWN_FROM_BYTES", 30_000),
    (merge_plan, "TARGET_BYTES", 80_000),
    (merging, "FIRST_LEVEL_DUE", 3),
    (merging, "FIRST_LEVEL_MAX", 4),
    (merging, "FIRST_LEVEL_LAST", 6),
)
Report = Callable[[object], None]  # a line for the end of the test run


def wanted_steps(least: int) -> int:
    """TRILOGUE_MODEL_STEPS, where that is more."""
    return max(least, int(os.environ.get("TRILOGUE_MODEL_STEPS", "0")))


def first_seed(default: int | None) -> int:
    """Return TRILOGUE_MODEL_SEED; else the default, else a new random seed."""
    named = os.environ.get("TRILOGUE_MODEL_SEED")
    if named is not None:
        return int(named)
    return time.time_ns() % 1_000_000 if default is None else default


@contextmanager
def small_constants() -> Iterator[None]:
    """Let a few kilobytes and segments be as many as they get in days."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name, value in SMALL:
            patch.setattr(module, name, value)
        yield


def run_steps(
    machine: type[RuleBasedStateMachine],
    steps: int,
    first: int,
    report: Report,
    *,
    phases: tuple[Phase, ...] = PHASES,
) -> int:
    """Run histories until there were so many steps; return how many there were.

    A failure is shrunk, and reported with the seed of its batch: TRILOGUE_MODEL_SEED with that
    number reproduces it at once.
    """
    began, before, histories = time.monotonic(), Steps.count, Steps.histories
    chosen = settings(
        max_examples=BATCH,
        stateful_step_count=HISTORY,
        derandomize=False,
        database=None,
        deadline=None,
        phases=phases,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    number = first
    while Steps.count - before < steps:
        batch = type("Batch", (machine,), {})
        try:
            with small_constants():
                run_state_machine_as_test(seed(number)(batch), settings=chosen)
        except BaseException as error:
            error.add_note(f"TRILOGUE_MODEL_SEED={number} shows it")
            raise
        number = Random(number).randrange(1_000_000_000)
    done = Steps.count - before
    report(
        f"{machine.__name__}: {done:,} steps in {Steps.histories - histories:,} histories, "
        f"seed {first}, {time.monotonic() - began:.1f} s"
    )
    return done
