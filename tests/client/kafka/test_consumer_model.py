"""Our consumer against a model of a few lines: the position of each partition, and who is paused.

Each history does random operations; small buffers are full most of the time. `TRILOGUE_HISTORIES`
asks for more of them, `TRILOGUE_MODEL_SEED` for others.
"""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path
from typing import Final

import pytest

from tests.server import start_server
from trilogue.client.kafka import EARLIEST, LATEST, Consumer, KafkaClient
from trilogue.client.kafka.model import Partition

MESSAGES: Final = 400
"""In each partition: message n has the time START_MS + 1,000 n."""
START_MS: Final = 1_000_000
PARTITIONS: Final = [Partition("m", number) for number in range(3)]


class History:
    """One consumer, and what it has to read next."""

    def __init__(self, consumer: Consumer, chance: random.Random) -> None:
        self.consumer = consumer
        self.chance = chance
        self.positions: dict[Partition, int] = {}
        self.paused: set[Partition] = set()
        self.trace: list[tuple[object, ...]] = []

    async def run(self, steps: int) -> None:
        """Do so many operations; AssertionError where the consumer does what the model does not."""
        await self.assign()
        operations = [self.assign, self.seek, self.seek_to_end, self.seek_to_time, self.turn]
        operations += [self.check_position, self.wait, *[self.poll] * 4]
        for _ in range(steps):
            await self.chance.choice(operations)()

    def one(self) -> Partition:
        """Return a partition that is read."""
        return self.chance.choice(sorted(self.positions))

    async def assign(self) -> None:
        chosen = set(self.chance.sample(PARTITIONS, self.chance.randint(1, 3)))
        self.trace.append(("assign", chosen))
        await self.consumer.assign(chosen)
        start = 0 if self.consumer.options.reset_to == EARLIEST else MESSAGES
        self.positions = {one: self.positions.get(one, start) for one in chosen}
        self.paused &= chosen

    async def seek(self) -> None:
        one, offset = self.one(), self.chance.randrange(MESSAGES)
        self.trace.append(("seek", one, offset))
        self.consumer.seek(one, offset)
        self.positions[one] = offset

    async def seek_to_end(self) -> None:
        one, where = self.one(), self.chance.choice([EARLIEST, LATEST])
        self.trace.append(("seek", one, where))
        self.consumer.seek(one, where)
        self.positions[one] = 0 if where == EARLIEST else MESSAGES

    async def seek_to_time(self) -> None:
        one, number = self.one(), self.chance.randrange(MESSAGES + 10)
        self.trace.append(("seek to time", one, number))
        self.consumer.seek_to_time(one, START_MS + 1_000 * number)
        self.positions[one] = min(number, MESSAGES)

    async def turn(self) -> None:
        """Pause or resume."""
        one = self.one()
        self.trace.append(("pause or resume", one))
        if one in self.paused:
            self.consumer.resume(one)
        else:
            self.consumer.pause(one)
        self.paused ^= {one}

    async def check_position(self) -> None:
        one = self.one()
        self.trace.append(("position", one))
        assert await self.consumer.position(one) == self.positions[one]

    async def wait(self) -> None:
        self.trace.append(("wait",))
        await asyncio.sleep(self.chance.random() * 0.02)

    async def poll(self) -> None:
        live = {
            one
            for one, position in self.positions.items()
            if one not in self.paused and position < MESSAGES
        }
        messages = await self.consumer.poll(60 if live else 0.01, self.chance.choice([1, 3, 50]))
        self.trace.append(("poll", [(one.partition, one.offset) for one in messages]))
        assert bool(messages) == bool(live), f"messages are left in {live}"
        for message in messages:
            one = Partition(message.topic, message.partition)
            assert one in live
            assert message.offset == self.positions[one]
            assert message.value == b"%d" % message.offset
            self.positions[one] += 1


async def read(address: str, seed: int) -> None:
    chance = random.Random(seed)
    async with KafkaClient(address) as client:
        consumer = await client.consumer(
            reset_to=chance.choice([EARLIEST, LATEST]),
            max_wait_s=0.05,
            max_buffered_bytes=chance.choice([2_000, 1 << 20]),
            max_partition_bytes=chance.choice([500, 1 << 20]),
        )
        history = History(consumer, chance)
        try:
            await history.run(chance.randint(5, 60))
        except AssertionError as problem:
            raise AssertionError(f"seed {seed}: {problem}; {history.trace[-15:]}") from problem


async def compare(address: str, first: int, count: int) -> None:
    async with KafkaClient(address) as client:
        await client.admin.create_topic("m", len(PARTITIONS))
        producer = await client.producer()
        sends = [
            producer.send(
                one.topic, b"%d" % number, partition=one.number,
                timestamp_ms=START_MS + 1_000 * number,
            )
            for one in PARTITIONS
            for number in range(MESSAGES)
        ]  # fmt: skip
        await asyncio.gather(*sends)
    for seed in range(first, first + count):
        await read(address, seed)


@pytest.mark.parametrize("count", [15, pytest.param(1_000, marks=pytest.mark.long)])
def test_a_consumer_reads_what_its_model_reads(tmp_path: Path, count: int) -> None:
    first = int(os.environ.get("TRILOGUE_MODEL_SEED", "1"))
    count = int(os.environ.get("TRILOGUE_HISTORIES", str(count)))
    with start_server(tmp_path / "data") as server:
        asyncio.run(compare(server.kafka, first, count))
