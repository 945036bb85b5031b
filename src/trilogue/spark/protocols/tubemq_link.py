"""A TubeMQ client of this process, its consumers, and the numbers of a topic's partitions."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from trilogue.client.tubemq.client import TubeClient
from trilogue.client.tubemq.consumer import Consumer
from trilogue.client.tubemq.options import Balance
from trilogue.spark.errors import OptionError
from trilogue.spark.protocols.client_loop import ClientLoop, client_loop
from trilogue.spark.protocols.service_url import ServiceUrl

FIRST_BROKER = 1
"""The only broker of most clusters, and of a Trilogue with one node."""
BROKER_STEP = 1_000_000
"""More than a broker's partition ids of one topic."""
INT32_MAX = 2**31 - 1


class TubeLink:
    """A client, and the names of the groups that it reads by.

    A group has one reader for each partition: consumers that are open at the same time have groups
    of their own. Brokers keep the position of each group, so names are used again.
    """

    def __init__(self, url: ServiceUrl) -> None:
        self.client = TubeClient(url.address, **url.client_options())
        self._prefix = url.group_prefix
        self._idle_groups: list[str] = []

    @asynccontextmanager
    async def open_consumer(self, topics: Iterable[str]) -> AsyncIterator[Consumer]:
        """Open a consumer that reads what `connect` names."""
        idle = self._idle_groups
        group = idle.pop() if idle else f"{self._prefix}-{uuid.uuid4().hex[:12]}"
        consumer = await self.client.consumer(list(topics), group=group, balance=Balance.MANUAL)
        try:
            yield consumer
        finally:
            await consumer.close()
            idle.append(group)


def tubemq_link(url: ServiceUrl) -> ClientLoop[TubeLink]:
    """Return this process's client of a cluster."""
    return client_loop(url, lambda: TubeLink(url))


def number_partitions(consumer: Consumer, topic: str) -> dict[int, str]:
    """Return the keys of a topic's partitions by number; OptionError where there are none.

    The number is the partition id at broker 1, elsewhere broker id * 1,000,000 + partition id: it
    does not change with the brokers that come and go, since a checkpoint has an offset under it.
    """
    found: dict[int, str] = {}
    for key in consumer.available():
        broker, _, rest = key.partition(":")
        name, _, partition_id = rest.rpartition(":")
        if name != topic:
            continue
        broker_id = int(broker)
        number = int(partition_id) + (0 if broker_id == FIRST_BROKER else broker_id * BROKER_STEP)
        if number > INT32_MAX:
            raise OptionError(
                f"partition {key}: broker ids end at 2146 here. Those of a Trilogue with several "
                "nodes stand for slots, which move between nodes: read it by url=kafka://… or "
                "pulsar://…"
            )
        found[number] = key
    if not found:
        raise OptionError(f"there is no topic {topic!r}, or it has no partition to read")
    return found


async def find_offset(consumer: Consumer, key: str, offset: int) -> int:
    """Return an offset as the broker limits it: to where the partition begins and ends."""
    await consumer.connect(key, offset)
    found = consumer.offsets()[key].current
    await consumer.disconnect(key)
    return found
