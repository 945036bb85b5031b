"""Runs heavy, pure work (flush, merge, retention) in one helper process, away from the event loop.

    result = await helper.run(jobs.flush, flush_job)

The process is started by the first job, does one job at a time, is started again after it died, and
is stopped when it had nothing to do for a while: a server without load is one small process. A job
whose process died raises HelperDiedError and may be asked again: jobs write only files that nobody
knows yet.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pickle
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple, cast

from trilogue.node.helper import HURRY, NICENESS, SIZE

log = logging.getLogger(__name__)

IDLE_LIMIT_S = 120.0
CLOSE_LIMIT_S = 5.0

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")


class HelperDiedError(Exception):
    """The helper process ended in the middle of a job."""


class Helper:
    """The helper process as the server sees it; at most one process and one job at a time."""

    def __init__(self, *, idle_limit_s: float = IDLE_LIMIT_S, niceness: int = NICENESS) -> None:
        """Stop the process after `idle_limit_s` without a job; `niceness` lets others go first."""
        self.jobs_done = 0
        self.starts = 0
        self._idle_limit_s = idle_limit_s
        self._niceness = niceness
        self._process: Process | None = None
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
            with contextlib.suppress(ProcessLookupError):
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
                process.kill()
            await self._reaping

    async def _running(self) -> Process:
        if self._process is None or self._process.returncode is not None:
            command = [sys.executable, "-P", "-m", "trilogue.node.helper"]
            command += [str(os.getpid()), str(self._niceness)]
            try:
                self._process = await asyncio.create_subprocess_exec(
                    *command, stdin=PIPE, stdout=PIPE, start_new_session=True
                )
            except OSError as error:
                raise HelperDiedError(f"the helper process does not start: {error}") from error
            self.starts += 1
            log.debug("helper.started", extra={"pid": self._process.pid})
        return self._process

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.kill()
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
        if process is not None and process.stdin is not None:
            process.stdin.close()
            self._reaping = asyncio.ensure_future(process.wait())


async def _exchange(process: Process, job: object) -> tuple[object, Exception | None]:
    assert process.stdin is not None
    assert process.stdout is not None
    packet = pickle.dumps(job, pickle.HIGHEST_PROTOCOL)
    try:
        process.stdin.write(SIZE.pack(len(packet)) + packet)
        await process.stdin.drain()
        (size,) = SIZE.unpack(await process.stdout.readexactly(SIZE.size))
        answer = await process.stdout.readexactly(size)
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        code = await process.wait()
        raise HelperDiedError(f"the helper process ended, exit code {code}") from error
    return cast("tuple[object, Exception | None]", pickle.loads(answer))  # noqa: S301 -- our own process
