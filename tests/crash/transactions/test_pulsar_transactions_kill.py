"""Transactions of our Pulsar client beside Kafka's while nodes are killed, or slots move between
them: all of each, or nothing."""

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
from tests.server import run_trilogue, start_server

TOPIC = "transactions"
PARTITIONS = 3
KAFKA_WORKERS, PULSAR_WORKERS = 2, 3
INTERRUPT_EVERY_S = (2.0, 5.0)
NODES, SLOTS = 3, 16
PROGRESS_S = 120.0  # of each worker, after the time of the run, on a busy machine


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


@pytest.mark.full
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("seconds", "inputs"), [(8, 3_000), pytest.param(100, 20_000, marks=pytest.mark.long)]
)
def test_messages_and_acks_are_whole_while_slots_move(
    tmp_path: Path,
    chance: random.Random,
    report: Callable[[object], None],
    seconds: float,
    inputs: int,
):
    """Coordinators, partitions and pending acks get other nodes, with transactions open."""
    ports = find_node_ports(NODES, "kafka", "pulsar", "http")
    with start_server(tmp_path / "data", listen=ports.listen, nodes=NODES) as server:
        place = Place(f"pulsar://{ports.addresses('pulsar')}", server.kafka, server.http)

        def move() -> None:
            node = str(chance.randint(1, NODES))
            some = chance.sample(range(SLOTS), SLOTS // 2)
            words = chance.choice([("drain", node), ("move", *map(str, some), "--to", node)])
            moved = run_trilogue("nodes", *words, "--data", str(server.data))
            assert moved.returncode == 0, moved.stderr

        check_load(place, chance, report, move, seconds=seconds, inputs=inputs)
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
    interrupt: Callable[[], None],
    *,
    seconds: float,
    inputs: int,
) -> None:
    """Run workers of both protocols, interrupt them at times, then check the history."""
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
    interruptions, ends = 0, time.monotonic() + seconds
    with running([*workers, Reader(kafka, *common), PulsarReader(url, TOPIC, history)]):
        while time.monotonic() < ends or not all(each.committed >= 3 for each in workers):
            assert time.monotonic() < ends + PROGRESS_S, "no progress"
            time.sleep(chance.uniform(*INTERRUPT_EVERY_S))  # by design: at random times
            interrupt()
            interruptions += 1
    history.final = read_everything(kafka, TOPIC, PARTITIONS)
    history.left = asyncio.run(read_left(url, place.http))

    acked = inputs - len(history.left)
    report(f"{interruptions} interruptions, {acked} acks: {history.summary()}")
    assert history.anomalies() == {}
    assert [each.broken for each in pulsar_workers if each.broken] == []
    assert acked > PULSAR_WORKERS
