"""Batches of several producers' transactions while the server is killed: each whole, each once."""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable

import pytest

from tests.brokers import Broker
from tests.crash.load import create_topic, running
from tests.crash.parts import PATIENCE, Part
from tests.crash.transactions.transaction_load import make_reader
from trilogue.client.errors import ClientError
from trilogue.client.kafka.model import PreparedTransaction
from trilogue.client.kafka.sync import KafkaClient

TOPIC, APPLICATION = "batches", "query"
PARTITIONS = TASKS = 3
BATCHES_BETWEEN_KILLS = 10


class Driver(Part):
    """Writes batch after batch as a query does: tasks prepare, the driver commits.

    Where the outcome of a commit is not known it looks for the last batch, as one that was started
    again does, and writes the batch again with other producers if it was not committed.
    """

    def __init__(self, address: str) -> None:
        super().__init__()
        self.address = address
        self.committed = 0
        self.attempts = 0

    def run(self) -> None:
        while not self.stopping.is_set():
            with contextlib.suppress(ClientError), KafkaClient(self.address) as client:
                self.work(client)

    def work(self, client: KafkaClient) -> None:
        last = client.admin.last_batch(APPLICATION)
        self.committed = 0 if last is None else last.batch_id + 1
        while not self.stopping.is_set():
            self.attempts += 1
            batch = client.admin.commit_transactions(
                self.write(client), application_id=APPLICATION, batch_id=self.committed
            )
            assert batch.batch_id == self.committed
            self.committed += 1

    def write(self, client: KafkaClient) -> list[PreparedTransaction]:
        prepared = []
        for task in range(TASKS):
            name = f"{APPLICATION}-{task}-{self.attempts % 2}"
            producer = client.producer(transactional_id=name)
            with producer, producer.transaction() as transaction:
                for partition in range(PARTITIONS):
                    value = f"{self.committed}/{task}".encode()
                    producer.submit(TOPIC, value, partition=partition)
                prepared.append(transaction.prepare())
        return prepared


@pytest.mark.full
@pytest.mark.timeout(400)
@pytest.mark.parametrize("kills", [4, pytest.param(40, marks=pytest.mark.long)])
def test_batches_are_whole_through_kills(
    broker: Broker, chance: random.Random, report: Callable[[object], None], kills: int
):
    create_topic(broker.address, TOPIC, PARTITIONS)
    driver = Driver(broker.address)
    with running([driver]):
        for number in range(1, kills + 1):
            wait_for_batches(driver, number * BATCHES_BETWEEN_KILLS)
            time.sleep(chance.uniform(0, 0.05))  # by design: at any moment of a batch
            broker.kill9()
            broker.start()
        wait_for_batches(driver, (kills + 1) * BATCHES_BETWEEN_KILLS)
    with KafkaClient(broker.address) as client:
        last = client.admin.last_batch(APPLICATION)
    assert last is not None

    expected = {
        (f"{batch}/{task}", partition)
        for batch in range(last.batch_id + 1)
        for task in range(TASKS)
        for partition in range(PARTITIONS)
    }
    seen: Counter[tuple[str, int]] = Counter()
    with contextlib.closing(make_reader(broker.address, TOPIC, PARTITIONS)) as reader:
        ends = time.monotonic() + PATIENCE
        while sum(seen.values()) < len(expected) and time.monotonic() < ends:
            for message in [*reader.consume(1_000, 0.5)]:
                if message.error() is None:
                    seen[message.value().decode(), message.partition()] += 1
        for message in reader.consume(1_000, 1.0):  # what should not be there
            seen[message.value().decode(), message.partition()] += 1
    report(f"{last.batch_id + 1} batches in {driver.attempts} attempts, {kills} kills")
    assert {each: times for each, times in seen.items() if times != 1} == {}
    assert set(seen) == expected


def wait_for_batches(driver: Driver, count: int) -> None:
    ends = time.monotonic() + PATIENCE
    while driver.committed < count:
        assert time.monotonic() < ends, f"{driver.committed} batches of {count}"
        time.sleep(0.01)
