"""Clients for code without asyncio: a loop in a thread of its own, and calls that wait for it.

The base of the synchronous facades of all clients. Every call may be made from any thread,
but from no callback of a future: those run in the loop's thread, which cannot wait for itself.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from trilogue.client.errors import ClientError
from trilogue.client.lifecycle import AsyncCloseable

Result = TypeVar("Result")
Inner = TypeVar("Inner", bound=AsyncCloseable)
FORKED = (
    "this client was made before the process was forked, and its thread is in the parent only: "
    "make a client in each process"
)
GRACE_S = 1.0
"""How long calls of other threads have to end by themselves when the client was closed."""


class LoopThread:
    """A loop in a thread; `closed` makes the error of calls after its end."""

    def __init__(self, name: str, closed: Callable[[str], ClientError]) -> None:
        self._loop = asyncio.new_event_loop()
        self._closed = closed
        self._lock = threading.Lock()
        self._stopped = False
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    @property
    def is_forked(self) -> bool:
        """Whether this process is a fork of the one with the thread: nothing runs here."""
        return os.getpid() != self._pid

    def submit(self, work: Coroutine[Any, Any, Result]) -> concurrent.futures.Future[Result]:
        """Start a coroutine in the loop; ClientError in a forked process."""
        if self.is_forked:  # and the lock may be held for ever
            work.close()
            raise ClientError(FORKED)
        with self._lock:  # a stopped loop would never run the task
            if not self._stopped:
                return asyncio.run_coroutine_threadsafe(work, self._loop)
        work.close()
        raise self._closed("the client is closed")

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine in the loop and wait for it; an interrupt cancels it."""
        if threading.current_thread() is self._thread:
            work.close()
            raise ClientError("a callback may not wait: it runs in the thread that it waits for")
        future = self.submit(work)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise self._closed("the client is closed") from None
        finally:
            future.cancel()

    def stop(self) -> None:
        """End all tasks and the thread; ClientError in the loop's own thread."""
        if threading.current_thread() is self._thread:
            raise ClientError("a callback may not close: it runs in the thread that would end")
        with self._lock:
            if self._stopped:
                return
            self._stopped = True
            ending = asyncio.run_coroutine_threadsafe(_end_others(), self._loop)
        ending.result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _end_others() -> None:
    """Let other tasks finish or cancel them: no other thread may be left waiting."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        _, late = await asyncio.wait(others, timeout=GRACE_S)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)


class SyncFacade(Generic[Inner]):
    """The synchronous facade of a producer or consumer, to be used in a `with`."""

    def __init__(self, loop: LoopThread, inner: Inner) -> None:
        self._loop = loop
        self._inner = inner

    def close(self) -> None:
        """Close it as the asyncio client does: what is under way is awaited.

        Nothing is to be closed in a process that was forked: it all belongs to the parent.
        """
        if not self._loop.is_forked:
            self._loop.run(self._inner.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class SyncClientFacade(SyncFacade[Inner]):
    """The synchronous facade of a client, whose thread begins and ends with it."""

    def __init__(self, name: str, inner: Inner, closed: type[ClientError]) -> None:
        super().__init__(LoopThread(name, closed), inner)
        self._closed = closed
        self._closing = threading.Lock()

    def close(self) -> None:
        """Close what was made, the connections, and the thread."""
        if self._loop.is_forked:
            return
        with self._closing:  # a second caller waits for the first
            try:
                super().close()
            except self._closed:
                return
            finally:
                self._loop.stop()


def failed_future(problem: ClientError) -> concurrent.futures.Future[Any]:
    """The future of a message that the client itself refuses."""
    made: concurrent.futures.Future[Any] = concurrent.futures.Future()
    made.set_exception(problem)
    return made


def to_concurrent_future(inside: asyncio.Future[Result]) -> concurrent.futures.Future[Result]:
    """A future of the loop as one for other threads; it cannot be cancelled."""
    made: concurrent.futures.Future[Result] = concurrent.futures.Future()
    made.set_running_or_notify_cancel()  # a submitted message cannot be recalled

    def copy(done: asyncio.Future[Result]) -> None:
        problem = done.exception()
        if problem is not None:
            made.set_exception(problem)
        else:
            made.set_result(done.result())

    inside.add_done_callback(copy)
    return made


async def call_in_loop(function: Callable[..., Result], *arguments: Any, **named: Any) -> Result:
    """Call a function in the loop's thread."""
    return function(*arguments, **named)
