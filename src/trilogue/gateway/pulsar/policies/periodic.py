"""Policies that act by themselves, looked at every few seconds.

subscriptionExpirationTime    subscriptions without consumers are deleted
inactiveTopicPolicies         topics without clients and subscriptions are deleted
compactionThreshold           topics are compacted that have grown since their last compaction
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from trilogue.broker.access.granted_actions import GrantedActions
from trilogue.broker.errors import BrokerError
from trilogue.broker.facts import Protocol
from trilogue.broker.subscriptions.inactivity import SubscriptionInactivity, TopicInactivity
from trilogue.broker.topics.compacted_view import compacted_horizons
from trilogue.broker.topics.partition import Partition
from trilogue.broker.topics.topic import Topic
from trilogue.log.errors import LogError
from trilogue.meta.errors import MetaError

if TYPE_CHECKING:
    from trilogue.gateway.pulsar.compaction import CompactedTopics
    from trilogue.gateway.pulsar.services import PulsarServices
    from trilogue.gateway.pulsar.subscriptions import ConnectedSubscriptions

log = logging.getLogger(__name__)

CHECK_S: Final = 5.0
TOPICS_A_STEP: Final = 500


class PeriodicPolicies:
    """Carries out the policies of the partitions of this node."""

    def __init__(
        self,
        gateway: PulsarServices,
        subscriptions: ConnectedSubscriptions,
        compaction: CompactedTopics,
    ) -> None:
        self._gateway = gateway
        self._subscriptions = subscriptions
        self._compaction = compaction
        self._inactivity = SubscriptionInactivity(
            lambda partition_id, name: subscriptions.find_dispatcher(partition_id, name) is not None
        )
        self._inactive_topics = TopicInactivity(self._has_clients, self._has_positions)
        # Ids of partitions with positions of groups; None: collected anew, since they may change.
        self._positioned: frozenset[int] | None = None

    async def run(self) -> None:
        """Check for ever."""
        while True:
            await asyncio.sleep(CHECK_S)
            await self.check_topics()

    async def check_topics(self) -> None:
        """Do what is due now."""
        broker = self._gateway.broker
        self._positioned = None
        for number, topic in enumerate(list(broker.cluster), 1):
            if number % TOPICS_A_STEP == 0:
                await asyncio.sleep(0)
                self._positioned = None
            for partition in topic.local_partitions:
                policies = partition.policies
                if policies.subscription_expiry_min:
                    await self._expire_subscriptions(topic, partition)
                if policies.compaction_threshold:
                    self._compact_grown(topic, partition)
            if topic.partitions and topic.partitions[0].policies.inactive_topics is not None:
                await self._delete_inactive(topic)
        cursors = broker.subscriptions
        self._inactivity.forget_gone(
            lambda partition_id, name: cursors.find_cursor(partition_id, name) is not None
        )
        self._inactive_topics.forget_gone(broker.cluster.find_topic)

    def _has_clients(self, partition: Partition) -> bool:
        partition_id = partition.partition_id
        writers = self._gateway.broker.writers.get(partition_id)
        return bool(writers) or bool(self._subscriptions.consumer_count(partition_id))

    def _has_positions(self, partition_id: int) -> bool:
        if self._positioned is None:
            offsets = self._gateway.broker.committed_offsets
            self._positioned = frozenset().union(
                *(
                    offsets.positions(protocol, name)
                    for protocol in Protocol
                    for name in offsets.names(protocol)
                )
            )
        return partition_id in self._positioned

    async def _delete_inactive(self, topic: Topic) -> None:
        gateway, broker = self._gateway, self._gateway.broker
        if not self._inactive_topics.is_due(topic, broker.subscriptions, gateway.now_ms()):
            return
        if broker.cluster.pending_change(topic.name) is not None:
            return
        acls = broker.acls
        granted = GrantedActions(acls, topic.name).all_acls()
        self._positioned = None
        try:
            await gateway.write_metadata(broker.cluster.plan_delete(topic.name))
            if granted:
                await gateway.write_metadata(acls.plan_replace((), granted))
        except (BrokerError, LogError, MetaError) as problem:
            log.warning("topic.not_deleted", extra={"problem": str(problem)})
        else:
            log.info("topic.inactive_deleted", extra={"topic": str(topic.name)})

    async def _expire_subscriptions(self, topic: Topic, partition: Partition) -> None:
        gateway = self._gateway
        due = self._inactivity.find_expired(
            partition, gateway.broker.subscriptions, gateway.now_ms()
        )
        for name in due:
            self._positioned = None
            try:
                await self._subscriptions.delete(partition, name)
            except (BrokerError, LogError) as problem:
                log.warning("subscription.not_expired", extra={"problem": str(problem)})
            else:
                log.info(
                    "subscription.expired", extra={"topic": str(topic.name), "subscription": name}
                )

    def _compact_grown(self, topic: Topic, partition: Partition) -> None:
        index, plog = topic.partitions.index(partition), partition.log
        start, end = plog.start_offset, plog.high_watermark
        horizon = max(compacted_horizons(topic.settings).get(index, start), start)
        if end <= horizon:
            return
        grown = plog.size_bytes * (end - horizon) // (end - start)
        status, _ = self._compaction.status(topic, index)
        if grown > partition.policies.compaction_threshold and status != "RUNNING":
            self._compaction.trigger(topic, index)
