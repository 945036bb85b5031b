"""How much CPU does a server take until it is ready?

    python -m benchmarks.start [--starts 7]

`trilogue serve` on an empty data directory, with each listener on a free port of 127.0.0.1: user
and system time of the process until its ready file stands, when it is killed. One start before them
is not counted, since it may write byte code. `doctor` is the whole command `trilogue doctor`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

COMMAND = (sys.executable, "-m", "trilogue.cli.main")
LISTENERS = ("kafka", "pulsar", "tubemq-master", "tubemq-broker", "http")
LOOK_EVERY_S = 0.001


def start_server(directory: Path) -> float:
    """Start a server, kill it when it is ready, and return the seconds of CPU that it used."""
    ready = directory / "ready"
    listen = [f"--listen={name}=127.0.0.1:0" for name in LISTENERS]
    process = subprocess.Popen(
        [*COMMAND, "serve", "--data", directory / "data", "--ready-file", ready, *listen],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while not ready.exists():
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with exit code {process.returncode}")
        time.sleep(LOOK_EVERY_S)
    process.kill()
    return wait_for_end(process)


def run_doctor(directory: Path) -> float:
    """Run `trilogue doctor` and return the seconds of CPU that it used."""
    command = [*COMMAND, "doctor", "--data", directory / "data"]
    return wait_for_end(subprocess.Popen(command, stdout=subprocess.DEVNULL))


def wait_for_end(process: subprocess.Popen[bytes]) -> float:
    """Wait for the end of a process and return its user and system time in seconds."""
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description="CPU time of a start")
    parser.add_argument("--starts", type=int, default=7)
    chosen = parser.parse_args()
    for name, run in (("serve", start_server), ("doctor", run_doctor)):
        costs = []
        for _ in range(chosen.starts + 1):
            with tempfile.TemporaryDirectory() as directory:
                costs.append(run(Path(directory)))
        least, median, most = min(costs[1:]), statistics.median(costs[1:]), max(costs[1:])
        print(f"{name:8} median {median:.3f} s of CPU, {least:.3f} to {most:.3f}")


if __name__ == "__main__":
    main()
