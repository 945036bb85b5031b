"""The Pulsar gateway: makes connections, owns the tasks of their requests, keeps their time.

gateway = PulsarGateway(broker=..., log=..., write_metadata=..., advertised=...,
settings=PulsarSettings(), authorizer=..., now_ms=..., executor=...)
async with gateway:
...
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Self, Unpack

from trilogue.broker.errors import TopicTerminated
from trilogue.broker.topics.cluster import TopicEvent
from trilogue.broker.topics.topic import Topic
from trilogue.gateway.dependencies import GatewayDependencies
from trilogue.gateway.listener_security import ListenerSecurity
from trilogue.gateway.pulsar.auth.revocation import end_revoked
from trilogue.gateway.pulsar.commands import ROWS
from trilogue.gateway.pulsar.compaction import CompactedTopics
from trilogue.gateway.pulsar.connection import PulsarConnection
from trilogue.gateway.pulsar.non_persistent.topics import close_clients
from trilogue.gateway.pulsar.policies.periodic import PeriodicPolicies
from trilogue.gateway.pulsar.services import PulsarServices
from trilogue.gateway.pulsar.settings import PulsarSettings
from trilogue.gateway.pulsar.subscriptions import ConnectedSubscriptions
from trilogue.wire.pulsar.pulsar_pb2 import BaseCommand

SEND = BaseCommand.SEND
TICK_S = 1.0
LATE_TICKS = 3
TICKS_A_STEP = 500  # more would delay other connections noticeably


class PulsarGateway(PulsarServices):
    """The server side of Pulsar's binary protocol, for one node."""

    name = "pulsar"
    protocol = "pulsar"

    def __init__(
        self, *, settings: PulsarSettings, **dependencies: Unpack[GatewayDependencies]
    ) -> None:
        super().__init__(settings=settings, **dependencies)
        self.subscriptions = ConnectedSubscriptions(self)
        self.compaction = CompactedTopics(self)
        self.periodic = PeriodicPolicies(self, self.subscriptions, self.compaction)
        self._connections: dict[PulsarConnection, None] = {}
        self._rows = ROWS
        if self.tracer is not None:
            from trilogue.gateway.pulsar.tracing import send_traced

            self._rows = ROWS | {SEND: ROWS[SEND]._replace(handler=send_traced)}

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self.spawn(self._tick())
        self.spawn(self.periodic.run())
        if not self.authorizer.allows_all:
            self.spawn(end_revoked(self.authorizer, self._connections))
        self.broker.cluster.listeners.append(self._topic_changed)
        self.broker.cluster.close_listeners.append(self.subscriptions.hold_consumers)
        self.broker.cluster.release_listeners.append(self._partitions_moved)
        self.broker.subscriptions.listeners.append(self.subscriptions.mark_moved)
        self.broker.transactions.table.pending_acks.listeners.append(self.subscriptions.on_release)
        return self

    async def __aexit__(self, *problem: object) -> None:
        self.broker.cluster.listeners.remove(self._topic_changed)
        self.broker.cluster.close_listeners.remove(self.subscriptions.hold_consumers)
        self.broker.cluster.release_listeners.remove(self._partitions_moved)
        self.broker.subscriptions.listeners.remove(self.subscriptions.mark_moved)
        self.broker.transactions.table.pending_acks.listeners.remove(self.subscriptions.on_release)
        await super().__aexit__(*problem)

    def make_connection(self, listener: ListenerSecurity | None = None) -> PulsarConnection:
        """Return the handler of a new connection that came by a listener."""
        return PulsarConnection(
            self,
            listener=listener,
            subscriptions=self.subscriptions,
            compaction=self.compaction,
            rows=self._rows,
            connections=self._connections,
        )

    @property
    def connections(self) -> list[PulsarConnection]:
        """All connections that are open."""
        return list(self._connections)

    async def _tick(self) -> None:
        ticked_s = self.loop.time()
        while True:
            interval_s = min(TICK_S, self.settings.keep_alive_s / 4)
            await asyncio.sleep(interval_s)
            now_s = self.loop.time()
            # A loop that was held up has heard no one.
            is_late, ticked_s = now_s - ticked_s > LATE_TICKS * interval_s, now_s
            self.broker.non_persistent.discard_idle(now_s)
            for number, connection in enumerate(list(self._connections), 1):
                if number % TICKS_A_STEP == 0:
                    await asyncio.sleep(0)
                connection.guarded(partial(connection.tick, now_s, is_late=is_late))

    def _partitions_moved(self, partition_ids: Sequence[int]) -> None:
        """Send clients of partitions that another node owns now there; the broker sends writers."""
        self.subscriptions.close_held()
        for partition_id in partition_ids:
            self.subscriptions.forget_partition(partition_id)
            self.compaction.forget_partition(partition_id)
        topics, node_id = self.broker.non_persistent, self.broker.cluster.node_id
        for topic in topics:
            if topics.owner(topic.name.topic) != node_id:
                close_clients(topic)

    def _topic_changed(self, event: TopicEvent, topic: Topic) -> None:
        """Expel the writers of a terminated topic; the broker expels those of a deleted one."""
        self.subscriptions.topic_changed(event, topic)
        if event is not TopicEvent.ALTERED:
            return
        for partition in topic.partitions:
            if partition.terminated:
                writers = self.broker.writers.get(partition.partition_id)
                if writers is not None and not writers.is_idle:
                    writers.fence_all(TopicTerminated("the topic was terminated"))
