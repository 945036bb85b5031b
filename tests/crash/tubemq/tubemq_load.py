"""TubeMQ producers and readers that a server is killed under, with a ledger.

One producer is our own client, another one speaks by hand and has hundreds of sends on their way.
Neither sends a message again: what has no answer may be there or not, so nothing may be there twice
and all of a producer stands in its partition in order. Reads are made through TubeMQ and through
Kafka, and must agree.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from tests.brokers import TrilogueForTubeMQ, make_topic
from tests.conformance.clients.base import Deadline
from tests.crash import load
from tests.crash.ledger import Ledger, Origin, Verdict
from tests.crash.load import SIZES, Reads
from tests.crash.parts import PATIENCE, LoopLoad, LoopPart, Part
from tests.crash.tubemq.tubemq_reader import TubeLine, reading
from trilogue.client.errors import ClientError
from trilogue.client.tubemq import Batch, Consumer, Message, NoMessage, TubeClient
from trilogue.client.tubemq.producer import Producer

PLACES = [("alone_0", 0), ("alone_1", 0), ("ledger", 0), ("ledger", 1)]
"""The partitions of the ledger by number: (topic, partition)."""
TOPICS = {"alone_0": 1, "alone_1": 1, "ledger": 2}
ALONE = [0, 1]  # written by our client, which names the topic only
IN_FLIGHT = 500
PAUSE_S = 0.02  # after something failed
QUICK = {"heartbeat_s": 0.5, "first_heartbeats_s": 0.2, "avoid_s": 0.1}

_groups = itertools.count(1)


def make_topics(server: TrilogueForTubeMQ) -> None:
    for topic, partitions in TOPICS.items():
        make_topic(server.doors["kafka"], topic, partitions)


class LineLoad(Part):
    """By hand: a few messages to any partition, a short pause, and hundreds on their way."""

    def __init__(
        self, address: str, ledger: Ledger, *, number: int, seed: int, places: Sequence[int]
    ) -> None:
        super().__init__()
        self.address, self.ledger, self.number, self.places = address, ledger, number, places
        self.random = random.Random(seed)
        self.waiting: dict[int, Origin] = {}
        self.refusals = 0

    def run(self) -> None:
        while not self.stopping.is_set():
            self.waiting.clear()  # stored or not: unknown
            with suppress(OSError), TubeLine(self.address) as line:
                self.produce(line)
            time.sleep(PAUSE_S)  # by design: the server is down

    def produce(self, line: TubeLine) -> None:
        while not self.stopping.is_set():
            for _ in range(self.random.randint(1, 30)):
                if len(self.waiting) < IN_FLIGHT:
                    self.send(line)
            self.receive(line, 0.002)
        ends = time.monotonic() + PATIENCE
        while self.waiting and time.monotonic() < ends:
            self.receive(line, 0.1)
        if self.waiting:
            self.ledger.fail(f"producer {self.number}: {len(self.waiting)} left at the end")

    def send(self, line: TubeLine) -> None:
        place = self.random.choice(self.places)
        size = self.random.choice(SIZES)
        origin, value = self.ledger.next_value(self.number, place, size)
        self.waiting[line.send_message(*PLACES[place], value)] = origin

    def receive(self, line: TubeLine, wait_s: float) -> None:
        for serial, response in line.receive(wait_s):
            origin = self.waiting.pop(serial)
            if response.success:
                self.ledger.ack(origin, response.appendOffset)
            else:
                self.refusals += 1


class ClientLoad(LoopLoad):
    """Our client, on a loop of its own."""

    def __init__(
        self,
        address: str,
        ledger: Ledger,
        *,
        number: int,
        seed: int,
        places: Sequence[int] = ALONE,
        more: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(ledger)
        self.address, self.number, self.places = address, number, places
        self.random = random.Random(seed)
        self.options = {**QUICK, **(more or {})}

    async def work(self) -> None:
        topics = [PLACES[place][0] for place in self.places]
        async with TubeClient(self.address, **self.options) as client:
            producer = await client.producer(*topics)
            while not self.stopping.is_set():
                try:
                    for _ in range(self.random.randint(1, 10)):
                        await self.send(producer)
                    await asyncio.sleep(0.002)  # by design: the pace of the load
                except ClientError:
                    await asyncio.sleep(PAUSE_S)  # by design: the server is down
            await self.watch_all()

    async def send(self, producer: Producer) -> None:
        place = self.random.choice(self.places)
        size = self.random.choice(SIZES)
        origin, value = self.ledger.next_value(self.number, place, size)
        self.sent(origin, await producer.submit(Message(PLACES[place][0], value)))

    def refused(self, problem: BaseException) -> None:
        """Ignore the error: the message may be stored or not."""


class ClientTail(LoopPart):
    """A group that follows the ends and confirms: what it saw must still be there after it.

    `went_back`: what was handed out although it had been confirmed.
    """

    def __init__(self, address: str, ledger: Ledger) -> None:
        super().__init__()
        self.address, self.ledger = address, ledger
        self.numbers = {f"1:{topic}:{at}": each for each, (topic, at) in enumerate(PLACES)}
        self.confirmed: dict[str, int] = {}
        self.went_back: list[str] = []

    async def work(self) -> None:
        async with TubeClient(self.address, **QUICK) as client:
            consumer = await client.consumer(list(TOPICS), group="tail")
            while not self.stopping.is_set():
                try:
                    await self.take(consumer, await consumer.get(0.2))
                except NoMessage:
                    pass
                except ClientError:
                    await asyncio.sleep(PAUSE_S)  # by design: the server is down

    async def take(self, consumer: Consumer, batch: Batch) -> None:
        key = batch.partition
        if batch.offset < self.confirmed.get(key, 0):
            self.went_back.append(f"{key}: {batch.offset} after {self.confirmed[key]}")
        for at, message in enumerate(batch):
            self.ledger.saw(self.numbers[key], batch.offset + at, message.body)
        await consumer.confirm(batch)
        self.confirmed[key] = batch.offset + len(batch)


def full_read(server: TrilogueForTubeMQ) -> Reads:
    """Everything from the first message to the last, as a new group finds it."""
    reads: Reads = {}
    group = f"judge{next(_groups)}"
    address = server.doors["tubemq-broker"]
    for number, (topic, partition) in enumerate(PLACES):
        got = reads.setdefault(number, [])
        deadline = Deadline(f"a full read of partition {number}", PATIENCE)
        client_id = f"{group}_192.0.2.9-1-1-1-Pull-1.13.0"
        with reading(address, client_id, group=group, topic=topic, partition=partition) as reader:
            assert reader.register() == 0
            while pack := reader.pack(consumed=True):
                deadline.check(got[-1:])
                got += pack
    return reads


def judge(server: TrilogueForTubeMQ, ledger: Ledger) -> Verdict:
    """Read all through TubeMQ and through Kafka, which must agree; the verdict on it."""
    first = full_read(server)
    kafka = server.doors["kafka"]
    found = {topic: load.full_read(kafka, topic, count) for topic, count in TOPICS.items()}
    second = {number: found[topic][at] for number, (topic, at) in enumerate(PLACES)}
    assert first == second, "what TubeMQ's readers are given is not what Kafka's are"
    return ledger.verdict(first)


def tube_load(server: TrilogueForTubeMQ, ledger: Ledger, *, seed: int) -> list[threading.Thread]:
    """Our client twice, one by hand, and a group that follows."""
    broker = server.doors["tubemq-broker"]
    return [
        ClientLoad(server.address, ledger, number=1, seed=seed),
        ClientLoad(server.address, ledger, number=2, seed=seed + 1),
        LineLoad(broker, ledger, number=3, seed=seed + 2, places=range(len(PLACES))),
        ClientTail(server.address, ledger),
    ]
