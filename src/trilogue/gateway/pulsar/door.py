"""The Pulsar door: makes connections, owns the tasks of their requests, keeps their time.

A node opens it as it opens the Kafka door (`kafka/connection.py` says how):

    door = PulsarDoor(broker=..., log=..., commit=..., advertised=..., settings=PulsarSettings(),
                      authorizer=..., now_ms=..., executor=...)
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Self, Unpack

from trilogue.broker.cluster import Event
from trilogue.broker.errors import TopicTerminated
from trilogue.broker.topic import Topic
from trilogue.gateway.doorway import Behind
from trilogue.gateway.pulsar.connection import PulsarConnection
from trilogue.gateway.pulsar.shared import PulsarSettings, Shared

TICK_S = 1.0
TICKS_A_TURN = 500  # more would be felt by who waits for the loop


class PulsarDoor(Shared):
    """Where Pulsar clients come in: makes connections, owns their tasks, keeps their time."""

    name = "pulsar"

    def __init__(self, *, settings: PulsarSettings, **behind: Unpack[Behind]) -> None:
        super().__init__(settings=settings, **behind)
        self._connections: dict[PulsarConnection, None] = {}

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self.spawn(self._tick())
        self.broker.cluster.listeners.append(self._topic_changed)
        self.broker.subscriptions.listeners.append(self.readers.moved)
        return self

    async def __aexit__(self, *problem: object) -> None:
        self.broker.cluster.listeners.remove(self._topic_changed)
        self.broker.subscriptions.listeners.remove(self.readers.moved)
        await super().__aexit__(*problem)

    def session(self) -> PulsarConnection:
        """What stands behind a new connection."""
        return PulsarConnection(self)

    @property
    def connections(self) -> list[PulsarConnection]:
        """All that are open."""
        return list(self._connections)

    def joined(self, connection: PulsarConnection) -> None:
        """A connection is open."""
        self._connections[connection] = None

    def left(self, connection: PulsarConnection) -> None:
        """A connection is gone."""
        self._connections.pop(connection, None)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(min(TICK_S, self.settings.keep_alive_s / 4))
            now_s = self.loop.time()
            for number, connection in enumerate(list(self._connections), 1):
                if number % TICKS_A_TURN == 0:
                    await asyncio.sleep(0)
                connection.guarded(partial(connection.tick, now_s))

    def _topic_changed(self, event: Event, topic: Topic) -> None:
        """Send the writers of a topic off that is over; those of a deleted one the broker sends."""
        self.readers.topic_changed(event, topic)
        if event is not Event.ALTERED:
            return
        for partition in topic.partitions:
            if partition.terminated:
                writers = self.broker.writers.find(partition.partition_id)
                if writers is not None and not writers.is_idle:
                    writers.expel(TopicTerminated("the topic was terminated"))
