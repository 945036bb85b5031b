"""One cluster connection a process and server list, with a plain blocking face for Spark's threads.

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
from trilogue.client.kafka.batch_reader import BatchReader
from trilogue.client.kafka.batch_writer import BatchWriter
from trilogue.client.kafka.cluster import KafkaCluster
from trilogue.client.kafka.shapes import EARLIEST, LATEST
from trilogue.spark.offsets import Ids, Offsets, Partition
from trilogue.spark.options import OptionError, ReadOptions

T = TypeVar("T")


class Link:
    """A cluster, its readers and writers, and the event loop they live on."""

    def __init__(self, servers: str) -> None:
        self.loop = asyncio.new_event_loop()
        self.cluster = KafkaCluster(servers, client_id="trilogue-spark")
        self.consumer = BatchReader(self.cluster)
        self.producer = BatchWriter(self.cluster)
        self.admin = Admin(self.cluster)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for a coroutine."""
        return self.loop.run_until_complete(work)

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin a coroutine far enough that its request is on the way, and do not wait."""
        task = self.loop.create_task(work)
        self.loop.run_until_complete(asyncio.sleep(0))
        return task

    def wait(self, task: asyncio.Task[T]) -> T:
        """Wait for what `start` began."""
        return self.loop.run_until_complete(task)

    def drop(self, task: asyncio.Task[T]) -> None:
        """Give up what `start` began: a task that is read no further leaves nothing behind."""
        task.cancel()
        self.loop.run_until_complete(asyncio.wait([task]))
        if not task.cancelled():
            task.exception()  # looked at, so that nobody complains that it never was

    def partitions(self, options: ReadOptions) -> list[Partition]:
        """Every partition that the options subscribe to, as of now."""
        return self.run(self._partitions(options))

    async def _partitions(self, options: ReadOptions) -> list[Partition]:
        if options.assign is not None:
            await self.cluster.refresh(options.assign, led=())
            assigned = {
                (topic, one) for topic, numbers in options.assign.items() for one in numbers
            }
            for topic, number in sorted(assigned):
                if number not in self.cluster.topics[topic].epochs:
                    raise OptionError(f"option 'assign' names {topic}-{number}, which is not there")
            return sorted(assigned)
        topics = list(options.topics)
        if options.pattern is not None:
            names = await self.cluster.names()
            topics = [name for name in names if re.fullmatch(options.pattern, name)]
        await self.cluster.refresh(topics, led=())
        return sorted(
            (topic, number) for topic in topics for number in self.cluster.topics[topic].epochs
        )

    def ids(self, partitions: Iterable[Partition]) -> Ids:
        """Ids of the topics of `partitions`, as far as the server told any."""
        found = {topic: self.cluster.topics[topic].topic_id for topic, _ in partitions}
        return {topic: one.hex() for topic, one in found.items() if any(one)}

    def at_times(self, times: Mapping[Partition, int]) -> Offsets:
        """The first offset at or after a time (ms) in each partition, -1 where there is none."""
        return self.run(self.consumer.offsets(times)) if times else {}

    def resolve(self, wanted: Mapping[Partition, int]) -> Offsets:
        """Turn -1 (latest) and -2 (earliest) into offsets; others stay as they are."""
        asked = {key: offset for key, offset in wanted.items() if offset in {EARLIEST, LATEST}}
        found = self.run(self.consumer.offsets(asked)) if asked else {}
        return {key: found.get(key, offset) for key, offset in wanted.items()}


_links: dict[tuple[int, str], Link] = {}


def link(servers: str) -> Link:
    """This process's link to these servers."""
    key = (os.getpid(), servers)
    if key not in _links:
        _links[key] = Link(servers)
    return _links[key]
