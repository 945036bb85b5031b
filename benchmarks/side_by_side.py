"""Clients side by side on one server: in each round every client runs in a process of its own.

Read the CPU column first: it counts all threads of the client and not the server, and means the
most on a machine that does other things too.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

ROUNDS = 3


class Clock:
    """Time and CPU time of one leg, printed as a row."""

    def __init__(self, name: str, count: int) -> None:
        self.name, self.count = name, count

    def __enter__(self) -> None:
        self.began, self.cpu = time.perf_counter(), cpu()

    def __exit__(self, *_: object) -> None:
        passed, used = time.perf_counter() - self.began, cpu() - self.cpu
        print(self.name, self.count / passed, 1e6 * used / self.count, sep="\t")


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def compare(module: str, names: Sequence[str], url: str, count: int, size: int) -> None:
    """Run `python -m module --child NAME ...` in turn; print medians."""
    rows: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for _ in range(ROUNDS):
        for name in names:
            command = [sys.executable, "-m", module, "--child", name]
            command += ["--url", url, "--messages", str(count), "--size", str(size)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            for line in done.stdout.splitlines():
                leg, rate, used = line.split("\t")
                rows.setdefault((leg, name), []).append((float(rate), float(used)))
    print(f"{count:,} messages of {size} bytes, medians of {ROUNDS} rounds")
    for (leg, name), found in rows.items():
        rate = statistics.median(one[0] for one in found)
        used = statistics.median(one[1] for one in found)
        print(f"{leg:16} {name:14} {rate:>10,.0f} messages/s {used:>8.2f} µs of CPU a message")


def arguments(
    about: str, run_one: Callable[[str, str, str, int, bytes], None], *, real: bool = True
) -> argparse.Namespace | None:
    """Return the options; None in a child process, which has done its part then."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--size", type=int, default=100)
    if real:
        parser.add_argument("--real", action="store_true", help="beside a real server")
    parser.add_argument("--child", default="")
    parser.add_argument("--url", default="")
    chosen = parser.parse_args()
    if not chosen.child:
        return chosen
    topic = f"bench-{chosen.child}-{time.time_ns()}"
    run_one(chosen.child, chosen.url, topic, chosen.messages, b"x" * chosen.size)
    return None
