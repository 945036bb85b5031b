"""Committed offsets that Kafka clients got a response for survive any end of the server.

Two libraries commit, one directly and one as a group member that reads; offsets and groups are
deleted in between. A committed offset never moves below an acknowledged one, and no offset whose
deletion was acknowledged returns.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from aiokafka.errors import KafkaError
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.brokers import Trilogue
from tests.conformance.clients.aio import Aiokafka
from tests.conformance.clients.aio import TopicPartition as AioPartition
from tests.conformance.clients.base import DEADLINE, Deadline
from tests.conformance.clients.confluent import Confluent
from tests.crash.faults import CutDisk, kill, stop
from tests.crash.load import create_topic

PARTITIONS = 3
MESSAGES = 20_000
COMMITS = 40  # of each reader, before something happens
BUSY = {"journal.file-size": "256KiB", "journal.file-age": "500ms"}  # flushes in between

End = Callable[[Trilogue], None]


class Reader(threading.Thread):
    """Commits further and further; `told` is how far it knows that it came, by partition."""

    def __init__(self, address: str, group: str) -> None:
        super().__init__(daemon=True)
        self.address, self.group = address, group
        self.reported: dict[int, int] = dict.fromkeys(range(PARTITIONS), -1)
        self.commits = 0
        self.over = threading.Event()
        self.problem: BaseException | None = None

    def run(self) -> None:
        try:
            self.work()
        except BaseException as problem:
            self.problem = problem
            raise

    def work(self) -> None:
        raise NotImplementedError

    def report(self, partition: int, offset: int) -> None:
        if offset < self.reported[partition]:
            raise AssertionError(
                f"{self.reported[partition]} was reported, and {offset} came after it"
            )
        self.reported[partition] = offset
        self.commits += 1

    def wait_for(self, more: int) -> None:
        wanted, deadline = self.commits + more, Deadline(f"{more} commits of {self.group}", 60)
        while self.commits < wanted:
            deadline.check(self.problem or self.commits)
            self.over.wait(0.01)


class ByHand(Reader):
    """aiokafka, without a group's members."""

    def work(self) -> None:
        asyncio.run(self.commit_on())

    async def commit_on(self) -> None:
        consumer = Aiokafka.consumer(self.address, self.group)
        await consumer.start()
        consumer.assign([AioPartition("t", each) for each in range(PARTITIONS)])
        offset = 0
        while not self.over.is_set():
            offset += 1
            partition = offset % PARTITIONS
            try:
                await consumer.commit({AioPartition("t", partition): (offset, str(offset))})
            except KafkaError:
                continue
            self.report(partition, offset)
        await consumer.stop()


class Member(Reader):
    """librdkafka, a member that commits what it has read."""

    def work(self) -> None:
        settings = {"auto.offset.reset": "earliest", "session.timeout.ms": 6_000}
        consumer = Confluent.consumer(self.address, self.group, settings)
        consumer.subscribe(["t"])
        while not self.over.is_set():
            message = consumer.poll(0.1)
            if message is None or message.error():
                continue
            try:
                (done,) = consumer.commit(message, asynchronous=False)
            except KafkaException:
                continue
            if done.error is None:
                self.report(message.partition(), done.offset)
        consumer.close()


def positions(address: str, group: str) -> dict[int, int]:
    """By partition; -1 is none."""
    admin = AdminClient({"bootstrap.servers": address})
    requested = [TopicPartition("t", each) for each in range(PARTITIONS)]
    request = [ConsumerGroupTopicPartitions(group, requested)]
    (answer,) = admin.list_consumer_group_offsets(request).values()
    found = answer.result(DEADLINE).topic_partitions
    return {each.partition: max(each.offset, -1) for each in found}


def groups(address: str) -> set[str]:
    admin = AdminClient({"bootstrap.servers": address})
    return {each.group_id for each in admin.list_consumer_groups().result(DEADLINE).valid}


def commit_and_delete(address: str, group: str) -> None:
    """A group of positions alone, made and deleted."""
    consumer = Confluent.consumer(address, group)
    consumer.commit(offsets=[TopicPartition("t", 0, 5)], asynchronous=False)
    consumer.close()
    admin = AdminClient({"bootstrap.servers": address})
    (gone,) = admin.delete_consumer_groups([group]).values()
    gone.result(DEADLINE)


def run(server: Trilogue, end: End, chance: random.Random, rounds: int) -> None:
    server.start()
    create_topic(server.address, "t", PARTITIONS)
    producer = Confluent.producer(server.address)
    for number in range(MESSAGES):
        producer.produce("t", str(number).encode(), partition=number % PARTITIONS)
        producer.poll(0)
    assert producer.flush(DEADLINE) == 0
    readers = [ByHand(server.address, "by-hand"), Member(server.address, "member")]
    for reader in readers:
        reader.start()
    try:
        for number in range(rounds):
            for reader in readers:
                reader.wait_for(chance.randrange(COMMITS))
            commit_and_delete(server.address, f"gone-{number}")
            end(server)
            reported = {reader.group: dict(reader.reported) for reader in readers}
            server.start()
            for group, least in reported.items():
                found = positions(server.address, group)
                assert all(found[each] >= least[each] for each in least), (group, found, least)
            assert groups(server.address) == {"by-hand", "member"}
    finally:
        for reader in readers:
            reader.over.set()
        for reader in readers:
            reader.join(DEADLINE)
        server.kill9()
    assert [reader.problem for reader in readers] == [None, None]


@pytest.mark.parametrize("end", [kill, pytest.param(stop, marks=pytest.mark.long)])
def test_positions_never_go_back_when_the_process_ends(
    tmp_path: Path, chance: random.Random, end: End
):
    run(Trilogue(tmp_path / "data", BUSY), end, chance, rounds=3)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_positions_never_go_back_when_the_power_goes(disk: CutDisk, chance: random.Random):
    run(Trilogue(disk.root / "data", BUSY), disk.cut_off, chance, rounds=10)
