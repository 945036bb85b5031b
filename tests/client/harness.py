"""Scripted servers run: in the test's own loop, or in a thread for clients that block.

In the test's own loop only the time counts in which nothing is ready: a machine that gives the
process no time, or is slow, lets no time-out pass. What is not answered is given up as usual.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import selectors
import threading
import time
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, Protocol, Self, TypeVar

from tests.waiting import run_ready_tasks

LOOP_STEP_S = 1e-6  # of an iteration that waits for nothing, so that a loop of them ends

Result = TypeVar("Result")
Served = TypeVar("Served", bound=AbstractAsyncContextManager[Any])


class HangingUp(Protocol):
    """One connection, seen from the server."""

    def hang_up(self) -> None: ...


Peer = TypeVar("Peer", bound=HangingUp)


class ScriptedServer(Generic[Peer]):
    """Records requests in `seen`; `next_up` overrides the usual responses."""

    def __init__(self) -> None:
        self.next_up: dict[str, deque[Any]] = defaultdict(deque)
        self.seen: list[tuple[str, Any]] = []
        self.peers: list[Peer] = []
        self.port = 0
        self._news: list[asyncio.Future[None]] = []
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def open(self) -> None:
        self._server = await asyncio.start_server(self.serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def __aexit__(self, *_: object) -> None:
        await self.shut()

    async def shut(self) -> None:
        assert self._server is not None
        self._server.close()
        for peer in self.peers:
            peer.hang_up()
        self.peers.clear()
        for _ in range(3):
            await run_ready_tasks()  # closed transports take a turn to go

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take requests from a connection until it ends."""
        raise NotImplementedError

    def upset(self, name: str) -> Any:
        """The scripted reaction to this request, if any."""
        return self.next_up[name].popleft() if self.next_up[name] else None

    def note(self, name: str, message: Any) -> None:
        self.seen.append((name, message))
        news, self._news = self._news, []
        for one in news:
            if not one.done():
                one.set_result(None)

    def all(self, name: str) -> list[Any]:
        return [message for seen, message in self.seen if seen == name]

    async def saw(self, name: str, count: int = 1) -> list[Any]:
        """Wait until a request came so often."""
        async with asyncio.timeout(60):
            while len(self.all(name)) < count:
                future = asyncio.get_running_loop().create_future()
                self._news.append(future)
                await future
        return self.all(name)


class IdleSelector(selectors.DefaultSelector):
    """Adds up how long nothing was ready, and no more than it was to wait for."""

    idle_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        began_s = time.monotonic()
        events = super().select(timeout)
        waited_s = time.monotonic() - began_s
        self.idle_s += max(LOOP_STEP_S, waited_s if timeout is None else min(waited_s, timeout))
        return events


class IdleClockLoop(asyncio.SelectorEventLoop):
    """A loop with a clock that stands still while the loop has something to do."""

    def __init__(self) -> None:
        self._idle = IdleSelector()
        super().__init__(self._idle)

    def time(self) -> float:
        return self._idle.idle_s


def run_on_idle_clock(work: Coroutine[Any, Any, Result]) -> Result:
    """Run it to its end on a loop of its own, whose clock counts idle time."""
    with asyncio.Runner(loop_factory=IdleClockLoop) as runner:
        return runner.run(work)


def in_one_loop(test: Any, work: Callable[..., Awaitable[None]]) -> Any:
    """A test as pytest wants it: `work` gives it its first two arguments, pytest the others."""

    @functools.wraps(test)
    def run(**arguments: Any) -> None:
        run_on_idle_clock(work(**arguments))  # type: ignore[arg-type]

    # Pytest must not look for fixtures called broker and client.
    parameters = list(inspect.signature(test).parameters.values())[2:]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


@contextlib.contextmanager
def on_its_own_loop(server: Served) -> Iterator[Served]:
    """A server on a loop of its own, so that a client that blocks can be tested."""
    started, loop = threading.Event(), asyncio.new_event_loop()
    stop = asyncio.Event()

    async def run() -> None:
        async with server:
            started.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()))
    thread.start()
    started.wait()
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
