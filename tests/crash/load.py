"""Producers that write into a ledger while a server is killed under them, and readers that look.

Real clients, idempotent, acks=all. They reconnect quickly, so that the time from a restart to the
first ack is the server's, and never give up within a test. The pace is bounded: these runs are
about what is promised, not about speed.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.brokers import Broker, OurServer
from tests.conformance.clients.base import Deadline
from tests.crash.ledger import Ledger, Verdict
from tests.crash.parts import PATIENCE, LoopLoad, Part

QUICK_RECONNECT = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100}
QUIET = {"log_level": 2}
ACKS_WITHIN = 60.0
SIZES = (40, 100, 100, 1000, 1000, 20_000)

Reads = dict[int, list[tuple[int, bytes | None]]]
Server = TypeVar("Server", bound=OurServer | Broker)


class ConfluentLoad(Part):
    """One librdkafka producer: a few records, a short pause, until stopped; then all is acked."""

    def __init__(
        self,
        address: str,
        topic: str,
        partitions: int,
        ledger: Ledger,
        *,
        number: int,
        seed: int,
        idempotent: bool = True,
        codec: str = "none",
        more: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__()
        self.topic, self.partitions, self.ledger, self.number = topic, partitions, ledger, number
        self.random = random.Random(seed)
        self.producer = Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": idempotent,
                "acks": "all",
                "compression.type": codec,
                "linger.ms": 2,
                "message.timeout.ms": int(PATIENCE * 1000),
                **QUICK_RECONNECT,
                **QUIET,
                **(more or {}),
            }
        )

    def run(self) -> None:
        while not self.stopping.wait(0.002):
            if len(self.producer) < 2000:
                for _ in range(self.random.randint(1, 30)):
                    self.send(self.random.randrange(self.partitions))
            self.producer.poll(0)
        if self.producer.flush(PATIENCE):
            self.ledger.fail(f"producer {self.number}: {len(self.producer)} left after flush")

    def size(self) -> int:
        return self.random.choice(SIZES)

    def send(self, partition: int) -> None:
        origin, value = self.ledger.next_value(self.number, partition, self.size())

        def delivered(error: KafkaError | None, message: object) -> None:
            if error is None:
                self.ledger.ack(origin, message.offset())
            else:
                self.ledger.fail(error.name())

        try:
            self.producer.produce(self.topic, value, partition=partition, on_delivery=delivered)
        except BufferError:  # the client's own queue is full; this number was never sent
            self.producer.poll(0.05)


class AioLoad(LoopLoad):
    """One aiokafka producer on a loop of its own."""

    def __init__(
        self,
        address: str,
        topic: str,
        partitions: int,
        ledger: Ledger,
        *,
        number: int,
        seed: int,
        idempotent: bool = True,
        answer_s: float = PATIENCE,
    ) -> None:
        super().__init__(ledger)
        self.address, self.topic, self.partitions = address, topic, partitions
        self.number, self.idempotent, self.answer_s = number, idempotent, answer_s
        self.random = random.Random(seed)

    async def work(self) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self.address,
            enable_idempotence=self.idempotent,
            acks="all",
            request_timeout_ms=int(self.answer_s * 1000),
            retry_backoff_ms=20,
        )
        await producer.start()
        try:
            while not self.stopping.is_set():
                if len(self.waiting) < 500:
                    await self.send(producer)
                await asyncio.sleep(0.002)  # by design: the pace of the load
            await self.watch_all()
        finally:
            await producer.stop()

    async def send(self, producer: AIOKafkaProducer) -> None:
        for _ in range(self.random.randint(1, 10)):
            partition = self.random.randrange(self.partitions)
            size = self.random.choice(SIZES)
            origin, value = self.ledger.next_value(self.number, partition, size)
            self.sent(origin, await producer.send(self.topic, value, partition=partition))


class Tail(Part):
    """A reader that follows the ends during the run: what it saw must still be there after it."""

    def __init__(self, address: str, topic: str, partitions: int, ledger: Ledger) -> None:
        super().__init__()
        self.ledger = ledger
        self.consumer = reader(address)
        self.consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])

    def run(self) -> None:
        while not self.stopping.is_set():
            for message in self.consumer.consume(500, 0.1):
                if message.error() is None:
                    self.ledger.saw(message.partition(), message.offset(), message.value())
        self.consumer.close()


def reader(address: str, more: Mapping[str, object] | None = None) -> Consumer:
    """Return a consumer that is told what to read; `more` has settings, such as of a login."""
    return Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "ledger",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "check.crcs": True,
            **QUICK_RECONNECT,
            **QUIET,
            **(more or {}),
        }
    )


def create_topic(
    address: str, topic: str, partitions: int, more: Mapping[str, object] | None = None
) -> None:
    admin = AdminClient({"bootstrap.servers": address, **QUIET, **(more or {})})
    (made,) = admin.create_topics([NewTopic(topic, partitions, 1)]).values()
    made.result(PATIENCE)


def full_read(
    address: str, topic: str, partitions: int, more: Mapping[str, object] | None = None
) -> Reads:
    """Everything from the first offset to the end, partition by partition."""
    consumer = reader(address, more)
    reads: Reads = {}
    for number in range(partitions):
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, number), PATIENCE)
        consumer.assign([TopicPartition(topic, number, low)])
        got = reads.setdefault(number, [])
        deadline = Deadline(f"a full read of partition {number} up to {high}", PATIENCE)
        while low < high and (not got or got[-1][0] < high - 1):
            deadline.check(got[-1:])
            for message in consumer.consume(5000, 0.2):
                assert message.error() is None, message.error()
                got.append((message.offset(), message.value()))
    consumer.close()
    return reads


def judge(address: str, topic: str, partitions: int, ledger: Ledger) -> Verdict:
    """Two full reads, which must agree, and the verdict on them."""
    first = full_read(address, topic, partitions)
    assert full_read(address, topic, partitions) == first, "two reads of the same log differ"
    return ledger.verdict(first)


@contextmanager
def running(loads: list[threading.Thread]) -> Iterator[None]:
    """Start them, and stop them in order whatever happens."""
    for load in loads:
        load.start()
    try:
        yield
    finally:
        for load in loads:
            load.stopping.set()
        for load in loads:
            load.stop()


def end_under_load(
    server: Server,
    end: Callable[[Server], None],
    ledger: Ledger,
    chance: random.Random,
    *,
    rounds: int,
    acks: int,
) -> list[float]:
    """End and start the server `rounds` times, each after `acks` to twice as many acks, and wait
    for `acks` more; returns the seconds from each start to the first ack after it."""
    first_acks_s: list[float] = []
    for _ in range(rounds):
        ledger.wait_for_acks(acks + chance.randrange(acks), ACKS_WITHIN)
        end(server)
        began = time.monotonic()
        server.start()
        first_acks_s.append(ledger.wait_for_acks(1, ACKS_WITHIN) - began)
    ledger.wait_for_acks(acks, ACKS_WITHIN)
    return first_acks_s


def mixed_load(
    address: str,
    topic: str,
    partitions: int,
    ledger: Ledger,
    *,
    seed: int,
    answer_s: float | None = None,
) -> list[threading.Thread]:
    """Two librdkafka producers, one of them compressing, an aiokafka one, and a tailing reader.

    `answer_s`: how long one waits for an answer before it holds its connection for dead.
    """
    socket = {} if answer_s is None else {"socket.timeout.ms": round(answer_s * 1000)}
    where: Mapping[str, object] = {
        "address": address, "topic": topic, "partitions": partitions, "ledger": ledger,
    }  # fmt: skip
    return [
        ConfluentLoad(**where, number=1, seed=seed, more=socket),
        ConfluentLoad(**where, number=2, seed=seed + 1, codec="lz4", more=socket),
        AioLoad(**where, number=3, seed=seed + 2, answer_s=answer_s or PATIENCE),
        Tail(**where),
    ]
