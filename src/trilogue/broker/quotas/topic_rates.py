"""Rates of topics: how many messages and bytes a second a partition takes, and hands out.

They are policies of a namespace or a topic (broker/topics/policies.py). As in Apache Pulsar each
partition has the whole rate:

    publish       what all clients together append to the partition
    dispatch      what all subscriptions together are sent of it
    subscription  what one subscription is sent of it; one that is named may have a rate of its own

Only a partition with a rate has `PartitionRates`; for all others the check is one look at None. The
buckets are those of quotas: what is used is always taken, and its user waits until the debt
is paid. A rate that changes ends its limiter, so that those who wait for it look again.

A dispatch or subscription rate may be relative to the publish rate (`relativeToPublishRate`): then
it is allowed on top of what the partition was published in the last second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from trilogue.broker.quotas.token_bucket import TokenBucket

RATE_CHECK_S = 0.5  # a client that waits for a rate looks this often whether the rate changed
WAIT_MIN_S = 0.001  # a smaller debt is left for the next use
ROOM_MAX = 1 << 30  # messages, or bytes: more than is sent at once
PUBLISH_PERIOD_S = 1.0  # over which the publish rate is measured

Totals = Callable[[], tuple[int, int]]  # the messages and bytes that were published so far


class Rate(msgspec.Struct, frozen=True):
    """How many messages and bytes there may be in a period of seconds; 0: no limit."""

    messages: int = 0
    size: int = 0
    period_s: int = 1
    relative: bool = False  # to the publish rate: each limit is on top of it


NONE_NAMED: Mapping[str, Rate] = {}


class PublishMeter:
    """How fast a partition is published, measured when it is asked for, at most once a period."""

    __slots__ = ("_before", "_rates", "_since_s", "_totals")

    def __init__(self, totals: Totals) -> None:
        self._totals = totals
        self._before: tuple[int, int] | None = None
        self._since_s = 0.0
        self._rates = (0.0, 0.0)

    def rates(self, now_s: float) -> tuple[float, float]:
        """Return messages and bytes a second; 0 until the first period is over."""
        passed_s = now_s - self._since_s
        if self._before is not None and passed_s < PUBLISH_PERIOD_S:
            return self._rates
        messages, size = self._totals()
        if self._before is not None:
            messages_before, size_before = self._before
            self._rates = (messages - messages_before) / passed_s, (size - size_before) / passed_s
        self._before, self._since_s = (messages, size), now_s
        return self._rates


class RateLimiter:
    """The buckets of one rate. Times are seconds of a monotonic clock."""

    __slots__ = ("_buckets", "_published", "is_over", "rate", "waits")

    def __init__(self, rate: Rate, published: PublishMeter | None = None) -> None:
        self.rate = rate
        self._published = published if rate.relative else None
        self.is_over = False  # the rate was changed or removed
        self.waits = 0  # how often a client had to wait
        self._buckets = tuple(
            TokenBucket(amount / rate.period_s, rate.period_s) if amount > 0 else None
            for amount in (rate.messages, rate.size)
        )

    def count(self, messages: int, size: int, now_s: float) -> float:
        """Count what was used, and return for how many seconds nothing more should be used."""
        if self._published is not None:
            self._follow(self._published, now_s)
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
        if self._published is not None:
            self._follow(self._published, now_s)
        messages, size = (
            ROOM_MAX if bucket is None else max(1, int(bucket.balance(now_s)))
            for bucket in self._buckets
        )
        return messages, size

    def _follow(self, published: PublishMeter, now_s: float) -> None:
        rate = self.rate
        limits = (rate.messages, rate.size)
        for bucket, limit, more in zip(self._buckets, limits, published.rates(now_s), strict=True):
            if bucket is not None:
                bucket.change_rate(limit / rate.period_s + more, rate.period_s, now_s)


class PartitionRates:
    """The rates of one partition, of which there is one at least."""

    __slots__ = ("dispatch", "named", "publish", "published", "subscription")

    def __init__(
        self,
        publish: RateLimiter | None,
        dispatch: RateLimiter | None,
        subscription: Rate | None,
        published: PublishMeter | None = None,
        named: Mapping[str, Rate] = NONE_NAMED,
    ) -> None:
        self.published = published
        self.named = named  # the rates of subscriptions that have one of their own
        self.publish = publish
        self.dispatch = dispatch
        self.subscription = subscription  # of each: who serves it has the limiter


class SubscriptionLimiter:
    """What one subscription is sent of a partition: by its own rate, and by the partition's."""

    __slots__ = ("_name", "_own")

    def __init__(self, name: str = "") -> None:
        self._name = name  # "" for a reader that no policy can name
        self._own: RateLimiter | None = None

    def _update(self, rates: PartitionRates) -> RateLimiter | None:
        rate = rates.named.get(self._name, rates.subscription)
        self._own = update_limiter(self._own, rate, rates.published)
        return self._own

    def count(self, rates: PartitionRates, messages: int, size: int, now_s: float) -> float:
        """Count what was sent, and return for how many seconds nothing more should be sent."""
        own = self._update(rates)
        wait_s = 0.0 if own is None else own.count(messages, size, now_s)
        if rates.dispatch is not None:
            wait_s = max(wait_s, rates.dispatch.count(messages, size, now_s))
        return wait_s

    def wait_s(self, rates: PartitionRates, now_s: float) -> float:
        """Return for how many seconds nothing should be sent; nothing is counted."""
        return self.count(rates, 0, 0, now_s)

    def room(self, rates: PartitionRates, now_s: float) -> tuple[int, int]:
        """Return how many messages and bytes may be sent at once; one at least."""
        own = self._update(rates)
        rooms = [each.room(now_s) for each in (own, rates.dispatch) if each is not None]
        messages = min((room[0] for room in rooms), default=ROOM_MAX)
        return messages, min((room[1] for room in rooms), default=ROOM_MAX)


def update_limiter(
    limiter: RateLimiter | None, rate: Rate | None, published: PublishMeter | None
) -> RateLimiter | None:
    """Return the limiter of a rate: the present one if it is the same rate, else a full one."""
    if limiter is not None:
        if limiter.rate == rate:
            return limiter
        limiter.is_over = True
    return None if rate is None else RateLimiter(rate, published)


def update_rates(
    rates: PartitionRates | None,
    publish: Rate | None,
    dispatch: Rate | None,
    subscription: Rate | None,
    totals: Totals,
    *,
    named: Mapping[str, Rate] = NONE_NAMED,
) -> PartitionRates | None:
    """Return what a partition has of these rates; None without any."""
    if publish is None and dispatch is None and subscription is None and not named:
        for limiter in (rates.publish, rates.dispatch) if rates is not None else ():
            if limiter is not None:
                limiter.is_over = True
        return None
    present = rates or PartitionRates(None, None, None, PublishMeter(totals))
    published = present.published
    publishing = update_limiter(present.publish, publish, published)
    dispatching = update_limiter(present.dispatch, dispatch, published)
    return PartitionRates(publishing, dispatching, subscription, published, named)
