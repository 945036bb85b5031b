"""Short slices are asked for, by all threads of a server and by nobody else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ASKING = """
import os, threading
from pathlib import Path
from trilogue.node import slices

def mine():
    lines = Path("/proc/thread-self/sched").read_text().splitlines()
    return next(int(line.split()[-1]) for line in lines if line.startswith("se.slice"))

usual, nice = mine(), os.nice(0)
found = [slices.ask_for(slices.SHORT_S), mine()]
thread = threading.Thread(target=lambda: found.append(mine()))
thread.start()
thread.join()
os.nice(3)
found += [slices.ask_for(slices.USUAL_S), mine() == usual, os.nice(0) - nice]
print(found)
"""


def has_slices() -> bool:
    try:
        return "se.slice" in Path("/proc/thread-self/sched").read_text()
    except OSError:
        return False


@pytest.mark.skipif(not has_slices(), reason="this kernel does not tell slices")
def test_threads_inherit_short_slices_and_a_helper_goes_back_to_usual_ones():
    """In a process of its own: this one keeps what it has."""
    said = subprocess.run(
        [sys.executable, "-c", ASKING], capture_output=True, text=True, check=True
    ).stdout

    assert said.strip() in {
        "[True, 200000, 200000, True, True, 3]",
        "[False, 0, 0, False, True, 3]",
    }
