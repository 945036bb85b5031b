"""Transactions over several nodes while one after the other is killed: all of each, or nothing."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.crash.load import create_topic, running
from tests.crash.transactions.history import History
from tests.crash.transactions.test_pipe import check_pipe
from tests.crash.transactions.transaction_load import Reader, Worker, read_everything
from tests.server import Server, start_server

TOPIC = "transactions"
NODES = 3
PARTITIONS = 6
WORKERS = 4
KILL_EVERY_S = (1.0, 3.0)
FREEZE_EVERY_S = (6.0, 12.0)  # a node has to be silent for a while before it is started again


def end_one(server: Server, chance: random.Random, number: int) -> None:
    """Send a signal to a node, if one runs: those that end often are started again later."""
    found = subprocess.run(
        ["pgrep", "-P", str(server.pid)], capture_output=True, text=True, check=False
    )
    if pids := found.stdout.split():
        os.kill(int(chance.choice(pids)), number)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """Three nodes of one machine."""
    listen = {"kafka": "127.0.0.1:0"}
    settings = {"nodes.silence": "1s"}
    with start_server(tmp_path / "data", listen=listen, nodes=NODES, settings=settings) as started:
        yield started


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("seconds", "end"),
    [
        pytest.param(10, signal.SIGKILL, id="kill9"),
        pytest.param(100, signal.SIGKILL, id="kill9-long", marks=pytest.mark.long),
        pytest.param(60, signal.SIGSTOP, id="frozen-long", marks=pytest.mark.long),
    ],
)
def test_transactions_are_whole_when_nodes_end_one_by_one(
    *,
    server: Server,
    chance: random.Random,
    report: Callable[[object], None],
    seconds: float,
    end: int,
):
    history, lock = History(), threading.Lock()
    create_topic(server.kafka, TOPIC, PARTITIONS)
    place = (server.kafka, TOPIC, PARTITIONS, history)
    workers = [
        Worker(*place, lock, number=number, seed=chance.randrange(10**6))
        for number in range(WORKERS)
    ]
    kills, ends = 0, time.monotonic() + seconds
    with running([*workers, Reader(*place), Reader(*place)]):
        while time.monotonic() < ends:
            every_s = KILL_EVERY_S if end == signal.SIGKILL else FREEZE_EVERY_S
            time.sleep(chance.uniform(*every_s))  # by design: kills at random times
            end_one(server, chance, end)
            kills += 1
    history.final = read_everything(server.kafka, TOPIC, PARTITIONS)

    zombies = sum(each.zombies for each in workers)
    report(f"{kills} kills, {zombies} zombies refused: {history.summary()}")
    assert history.anomalies() == {}
    assert [problem for each in workers for problem in each.broken] == []
    assert all(each.committed >= 3 for each in workers), "no progress"
    assert server.stop() == 0


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("count", "kills"), [(3_000, 3), pytest.param(60_000, 30, marks=pytest.mark.long)]
)
def test_output_is_input_exactly_once_over_nodes(
    server: Server, chance: random.Random, report: Callable[[object], None], count: int, kills: int
):
    def kill() -> None:
        end_one(server, chance, signal.SIGKILL)

    report(
        check_pipe(server.kafka, chance, count=count, kills=kills, kill=kill, partitions=PARTITIONS)
    )
    assert server.stop() == 0
