"""Move slots between nodes under load: nothing acknowledged is lost, twice or in another order."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.ledger import Ledger
from tests.crash.load import ACKS_WITHIN, create_topic, judge, mixed_load, running
from tests.server import run_trilogue, start_server

PARTITIONS = 6
NODES = 3


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("rounds", "acks"),
    [pytest.param(3, 1_500), pytest.param(20, 10_000, marks=pytest.mark.long)],
)
def test_nothing_acked_is_lost_while_slots_move(
    tmp_path: Path,
    chance: random.Random,
    report: Callable[[object], None],
    rounds: int,
    acks: int,
):
    ledger = Ledger(chance.randbytes(8))
    data = tmp_path / "data"
    with start_server(data, listen={"kafka": "127.0.0.1:0"}, nodes=NODES) as server:
        create_topic(server.kafka, "ledger", PARTITIONS)
        loads = mixed_load(server.kafka, "ledger", PARTITIONS, ledger, seed=chance.randrange(10**6))
        moves: list[str] = []
        waits_s: list[float] = []
        with running(loads):
            for number in range(rounds):
                ledger.wait_for_acks(acks + chance.randrange(acks), ACKS_WITHIN)
                began = time.monotonic()
                node = str(number % NODES + 1)
                words = ("drain", node)
                if number % 2:
                    words = ("move", *map(str, range(16)), "--to", node)
                moved = run_trilogue("nodes", *words, "--data", str(data))
                assert moved.returncode == 0, moved.stderr
                moves.append(moved.stdout.splitlines()[-1])
                ledger.wait_for_acks(acks, ACKS_WITHIN)
                waits_s.append(time.monotonic() - began)
        verdict = judge(server.kafka, "ledger", PARTITIONS, ledger)
        report(f"{verdict}; {moves}; acks after {', '.join(f'{wait:.2f}' for wait in waits_s)} s")
        assert verdict.bad == {}, verdict.examples
        assert server.stop() == 0
