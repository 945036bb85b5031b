"""Full collections run when `collect` is called, and find garbage."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import wait_on_loop
from trilogue.gateway.memory_budget import ClosedConnections
from trilogue.node import garbage_collector as collector

ROOT = Path(__file__).resolve().parents[2]


class Knot:
    """Garbage that only the collector can find."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)
    gc.enable()


def test_new_garbage_is_collected_and_live_objects_are_frozen() -> None:
    collector.configure()
    knot = Knot()
    seen = weakref.ref(knot)
    del knot

    collector.collect(whole=False)

    assert seen() is None
    assert gc.get_threshold()[2] == collector.NEVER


def test_old_garbage_goes_when_everything_is_looked_at() -> None:
    knot = Knot()
    seen = weakref.ref(knot)
    collector.configure()
    del knot
    collector.collect(whole=False)
    assert seen() is not None, "it was set aside while in use"

    collector.collect(whole=True)

    assert seen() is None


class Connection:
    """Stands for a connection."""


def test_closed_connections_are_counted_until_their_memory_is_free() -> None:
    closed = ClosedConnections()
    first, second = Connection(), Connection()
    for connection in (first, second):
        closed.add(connection)
    del connection, second

    assert closed.alive == 1
    assert closed.count_new() == 2
    assert closed.count_new() == 0


def test_the_heap_is_released_after_many_closed_connections(monkeypatch) -> None:
    """And not after few: it costs time."""
    releases: list[int] = []
    monkeypatch.setattr(collector, "release_heap", lambda: releases.append(1))
    closed = ClosedConnections()

    async def test() -> None:
        collecting = asyncio.create_task(collector.collect_periodically(closed, 0.001))
        for _ in range(collector.CLOSED_MANY):
            closed.add(Connection())
        await wait_on_loop(lambda: releases)
        closed.add(Connection())
        await wait_on_loop(lambda: closed.count_new() == 0)
        collecting.cancel()

    asyncio.run(test())

    assert releases == [1]


@pytest.mark.skipif(sys.platform != "linux", reason="the C library of Linux")
def test_free_pages_between_others_go_back_to_the_system() -> None:
    code = """
from tests.crash.hostile import resident
from trilogue.gateway.memory_budget import release_heap
import os
blocks = [bytearray(20_000) for _ in range(4_000)]
kept = blocks[::100]
before = resident(os.getpid())
del blocks
release_heap()
assert before - resident(os.getpid()) > 60 << 20, (before, resident(os.getpid()))
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
