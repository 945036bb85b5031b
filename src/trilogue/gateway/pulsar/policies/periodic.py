"""Policies that act by themselves, looked at every few seconds.

subscriptionExpirationTime    subscriptions without consumers are deleted
compactionThreshold           topics are compacted that have grown since their last compaction
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from trilogue.broker.errors import BrokerError
from trilogue.broker.subscriptions.inactivity import SubscriptionInactivity
from trilogue.broker.topics.compacted_view import compacted_horizons
from trilogue.broker.topics.partition import Partition
from trilogue.broker.topics.topic import Topic
from trilogue.log.errors import LogError

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

    async def run(self) -> None:
        """Check for ever."""
        while True:
            await asyncio.sleep(CHECK_S)
            await self.check_topics()

    async def check_topics(self) -> None:
        """Do what is due now."""
        broker = self._gateway.broker
        for number, topic in enumerate(list(broker.cluster), 1):
            if number % TOPICS_A_STEP == 0:
                await asyncio.sleep(0)
            for partition in topic.local_partitions:
                policies = partition.policies
                if policies.subscription_expiry_min:
                    await self._expire_subscriptions(topic, partition)
                if policies.compaction_threshold:
                    self._compact_grown(topic, partition)
        cursors = broker.subscriptions
        self._inactivity.forget_gone(
            lambda partition_id, name: cursors.find_cursor(partition_id, name) is not None
        )

    async def _expire_subscriptions(self, topic: Topic, partition: Partition) -> None:
        gateway = self._gateway
        due = self._inactivity.find_expired(
            partition, gateway.broker.subscriptions, gateway.now_ms()
        )
        for name in due:
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
