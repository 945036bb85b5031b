"""Random transactions of four workers while the server is killed: all of each, or nothing."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

import pytest

from tests.brokers import Broker
from tests.crash.load import create_topic, running
from tests.crash.transactions.history import History
from tests.crash.transactions.transaction_load import Reader, Worker, read_everything

TOPIC = "transactions"
PARTITIONS = 3
WORKERS = 4
KILL_EVERY_S = (2.0, 5.0)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("seconds", [15, pytest.param(100, marks=pytest.mark.long)])
def test_transactions_are_whole_through_kills(
    broker: Broker, chance: random.Random, report: Callable[[object], None], seconds: float
):
    history, lock = History(), threading.Lock()
    create_topic(broker.address, TOPIC, PARTITIONS)
    place = (broker.address, TOPIC, PARTITIONS, history)
    workers = [
        Worker(*place, lock, number=number, seed=chance.randrange(10**6))
        for number in range(WORKERS)
    ]
    kills, ends = 0, time.monotonic() + seconds
    with running([*workers, Reader(*place), Reader(*place)]):
        while time.monotonic() < ends:
            time.sleep(chance.uniform(*KILL_EVERY_S))  # by design: kills at random times
            broker.kill9()
            broker.start()
            kills += 1
    history.final = read_everything(broker.address, TOPIC, PARTITIONS)

    zombies = sum(each.zombies for each in workers)
    report(f"{kills} kills, {zombies} zombies refused: {history.summary()}")
    assert history.anomalies() == {}
    assert [problem for each in workers for problem in each.broken] == []
    assert all(each.committed >= 3 for each in workers), "no progress"
