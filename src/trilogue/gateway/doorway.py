"""What every door is made of: what stands behind it, its tasks, and who waits for room in the log.

    door = SomeDoor(settings=..., broker=..., log=..., ...)      # `Behind` names all of them
    async with door:                                             # owns the tasks of long requests
        ...

A protocol's `Shared` derives from this and adds what its handlers ask for; its door adds sessions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Executor
from contextlib import AsyncExitStack
from typing import Any, NotRequired, Protocol, Self, TypedDict, Unpack

from trilogue.broker.access import Authorizer
from trilogue.broker.broker import Broker
from trilogue.broker.commit import Commit
from trilogue.gateway.conversions import Conversions
from trilogue.gateway.read_ahead import ReadAhead
from trilogue.gateway.stream import STOP_BROKER, Stream
from trilogue.log.log import Log
from trilogue.wire.frames import Frames, Int32Frames

logger = logging.getLogger(__name__)


class Behind(TypedDict):
    """What a node gives to each of its doors."""

    broker: Broker
    log: Log
    commit: Callable[[Commit[Any]], Awaitable[object]]  # carries it out, or raises why not
    advertised: Callable[[], tuple[str, int]]  # where clients shall come back to
    authorizer: Authorizer
    now_ms: Callable[[], int]
    executor: Executor  # for cold reads
    conversions: NotRequired[Conversions]


class Pressed(Protocol):
    """A connection that was stopped because the log had no room."""

    stream: Stream


class Doorway:
    """One door without its protocol."""

    def __init__(self, **behind: Unpack[Behind]) -> None:
        self.broker = behind["broker"]
        self.log = behind["log"]
        self.journal = self.log.journal
        self.commit = behind["commit"]
        self.advertised = behind["advertised"]
        self.authorizer = behind["authorizer"]
        self.now_ms = behind["now_ms"]
        self.executor = behind["executor"]
        self.conversions = behind.get("conversions") or Conversions()
        self.read_ahead = ReadAhead(self.executor)
        self._stack = AsyncExitStack()
        self._group: asyncio.TaskGroup
        self._tasks: set[asyncio.Task[None]] = set()
        self._pressed: dict[Pressed, None] = {}
        self.call_soon: Callable[[Callable[[], None]], object]

    async def __aenter__(self) -> Self:
        self._group = await self._stack.enter_async_context(asyncio.TaskGroup())
        self.call_soon = self.loop.call_soon
        return self

    async def __aexit__(self, *_problem: object) -> None:
        await asyncio.sleep(0)  # what was spawned in this turn begins, so that it can end
        for task in list(self._tasks):
            task.cancel()
        await self._stack.aclose()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that everything here runs on."""
        return asyncio.get_running_loop()

    def frames(self, limit: int) -> Frames:
        """What cuts the bytes of a connection: a length before each frame, in most protocols."""
        return Int32Frames(limit)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something long as a task of the door."""
        task = self._group.create_task(_contained(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def wait_for_relief(self, connection: Pressed) -> None:
        """Let a connection go on when the log has room again."""
        if not self._pressed:
            self.log.on_relief(self._relieved)
        self._pressed[connection] = None

    def _relieved(self) -> None:
        pressed, self._pressed = self._pressed, {}
        for connection in pressed:
            connection.stream.go_on(STOP_BROKER)


async def _contained(work: Coroutine[Any, Any, None]) -> None:
    """A mistake in one task must not end the group, which is to say the door."""
    try:
        await work
    except Exception:
        logger.exception("task.failed")
