"""How the tests are shared out to several processes (`pytest -n 2 --dist loadfile`).

A file stays whole, in one process: its tests share a server. The files that wait for programs of
others come first: they are the longest (minutes, with Spark), and the many quick ones after them
let the processes end together. What these must agree on, and what they tell at the end, goes
through here too.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

LOADFILE = "loadfile"
TOGETHER = ("tests/spark",)  # one session of Spark for all its files
FIRST = ("docs", "spark", "crash", "conformance", "cli", "client", "node", "gateway_http")
"""The rooms that start servers and foreign programs, in this order; then all others."""
TOLD = "told"
SEED = "seed"


def rank(path: Path) -> int:
    """Where a file stands in the queue."""
    return next((number for number, room in enumerate(FIRST) if room in path.parts), len(FIRST))


def put_in_order(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where tests run in one process alone the order stays that of chance."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: rank(item.path))


def seed_of_the_run(config: pytest.Config) -> int:
    """TRILOGUE_SEED repeats the chance that crash tests take; all processes have the same."""
    given = getattr(config, "workerinput", {}).get(SEED) or os.environ.get("TRILOGUE_SEED")
    return int(given or time.time_ns() % 1_000_000)


def tell(item: pytest.Item, text: object) -> None:
    """A line for the end of the run, from whichever process."""
    item.user_properties.append((TOLD, str(text)))


def told(reporter: pytest.TerminalReporter) -> list[str]:
    """What all tests told, in the order in which they ended."""
    reports = [each for kind in ("", "error") for each in reporter.getreports(kind)]
    return [
        text
        for report in reports
        if getattr(report, "when", "") == "teardown"
        for kind, text in report.user_properties
        if kind == TOLD
    ]


def scheduler(config: pytest.Config, log: object) -> object | None:
    """xdist's own for whole files, but in our order, and with folders that stay together."""
    if config.getoption("dist") != LOADFILE:
        return None
    from xdist.scheduler import LoadFileScheduling

    class Sharing(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path: str = super()._split_scope(nodeid)
            return next((folder for folder in TOGETHER if path.startswith(folder)), path)

    config.option.loadscopereorder = False  # not by number of tests
    return Sharing(config, log)
