"""What one connection uses of its client's quotas, and for how long the connection is paused.

    request ──► begin ── handler ── produced / changed ──► throttle_ms ──► response
                  │                                            │
                  └──── time of the loop is counted ───────────┘
                             a debt? ──► the connection is not read for that time

As in KIP-219 the response is sent at once and carries `throttle_time_ms`; for that time the
connection is not read, whether the client waits or not (gateway/quota_wait.py).

Time is that of the event loop's thread: decoding, handler, encoding, scans of fetches. Work in
threads (cold reads, conversions) is not counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from math import ceil
from typing import Any, TypeVar

from trilogue.broker.errors import QuotaExceeded
from trilogue.broker.quotas.quotas import NO_BUCKETS, QuotaKind, Quotas
from trilogue.broker.quotas.token_bucket import TokenBucket
from trilogue.broker.quotas.topic_rates import WAIT_MIN_S, RateLimiter
from trilogue.gateway.quota_wait import WAIT_MAX_S, wait_for_reading
from trilogue.gateway.stream import Stream

T = TypeVar("T")

WORK_WAIT_MAX_S = 1.0  # as in Kafka: sessions of groups depend on these requests too
NOT_BEGUN = -1.0


class Metering:
    """The counters of one connection; made when the first quota or rate concerns it."""

    __slots__ = (
        "_began_s",
        "_client",
        "_cpu_s",
        "_generation",
        "_loop",
        "_meters",
        "_quotas",
        "_user",
        "_wait",
    )

    def __init__(
        self,
        quotas: Quotas,
        user: str,
        stream: Stream,
        loop: asyncio.AbstractEventLoop,
        cpu_s: Callable[[], float],
    ) -> None:
        self._quotas = quotas
        self._user = user
        self._loop = loop
        self._cpu_s = cpu_s
        self._client = ""
        self._generation = -1
        self._meters = NO_BUCKETS
        self._began_s = NOT_BEGUN  # CPU time of the loop's thread
        self._wait = wait_for_reading(loop, stream)

    # ---- what is used

    def set_user(self, user: str) -> None:
        """Select the quotas of this user, who has logged in."""
        self._user = user
        self._generation = -1

    def set_client(self, client_id: str | None) -> None:
        """Select the quotas of this client."""
        client = client_id or ""
        if client != self._client or self._generation != self._quotas.generation:
            self._client = client
            self._generation = self._quotas.generation
            self._meters = self._quotas.buckets(self._user, client)

    def begin(self) -> None:
        """Start counting time of the loop, if a quota limits it."""
        if self._began_s < 0 and self._meters.work is not None:
            self._began_s = self._cpu_s()

    def end(self) -> None:
        """Stop counting time of the loop."""
        self._worked()
        self._began_s = NOT_BEGUN

    def count_produced(self, size: int) -> None:
        """Count the bytes of a Produce request."""
        self._use(QuotaKind.PRODUCED, self._meters.produced, size)

    def count_published(self, limiter: RateLimiter, messages: int, size: int) -> None:
        """Count a batch against the rate of its topic."""
        self._wait.count_published(limiter, messages, size)

    def count_fetched(self, size: int) -> None:
        """Count the bytes of records in a response."""
        self._use(QuotaKind.FETCHED, self._meters.fetched, size)

    @property
    def fetch_bytes_max(self) -> int | None:
        """The most bytes of records in one response; None without a quota."""
        meter = self._meters.fetched
        return None if meter is None else max(1, int(meter.rate * self._quotas.burst_s))

    def count_mutations(self, count: int, *, strict: bool) -> None:
        """Count created or deleted partitions; raises QuotaExceeded if `strict`.

        KIP-599: newer versions get an error, clients of older ones are throttled.
        """
        meter = self._meters.changes
        if meter is None:
            return
        if not strict:
            self._use(QuotaKind.CHANGES, meter, count)
            return
        wait_s = meter.wait_s(self._loop.time())
        if wait_s >= WAIT_MIN_S:
            self._pause(QuotaKind.CHANGES, wait_s)
            raise QuotaExceeded(f"too many changes of topics: again in {ceil(wait_s)} s")
        meter.take_tokens(count, self._loop.time())

    # ---- what that means

    def throttle_ms(self) -> int:
        """Return `throttle_time_ms` for a response encoded now."""
        self._worked()
        return ceil(1000 * self._wait.left_s)

    def close(self) -> None:
        """Stop the timer: the connection is gone."""
        self._wait.close()

    def timed(self, work: Coroutine[Any, Any, T]) -> Awaitable[T]:
        """Await work and count each of its steps on the loop."""
        return _TimedCoroutine(work, self)

    def _worked(self) -> None:
        meter = self._meters.work
        if self._began_s >= 0 and meter is not None:
            now_s = self._cpu_s()
            self._use(QuotaKind.WORK, meter, now_s - self._began_s)
            self._began_s = now_s

    def _use(self, bound: QuotaKind, meter: TokenBucket | None, amount: float) -> None:
        if meter is None:
            return
        wait_s = meter.take_tokens(amount, self._loop.time())
        if wait_s >= WAIT_MIN_S:
            self._pause(bound, wait_s)

    def _pause(self, bound: QuotaKind, wait_s: float) -> None:
        wait_s = min(wait_s, WORK_WAIT_MAX_S if bound is QuotaKind.WORK else WAIT_MAX_S)
        self._quotas.record_wait(bound, wait_s)
        self._wait.extend(wait_s)


class _TimedCoroutine(Awaitable[T]):
    """A coroutine driven step by step, as `await` does, between `begin` and `end`."""

    __slots__ = ("_metering", "_work")

    def __init__(self, work: Coroutine[Any, Any, T], metering: Metering) -> None:
        self._work = work
        self._metering = metering

    def __await__(self) -> Generator[Any, Any, T]:
        step = partial(self._work.send, None)
        while True:
            self._metering.begin()
            try:
                waited = step()
            except StopIteration as end:
                found: T = end.value
                return found
            finally:
                self._metering.end()
            try:
                step = partial(self._work.send, (yield waited))
            except BaseException as problem:  # noqa: BLE001 - whatever it is, it is for the work
                step = partial(self._work.throw, problem)
