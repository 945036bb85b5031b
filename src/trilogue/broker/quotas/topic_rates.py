"""Rates of topics: how many messages and bytes a second a partition takes, and hands out.

They are policies of a namespace or a topic (broker/topics/policies.py). As in Apache Pulsar each
partition has the whole rate:

    publish       what all clients together append to the partition
    dispatch      what all subscriptions together are sent of it
    subscription  what one subscription is sent of it

Only a partition with a rate has `PartitionRates`; for all others the check is one look at None. The
buckets are those of quotas: what is used is always taken, and whoever used it waits until the debt
is paid. A rate that changes ends its limiter, so that those who wait for it look again.
"""

from __future__ import annotations

import msgspec

from trilogue.broker.quotas.token_bucket import TokenBucket

RATE_CHECK_S = 0.5  # a client that waits for a rate looks this often whether the rate changed
WAIT_MIN_S = 0.001  # a smaller debt is left for the next use
ROOM_MAX = 1 << 30  # messages, or bytes: more than is sent at once


class Rate(msgspec.Struct, frozen=True):
    """How many messages and bytes there may be in a period of seconds; 0: no limit."""

    messages: int = 0
    size: int = 0
    period_s: int = 1


class RateLimiter:
    """The buckets of one rate. Times are seconds of a monotonic clock."""

    __slots__ = ("_buckets", "is_over", "rate", "waits")

    def __init__(self, rate: Rate) -> None:
        self.rate = rate
        self.is_over = False  # the rate was changed or removed
        self.waits = 0  # how often a client had to wait
        self._buckets = tuple(
            TokenBucket(amount / rate.period_s, rate.period_s) if amount > 0 else None
            for amount in (rate.messages, rate.size)
        )

    def count(self, messages: int, size: int, now_s: float) -> float:
        """Count what was used, and return for how many seconds nothing more should be used."""
        wait_s = 0.0
        for bucket, amount in zip(self._buckets, (messages, size), strict=True):
            if bucket is not None:
                wait_s = max(wait_s, bucket.take_tokens(amount, now_s))
        if self.is_over or wait_s < WAIT_MIN_S:
            return 0.0
        self.waits += bool(messages)
        return wait_s

    def wait_s(self, now_s: float) -> float:
        """Return how many seconds a debt still lasts; nothing is counted."""
        return self.count(0, 0, now_s)

    def room(self, now_s: float) -> tuple[int, int]:
        """Return how many messages and bytes there may be without a debt; one at least."""
        messages, size = (
            ROOM_MAX if bucket is None else max(1, int(bucket.balance(now_s)))
            for bucket in self._buckets
        )
        return messages, size


class PartitionRates:
    """The rates of one partition, of which there is one at least."""

    __slots__ = ("dispatch", "publish", "subscription")

    def __init__(
        self,
        publish: RateLimiter | None,
        dispatch: RateLimiter | None,
        subscription: Rate | None,
    ) -> None:
        self.publish = publish
        self.dispatch = dispatch
        self.subscription = subscription  # of each: who serves it has the limiter


class SubscriptionLimiter:
    """What one subscription is sent of a partition: by its own rate, and by the partition's."""

    __slots__ = ("_own",)

    def __init__(self) -> None:
        self._own: RateLimiter | None = None

    def count(self, rates: PartitionRates, messages: int, size: int, now_s: float) -> float:
        """Count what was sent, and return for how many seconds nothing more should be sent."""
        own = self._own = update_limiter(self._own, rates.subscription)
        wait_s = 0.0 if own is None else own.count(messages, size, now_s)
        if rates.dispatch is not None:
            wait_s = max(wait_s, rates.dispatch.count(messages, size, now_s))
        return wait_s

    def wait_s(self, rates: PartitionRates, now_s: float) -> float:
        """Return for how many seconds nothing should be sent; nothing is counted."""
        return self.count(rates, 0, 0, now_s)

    def room(self, rates: PartitionRates, now_s: float) -> tuple[int, int]:
        """Return how many messages and bytes may be sent at once; one at least."""
        own = self._own = update_limiter(self._own, rates.subscription)
        rooms = [each.room(now_s) for each in (own, rates.dispatch) if each is not None]
        messages = min((room[0] for room in rooms), default=ROOM_MAX)
        return messages, min((room[1] for room in rooms), default=ROOM_MAX)


def update_limiter(limiter: RateLimiter | None, rate: Rate | None) -> RateLimiter | None:
    """Return the limiter of a rate: the present one if it is the same rate, else a full one."""
    if limiter is not None:
        if limiter.rate == rate:
            return limiter
        limiter.is_over = True
    return None if rate is None else RateLimiter(rate)


def update_rates(
    rates: PartitionRates | None,
    publish: Rate | None,
    dispatch: Rate | None,
    subscription: Rate | None,
) -> PartitionRates | None:
    """Return what a partition has of these rates; None without any."""
    present = rates or PartitionRates(None, None, None)
    publishing = update_limiter(present.publish, publish)
    dispatching = update_limiter(present.dispatch, dispatch)
    if publishing is None and dispatching is None and subscription is None:
        return None
    return PartitionRates(publishing, dispatching, subscription)
