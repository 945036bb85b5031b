"""Accepts the connections of one listening socket, within the limits of descriptors.

`loop.create_server` spins where descriptors are short, takes those that files need, and does not
know of connections that it accepted and has not built yet: a loop that ends then leaves them open.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from trilogue.gateway.stream import Limits

log = logging.getLogger(__name__)

ACCEPTS_PER_STEP = 64
# No descriptor or no memory for another connection: accepting pauses.
EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class AcceptPauses:
    """Pauses of accepting at one listener; those that follow each other are logged as one."""

    def __init__(self, listener: str, limits: Limits, monotonic: Callable[[], float]) -> None:
        self._listener = listener
        self._limits = limits
        self._monotonic = monotonic
        self._since_s: float | None = None
        self._last_s = 0.0

    @property
    def is_open(self) -> bool:
        """Whether pauses have begun whose end is not logged."""
        return self._since_s is not None

    def begin(self, problem: str) -> None:
        """Log a pause, unless it follows another one."""
        self._last_s = self._monotonic()
        if self._since_s is None:
            self._since_s = self._last_s
            log.warning(
                "listener.accept_paused", extra={"listener": self._listener, "problem": problem}
            )

    def end(self) -> None:
        """Log the end of pauses that followed each other, and how long they took.

        Called now and then; they have ended when there was none for a while.
        """
        since_s = self._since_s
        if since_s is not None and self._monotonic() - self._last_s >= self._limits.accept_quiet_s:
            self._since_s = None
            paused_s = self._last_s - since_s + self._limits.accept_retry_s
            log.warning(
                "listener.accept_resumed",
                extra={"listener": self._listener, "paused_s": round(paused_s, 1)},
            )


class SocketAcceptor:
    """One listening socket; `connect(accepted, address)` runs as a task for each connection.

    `connect` builds the connection of an accepted socket; it ends when the connection is built, or
    when it is over.
    """

    def __init__(
        self,
        name: str,
        listening: socket.socket,
        connect: Callable[[socket.socket, str], Coroutine[Any, Any, None]],
        limits: Limits | None = None,
    ) -> None:
        self._listening = listening
        self._connect = connect
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._retry: asyncio.TimerHandle | None = None
        self._limits = limits or Limits()
        self._descriptor_end = descriptor_end(self._limits.spare_descriptors)
        self._pauses = AcceptPauses(name, self._limits, self._loop.time)
        self._sweep: asyncio.TimerHandle | None = None
        self._start()

    def cancel(self) -> None:
        """End all that `connect` is about."""
        for task in list(self._tasks):
            task.cancel()

    async def close(self) -> None:
        """Close the socket, and return when nothing is left that `connect` is about."""
        for timer in (self._retry, self._sweep):
            if timer is not None:
                timer.cancel()
        self._loop.remove_reader(self._listening)
        self._listening.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self) -> None:
        self._retry = None
        self._loop.add_reader(self._listening, self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTS_PER_STEP):
            try:
                accepted, address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as problem:
                if problem.errno not in EXHAUSTED:
                    raise
                self._pause(str(problem))
                return
            if accepted.fileno() >= self._descriptor_end:
                accepted.close()
                self._pause("the last descriptors are for files")
                return
            accepted.setblocking(False)
            task = self._loop.create_task(self._connect(accepted, str(address[0])))
            self._tasks.add(task)
            task.add_done_callback(partial(self._forget, accepted))

    def _forget(self, accepted: socket.socket, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():  # perhaps before its first step
            accepted.close()
        elif (problem := task.exception()) is not None:
            if not isinstance(problem, OSError):  # a client that is gone already
                log.error("listener.failed", exc_info=problem)
            accepted.close()

    def _pause(self, problem: str) -> None:
        self._pauses.begin(problem)
        if self._sweep is None:
            self._sweep = self._loop.call_later(self._limits.sweep_s, self._end_pauses)
        self._loop.remove_reader(self._listening)
        self._retry = self._loop.call_later(self._limits.accept_retry_s, self._start)

    def _end_pauses(self) -> None:
        """Look again each second while there are pauses."""
        self._pauses.end()
        self._sweep = None
        if self._pauses.is_open:
            self._sweep = self._loop.call_later(self._limits.sweep_s, self._end_pauses)


def descriptor_end(spare: int) -> int:
    """The first descriptor number that is not for connections."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY:
        return 1 << 30
    return most - min(spare, most // 4)
