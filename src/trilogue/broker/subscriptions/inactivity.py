"""Which subscriptions and topics have been inactive for as long as their policies allow."""

from __future__ import annotations

from collections.abc import Callable

from trilogue.broker.cursors.subscription_cursors import SubscriptionCursors
from trilogue.broker.names import TopicName
from trilogue.broker.topics.partition import Partition
from trilogue.broker.topics.topic import Topic

SECOND_MS = 1_000
MINUTE_MS = 60_000


class SubscriptionInactivity:
    """Since when each subscription has no consumer, as far as this process has seen it.

    A restart begins again: a subscription lives longer then, never shorter.
    """

    def __init__(self, has_consumers: Callable[[int, str], bool]) -> None:
        self._has_consumers = has_consumers
        self._since_ms: dict[tuple[int, str], int] = {}

    def find_expired(
        self, partition: Partition, subscriptions: SubscriptionCursors, now_ms: int
    ) -> list[str]:
        """Return the subscriptions of a partition that are due; a call each few seconds."""
        minutes, partition_id = partition.policies.subscription_expiry_min, partition.partition_id
        expired: list[str] = []
        for name in subscriptions.of_partition(partition_id) if minutes else ():
            key = partition_id, name
            if self._has_consumers(partition_id, name):
                self._since_ms.pop(key, None)
            elif now_ms - self._since_ms.setdefault(key, now_ms) >= minutes * MINUTE_MS:
                del self._since_ms[key]
                expired.append(name)
        return expired

    def forget_gone(self, exists: Callable[[int, str], bool]) -> None:
        """Forget subscriptions that were deleted."""
        for key in [each for each in self._since_ms if not exists(*each)]:
            del self._since_ms[key]


class TopicInactivity:
    """Since when each topic is inactive, as far as this process has seen it.

    A topic with the policy `inactiveTopicPolicies` is inactive while it has no producers and no
    consumers, nothing is written to it, no subscription (or none with a backlog) and no group of
    another protocol has a position in it. It is not due before its retention: that of its policy,
    or else as long as it has messages. A restart begins again.
    """

    def __init__(
        self, has_clients: Callable[[Partition], bool], has_positions: Callable[[int], bool]
    ) -> None:
        self._has_clients = has_clients
        self._has_positions = has_positions
        self._since: dict[TopicName, tuple[int, int]] = {}  # its end offsets together, ms

    def is_due(self, topic: Topic, subscriptions: SubscriptionCursors, now_ms: int) -> bool:
        """Return whether to delete a topic now; a call each few seconds."""
        if not self._is_inactive(topic, subscriptions):
            self._since.pop(topic.name, None)
            return False
        end = sum(each.log.end_offset for each in topic.partitions)
        known_end, since_ms = self._since.get(topic.name, (end, now_ms))
        if known_end != end:
            since_ms = now_ms
        self._since[topic.name] = end, since_ms
        kept_ms = _kept_ms(topic)
        return kept_ms is not None and now_ms - since_ms >= kept_ms

    def _is_inactive(self, topic: Topic, subscriptions: SubscriptionCursors) -> bool:
        for partition in topic.partitions:
            policy = partition.policies.inactive_topics
            if policy is None or partition.is_remote or self._has_clients(partition):
                return False
            cursors = subscriptions.of_partition(partition.partition_id)
            if cursors and not policy.with_subscriptions:
                return False
            if any(subscriptions.backlog(each) for each in cursors.values()):
                return False
            if self._has_positions(partition.partition_id):
                return False
        return True

    def forget_gone(self, exists: Callable[[TopicName], object]) -> None:
        """Forget topics that were deleted."""
        for name in [each for each in self._since if not exists(each)]:
            del self._since[name]


def _kept_ms(topic: Topic) -> int | None:
    """Return how long an inactive topic is kept; None: as long as it has messages, or for ever."""
    partition = topic.partitions[0]
    policies = partition.policies
    assert policies.inactive_topics is not None
    kept_ms = policies.inactive_topics.after_s * SECOND_MS
    if policies.retention is not None:
        minutes = policies.retention.minutes
        return None if minutes < 0 else max(kept_ms, minutes * MINUTE_MS)
    has_messages = any(each.log.start_offset < each.log.end_offset for each in topic.partitions)
    return None if has_messages else kept_ms
