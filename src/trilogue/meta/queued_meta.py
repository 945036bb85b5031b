"""The part of a store that is the same for SQLite and PostgreSQL: a queue of changes and a writer.

```
 loop ──write()──► queue ──► writer thread: rules and rows of every waiting change; COMMIT
   ▲                                                                                  │
   └──── state moves, waiters wake, in order ◄── call_soon_threadsafe ◄── durable ────┘
```

Changes that wait together share one transaction, but not their outcome: one whose precondition
fails, or whose rows break a rule, does not affect the others. The rules are checked on the writer's
own copy of the state, which is ahead of the loop's copy by exactly what is not durable yet.

Where several nodes share a store, each reads in its transactions what the others changed before, so
the rules are checked on what is durable, and the states of all nodes move in the same order.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from trilogue.log.errors import LogError, StorageFailed
from trilogue.log.segments.manifest import Manifest
from trilogue.meta.change_log import decode_writes, last_version
from trilogue.meta.errors import Fenced, MetaError, TooManyChanges
from trilogue.meta.ids import IdPool
from trilogue.meta.operations import (
    ID_BLOCKS,
    AllocateIds,
    ChangeResult,
    Fence,
    Op,
    Precondition,
)
from trilogue.meta.state import MetaState, StateChange, Write, apply_change, apply_writes

log = logging.getLogger(__name__)

BATCH_MAX = 256  # changes in one transaction
WAITING_MAX = 10_000  # changes in the queue
CHANGES_KEPT = 10_000  # a node that is further behind reads all rows

Done = Callable[[ChangeResult | None, Exception | None], None]
OnFollowed = Callable[[Sequence[Write]], None]
OnFailed = Callable[[Exception], None]


class QueuedChange:
    """One change on its way through the queue and back."""

    __slots__ = ("done", "error", "fence", "made", "ops", "preconditions")

    def __init__(
        self,
        ops: Sequence[Op],
        preconditions: Sequence[Precondition],
        fence: Fence | None,
        done: Done,
    ) -> None:
        self.ops = tuple(ops)
        self.preconditions = tuple(preconditions)
        self.fence = fence
        self.done = done
        self.made: StateChange | None = None
        self.error: Exception | None = None


class QueuedMeta(ABC):
    """A store with one writer thread, which a subclass runs in `_write`."""

    def __init__(self, state: MetaState, on_failed: OnFailed | None, *, shared: bool) -> None:
        """`state` is the durable one; `shared`: other nodes change it, too."""
        self.failed: Exception | None = None
        self.on_followed: OnFollowed = lambda _writes: None
        self.shared = shared
        self.state = state
        self._on_failed = on_failed
        self._ahead = state.copy()  # the writer's: moves before the change is durable
        self._ids = IdPool()
        self._refilling: set[str] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._queue: queue.SimpleQueue[QueuedChange | None] = queue.SimpleQueue()
        self._finished: deque[QueuedChange | list[Write]] = deque()
        self._thread = threading.Thread(target=self._write, name="meta", daemon=True)

    @property
    def unavailable_s(self) -> float:
        """For how many seconds the store has not been reachable; 0 if it is."""
        return 0.0

    # ── the loop's side ───────────────────────────────────────────────────────────────────────

    async def write(
        self,
        ops: Sequence[Op],
        preconditions: Sequence[Precondition] = (),
        fence: Fence | None = None,
    ) -> ChangeResult:
        """Make a change durable or raise, as `Meta.write`."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[ChangeResult] = loop.create_future()

        def done(result: ChangeResult | None, error: Exception | None) -> None:
            if future.done():  # the caller was cancelled
                return
            if result is not None:
                future.set_result(result)
            else:
                future.set_exception(error or StorageFailed("no result"))

        self._submit(QueuedChange(ops, preconditions, fence, done), loop)
        return await future

    def allocate(self, kind: str) -> int:
        """Return one id; the next block is requested when half of one is used."""
        block = ID_BLOCKS.get(kind, 0)
        if self._ids.available(kind) <= block // 2 and block and kind not in self._refilling:
            self._refill(kind, block)
        return self._ids.take_id(kind)

    async def reserve(self, kind: str, count: int) -> None:
        """Wait until `count` ids can be allocated."""
        while (missing := count - self._ids.available(kind)) > 0:
            result = await self.write([AllocateIds(kind, missing)])
            for block in result.blocks:
                self._ids.add(block)

    def follow(self, on_followed: OnFollowed) -> None:
        """Call back with the rows that other nodes wrote, after each move of `state` by them."""
        self.on_followed = on_followed
        self._loop = asyncio.get_running_loop()
        self._loop.call_soon(self._deliver)

    async def catch_up(self) -> None:
        """Return when all changes that are durable now are in `state`."""
        if self.shared:
            await self.write([])

    @abstractmethod
    def snapshots(self) -> Iterator[tuple[bytes, bytes]]:
        """Read all snapshots, in the order of their keys."""

    def manifest(self) -> Manifest:
        """Return the present topics, partitions and segments."""
        return self.state.manifest()

    def close(self) -> None:
        """Write the changes in the queue, then close the store."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._wake()
            self._thread.join()
        self.failed = self.failed or StorageFailed("meta is closed")

    def _wake(self) -> None:
        """Wake a writer that does not wait at the queue."""

    def _submit(self, change: QueuedChange, loop: asyncio.AbstractEventLoop) -> None:
        if self.failed is not None:
            raise self._refusal()
        if self._queue.qsize() >= WAITING_MAX:
            raise TooManyChanges("too many changes are waiting")
        self._loop = loop
        self._queue.put(change)
        self._wake()

    def _refill(self, kind: str, count: int) -> None:
        def done(result: ChangeResult | None, error: Exception | None) -> None:
            self._refilling.discard(kind)
            for block in result.blocks if result else ():
                self._ids.add(block)
            if error is not None:
                log.warning("meta.refill_failed", extra={"kind": kind, "error": str(error)})

        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # before the loop runs: what is at hand has to do
            return
        self._refilling.add(kind)
        try:
            self._submit(QueuedChange([AllocateIds(kind, count)], (), None, done), loop)
        except (MetaError, LogError) as error:
            done(None, error)

    def _deliver(self) -> None:
        """Move the state and wake the waiters, in the order in which changes became durable."""
        while self._finished:
            change = self._finished.popleft()
            if isinstance(change, list):
                apply_writes(self.state, change)
                self.on_followed(change)
                continue
            if change.made is None:
                change.done(None, change.error)
                continue
            apply_writes(self.state, change.made.writes)
            change.done(ChangeResult(change.made.version, tuple(change.made.blocks)), None)
        if self.failed is not None and self._on_failed is not None:
            on_failed, self._on_failed = self._on_failed, None
            on_failed(self.failed)

    def _refusal(self) -> Exception:
        if isinstance(self.failed, Fenced):
            return Fenced(str(self.failed))
        return StorageFailed(str(self.failed))

    # ── the writer's side ─────────────────────────────────────────────────────────────────────

    @abstractmethod
    def _write(self) -> None:
        """Write what is in the queue until None comes."""

    def _take_waiting(self, batch: list[QueuedChange | None]) -> tuple[list[QueuedChange], bool]:
        """Return the changes that wait, after those of `batch`, and whether more may come."""
        with contextlib.suppress(queue.Empty):
            while len(batch) < BATCH_MAX:
                batch.append(self._queue.get_nowait())
        return [change for change in batch if change is not None], None not in batch

    def _apply(self, change: QueuedChange) -> bool:
        """Apply a change to the writer's state; return whether there are rows to write."""
        if self.shared and not change.ops and not change.preconditions:
            change.made = StateChange(self._ahead)  # `catch_up`
            change.made.version = self._ahead.version
            return False
        try:
            change.made = apply_change(self._ahead, change.ops, change.preconditions, change.fence)
        except MetaError as error:
            change.error = error
            return False
        return True

    def _check_epoch(self, epoch: int) -> None:
        if epoch != self._ahead.node_epoch:
            raise Fenced(f"epoch {epoch} began, this is {self._ahead.node_epoch}")

    def _decode_records(self, records: Sequence[bytes]) -> list[Write] | None:
        """Return the writes of all changes since the writer's state; None if some are missing."""
        writes = [write for record in records for write in decode_writes(record)]
        if writes and len(records) != last_version(writes) - self._ahead.version:
            return None
        return writes

    def _apply_followed(self, writes: list[Write]) -> None:
        """Move the writer's state, and the loop's after it, by what others changed."""
        if writes:
            apply_writes(self._ahead, writes)
            self._hand_back([writes])

    def _fail(self, error: Exception) -> Exception:
        """Record that the store has failed for good, and return the error of its callers."""
        if self.failed is None:
            fenced = isinstance(error, Fenced)
            self.failed = error if fenced else StorageFailed(f"meta cannot be written: {error}")
            self.failed.__cause__ = None if fenced else error
            log.error("meta.failed", extra={"error": repr(error)})
        return self._refusal()

    def _undo(self, changes: Sequence[QueuedChange]) -> None:
        """Take changes that are not durable back from the writer's state."""
        for change in reversed(changes):
            if change.made is not None:
                change.made.undo()
                change.made = None

    def _refuse(self, changes: Sequence[QueuedChange], error: Exception) -> None:
        """Undo changes and give each an error, unless it has one of its own."""
        self._undo(changes)
        for change in changes:
            change.error = change.error or error

    def _hand_back(self, changes: Sequence[QueuedChange | list[Write]]) -> None:
        self._finished.extend(changes)
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: no caller waits
                self._loop.call_soon_threadsafe(self._deliver)
