"""Run tests while random processes of theirs stand still, as on a machine that is shared.

    python -m tools.stalls --seed 1 --longest 2.5 -- .venv/bin/python -m pytest -n 2 tests/client

One process below the command at a time is stopped (SIGSTOP) for a random time; a process that a
test has stopped itself is left alone. What fails only here assumes something about time. The exit
code is that of the command.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

SHORTEST_S = 0.2
PAUSES_S = (0.1, 0.6)
"""Between two stalls."""


def read_stat(pid: int) -> tuple[str, int]:
    """Return the state of a process and its parent; OSError where it has ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return fields[0], int(fields[1])


def find_descendants(root: int) -> list[int]:
    """Return the processes below a process."""
    children: dict[int, list[int]] = defaultdict(list)
    for pid in (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()):
        with contextlib.suppress(OSError):
            children[read_stat(pid)[1]].append(pid)
    found, open_ones = [], [root]
    while open_ones:
        some = children[open_ones.pop()]
        found += some
        open_ones += some
    return found


def stall(pid: int, seconds: float) -> None:
    """Stop a process for a while, unless it has ended or is stopped already."""
    with contextlib.suppress(OSError):
        if read_stat(pid)[0] == "T":
            return
        os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(seconds)
        finally:
            os.kill(pid, signal.SIGCONT)


def run(command: list[str], seed: int, longest_s: float) -> int:
    """Return the exit code of the command."""
    chance = random.Random(seed)
    with subprocess.Popen(command) as process:
        while process.poll() is None:
            if pids := find_descendants(process.pid):
                stall(chance.choice(pids), chance.uniform(SHORTEST_S, longest_s))
            time.sleep(chance.uniform(*PAUSES_S))
        return process.returncode


def main() -> int:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--longest", type=float, default=2.5, metavar="SECONDS")
    parser.add_argument("command", nargs="+")
    chosen = parser.parse_args()
    return run(chosen.command, chosen.seed, chosen.longest)


if __name__ == "__main__":
    sys.exit(main())
