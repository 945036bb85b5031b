"""How late the machine itself is: a timer in a process that does nothing else, before all others.

A virtual machine may be stopped by its host, for 20 ms of each 100 ms where it has a quota of
processor time; no process in it is served then. The same timer as in the server's own measurement
(`trilogue_loop_lag_seconds`) shows how much of that is the machine's.

    python -m benchmarks.machine_lag    # writes one lateness in seconds per line until stdin ends
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator

PERIOD_S = 0.01
PRIORITY = 50


@contextlib.contextmanager
def measured_lag() -> Iterator[list[float]]:
    """Measure during the block; afterwards the list has the lateness of each timer in seconds."""
    late: list[float] = []
    command = [sys.executable, "-m", "benchmarks.machine_lag"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield late
        finally:
            output, _ = process.communicate("")
            late += map(float, output.split())


def quantile_s(late: list[float], share: float) -> float:
    """Return the lateness that `share` of the measurements do not exceed."""
    ordered = sorted(late)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def main() -> None:
    """Measure until stdin ends; before all other processes, where this one may."""
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
    late = []
    due = time.monotonic() + PERIOD_S
    while not select.select([sys.stdin], [], [], max(0.0, due - time.monotonic()))[0]:
        now = time.monotonic()
        late.append(max(0.0, now - due))
        due = now + PERIOD_S
    sys.stdout.writelines(f"{each:.6f}\n" for each in late)


if __name__ == "__main__":
    main()
