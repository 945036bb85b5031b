"""Transactions of our Pulsar client beside Kafka's while nodes are killed: all, or nothing."""

from __future__ import annotations

import asyncio
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.brokers import TrilogueForPulsar
from tests.conformance.pulsar.pulsar_admin import Admin
from tests.crash.load import create_topic, running
from tests.crash.transactions.history import History
from tests.crash.transactions.pulsar_workers import (
    PulsarReader,
    PulsarWorker,
    read_left,
    write_inputs,
)
from tests.crash.transactions.test_kill_nodes import end_one
from tests.crash.transactions.transaction_load import Reader, Worker, read_everything
from tests.node_ports import find_node_ports
from tests.server import start_server

TOPIC = "transactions"
PARTITIONS = 3
KAFKA_WORKERS, PULSAR_WORKERS = 2, 3
KILL_EVERY_S = (2.0, 5.0)
NODES = 3


@pytest.fixture
def server(tmp_path: Path) -> Iterator[TrilogueForPulsar]:
    made = TrilogueForPulsar(tmp_path / "data")
    made.start()
    yield made
    made.kill9()


@pytest.mark.full
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("seconds", "inputs"), [(15, 3_000), pytest.param(100, 20_000, marks=pytest.mark.long)]
)
def test_messages_and_acks_are_whole_through_kills(
    server: TrilogueForPulsar,
    chance: random.Random,
    report: Callable[[object], None],
    seconds: float,
    inputs: int,
):
    def kill() -> None:
        server.kill9()
        server.start()

    place = Place(f"pulsar://{server.address}", server.doors["kafka"], server.http)
    check_load(place, chance, report, kill, seconds=seconds, inputs=inputs)


@pytest.mark.full
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("seconds", "inputs"), [(15, 3_000), pytest.param(100, 20_000, marks=pytest.mark.long)]
)
def test_messages_and_acks_over_nodes_are_whole_through_kills(
    tmp_path: Path,
    chance: random.Random,
    report: Callable[[object], None],
    seconds: float,
    inputs: int,
):
    ports = find_node_ports(NODES, "kafka", "pulsar", "http")
    with start_server(tmp_path / "data", listen=ports.listen, nodes=NODES) as server:
        place = Place(f"pulsar://{ports.addresses('pulsar')}", server.kafka, server.http)
        kill = partial(end_one, server, chance, signal.SIGKILL)
        check_load(place, chance, report, kill, seconds=seconds, inputs=inputs)
        assert server.stop() == 0


class Place(NamedTuple):
    """The addresses of a server."""

    url: str
    kafka: str
    http: str


def check_load(
    place: Place,
    chance: random.Random,
    report: Callable[[object], None],
    kill: Callable[[], None],
    *,
    seconds: float,
    inputs: int,
) -> None:
    """Run workers of both protocols under kills, then check the history."""
    history, lock = History(inputs=range(inputs)), threading.Lock()
    url, kafka = place.url, place.kafka
    create_topic(kafka, TOPIC, PARTITIONS)
    Admin(place.http).deduplicate("public/default")  # of messages that the client sends again
    asyncio.run(write_inputs(url, inputs))
    common = (TOPIC, PARTITIONS, history)
    workers: list[Worker | PulsarWorker] = [
        Worker(kafka, *common, lock, number=number, seed=chance.randrange(10**6))
        for number in range(KAFKA_WORKERS)
    ]
    pulsar_workers = [
        PulsarWorker(url, *common, lock, number=number, seed=chance.randrange(10**6))
        for number in range(PULSAR_WORKERS)
    ]
    workers += pulsar_workers
    kills, ends = 0, time.monotonic() + seconds
    with running([*workers, Reader(kafka, *common), PulsarReader(url, TOPIC, history)]):
        while time.monotonic() < ends:
            time.sleep(chance.uniform(*KILL_EVERY_S))  # by design: kills at random times
            kill()
            kills += 1
    history.final = read_everything(kafka, TOPIC, PARTITIONS)
    history.left = asyncio.run(read_left(url, place.http))

    acked = inputs - len(history.left)
    report(f"{kills} kills, {acked} acks: {history.summary()}")
    assert history.anomalies() == {}
    assert [each.broken for each in pulsar_workers if each.broken] == []
    assert all(each.committed >= 3 for each in workers), "no progress"
    assert acked > 3 * PULSAR_WORKERS
