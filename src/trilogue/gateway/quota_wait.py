"""The waits of one connection whose client exceeded a quota, for the gateways of all protocols.

    Kafka     the response has the throttle time, and the connection is not read meanwhile (KIP-219)
    Pulsar    over its quota of sends a connection is not read; of messages, it is sent none
    TubeMQ    over its quota of sends a connection is not read; gets are answered with 452

The publish rate of a topic (broker/quotas/topic_rates.py) ends in the same wait. Such a wait looks
again now and then, and ends early when the rate was changed.

Nothing is refused and no connection is closed. A debt of more than a few seconds is served in
parts, one after each further use, so that no client takes its connection for dead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from trilogue.broker.quotas.quotas import NO_BUCKETS, ClientBuckets, QuotaKind, Quotas
from trilogue.broker.quotas.token_bucket import TokenBucket
from trilogue.broker.quotas.topic_rates import (
    RATE_CHECK_S,
    WAIT_MIN_S,
    PartitionRates,
    RateLimiter,
)
from trilogue.gateway.stream import STOP_QUOTA

WAIT_MAX_S = 10.0  # at once: clients time out after 30 s


class PausedStream(Protocol):
    """What is not read while a client waits."""

    def stop(self, reason: int) -> None:
        """Take no frames, for a reason."""

    def go_on(self, reason: int) -> None:
        """Take frames again, if this was the only reason."""


class QuotaWait:
    """A wait of one connection. It grows while the client uses more, and `end` is called once."""

    __slots__ = ("_begin", "_end", "_limiters", "_loop", "_timer", "_until_s")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, begin: Callable[[], None], end: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._begin = begin
        self._end = end
        self._timer: asyncio.TimerHandle | None = None
        self._until_s = 0.0
        self._limiters: dict[RateLimiter, float] = {}  # until when it waits for each at most

    @property
    def left_s(self) -> float:
        """How many seconds the wait still lasts; 0 without one."""
        now_s = self._loop.time()
        left_s = max(0.0, self._until_s - now_s)
        for limiter, until_s in self._limiters.items():
            left_s = max(left_s, min(limiter.wait_s(now_s), until_s - now_s))
        return left_s

    def extend(self, wait_s: float) -> None:
        """Wait for so many seconds from now on, unless the wait is longer already."""
        until_s = self._loop.time() + wait_s
        if until_s <= self._until_s:
            return
        self._until_s = until_s
        self._begin()
        if self._timer is None:
            self._timer = self._loop.call_at(until_s, self._over)

    def count_published(self, limiter: RateLimiter, messages: int, size: int) -> None:
        """Count messages against the rate of a topic, and wait while there is a debt."""
        now_s = self._loop.time()
        wait_s = limiter.count(messages, size, now_s)
        if not wait_s:
            return
        self._limiters[limiter] = now_s + WAIT_MAX_S
        self._begin()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(now_s + min(wait_s, RATE_CHECK_S), self._over)

    def close(self) -> None:
        """Stop the timer: the connection is gone."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _over(self) -> None:
        self._timer = None
        left_s = self.left_s
        if left_s >= WAIT_MIN_S:
            wait_s = min(left_s, RATE_CHECK_S) if self._limiters else left_s
            self._timer = self._loop.call_at(self._loop.time() + wait_s, self._over)
        else:
            self._until_s = 0.0
            self._limiters.clear()
            self._end()


def wait_for_reading(loop: asyncio.AbstractEventLoop, stream: PausedStream) -> QuotaWait:
    """Return a wait during which a connection is not read."""
    return QuotaWait(loop, lambda: stream.stop(STOP_QUOTA), lambda: stream.go_on(STOP_QUOTA))


class ByteQuotas:
    """What a connection of several clients produces and fetches; made once a quota is set.

    `sends_again` is called when messages may be sent again after a wait.
    """

    __slots__ = ("_buckets", "_client", "_generation", "_loop", "_quotas", "fetching", "producing")

    def __init__(
        self,
        quotas: Quotas,
        loop: asyncio.AbstractEventLoop,
        stream: PausedStream,
        sends_again: Callable[[], None],
    ) -> None:
        self._quotas = quotas
        self._loop = loop
        self._client = ("", "")
        self._generation = -1
        self._buckets = NO_BUCKETS
        self.producing = wait_for_reading(loop, stream)
        self.fetching = QuotaWait(loop, lambda: None, sends_again)

    def count_produced(
        self, user: str, client_id: str, messages: int, size: int, rates: PartitionRates | None
    ) -> None:
        """Count what a client has sent to a partition, whose rates these are."""
        bucket = self._find_buckets(user, client_id).produced
        self._count(QuotaKind.PRODUCED, bucket, size, self.producing)
        if rates is not None and rates.publish is not None:
            self.producing.count_published(rates.publish, messages, size)

    def count_fetched(self, user: str, client_id: str, size: int) -> None:
        """Count the bytes that a client is sent."""
        bucket = self._find_buckets(user, client_id).fetched
        self._count(QuotaKind.FETCHED, bucket, size, self.fetching)

    def close(self) -> None:
        """Stop the timers: the connection is gone."""
        self.producing.close()
        self.fetching.close()

    def _find_buckets(self, user: str, client_id: str) -> ClientBuckets:
        client = (user, client_id)
        if client != self._client or self._generation != self._quotas.generation:
            self._client = client
            self._generation = self._quotas.generation
            self._buckets = self._quotas.buckets(user, client_id)
        return self._buckets

    def _count(
        self, kind: QuotaKind, bucket: TokenBucket | None, size: int, wait: QuotaWait
    ) -> None:
        if bucket is None:
            return
        wait_s = min(bucket.take_tokens(size, self._loop.time()), WAIT_MAX_S)
        if wait_s >= WAIT_MIN_S:
            self._quotas.record_wait(kind, wait_s)
            wait.extend(wait_s)
