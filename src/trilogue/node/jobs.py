"""Runs heavy, pure work (flush, merge, retention) in one helper process, away from the event loop.

    result = await helper.run(jobs.flush, flush_job)

The process is started by the first job, does one job at a time, is started again after it died, and
is stopped when it had nothing to do for a while: a server without load is one small process. A job
whose process died raises HelperDiedError and may be asked again: jobs write only files that nobody
knows yet.

It is started by `subprocess`, which does so with vfork: a fork, as uvloop's, copies the page tables
of a server that has its messages in memory, and held the loop for 20 ms.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Self, TypeVar, TypeVarTuple, cast

from trilogue.node.helper import HURRY, NICENESS, SIZE

log = logging.getLogger(__name__)

IDLE_LIMIT_S = 120.0
CLOSE_LIMIT_S = 5.0

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")


class HelperDiedError(Exception):
    """The helper process ended in the middle of a job."""


class Child:
    """A process that is spoken to over a socket, which it has for stdin and stdout."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.pid = process.pid
        self._process = process

    @classmethod
    async def start(cls, command: Sequence[str]) -> Self:
        """Start it in this thread, since it ends with the thread; OSError when it cannot be."""
        process, ours = spawn(command)
        return cls(process, *await asyncio.open_unix_connection(sock=ours))

    @property
    def returncode(self) -> int | None:
        """How it ended; None while it runs."""
        return self._process.poll()

    async def wait(self) -> int:
        """Return how it ended, when it has."""
        return await asyncio.to_thread(self._process.wait)

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        self._process.send_signal(number)


def spawn(command: Sequence[str]) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start a process in a session of its own; with our end of the socket. OSError."""
    ours, theirs = socket.socketpair()
    with theirs:
        end = theirs.fileno()
        try:
            process = subprocess.Popen(  # noqa: S603 -- this very program
                command, stdin=end, stdout=end, start_new_session=True
            )
        except BaseException:
            ours.close()
            raise
    return process, ours


class Helper:
    """The helper process as the server sees it; at most one process and one job at a time."""

    def __init__(self, *, idle_limit_s: float = IDLE_LIMIT_S, niceness: int = NICENESS) -> None:
        """Stop the process after `idle_limit_s` without a job; `niceness` lets others go first."""
        self.jobs_done = 0
        self.starts = 0
        self._idle_limit_s = idle_limit_s
        self._niceness = niceness
        self._process: Child | None = None
        self._turn = asyncio.Lock()
        self._idle_timer: asyncio.TimerHandle | None = None
        self._reaping: asyncio.Future[int] | None = None
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The process that would take the next job; None when none is running."""
        alive = self._process is not None and self._process.returncode is None
        return self._process.pid if self._process is not None and alive else None

    async def run(self, function: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        """Call a module-level function in the helper; its exception is raised here."""
        async with self._turn:
            if self._closed:
                raise HelperDiedError("the helper is closed")
            self._stay()
            process = await self._running()
            try:
                result, error = await _exchange(process, (function, arguments))
            except BaseException:
                self._kill()  # also when cancelled: its answer would be taken for the next one's
                raise
            self.jobs_done += 1
            self._leave_later()
            if error is not None:
                raise error
            return cast("Result", result)

    def hurry(self) -> None:
        """Tell the job under way, if there is one, to forget its pace."""
        process = self._process
        if self._turn.locked() and process is not None and process.returncode is None:
            process.send_signal(HURRY)

    async def close(self) -> None:
        """End the process: by the end of its stdin, after a while by force."""
        self._closed = True
        self._stay()
        process = self._process
        self._leave()
        if self._reaping is None:
            return
        try:
            async with asyncio.timeout(CLOSE_LIMIT_S):
                await asyncio.shield(self._reaping)
        except TimeoutError:
            if process is not None and process.returncode is None:
                process.send_signal(signal.SIGKILL)
            await self._reaping

    async def _running(self) -> Child:
        if self._process is not None and self._process.returncode is not None:
            self._process.writer.close()  # it died between jobs
            self._process = None
        if self._process is None:
            command = [sys.executable, "-P", "-m", "trilogue.node.helper"]
            command += [str(os.getpid()), str(self._niceness)]
            try:
                self._process = await Child.start(command)
            except OSError as error:
                raise HelperDiedError(f"the helper process does not start: {error}") from error
            self.starts += 1
            log.debug("helper.started", extra={"pid": self._process.pid})
        return self._process

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.writer.close()
            process.send_signal(signal.SIGKILL)
            self._reaping = asyncio.ensure_future(process.wait())

    def _stay(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None

    def _leave_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._idle_timer = loop.call_later(self._idle_limit_s, self._leave)

    def _leave(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.writer.close()
            self._reaping = asyncio.ensure_future(process.wait())


async def _exchange(process: Child, job: object) -> tuple[object, Exception | None]:
    packet = pickle.dumps(job, pickle.HIGHEST_PROTOCOL)
    try:
        process.writer.write(SIZE.pack(len(packet)) + packet)
        await process.writer.drain()
        (size,) = SIZE.unpack(await process.reader.readexactly(SIZE.size))
        answer = await process.reader.readexactly(size)
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        code = await process.wait()
        raise HelperDiedError(f"the helper process ended, exit code {code}") from error
    return cast("tuple[object, Exception | None]", pickle.loads(answer))  # noqa: S301 -- our own process
