"""Consume, transform, produce: output = input exactly once, through kills of workers and server."""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

from tests.brokers import Broker
from tests.crash.load import QUICK_RECONNECT, QUIET, create_topic, running
from tests.crash.parts import PATIENCE, Part
from tests.crash.transactions.transaction_load import CALL_S, TRANSACTION_TIMEOUT_MS, make_reader

INPUT, OUTPUT, GROUP = "input", "output", "pipe"
PARTITIONS = 3
WORKERS = 3
AT_ONCE = 40
PAUSE_S = 0.02  # of a worker, so that the run lasts for some kills
ABANDONS = 0.02  # of all transactions
KEEP_BROKERS = {"metadata.recovery.strategy": "none"}
"""librdkafka 2.16 forgets its brokers when all are gone, and then sends the positions of a
transaction to the group's coordinator that it forgot: send_offsets_to_transaction never returns."""


class PipeWorker(Part):
    """A member of the group that writes what it reads, and its positions, in transactions."""

    def __init__(self, address: str, number: int, seed: int) -> None:
        super().__init__()
        self.address = address
        self.number = number
        self.random = random.Random(seed)
        self.abandoned: list[object] = []  # as a process that was killed: nothing is closed

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                self.work()
            except KafkaException:
                continue  # begin again: with a new member, and a producer that fences the old one

    def work(self) -> None:
        """Work as one process: until something fails, or it is killed."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": GROUP,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "session.timeout.ms": 6_000,
                **QUICK_RECONNECT,
                **QUIET,
            }
        )
        producer = Producer(
            {
                "bootstrap.servers": self.address,
                "transactional.id": f"{GROUP}-{self.number}",
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                **KEEP_BROKERS,
                **QUICK_RECONNECT,
                **QUIET,
            }
        )
        producer.init_transactions(PATIENCE)
        consumer.subscribe([INPUT])
        try:
            while not self.stopping.is_set():
                messages = [each for each in consumer.consume(AT_ONCE, 0.2) if not each.error()]
                if not messages:
                    continue
                producer.begin_transaction()
                for message in messages:
                    producer.produce(OUTPUT, message.value(), partition=message.partition())
                positions = consumer.position(consumer.assignment())
                producer.send_offsets_to_transaction(
                    positions, consumer.consumer_group_metadata(), CALL_S
                )
                if self.random.random() < ABANDONS:
                    self.abandoned.append(producer)
                    return
                producer.commit_transaction(CALL_S)
                self.stopping.wait(PAUSE_S)
        finally:
            consumer.close()


def fill(address: str, count: int, partitions: int) -> None:
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, **QUIET})
    for number in range(count):
        producer.produce(INPUT, b"%d" % number, partition=number % partitions)
    assert producer.flush(PATIENCE) == 0


def check_pipe(
    address: str,
    chance: random.Random,
    *,
    count: int,
    kills: int,
    kill: Callable[[], None],
    partitions: int = PARTITIONS,
) -> str:
    """Send messages through the pipe, with kills at random times; return what happened."""
    create_topic(address, INPUT, partitions)
    create_topic(address, OUTPUT, partitions)
    fill(address, count, partitions)
    workers = [PipeWorker(address, number, chance.randrange(10**6)) for number in range(WORKERS)]
    seen: Counter[int] = Counter()
    ends = time.monotonic() + 300
    kill_at = sorted(chance.sample(range(1, count * 3 // 4), kills))
    with contextlib.closing(make_reader(address, OUTPUT, partitions)) as reader:
        with running(workers):
            while len(seen) < count:
                assert time.monotonic() < ends, f"{len(seen)} of {count} messages"
                for message in reader.consume(1_000, 0.1):
                    if message.error() is None:
                        seen[int(message.value())] += 1
                if kill_at and len(seen) >= kill_at[0]:
                    kill()
                    kill_at.pop(0)
        for message in reader.consume(1_000, 2.0):  # what should not be there
            if message.error() is None:
                seen[int(message.value())] += 1

    left = sum(len(each.abandoned) for each in workers)
    assert set(seen) == set(range(count))
    assert {number: times for number, times in seen.items() if times != 1} == {}
    return f"{count} messages, {kills} kills of the server, {left} of workers"


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("count", "kills"), [(6_000, 2), pytest.param(60_000, 20, marks=pytest.mark.long)]
)
def test_output_is_input_exactly_once(
    broker: Broker, chance: random.Random, report: Callable[[object], None], count: int, kills: int
):
    def kill() -> None:
        broker.kill9()
        broker.start()

    report(check_pipe(broker.address, chance, count=count, kills=kills, kill=kill))
