"""How much CPU does a server take until it is ready, and a call of the command line in all?

    python -m benchmarks.start [--starts 7]

`trilogue serve` on an empty data directory, with each listener on a free port of 127.0.0.1: user
and system time of the process until its ready file stands, when it is killed. The other rows are
whole commands; those that need a server have one of their own. One run before them is not counted,
since it may write byte code. The broker of `trilogue.testing` is measured by the clock, too: the
first of a process, which loads modules and runs the recovery of nothing, and the second.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

COMMAND = (sys.executable, "-m", "trilogue.cli.main")
LISTENERS = ("kafka", "pulsar", "tubemq-master", "tubemq-broker", "http")
LOOK_EVERY_S = 0.001

READY_S = 0.3  # of the clock, until a broker of trilogue.testing serves
TESTING = """
import time
from trilogue.testing import start_broker
for _ in range(2):
    began, used = time.perf_counter(), time.process_time()
    with start_broker():
        print(time.perf_counter() - began, time.process_time() - used)
"""

CALLS = {
    "--help": ["--help"],
    "doctor": ["doctor", "--data", "{data}"],
    "topics list": ["topics", "list", "--server", "{kafka}"],
    "groups list": ["groups", "list", "--server", "{kafka}"],
}


@contextmanager
def running_server(directory: Path) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, str]]]:
    """A server that is ready, and the addresses of its listeners; it is killed at the end."""
    ready = directory / "ready"
    listen = [f"--listen={name}=127.0.0.1:0" for name in LISTENERS]
    process = subprocess.Popen(
        [*COMMAND, "serve", "--data", directory / "data", "--ready-file", ready, *listen],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while not ready.exists():
            if process.poll() is not None:
                raise RuntimeError(f"the server ended with exit code {process.returncode}")
            time.sleep(LOOK_EVERY_S)
        yield process, json.loads(ready.read_text())["doors"]
    finally:
        process.kill()


def start_server() -> float:
    """Start a server, kill it when it is ready, and return the seconds of CPU that it used."""
    with tempfile.TemporaryDirectory() as directory:
        with running_server(Path(directory)) as (process, _):
            pass
        return wait_for_end(process)


def run_call(arguments: list[str]) -> float:
    """Run a command and return the seconds of CPU that it used."""
    return wait_for_end(subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.DEVNULL))


def wait_for_end(process: subprocess.Popen[bytes]) -> float:
    """Wait for the end of a process and return its user and system time in seconds."""
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return used.ru_utime + used.ru_stime


def start_brokers() -> list[tuple[float, float]]:
    """Return seconds of the clock and of CPU of the two brokers of a new process."""
    done = subprocess.run(
        [sys.executable, "-c", TESTING], capture_output=True, text=True, check=True
    )
    return [(float(a), float(b)) for a, b in map(str.split, done.stdout.splitlines())]


def print_testing(runs: int) -> None:
    """Measure how soon a broker inside a test serves, and print it beside its target."""
    found = [start_brokers() for _ in range(runs + 1)][1:]
    for name, times in zip(("first", "second"), zip(*found, strict=True), strict=True):
        ready = [clock for clock, _ in times]
        cpu = statistics.median(used for _, used in times)
        print(
            f"testing, {name}: ready in {statistics.median(ready):.3f} s, {min(ready):.3f} to "
            f"{max(ready):.3f} (target {READY_S}), {cpu:.3f} s of CPU"
        )


def print_row(name: str, runs: int, run: Callable[[], float]) -> None:
    """Measure one row and print it; its first run is not counted."""
    costs = [run() for _ in range(runs + 1)][1:]
    least, median, most = min(costs), statistics.median(costs), max(costs)
    print(f"{name:12} median {median:.3f} s of CPU, {least:.3f} to {most:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description="CPU time of a start and of commands")
    parser.add_argument("--starts", type=int, default=7)
    chosen = parser.parse_args()
    print_testing(chosen.starts)
    print_row("serve", chosen.starts, start_server)
    with tempfile.TemporaryDirectory() as name:
        with running_server(Path(name)) as (server, listeners):
            for call, words in CALLS.items():
                arguments = [word.format(data=name, kafka=listeners["kafka"]) for word in words]
                print_row(call, chosen.starts, partial(run_call, arguments))
        server.wait()


if __name__ == "__main__":
    main()
