"""A test of the model test: it finds every mistake of mutations.py, most within few steps."""

from __future__ import annotations

import pytest
from hypothesis import Phase

from tests.log.model.compaction import CompactingMachine
from tests.log.model.machine import Steps
from tests.log.model.mutations import (
    MUTATIONS,
    Mutation,
    a_merge_forgets_a_partition,
    commits_are_not_synced,
    flushed_ends_are_one_too_small,
)
from tests.log.model.run import Report, run_steps

MOST = 20_000  # steps
QUICK = [commits_are_not_synced, a_merge_forgets_a_partition, flushed_ends_are_one_too_small]


def steps_until_found(mutation: Mutation, report: Report) -> int:
    """Run without shrinking; how many steps it took, or that it was not found."""
    before = Steps.count
    with pytest.MonkeyPatch.context() as patch:
        mutation(patch)
        try:
            run_steps(CompactingMachine, MOST, 1, report, phases=(Phase.generate,))
        except Exception:  # noqa: BLE001 -- whatever it is that fails
            found = Steps.count - before
            report(f"found within {found:,} steps")
            return found
    raise AssertionError(f"{mutation.__name__} was not found in {MOST} steps")


@pytest.mark.parametrize("mutation", QUICK)
def test_a_mistake_is_found(mutation: Mutation, report: Report) -> None:
    assert steps_until_found(mutation, report)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_every_mistake_is_found(mutation: Mutation, report: Report) -> None:
    assert steps_until_found(mutation, report)
