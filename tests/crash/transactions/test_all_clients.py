"""Random transactions of librdkafka, of three releases of Java's client, and of Pulsar's clients in
Java and Go, at once and on the same partitions, while the server is killed and frozen, slots move,
topics that they write to are deleted, and records: all of each transaction, or nothing."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.brokers import TrilogueForPulsar
from tests.conformance.clients.kafka_programs import JAVA_2, JAVA_3, JAVA_4
from tests.conformance.clients.pulsar_libraries import GO_CLIENT, JAVA
from tests.conformance.pulsar.pulsar_admin import Admin
from tests.crash.load import QUIET, create_topic, running
from tests.crash.parts import Part
from tests.crash.transactions.foreign_workers import (
    ForeignWorker,
    JavaWorker,
    PulsarLibraryWorker,
)
from tests.crash.transactions.history import History
from tests.crash.transactions.pulsar_workers import PulsarReader
from tests.crash.transactions.test_kill_nodes import end_one
from tests.crash.transactions.transaction_load import (
    TRANSACTION_TIMEOUT_MS,
    Reader,
    Worker,
    read_everything,
    wait_for_stable_end,
)
from tests.node_ports import find_node_ports
from tests.server import run_trilogue, start_server
from tests.waiting import wait_until

TOPIC, EXTRA = "transactions", "deleted-meanwhile"
PARTITIONS = 3
NODES, SLOTS = 3, 16
EVERY_S = (2.0, 5.0)
FROZEN_S = TRANSACTION_TIMEOUT_MS / 1_000 + 2  # open transactions are over when it goes on
PROGRESS_S = 180.0  # of each worker, after the time of the run, on a busy machine

pytestmark = [pytest.mark.java, pytest.mark.timeout(900)]


class Place(NamedTuple):
    """The addresses of a server."""

    kafka: str
    pulsar: str
    http: str


class Remover(Part):
    """Deletes the topic that some transactions write to, and its records, and makes it again."""

    def __init__(self, address: str, chance: random.Random) -> None:
        super().__init__()
        self.address, self.chance = address, chance
        self.removed = 0

    def run(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.address, **QUIET})
        plain = Producer({"bootstrap.servers": self.address, **QUIET})
        while not self.stopping.wait(self.chance.uniform(0.5, 2.0)):
            try:
                if self.chance.random() < 0.5:
                    place = TopicPartition(EXTRA, 0, -1)
                    admin.delete_records([place])[place].result(10)
                else:
                    admin.delete_topics([EXTRA])[EXTRA].result(10)
                    plain.produce(EXTRA, b"", partition=0)  # makes it again
                    plain.flush(10)
                self.removed += 1
            except KafkaException:
                pass  # by design: the server is being killed


@pytest.fixture
def server(tmp_path: Path) -> Iterator[TrilogueForPulsar]:
    made = TrilogueForPulsar(tmp_path / "data")
    made.start()
    yield made
    made.kill9()


@pytest.fixture(autouse=True)
def clients() -> Iterator[None]:
    """The programs of the clients, which end with the test."""
    every = [JAVA_2, JAVA_3, JAVA_4, JAVA, GO_CLIENT]
    for each in every:
        each.require()
    yield
    for each in every:
        each.stop()


@pytest.mark.parametrize("seconds", [20, pytest.param(150, marks=pytest.mark.long)])
def test_transactions_of_all_clients_are_whole_through_kills_and_freezes(
    server: TrilogueForPulsar,
    chance: random.Random,
    report: Callable[[object], None],
    seconds: float,
):
    def interrupt() -> None:
        if chance.random() < 0.3:
            freeze(server.pid, FROZEN_S)
        else:
            server.kill9()
            server.start()

    place = Place(server.doors["kafka"], f"pulsar://{server.address}", server.http)
    check_load(place, chance, report, interrupt, seconds=seconds)


@pytest.mark.parametrize("seconds", [20, pytest.param(150, marks=pytest.mark.long)])
def test_transactions_of_all_clients_over_nodes_are_whole(
    tmp_path: Path, chance: random.Random, report: Callable[[object], None], seconds: float
):
    ports = find_node_ports(NODES, "kafka", "pulsar", "http")
    with start_server(tmp_path / "data", listen=ports.listen, nodes=NODES) as server:

        def move() -> None:
            node = str(chance.randint(1, NODES))
            some = chance.sample(range(SLOTS), SLOTS // 2)
            words = chance.choice([("drain", node), ("move", *map(str, some), "--to", node)])
            run_trilogue("nodes", *words, "--data", str(server.data))

        def freeze_one() -> None:
            found = subprocess.run(
                ["pgrep", "-P", str(server.pid)], capture_output=True, text=True, check=False
            )
            if pids := found.stdout.split():
                freeze(int(chance.choice(pids)), chance.choice([1.0, FROZEN_S]))

        kill = partial(end_one, server, chance, signal.SIGKILL)

        def interrupt() -> None:
            chance.choice([kill, kill, move, freeze_one])()

        place = Place(server.kafka, f"pulsar://{ports.addresses('pulsar')}", server.http)
        check_load(place, chance, report, interrupt, seconds=seconds)
        assert server.stop() == 0


def freeze(pid: int, seconds: float) -> None:
    """Stop a process for a while."""
    try:
        os.kill(pid, signal.SIGSTOP)
    except ProcessLookupError:
        return
    time.sleep(seconds)  # by design: longer than a transaction may take
    try:
        os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        return  # the supervisor has ended it meanwhile


def check_load(
    place: Place,
    chance: random.Random,
    report: Callable[[object], None],
    interrupt: Callable[[], object],
    *,
    seconds: float,
) -> None:
    """Run workers of all clients, interrupt them at times, then check the history."""
    history, lock = History(), threading.Lock()
    create_topic(place.kafka, TOPIC, PARTITIONS)
    create_topic(place.kafka, EXTRA, 1)
    Admin(place.http).deduplicate("public/default")  # of messages that Pulsar's clients send again
    common = (TOPIC, PARTITIONS, history)

    def seed() -> int:
        return chance.randrange(10**6)

    foreign: list[ForeignWorker] = [
        JavaWorker(client, place.kafka, *common, lock, seed=seed(), extra=EXTRA)
        for client in (JAVA_2, JAVA_3, JAVA_4)
    ]
    foreign += [
        PulsarLibraryWorker(library, place.pulsar, *common, lock, seed=seed())
        for library in (JAVA, GO_CLIENT)
    ]
    workers = [*foreign, Worker(place.kafka, *common, lock, number=0, seed=seed())]
    remover = Remover(place.kafka, random.Random(seed()))
    readers = [Reader(place.kafka, *common), PulsarReader(place.pulsar, TOPIC, history)]
    count, ends = 0, time.monotonic() + seconds
    with running([*workers, remover, *readers]):
        while time.monotonic() < ends or not all(each.committed >= 3 for each in workers):
            progress = {each.name: each.committed for each in workers}
            assert time.monotonic() < ends + PROGRESS_S, f"no progress: {progress}"
            assert [each for worker in foreign for each in worker.broken] == []
            time.sleep(chance.uniform(*EVERY_S))  # by design: at random times
            interrupt()
            count += 1
        before = {each.name: each.committed for each in workers}
        wait_until(
            lambda: all(each.committed > before[each.name] for each in workers),
            lambda: f"a commit of each: {before}, {[each.committed for each in workers]}",
            PROGRESS_S,
        )
    history.final = read_everything(place.kafka, TOPIC, PARTITIONS)
    wait_for_stable_end(place.kafka, EXTRA, 1)  # nothing hangs there either

    zombies = sum(getattr(each, "refused", 0) or getattr(each, "zombies", 0) for each in workers)
    counts = {each.name: each.committed for each in workers}
    report(f"{count} interruptions, {zombies} zombies, {remover.removed} removals, {counts}")
    report(history.summary())
    assert history.anomalies() == {}
    assert [problem for each in workers for problem in each.broken] == []
