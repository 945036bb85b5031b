"""Accepts the connections of one listening socket, within the limits of descriptors.

When the process runs out of descriptors, accepting pauses for a moment, and open connections go on.
The last descriptors are not for connections: the log needs them to open its next file.
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
    """One listening socket: `admit(accepted, address)` is called with each socket of a connection.

    The accepted socket does not block, and belongs to `admit`.
    """

    def __init__(
        self,
        name: str,
        listening: socket.socket,
        admit: Callable[[socket.socket, str], None],
        limits: Limits | None = None,
    ) -> None:
        self._listening = listening
        self._admit = admit
        self._loop = asyncio.get_running_loop()
        self._retry: asyncio.TimerHandle | None = None
        self._limits = limits or Limits()
        self.descriptor_end = descriptor_end(self._limits.spare_descriptors)
        self._pauses = AcceptPauses(name, self._limits, self._loop.time)
        self._sweep: asyncio.TimerHandle | None = None
        self._start()

    def close(self) -> None:
        """Close the socket; what was accepted stays."""
        for timer in (self._retry, self._sweep):
            if timer is not None:
                timer.cancel()
        self._loop.remove_reader(self._listening)
        self._listening.close()

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
            # The kernel gives out the lowest free number, so a number shows how many are in use.
            if accepted.fileno() >= self.descriptor_end:
                accepted.close()
                self._pause("the last descriptors are for files")
                return
            accepted.setblocking(False)
            self._admit(accepted, str(address[0]) if isinstance(address, tuple) else "")

    def _pause(self, problem: str) -> None:
        """Accept none for a moment."""
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


class ConnectionTasks:
    """Runs `connect(accepted, address)` as a task for each accepted socket.

    `connect` builds the connection; it ends when the connection is built, or when it is over.
    """

    def __init__(self, connect: Callable[[socket.socket, str], Coroutine[Any, Any, None]]) -> None:
        self._connect = connect
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, accepted: socket.socket, address: str) -> None:
        """Begin the task of a socket, which closes the socket when it fails or is cancelled."""
        task = asyncio.get_running_loop().create_task(self._connect(accepted, address))
        self._tasks.add(task)
        task.add_done_callback(partial(self._forget, accepted))

    def cancel(self) -> None:
        """Cancel all tasks."""
        for task in list(self._tasks):
            task.cancel()

    async def wait(self) -> None:
        """Return when all tasks have ended."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _forget(self, accepted: socket.socket, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():  # perhaps before its first step
            accepted.close()
        elif (problem := task.exception()) is not None:
            if not isinstance(problem, OSError):  # a client that is gone already
                log.error("listener.failed", exc_info=problem)
            accepted.close()


def descriptor_end(spare: int) -> int:
    """The first descriptor number that is not for connections."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY:
        return 1 << 30
    return most - min(spare, most // 4)
