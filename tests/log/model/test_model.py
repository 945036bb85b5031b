"""The log against a model of a few lines, on a disk that is cut, torn, reordered, flipped, failing.

The promises: what was acknowledged is there, at its offset, with its bytes, and in no other place;
what was only appended may be there, in order and without gaps; what a reader saw once is never
gone; nothing is shown that is not durable; no file that counts is deleted, and none stays for ever;
and after an error nothing is acknowledged. All of it whatever the background work is doing when the
power fails, the process is killed, the helper dies or the disk refuses.

    model.py          what a log is: the model
    node.py           a node on a fake disk, and its faults
    machine.py        rules that write, create and delete partitions, stop and restart
    reading.py        rules that read, and what must hold after each step
    work.py           rules of the background: flush, merge, retention
    compaction.py     compacted partitions, and what may be missing of them
    run.py            the number of steps, and their seed

TRILOGUE_MODEL_STEPS sets the number of steps, TRILOGUE_MODEL_SEED the seed (by default the quick
test always has the same one, the long one a new one; both print it).
"""

from __future__ import annotations

import pytest

from tests.log.model.compaction import CompactingMachine
from tests.log.model.run import Report, first_seed, run_steps, wanted_steps

QUICK, LONG = 1_500, 30_000


@pytest.mark.timeout(600)  # a failure is shrunk
def test_log_keeps_its_promises(report: Report) -> None:
    steps = wanted_steps(QUICK)

    assert run_steps(CompactingMachine, steps, first_seed(1), report) >= steps


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_log_keeps_its_promises_for_long(report: Report) -> None:
    steps = wanted_steps(LONG)

    assert run_steps(CompactingMachine, steps, first_seed(None), report) >= steps
