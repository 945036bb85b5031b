"""Runs CPU-heavy jobs (flush, merge, compaction) in a helper process, away from the event loop.

    result = await helper.run(jobs.flush, flush_job)

The first job starts the process. It does one job at a time, is restarted after it died, and stopped
after a time without jobs, so that an idle server is one small process. A job whose process died
raises HelperDiedError and may be repeated: jobs write only new files that meta does not know yet.

`subprocess` starts it with vfork: a fork, as by uvloop, copies the page tables of a server that has
its messages in memory, and held the loop for 20 ms.
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

from trilogue.node.background.helper_process import HURRY, NICENESS, SIZE

log = logging.getLogger(__name__)

IDLE_LIMIT_S = 120.0
CLOSE_LIMIT_S = 5.0

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")


class HelperDiedError(Exception):
    """The helper process ended during a job."""


class Child:
    """A child process with a socket as its stdin and stdout."""

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
        """Start it in this thread, with which it ends. Raises OSError."""
        process, ours = spawn(command)
        return cls(process, *await asyncio.open_unix_connection(sock=ours))

    @property
    def returncode(self) -> int | None:
        """The exit code; None while it runs."""
        return self._process.poll()

    async def wait(self) -> int:
        """Return the exit code once it has ended."""
        return await asyncio.to_thread(self._process.wait)

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        self._process.send_signal(number)


def spawn(command: Sequence[str]) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start a process in a new session; return it and our end of the socket. Raises OSError."""
    ours, theirs = socket.socketpair()
    with theirs:
        end = theirs.fileno()
        try:
            process = subprocess.Popen(  # noqa: S603 -- this program
                command, stdin=end, stdout=end, start_new_session=True
            )
        except BaseException:
            ours.close()
            raise
    return process, ours


class Helper:
    """The server's side of the helper process; at most one process and one job at a time."""

    def __init__(self, *, idle_limit_s: float = IDLE_LIMIT_S, niceness: int = NICENESS) -> None:
        """Stop the process after `idle_limit_s` without a job; `niceness` lowers its priority."""
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
        """The process id; None if no process is running."""
        alive = self._process is not None and self._process.returncode is None
        return self._process.pid if self._process is not None and alive else None

    async def run(self, function: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        """Call a module-level function in the helper; return its result or raise its exception."""
        async with self._turn:
            if self._closed:
                raise HelperDiedError("the helper is closed")
            self._stay()
            process = await self._running()
            try:
                result, error = await _exchange(process, (function, arguments))
            except BaseException:
                self._kill()  # also when cancelled: the next job would get its result
                raise
            self.jobs_done += 1
            self._leave_later()
            if error is not None:
                raise error
            return cast("Result", result)

    def hurry(self) -> None:
        """Make the running job, if any, ignore its pace."""
        process = self._process
        if self._turn.locked() and process is not None and process.returncode is None:
            process.send_signal(HURRY)

    async def close(self) -> None:
        """End the process by closing its stdin; kill it if that takes too long."""
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
            command = [sys.executable, "-P", "-m", "trilogue.node.background.helper_process"]
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
