"""A blocking interface to a cluster for Spark's threads: one per process and connection options.

Spark reuses its Python workers, so connections outlive a task. A forked worker must not use its
parent's sockets: the cache is keyed by process id.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, TypeVar

from trilogue.client.kafka.admin import Admin
from trilogue.client.kafka.cluster import KafkaCluster
from trilogue.client.kafka.consumer.batch_reader import BatchReader
from trilogue.client.kafka.model import EARLIEST, LATEST
from trilogue.client.kafka.producer.batch_writer import BatchWriter
from trilogue.client.kafka.security import Security
from trilogue.spark.errors import OptionError
from trilogue.spark.offsets import Ids, Offsets, Partition
from trilogue.spark.options import ReadOptions, WriteOptions

T = TypeVar("T")
FIRST_CONTACT_S = 8.0
"""A server that was never reached is reported after this time: its address may be wrong."""
REQUEST_S = 30.0
"""A server that was reached may be away for this time, for a restart."""


class Link:
    """A cluster, its readers and writers, and the event loop that runs them."""

    def __init__(self, servers: str, security: Security) -> None:
        self.loop = asyncio.new_event_loop()
        self.cluster = KafkaCluster(
            servers, client_id="trilogue-spark", timeout_s=FIRST_CONTACT_S, security=security
        )
        self.consumer = BatchReader(self.cluster)
        self.producer = BatchWriter(self.cluster)
        self.admin = Admin(self.cluster)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result."""
        result = self.loop.run_until_complete(work)
        self.cluster.timeout_s = REQUEST_S
        return result

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a coroutine, so that its request is sent, and return its task."""
        task = self.loop.create_task(work)
        self.loop.run_until_complete(asyncio.sleep(0))
        return task

    def wait(self, task: asyncio.Task[T]) -> T:
        """Wait for a task of `start` and return its result."""
        return self.loop.run_until_complete(task)

    def drop(self, task: asyncio.Task[T]) -> None:
        """Cancel a task of `start`."""
        task.cancel()
        self.loop.run_until_complete(asyncio.wait([task]))
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not warn about it

    def partitions(self, options: ReadOptions) -> list[Partition]:
        """Return every partition that the options subscribe to now."""
        return self.run(self._partitions(options))

    async def _partitions(self, options: ReadOptions) -> list[Partition]:
        if options.assign is not None:
            await self.cluster.refresh(options.assign, needed_leaders=())
            assigned = {
                (topic, one) for topic, numbers in options.assign.items() for one in numbers
            }
            for topic, number in sorted(assigned):
                if number not in self.cluster.topics[topic].epochs:
                    raise OptionError(
                        f"option 'assign' names {topic}-{number}, which does not exist"
                    )
            return sorted(assigned)
        topics = list(options.topics)
        if options.pattern is not None:
            names = await self.cluster.topic_names()
            topics = [name for name in names if re.fullmatch(options.pattern, name)]
        await self.cluster.refresh(topics, needed_leaders=())
        return sorted(
            (topic, number) for topic in topics for number in self.cluster.topics[topic].epochs
        )

    def ids(self, partitions: Iterable[Partition]) -> Ids:
        """Return the ids of the topics of `partitions`, if the server sends ids."""
        found = {topic: self.cluster.topics[topic].topic_id for topic, _ in partitions}
        return {topic: one.hex() for topic, one in found.items() if any(one)}

    def at_times(self, times: Mapping[Partition, int]) -> Offsets:
        """Return the first offset at or after a time (ms) in each partition; -1 if none."""
        return self.run(self.consumer.offsets(times)) if times else {}

    def resolve(self, wanted: Mapping[Partition, int]) -> Offsets:
        """Replace -1 (latest) and -2 (earliest) by offsets; others are unchanged."""
        unresolved = {key: offset for key, offset in wanted.items() if offset in {EARLIEST, LATEST}}
        found = self.run(self.consumer.offsets(unresolved)) if unresolved else {}
        return {key: found.get(key, offset) for key, offset in wanted.items()}


_links: dict[tuple[int, str, Security], Link] = {}


def link(options: ReadOptions | WriteOptions) -> Link:
    """Return this process's link to the servers of the options, with their login."""
    key = (os.getpid(), options.servers, options.security)
    if key not in _links:
        _links[key] = Link(options.servers, options.security)
    return _links[key]
