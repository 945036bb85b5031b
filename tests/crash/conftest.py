"""Servers to be killed, and chance that can be repeated."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import brokers
from tests.brokers import Broker
from tests.crash.faults import CutDisk


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What a foreign client warns about is not for us to mend."""
    for item in items:
        if "crash" in item.path.parts:
            item.add_marker(pytest.mark.filterwarnings("ignore"), append=False)


@pytest.fixture
def chance(request: pytest.FixtureRequest, seed: int) -> random.Random:
    """A source of chance that TRILOGUE_SEED repeats, another one for each test."""
    return random.Random(f"{seed} {request.node.name}")


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
