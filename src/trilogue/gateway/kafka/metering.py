"""What one connection's client uses of its quotas, and how long the connection is not read for it.

    request ──► begin ── handler ── produced / changed ──► throttle_ms ──► answer
                  │                                            │
                  └──── time of the loop is counted ───────────┘
                             a debt? ──► not read for so long, however much the peer sends

As in KIP-219 the answer leaves at once and says for how long the client should wait
(`throttle_time_ms`); meanwhile nothing more is read from it, whether it waits or not. Nothing is
refused, no connection is cut. A debt that takes longer than a few seconds is waited for in parts, a
part at each request, so that no client believes that its connection is dead.

Time is that of the event loop's thread: decoding, the handler, encoding, the look of a fetch. What
threads do beside it (cold reads, conversions) is not counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from math import ceil
from typing import Any, TypeVar

from trilogue.broker.errors import QuotaExceeded
from trilogue.broker.meter import Meter
from trilogue.broker.quotas import NO_METERS, Bound, Quotas
from trilogue.gateway.stream import STOP_QUOTA, Stream

T = TypeVar("T")

WAIT_MIN_S = 0.001  # a smaller debt is left for the next request
WAIT_MAX_S = 10.0  # in one piece: clients give a request up after 30 s
WORK_WAIT_MAX_S = 1.0  # as in Kafka: sessions of groups live on these requests too
NOT_BEGUN = -1.0


class Metering:
    """Counts for one connection; made with its first request after there are quotas."""

    __slots__ = (
        "_began_s",
        "_client",
        "_cpu_s",
        "_generation",
        "_loop",
        "_meters",
        "_quotas",
        "_stream",
        "_timer",
        "_until_s",
        "_user",
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
        self._stream = stream
        self._loop = loop
        self._cpu_s = cpu_s
        self._client = ""
        self._generation = -1
        self._meters = NO_METERS
        self._began_s = NOT_BEGUN  # by the clock of the loop's thread
        self._until_s = 0.0  # not read until then
        self._timer: asyncio.TimerHandle | None = None

    # ---- what is used

    def client_is(self, client_id: str | None) -> None:
        """Know whose request this is."""
        client = client_id or ""
        if client != self._client or self._generation != self._quotas.generation:
            self._client = client
            self._generation = self._quotas.generation
            self._meters = self._quotas.meters(self._user, client)

    def begin(self) -> None:
        """Count the loop's time from here on, if it is bounded for this client."""
        if self._began_s < 0 and self._meters.work is not None:
            self._began_s = self._cpu_s()

    def end(self) -> None:
        """Count it up to here."""
        self._worked()
        self._began_s = NOT_BEGUN

    def produced(self, size: int) -> None:
        """Count the bytes of a request that brings messages."""
        self._use(Bound.PRODUCED, self._meters.produced, size)

    def fetched(self, size: int) -> None:
        """Count the bytes of messages in an answer."""
        self._use(Bound.FETCHED, self._meters.fetched, size)

    @property
    def room(self) -> int | None:
        """How many bytes of messages one answer should hold at most; None: no quota says."""
        meter = self._meters.fetched
        return None if meter is None else max(1, int(meter.rate * self._quotas.burst_s))

    def changed(self, count: int, *, strict: bool) -> None:
        """Count partitions that are made or deleted; raises QuotaExceeded where that is `strict`.

        KIP-599: newer versions are told that it is too much, older ones are made to wait.
        """
        meter = self._meters.changes
        if meter is None:
            return
        if not strict:
            self._use(Bound.CHANGES, meter, count)
            return
        wait_s = meter.wait_s(self._loop.time())
        if wait_s >= WAIT_MIN_S:
            self._wait(Bound.CHANGES, wait_s)
            raise QuotaExceeded(f"too many changes of topics: again in {ceil(wait_s)} s")
        meter.take(count, self._loop.time())

    # ---- what that means

    def throttle_ms(self) -> int:
        """What an answer that is written now tells: for how long the client should wait."""
        self._worked()
        return max(0, ceil(1000 * (self._until_s - self._loop.time())))

    def close(self) -> None:
        """The connection is gone."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def timed(self, work: Coroutine[Any, Any, T]) -> Awaitable[T]:
        """Await work whose every step on the loop is counted."""
        return _Timed(work, self)

    def _worked(self) -> None:
        meter = self._meters.work
        if self._began_s >= 0 and meter is not None:
            now_s = self._cpu_s()
            self._use(Bound.WORK, meter, now_s - self._began_s)
            self._began_s = now_s

    def _use(self, bound: Bound, meter: Meter | None, amount: float) -> None:
        if meter is None:
            return
        wait_s = meter.take(amount, self._loop.time())
        if wait_s >= WAIT_MIN_S:
            self._wait(bound, wait_s)

    def _wait(self, bound: Bound, wait_s: float) -> None:
        wait_s = min(wait_s, WORK_WAIT_MAX_S if bound is Bound.WORK else WAIT_MAX_S)
        self._quotas.waits[bound] += 1
        self._quotas.waited_s[bound] += wait_s
        until_s = self._loop.time() + wait_s
        if until_s <= self._until_s:
            return
        self._until_s = until_s
        self._stream.stop(STOP_QUOTA)
        if self._timer is None:
            self._timer = self._loop.call_at(until_s, self._over)

    def _over(self) -> None:
        self._timer = None
        if self._until_s - self._loop.time() >= WAIT_MIN_S:
            self._timer = self._loop.call_at(self._until_s, self._over)
        else:
            self._stream.go_on(STOP_QUOTA)


class _Timed(Awaitable[T]):
    """A coroutine that is driven step by step, as `await` does, between `begin` and `end`."""

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
