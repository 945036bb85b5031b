"""Kill or freeze one of several nodes under load: nothing acknowledged is lost, twice or moved."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.crash.ledger import Ledger
from tests.crash.load import ACKS_WITHIN, create_topic, judge, mixed_load, running
from tests.server import Server, start_server
from tests.waiting import wait_until

PARTITIONS = 6
NODES = 3


def pids_of_nodes(server: Server) -> list[int]:
    found = subprocess.run(
        ["pgrep", "-P", str(server.pid)], capture_output=True, text=True, check=True
    )
    return [int(each) for each in found.stdout.split()]


def is_gone(server: Server, pid: int) -> bool:
    """Whether a node has ended, and another process is there for it."""
    pids = pids_of_nodes(server)
    return pid not in pids and len(pids) == NODES


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("number", "rounds", "acks", "silence"),
    [
        pytest.param(signal.SIGKILL, 4, 2_000, "3s", id="kill9"),
        pytest.param(signal.SIGSTOP, 2, 2_000, "3s", id="frozen"),
        pytest.param(signal.SIGKILL, 20, 10_000, "3s", id="kill9-long", marks=pytest.mark.long),
        pytest.param(signal.SIGSTOP, 8, 10_000, "3s", id="frozen-long", marks=pytest.mark.long),
        pytest.param(signal.SIGSTOP, 1, 2_000, "60s", id="frozen-minute", marks=pytest.mark.long),
    ],
)
def test_nothing_acked_is_lost_when_nodes_end_one_by_one(
    *,
    tmp_path: Path,
    chance: random.Random,
    report: Callable[[object], None],
    number: int,
    rounds: int,
    acks: int,
    silence: str,
):
    ledger = Ledger(chance.randbytes(8))
    listen = {"kafka": "127.0.0.1:0"}
    settings = {"nodes.silence": silence}  # with 1 s an idle node was killed at a load of 37
    with start_server(tmp_path / "data", listen=listen, nodes=NODES, settings=settings) as server:
        create_topic(server.kafka, "ledger", PARTITIONS)
        loads = mixed_load(server.kafka, "ledger", PARTITIONS, ledger, seed=chance.randrange(10**6))
        waits_s: list[float] = []
        with running(loads):
            for _ in range(rounds):
                ledger.wait_for_acks(acks + chance.randrange(acks), ACKS_WITHIN)
                pid = chance.choice(pids_of_nodes(server))
                os.kill(pid, number)
                began = time.monotonic()
                ledger.wait_for_acks(acks, ACKS_WITHIN)
                waits_s.append(time.monotonic() - began)
                gone = partial(is_gone, server, pid)
                wait_until(gone, "a node is started again", ACKS_WITHIN)
                ledger.wait_for_acks(acks, ACKS_WITHIN)
        verdict = judge(server.kafka, "ledger", PARTITIONS, ledger)
        report(f"{verdict}; {acks} acks after {', '.join(f'{wait:.2f}' for wait in waits_s)} s")
        assert verdict.bad == {}, verdict.examples
        assert verdict.acked >= rounds * acks
        assert server.stop() == 0


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_node_that_wakes_before_it_counts_as_dead_goes_on(
    *, tmp_path: Path, chance: random.Random, report: Callable[[object], None]
):
    ledger = Ledger(chance.randbytes(8))
    listen, settings = {"kafka": "127.0.0.1:0"}, {"nodes.silence": "60s"}
    with start_server(tmp_path / "data", listen=listen, nodes=NODES, settings=settings) as server:
        create_topic(server.kafka, "ledger", PARTITIONS)
        loads = mixed_load(server.kafka, "ledger", PARTITIONS, ledger, seed=chance.randrange(10**6))
        nodes = pids_of_nodes(server)
        with running(loads):
            for pid in nodes:
                ledger.wait_for_acks(2_000, ACKS_WITHIN)
                os.kill(pid, signal.SIGSTOP)
                time.sleep(chance.uniform(2, 8))  # by design: longer than requests take
                os.kill(pid, signal.SIGCONT)
            ledger.wait_for_acks(2_000, ACKS_WITHIN)
        assert pids_of_nodes(server) == nodes
        verdict = judge(server.kafka, "ledger", PARTITIONS, ledger)
        report(verdict)
        assert verdict.bad == {}, verdict.examples
        assert server.stop() == 0
