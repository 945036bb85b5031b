"""Producers and group members of our own Kafka client, for tests that kill their broker.

The producers are idempotent with many messages in flight. The readers are members of one classic
and one KIP-848 group that commit what they read; each group has one member, so it must never be
handed a message below an offset whose commit was acknowledged.
"""

from __future__ import annotations

import asyncio
import random
import time

from tests.crash.ledger import Ledger
from tests.crash.load import SIZES
from tests.crash.parts import PATIENCE, LoopLoad, LoopPart
from trilogue.client.errors import ClientError
from trilogue.client.kafka import EARLIEST, Compression, Consumer, GroupProtocol, KafkaClient
from trilogue.client.kafka.producer.producer import Producer

IN_FLIGHT = 1000
ANSWER_S = 30.0  # the client's own default
PAUSE_S = 0.02  # after something failed


class OwnLoad(LoopLoad):
    """A few messages to any partition, a short pause, hundreds on their way."""

    def __init__(
        self,
        address: str,
        topic: str,
        partitions: int,
        ledger: Ledger,
        *,
        number: int,
        seed: int,
        compression: Compression = Compression.NONE,
        answer_s: float = ANSWER_S,
    ) -> None:
        super().__init__(ledger)
        self.address, self.topic, self.partitions = address, topic, partitions
        self.number, self.compression, self.answer_s = number, compression, answer_s
        self.random = random.Random(seed)

    async def work(self) -> None:
        async with KafkaClient(self.address, request_timeout_s=self.answer_s) as client:
            producer = await client.producer(
                compression=self.compression, batch_bytes=16 << 10, delivery_timeout_s=PATIENCE
            )
            while not self.stopping.is_set():
                if len(self.waiting) < IN_FLIGHT:
                    for _ in range(self.random.randint(1, 20)):
                        await self.send(producer)
                await asyncio.sleep(0.002)  # by design: the pace of the load
            await self.watch_all()

    async def send(self, producer: Producer) -> None:
        partition = self.random.randrange(self.partitions)
        size = self.random.choice(SIZES)
        origin, value = self.ledger.next_value(self.number, partition, size)
        self.sent(origin, await producer.submit(self.topic, value, partition=partition))


class OwnTail(LoopPart):
    """The one member of a group: it reads, records what it read, and commits.

    `went_back`: what was handed out although it had been committed. `missed`: offsets that were
    stepped over. `seen_until`: how far it came, by partition.
    """

    def __init__(
        self,
        address: str,
        topic: str,
        ledger: Ledger,
        protocol: GroupProtocol,
        *,
        answer_s: float = ANSWER_S,
    ) -> None:
        super().__init__()
        self.address, self.topic, self.ledger, self.protocol = address, topic, ledger, protocol
        self.answer_s = answer_s
        self.positions: dict[int, int] = {}
        self.seen_until: dict[int, int] = {}
        self.went_back: list[str] = []
        self.missed: list[str] = []
        self.commits = 0
        self.problems: list[str] = []

    async def work(self) -> None:
        async with KafkaClient(self.address, request_timeout_s=self.answer_s) as client:
            consumer = await client.consumer(
                self.topic,
                group=f"tail-{self.protocol.value}",
                protocol=self.protocol,
                reset_to=EARLIEST,
                auto_commit_s=None,
                session_timeout_s=6.0,
                heartbeat_s=0.5,
                max_poll_s=10.0,  # and so long a join may take whose connection went half away
            )
            while not self.stopping.is_set():
                try:
                    await self.take(consumer)
                except ClientError as problem:
                    self.problems = [*self.problems[-5:], repr(problem)]
                    await asyncio.sleep(PAUSE_S)  # by design: the server is down

    async def take(self, consumer: Consumer) -> None:
        messages = await consumer.poll(0.2)
        for message in messages:
            partition, offset = message.partition, message.offset
            where = self.seen_until.get(partition, 0)
            if offset < self.positions.get(partition, 0):
                self.went_back.append(f"{partition}: {offset} after {self.positions[partition]}")
            if offset > where:
                self.missed.append(f"{partition}: {where} to {offset}")
            self.seen_until[partition] = max(where, offset + 1)
            self.ledger.saw(partition, offset, message.value)
        if messages:
            ends = {(self.topic, each.partition): each.offset + 1 for each in messages}
            await consumer.commit(ends)
            for (_, partition), end in ends.items():
                self.positions[partition] = max(end, self.positions.get(partition, 0))
            self.commits += 1

    def wait_until(self, ends: dict[int, int], seconds: float) -> None:
        """Come back when it has read so far."""
        deadline = time.monotonic() + seconds
        while any(self.seen_until.get(each, 0) < end for each, end in ends.items()):
            assert time.monotonic() < deadline, (self.broken, self.problems, self.seen_until, ends)
            self.stopping.wait(0.02)


def own_load(
    address: str,
    topic: str,
    partitions: int,
    ledger: Ledger,
    *,
    seed: int,
    answer_s: float = ANSWER_S,
) -> list[LoopPart]:
    """Two producers, one of them compressing, and a group of either kind.

    `answer_s`: how long one waits for an answer before it holds its connection for dead.
    """
    where = address, topic, partitions, ledger
    packed = Compression.LZ4
    return [
        OwnLoad(*where, number=1, seed=seed, answer_s=answer_s),
        OwnLoad(*where, number=2, seed=seed + 1, compression=packed, answer_s=answer_s),
        OwnTail(address, topic, ledger, GroupProtocol.CLASSIC, answer_s=answer_s),
        OwnTail(address, topic, ledger, GroupProtocol.CONSUMER, answer_s=answer_s),
    ]
