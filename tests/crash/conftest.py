"""Servers to be killed, a seed that is printed, and what the runs found, told at the end."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests import brokers
from tests.brokers import Broker
from tests.crash.faults import CutDisk

SEED = int(os.environ.get("TRILOGUE_SEED", time.time_ns() % 1_000_000))
REPORT: list[str] = []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What a foreign client warns about is not for us to mend."""
    for item in items:
        if "crash" in item.path.parts:
            item.add_marker(pytest.mark.filterwarnings("ignore"), append=False)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if REPORT:
        terminalreporter.section(f"crash runs (TRILOGUE_SEED={SEED})")
        for line in REPORT:
            terminalreporter.write_line(line)


@pytest.fixture
def tell(request: pytest.FixtureRequest) -> Callable[[object], None]:
    """Adds a line about this test to the end of the run."""
    return lambda text: REPORT.append(f"{request.node.name}: {text}")


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> random.Random:
    """A source of chance that TRILOGUE_SEED repeats, another one for each test."""
    return random.Random(f"{SEED} {request.node.name}")


@pytest.fixture(params=[name for name in brokers.names() if name != "elsewhere"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    """A running server that the test may kill."""
    made = brokers.make(request.param, tmp_path)
    made.start()
    yield made
    made.kill9()


@pytest.fixture
def trilogue(tmp_path: Path) -> Iterator[brokers.Trilogue]:
    """Ours, not started."""
    made = brokers.Trilogue(tmp_path / "data")
    yield made
    made.kill9()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[CutDisk]:
    """Its power can be cut."""
    made = CutDisk(tmp_path, size_mib=2048)
    yield made
    made.close()
