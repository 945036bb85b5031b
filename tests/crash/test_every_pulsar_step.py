"""Stopped at every step it takes on the disk, a node finds what Pulsar's clients were promised.

As test_every_step.py, which says how, with named producers, durable subscriptions and retention
that takes what all have acked. The long run tries every step, the quick one some.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from random import Random

import pytest
from tests.crash.pulsar_outside import PulsarOutside
from tests.crash.world import World, stop_and_go_on

SAMPLE = 10
HOW = ["kill", "power"]
crash_and_go_on = partial(stop_and_go_on, PulsarOutside)


@pytest.fixture(scope="module")
def steps() -> list[str]:
    world, outside = World(), PulsarOutside()
    assert world.live(outside.script)
    return list(world.fs.steps)


def test_the_life_has_everything_in_it(caplog: pytest.LogCaptureFixture):
    caplog.set_level("INFO")
    world, outside = World(), PulsarOutside()
    assert world.live(outside.script)

    done = Counter(record.getMessage() for record in caplog.records)
    assert done["flush.done"] >= 5
    assert done["retention.moved"] >= 3
    assert outside.start > 50
    assert all(reader.asked - reader.told for reader in outside.readers)


@pytest.mark.parametrize("how", HOW)
def test_stopped_at_some_steps_it_finds_what_was_promised(
    steps: list[str], how: str, chance: Random
):
    for stop_at in sorted(chance.sample(range(1, len(steps) + 1), SAMPLE)):
        crash_and_go_on(stop_at, how)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("how", HOW)
def test_stopped_at_every_step_it_finds_what_was_promised(steps: list[str], how: str):
    for stop_at in range(1, len(steps) + 1):
        crash_and_go_on(stop_at, how)
