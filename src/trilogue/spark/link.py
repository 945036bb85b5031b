"""One cluster connection a process and server list, with a plain blocking face for Spark's threads.

Spark reuses its Python workers, so connections outlive a task. A forked worker must not use its
parent's sockets: the cache is keyed by process id.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from trilogue.client.kafka.admin import KafkaAdmin
from trilogue.client.kafka.cluster import KafkaCluster
from trilogue.client.kafka.consumer import EARLIEST, LATEST, KafkaConsumer
from trilogue.client.kafka.producer import KafkaProducer
from trilogue.spark.offsets import Offsets, Partition
from trilogue.spark.options import ReadOptions

T = TypeVar("T")


class Link:
    """A cluster, its readers and writers, and the event loop they live on."""

    def __init__(self, servers: str) -> None:
        self.loop = asyncio.new_event_loop()
        self.cluster = KafkaCluster(servers, client_id="trilogue-spark")
        self.consumer = KafkaConsumer(self.cluster)
        self.producer = KafkaProducer(self.cluster)
        self.admin = KafkaAdmin(self.cluster)

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

    def partitions(self, options: ReadOptions) -> list[Partition]:
        """Every partition that the options subscribe to, as of now."""
        return self.run(self._partitions(options))

    async def _partitions(self, options: ReadOptions) -> list[Partition]:
        if options.assign is not None:
            await self.cluster.refresh(options.assign)
            return [
                (topic, number) for topic, numbers in options.assign.items() for number in numbers
            ]
        topics = list(options.topics)
        if options.pattern is not None:
            await self.cluster.refresh(None)
            topics = [name for name in self.cluster.topics if re.fullmatch(options.pattern, name)]
        else:
            await self.cluster.refresh(topics)
        return sorted(
            (topic, number) for topic in topics for number in self.cluster.topics[topic].leaders
        )

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
