"""Memory that all connections of a node share, within one limit.

    holder.resize(size)                 counts what a holder has, also above the limit
    budget.admit(key, size)             whether so much more may be taken now
    budget.wait(key, ...)               if not: `resume` is called when there is room

A node has three budgets: for what is read for peers and not sent yet, for frames that have been
received in part, and for those of peers that have not logged in, which are never in the way of the
others'. What waits for room forms a queue for each connection, and connections take turns.
While there is a queue, memory that can be had again is taken back (`reclaim`), and a connection
whose peer does not move for `STALLED_S` is closed (`evict`), the largest first, but none that holds
much less than the others. If all of them move, those of an address with more than `ADDRESS_SHARE`
of the limit make room for other addresses. Once others have waited for `PATIENCE_S`, one that has
had as long and is slower than `RATE_MIN` is closed; above the limit, as many as are above it. What
the node works on ends by itself and is never evicted; where all of it waits for more, one goes on
above the limit. So the queue always moves, a peer that moves at `RATE_MIN` is done in time, and one
that stalls or is slower costs itself the connection, only where others need the memory.

What lost connections held is free for the C library, but not for the system: it lies between what
others hold, and what is taken next may come from elsewhere. So where they held much, large requests
wait until the heap was given back.

Other addresses wait behind an address that holds `ADDRESS_SHARE` of the limit only until some of
its memory is free again. Used on the loop only, and not for small requests and replies.
"""

from __future__ import annotations

import asyncio
import ctypes
import time
from collections import Counter
from collections.abc import Callable, Hashable
from functools import partial
from typing import Final, Self
from weakref import WeakSet

import msgspec

from trilogue.gateway.frame_dispatcher import IterationBudget
from trilogue.gateway.transfers.reply_transfers import ReplyTransfers

MIB: Final = 1 << 20
UNSENT_BYTES_MAX: Final = 256 * MIB
RECEIVED_BYTES_MAX: Final = 160 * MIB
UNAUTHENTICATED_BYTES_MAX: Final = 32 * MIB
FREE_SHARE: Final = 0.75  # of a budget; the rest is for small requests
SMALL_BYTES: Final = 2 * MIB
ADDRESS_SHARE: Final = 0.5  # of a budget that one address may hold while others wait
DEADLOCK_SHARE: Final = 16  # of a budget is made free at once where all wait for each other
STALLED_S: Final = 0.5  # without progress while others wait
PATIENCE_S: Final = 5.0  # that others wait for peers that do move
RATE_MIN: Final = MIB  # bytes a second of a peer for which others wait
TICK_S: Final = 0.1
LOST_BYTES_MAX: Final = 32 * MIB  # of lost connections, before the heap is given back


class MemoryHolder:
    """What one connection, or one part of it, holds of a budget."""

    __slots__ = ("address", "budget", "largest_bytes", "mark", "mark_s", "since_s", "size_bytes")

    def __init__(self, budget: MemoryBudget, address: str = "") -> None:
        self.budget = budget
        self.address = address
        self.size_bytes = 0
        self.largest_bytes = 0  # of its size since `since_s`
        self.mark: Hashable = None  # of the last look at its progress
        self.mark_s = self.since_s = 0.0

    def resize(self, size: int) -> None:
        """Count that it holds so many bytes now."""
        if size != self.size_bytes:
            self.budget.resize(self, size)

    def reclaim(self) -> None:
        """Give back what can be had again; called while others wait."""

    @property
    def is_work(self) -> bool:
        """Whether it is work of the node, which ends by itself once it has its memory."""
        return False

    def progress(self) -> Hashable:
        """Return what changes while the peer moves; None: it does not wait for a peer."""
        return None

    def evict(self) -> None:
        """Give everything back, at the cost of the connection."""

    def is_late(self, now_s: float) -> bool:
        """Whether it needs longer than others have to wait for it."""
        return now_s - self.since_s > max(PATIENCE_S, self.moved_bytes / RATE_MIN)

    @property
    def moved_bytes(self) -> int:
        """Bytes that the peer has sent or read since `since_s`; more where that is not known."""
        return self.largest_bytes


class WorkMemory(MemoryHolder):
    """What a request holds while the node works on it; use it as a context.

    It is never evicted: it ends by itself.
    """

    __slots__ = ()

    @property
    def is_work(self) -> bool:
        """It is."""
        return True

    def __init__(self, budget: MemoryBudget, address: str, size: int = 0) -> None:
        super().__init__(budget, address)
        self.resize(size)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.resize(0)


class _Waiter(msgspec.Struct):
    size: int
    address: str
    resume: Callable[[], None]
    since_s: float


class _Grant(msgspec.Struct, frozen=True):
    size: int
    since_s: float
    is_forced: bool = False  # above the limit


class MemoryBudget:
    """Counts the bytes of all holders, and lets them wait for room."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.size_bytes = 0
        self.evictions = 0
        self._holders: dict[MemoryHolder, None] = {}
        self._by_address: Counter[str] = Counter()
        # By connection, in turn; a connection may have several reads that wait.
        self._queues: dict[Hashable, dict[Hashable, _Waiter]] = {}
        self._groups: dict[Hashable, Hashable] = {}  # key -> connection
        self._waiting: Counter[str] = Counter()  # by address
        self._small: set[Hashable] = set()  # of the keys: they do not wait for large ones
        self._grants: dict[Hashable, _Grant] = {}  # counted, until they are used
        self._spent_since_s = 0.0  # since when there is more than the limit; 0: there is not
        self._timer: asyncio.TimerHandle | None = None
        self._grant_scheduled = False
        self._lost_bytes = 0  # that lost connections held, and the heap may have still
        self._is_releasing = False  # the heap, in a thread

    @property
    def free_bytes(self) -> int:
        """How much a large request may take; small ones may take more."""
        return max(0, int(self.limit_bytes * FREE_SHARE) - self.size_bytes)

    @property
    def is_spent(self) -> bool:
        """Whether not even small requests have room."""
        return self.size_bytes >= self.limit_bytes

    def change_limit(self, limit_bytes: int) -> None:
        """Set how much may be held from now on; what is held stays."""
        self.limit_bytes = limit_bytes
        self._schedule_grants()

    @property
    def waiting(self) -> int:
        """How many wait for room."""
        return len(self._groups)

    def resize(self, holder: MemoryHolder, size: int) -> None:
        """Count that a holder has so many bytes now."""
        change = size - holder.size_bytes
        if not holder.size_bytes:
            self._holders[holder] = None
            holder.since_s, holder.largest_bytes = time.monotonic(), size
            holder.mark = None
        elif not size:
            self._holders.pop(holder, None)
        elif size > holder.largest_bytes:
            holder.largest_bytes = size
        elif size <= holder.largest_bytes // 2:  # half of it is done: the rest has its own time
            holder.since_s, holder.largest_bytes = time.monotonic(), size
        holder.size_bytes = size
        self._count(holder.address, change)
        if change < 0:
            if self._groups:
                self._schedule_grants()
        elif self.size_bytes > self.limit_bytes:
            self._start_timer()

    @property
    def _has_lost_much(self) -> bool:
        """Whether the heap is to be given back before large requests go on."""
        return self._lost_bytes >= LOST_BYTES_MAX

    def count_lost(self, size: int) -> None:
        """Count what a connection held that is lost now."""
        self._lost_bytes += size
        if self._has_lost_much:
            self._start_timer()

    def admit(self, key: Hashable, size: int, address: str = "") -> bool:
        """Whether `key` may take so many more bytes now; the caller counts them at once."""
        grant = self._drop_grant(key)
        if grant is not None:
            self.forget(key)
            if grant.is_forced:
                return True
        elif self._small if size <= SMALL_BYTES else self._groups:
            return False
        return self._has_room(size, address)

    def wait(
        self,
        key: Hashable,
        size: int,
        resume: Callable[[], None],
        *,
        connection: Hashable,
        address: str = "",
    ) -> None:
        """Call `resume` once when there is room: then `admit` is to be called again, soon."""
        now_s = time.monotonic()
        queue = self._queues.setdefault(self._groups.setdefault(key, connection), {})
        waiter = queue.get(key)
        queue[key] = _Waiter(size, address, resume, now_s if waiter is None else waiter.since_s)
        if waiter is None:
            self._waiting[address] += 1
        (self._small.add if size <= SMALL_BYTES else self._small.discard)(key)
        if self._has_room(size, address):
            self._schedule_grants()
        self._start_timer()

    async def reserve(self, holder: MemoryHolder, size: int) -> None:
        """Wait until a holder may have this size."""
        more = size - holder.size_bytes
        while not self.admit(holder, more, holder.address):
            waiter = asyncio.get_running_loop().create_future()
            resume = partial(resolve_once, waiter)
            self.wait(holder, more, resume, connection=holder, address=holder.address)
            try:
                await waiter
            except asyncio.CancelledError:
                self.forget(holder)
                raise
        holder.resize(size)
        holder.since_s = time.monotonic()  # its peer could not go on before

    def forget(self, key: Hashable) -> None:
        """Wait no more: the connection is gone."""
        self._drop_grant(key)
        group = self._groups.pop(key, None)
        self._small.discard(key)
        if group is not None:
            queue = self._queues[group]
            address = queue.pop(key).address
            self._waiting[address] -= 1
            if not self._waiting[address]:
                del self._waiting[address]
            if not queue:
                del self._queues[group]

    # ---- grants

    def _count(self, address: str, change: int) -> None:
        self.size_bytes += change
        if address:
            self._by_address[address] += change
            if not self._by_address[address]:
                del self._by_address[address]

    def _has_room(self, size: int, address: str) -> bool:
        if self._has_lost_much and size > SMALL_BYTES:
            return False
        if self.size_bytes <= 0:
            return True  # more than the limit is possible for one alone
        share = 1.0 if size <= SMALL_BYTES else FREE_SHARE
        if self.size_bytes + size > self.limit_bytes * share:
            return False
        if self._by_address[address] + size <= self.limit_bytes * ADDRESS_SHARE:
            return True
        return len(self._groups) == self._waiting[address]  # no other address waits

    def _schedule_grants(self) -> None:
        if not self._grant_scheduled:
            self._grant_scheduled = True
            asyncio.get_running_loop().call_soon(self._grant)

    def _grant(self) -> None:
        """Let those go on for which there is room, one of each connection after the other."""
        self._grant_scheduled = False
        now_s = time.monotonic()
        has_granted = True
        while has_granted:
            has_granted = False
            for group in list(self._queues):
                queue = self._queues.get(group)
                if not queue:
                    continue
                key, waiter = next(iter(queue.items()))
                if not self._has_room(waiter.size, waiter.address):
                    continue
                has_granted = True
                self._grant_to(key, waiter, now_s)
                if group in self._queues:  # it has more: to the end
                    self._queues[group] = self._queues.pop(group)

    def _grant_to(
        self, key: Hashable, waiter: _Waiter, now_s: float, *, is_forced: bool = False
    ) -> None:
        self.forget(key)
        self._grants[key] = _Grant(waiter.size, now_s, is_forced)
        self.size_bytes += waiter.size
        waiter.resume()

    def _grant_above_limit(self, now_s: float) -> None:
        """Let one go on where all that the node works on waits: nothing of it would ever end."""
        works = [holder for holder in self._holders if holder.is_work]
        if not works or any(holder not in self._groups for holder in works):
            return
        waiters = {holder: self._queues[self._groups[holder]][holder] for holder in works}
        first = min(waiters, key=lambda holder: waiters[holder].since_s)
        self._grant_to(first, waiters[first], now_s, is_forced=True)

    def _drop_grant(self, key: Hashable) -> _Grant | None:
        grant = self._grants.pop(key, None)
        if grant is not None:
            self.size_bytes -= grant.size
        return grant

    # ---- while others wait

    def _start_timer(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now_s = time.monotonic()
        if self._has_lost_much:
            self._release_heap()
        for key, grant in list(self._grants.items()):
            if now_s - grant.since_s > STALLED_S:  # it is not needed any more
                self._drop_grant(key)
        if self.size_bytes <= self.limit_bytes:
            self._spent_since_s = 0.0
        if self._groups or self.size_bytes > self.limit_bytes:
            for holder in list(self._holders):
                holder.reclaim()
            self._grant()
            self._grant_above_limit(now_s)
        if self._groups or self.size_bytes > self.limit_bytes:
            self._make_room(now_s)
        else:
            for holder in self._holders:
                holder.mark = None
        is_spent = self.size_bytes > self.limit_bytes
        if self._groups or self._grants or is_spent or self._has_lost_much:
            self._start_timer()

    def _release_heap(self) -> None:
        """Give back what lost connections held, a tick after they were lost, in a thread."""
        if self._is_releasing:
            return
        self._is_releasing = True
        lost_bytes = self._lost_bytes

        def released(work: asyncio.Future[None]) -> None:
            self._is_releasing = False
            self._lost_bytes -= lost_bytes
            if not work.cancelled():
                self._schedule_grants()

        loop = asyncio.get_running_loop()
        loop.run_in_executor(None, release_heap).add_done_callback(released)

    def _make_room(self, now_s: float) -> None:
        """Evict peers that do not move, as many as the queue needs; or those that move slowly."""
        waiters = [waiter for queue in self._queues.values() for waiter in queue.values()]
        excess = max(0, self.size_bytes - self.limit_bytes)
        if excess and not self._spent_since_s:
            self._spent_since_s = now_s
        stalled, moving = self._look_at_holders(now_s)
        small = self.size_bytes / max(1, 2 * len(self._holders))
        stalled = [holder for holder in stalled if holder.size_bytes >= small]
        idle = [holder for holder in stalled if holder not in self._groups]
        victims, missing = idle, sum(each.size for each in waiters) - self.free_bytes + excess
        is_worked = any(each.is_work and each not in self._groups for each in self._holders)
        if stalled and not idle and not moving and not is_worked:
            # All of them wait for each other: some have to go.
            victims, missing = stalled, excess + self.limit_bytes // DEADLOCK_SHARE
        elif not idle:
            victims, missing = self._find_slow(stalled + moving, waiters, small, now_s)
        for holder in sorted(victims, key=self._rank, reverse=True):
            if missing <= 0:
                return
            missing -= holder.size_bytes
            self.evictions += 1
            holder.evict()

    def _look_at_holders(self, now_s: float) -> tuple[list[MemoryHolder], list[MemoryHolder]]:
        """Return those whose peers have not moved for `STALLED_S`, and those that move."""
        stalled: list[MemoryHolder] = []
        moving: list[MemoryHolder] = []
        for holder in self._holders:
            mark = holder.progress()
            if mark is None or mark != holder.mark:
                holder.mark, holder.mark_s = mark, now_s
            if mark is not None:
                late = now_s - holder.mark_s >= STALLED_S
                (stalled if late else moving).append(holder)
        return stalled, moving

    def _find_slow(
        self, holders: list[MemoryHolder], waiters: list[_Waiter], small: float, now_s: float
    ) -> tuple[list[MemoryHolder], int]:
        """Return holders that may be evicted although they move, and how much is missing.

        Those of an address with more than its share make room for other addresses soon. None below
        the size `small` has to go for one that waits.
        """
        share = self.limit_bytes * ADDRESS_SHARE
        crowd = [each for each in holders if self._by_address[each.address] > share]
        late = [each for each in waiters if now_s - each.since_s > STALLED_S]
        foreign = [each.size for each in late if self._by_address[each.address] <= share]
        if crowd and foreign:
            return crowd, sum(foreign)
        since_s = min((each.since_s for each in waiters), default=self._spent_since_s or now_s)
        if not holders or now_s - since_s <= PATIENCE_S:
            return [], 0
        if self.size_bytes > self.limit_bytes:
            return holders, self.size_bytes - self.limit_bytes
        slow = [each for each in holders if each.is_late(now_s) and each.size_bytes >= small]
        return sorted(slow, key=lambda each: each.since_s)[:1], 1

    def _rank(self, holder: MemoryHolder) -> tuple[int, int, float]:
        """Of the largest the newest goes first: the others are nearer to their end."""
        return self._by_address[holder.address], holder.size_bytes, holder.since_s


def resolve_once(waiter: asyncio.Future[None]) -> None:
    """Wake a coroutine that waits for room, unless it was cancelled."""
    if not waiter.done():
        waiter.set_result(None)


def release_heap() -> None:
    """Give free pages of the heap back to the system, where the C library can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class ClosedConnections:
    """Counts connections that are closed: those still in memory, and those since the last look.

    The garbage collector of a node goes by them.
    """

    def __init__(self) -> None:
        self._alive: WeakSet[object] = WeakSet()
        self._closings = 0

    def add(self, connection: object) -> None:
        """Count a connection that was closed just now."""
        self._alive.add(connection)
        self._closings += 1

    @property
    def alive(self) -> int:
        """How many hold memory until the garbage collector runs."""
        return len(self._alive)

    def count_new(self) -> int:
        """Return how many were closed since the last call."""
        closings, self._closings = self._closings, 0
        return closings


def _unsent() -> MemoryBudget:
    return MemoryBudget(UNSENT_BYTES_MAX)


def _received() -> MemoryBudget:
    return MemoryBudget(RECEIVED_BYTES_MAX)


def _unauthenticated() -> MemoryBudget:
    return MemoryBudget(UNAUTHENTICATED_BYTES_MAX)


class ConnectionMemory(msgspec.Struct, frozen=True):
    """What all connections of a node share: budgets, also of time, threads, and the closed ones."""

    unsent: MemoryBudget = msgspec.field(default_factory=_unsent)
    received: MemoryBudget = msgspec.field(default_factory=_received)
    unauthenticated: MemoryBudget = msgspec.field(default_factory=_unauthenticated)
    closed: ClosedConnections = msgspec.field(default_factory=ClosedConnections)
    iterations: IterationBudget = msgspec.field(default_factory=IterationBudget)
    transfers: ReplyTransfers = msgspec.field(default_factory=ReplyTransfers)
