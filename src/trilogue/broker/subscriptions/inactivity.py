"""Which subscriptions have had no consumer for as long as the policy of their namespace allows."""

from __future__ import annotations

from collections.abc import Callable

from trilogue.broker.cursors.subscription_cursors import SubscriptionCursors
from trilogue.broker.topics.partition import Partition

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
