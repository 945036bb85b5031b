"""Members of consumer groups from three libraries, behind one way to poll them.

A test drives its members in turn (`pump`) until something holds: no threads of ours, no sleeps.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Protocol

import pytest
from _pytest.mark.structures import ParameterSet
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioRange
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from tests.conformance.clients.aio import Aiokafka
from tests.conformance.clients.base import DEADLINE, Deadline, Read
from tests.conformance.clients.confluent import Confluent
from tests.conformance.clients.confluent import as_read as confluent_read
from tests.conformance.clients.kafka_python import KafkaPython, as_read
from tests.conformance.kafka.families.families import produce

POLL, PATIENT_POLL = 0.05, 0.5
PARTITIONS = 4
COOPERATIVE = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"


class Member(Protocol):
    """One consumer in a group: `poll` does a little work, the other methods return its state."""

    reads: list[Read]

    def poll(self) -> None: ...
    def partitions(self) -> set[int]: ...
    def commit(self) -> None: ...
    def close(self) -> None: ...


class ConfluentMember:
    """librdkafka; counts how often it was given or lost partitions."""

    at_once = 1  # messages of one poll at most, as the library has it

    def __init__(
        self, address: str, group: str, topic: str, *, strategy: str = "range", instance: str = ""
    ) -> None:
        more: dict[str, object] = {"partition.assignment.strategy": strategy}
        if instance:
            more["group.instance.id"] = instance
        self.reads: list[Read] = []
        self.rebalances = 0
        self.errors: list[str] = []
        self.consumer = Confluent.consumer(address, group, more)
        self.consumer.subscribe(
            [topic], on_assign=self.rebalanced, on_revoke=self.rebalanced, on_lost=self.rebalanced
        )

    def rebalanced(self, _consumer: object, _partitions: object) -> None:
        self.rebalances += 1

    def poll(self) -> None:
        message, polled = self.consumer.poll(POLL), 1
        while message is not None:
            if message.error() is not None:
                self.errors.append(message.error().name())
                return
            self.reads.append(confluent_read(message))
            if polled == self.at_once:
                return
            message, polled = self.consumer.poll(0), polled + 1

    def partitions(self) -> set[int]:
        return {place.partition for place in self.consumer.assignment()}

    def commit(self) -> None:
        self.consumer.commit(asynchronous=False)

    def close(self) -> None:
        self.consumer.close()


class PythonMember:
    """kafka-python, in a thread of its own; eager with its defaults, or cooperative.

    Where a poll ends before a join does it joins again, and with it all others: polls of 50 ms in
    turn may go on like that for half a minute. So its own polls are long, and `poll` does not
    wait for them.
    """

    def __init__(
        self, address: str, group: str, topic: str, *, strategy: str = "range", instance: str = ""
    ) -> None:
        from kafka.coordinator.assignors.cooperative_sticky import (
            CooperativeStickyAssignor,
        )
        from kafka.coordinator.assignors.range import RangePartitionAssignor

        cooperative = strategy == "cooperative-sticky"
        assignor = CooperativeStickyAssignor if cooperative else RangePartitionAssignor
        self.reads: list[Read] = []
        self.has: set[int] = set()
        self.thread = ThreadPoolExecutor(1)
        self.polling: Future[list[Read]] | None = None
        self.consumer = KafkaPython.consumer(
            address,
            group,
            partition_assignment_strategy=[assignor],
            group_instance_id=instance or None,
            metadata_max_age_ms=1000,
        )
        self.consumer.subscribe([topic])

    def poll_long(self) -> list[Read]:
        got = self.consumer.poll(int(PATIENT_POLL * 1000))
        self.has = {place.partition for place in self.consumer.assignment()}
        return [as_read(record) for records in got.values() for record in records]

    def poll(self, wait: float = POLL) -> None:
        if self.polling is None:
            self.polling = self.thread.submit(self.poll_long)
        with suppress(TimeoutError):
            reads, self.polling = self.polling.result(wait), None
            self.reads += reads

    def partitions(self) -> set[int]:
        return self.has

    def commit(self) -> None:
        self.poll(DEADLINE)  # what is committed is what was read
        self.thread.submit(self.consumer.commit).result(DEADLINE)

    def close(self) -> None:
        self.thread.submit(self.consumer.close).result(DEADLINE)
        self.thread.shutdown()


class AioMember:
    """aiokafka, on an event loop in a thread of its own."""

    def __init__(
        self, address: str, group: str, topic: str, *, strategy: str = "range", instance: str = ""
    ) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.reads: list[Read] = []
        self.polling: Future[object] | None = None
        assignor = StickyPartitionAssignor if strategy == "sticky" else AioRange
        self.consumer = self.run(self.start(address, group, topic, assignor, instance))

    @staticmethod
    async def start(address: str, group: str, topic: str, assignor: type, instance: str) -> object:
        consumer = Aiokafka.consumer(
            address,
            group,
            partition_assignment_strategy=[assignor],
            group_instance_id=instance or None,
            metadata_max_age_ms=1000,
        )
        consumer.subscribe([topic])
        await consumer.start()
        return consumer

    def start_running(self, coroutine: object) -> Future[object]:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def run(self, coroutine: object) -> object:
        return self.start_running(coroutine).result(DEADLINE)

    def poll(self) -> None:
        """While partitions move its own poll does not come back, and others want their turn."""
        if self.polling is None:
            self.polling = self.start_running(self.consumer.getmany(timeout_ms=int(POLL * 1000)))
        with suppress(TimeoutError):
            got = self.polling.result(2 * POLL)
            self.polling = None
            self.reads += [as_read(record) for records in got.values() for record in records]

    def partitions(self) -> set[int]:
        return {place.partition for place in self.consumer.assignment()}

    def commit(self) -> None:
        self.run(self.consumer.commit())

    def close(self) -> None:
        if self.loop.is_closed():
            return
        if self.polling is not None:
            self.polling.cancel()
        self.run(self.consumer.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


Make = Callable[..., Member]
"""Makes a member, of an address, a group and a topic."""


def kinds(*rows: tuple[str, Make]) -> list[ParameterSet]:
    """Kinds of members as test parameters, by name."""
    return [
        pytest.param(make, id=name, marks=[pytest.mark.java] if "java" in name else [])
        for name, make in rows
    ]


def pump(
    members: Sequence[Member],
    until: Callable[[], object],
    what: str,
    seconds: float = DEADLINE,
) -> None:
    """Poll the members in turn until it holds."""
    deadline = Deadline(what, seconds)
    while not until():
        deadline.check([(member.partitions(), len(member.reads)) for member in members])
        for member in members:
            member.poll()


def close(members: Sequence[Member]) -> None:
    """All at once: who leaves while partitions move waits until the others joined or left too."""
    with ThreadPoolExecutor(len(members) + 1) as pool:
        for closing in [pool.submit(member.close) for member in members]:
            with suppress(RuntimeError):  # closed before
                closing.result()


def shares(members: Sequence[Member]) -> list[int]:
    """How many partitions they have."""
    return sorted(len(member.partitions()) for member in members)


def values_of(members: Sequence[Member]) -> set[bytes]:
    return {read.value for member in members for read in member.reads}


def write(
    address: str, topic: str, label: str, count: int = 3, partitions: int = PARTITIONS
) -> set[bytes]:
    """So many values in each partition."""
    values = {
        partition: [f"{label}-{partition}-{number}".encode() for number in range(count)]
        for partition in range(partitions)
    }
    produce(address, topic, values)
    return {value for those in values.values() for value in those}
