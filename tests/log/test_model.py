"""The log against a model of a few lines, on a disk that is cut, torn, reordered, flipped, failing.

The promises: what was acknowledged is there, at its offset, with its bytes, and in no other place;
what was only appended may be there, in order and without gaps; what a reader saw once is never
gone; nothing is shown that is not durable; no file that counts goes, and none stays for ever; and
after an error nothing is acknowledged. All of it whatever the background work is doing when the
power fails, the process is killed, the helper dies or the disk refuses.

    model.py          what a log is: the model
    model_node.py     a node on a fake disk, and how trouble comes to it
    model_machine.py  rules that write, make and delete partitions, end and restart
    model_reading.py  rules that look, and what must hold after each step
    model_work.py     rules of the background: flush, merge, retention
    model_compaction.py  compacted partitions, and what may be missing of them
    model_run.py      so many steps, and their seed

TRILOGUE_MODEL_STEPS asks for more steps, TRILOGUE_MODEL_SEED for others (without it the quick test
always takes the same ones, the long one new ones; both print their seed).
"""

from __future__ import annotations

import pytest

from tests.log.model_compaction import CompactingMachine
from tests.log.model_run import Tell, first_seed, run_steps, wanted_steps

QUICK, LONG = 2_500, 30_000


@pytest.mark.timeout(600)  # a failure is shrunk
def test_log_keeps_its_promises(tell: Tell) -> None:
    steps = wanted_steps(QUICK)

    assert run_steps(CompactingMachine, steps, first_seed(1), tell) >= steps


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_log_keeps_its_promises_for_long(tell: Tell) -> None:
    steps = wanted_steps(LONG)

    assert run_steps(CompactingMachine, steps, first_seed(None), tell) >= steps
