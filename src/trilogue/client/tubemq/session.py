"""A producer's or consumer's standing with the masters, kept through everything.

             register                      the master agrees
    (new) -------------> registering ---------------------------> registered -- heartbeats --+
                          ^   |  lost, silent, standby:               |  ^                   |
                          |   +--> the next master                    |  +-------------------+
                          +-------------------------------------------+
                            connection lost, no answer, "no such node" (411), certificate (415)

Of several masters one is active; the others answer StandbyException (seed 002, producer, first
note). What a master refuses for good ends the session: every call raises it from then on.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import platform
import random
import re
import socket
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from google.protobuf.message import Message

from trilogue.client.closing import Closing
from trilogue.client.errors import ClientError, ConnectionLost
from trilogue.client.pool import Address
from trilogue.client.retry import pauses
from trilogue.client.tubemq.auth import Credentials
from trilogue.client.tubemq.connection import TubeConnection
from trilogue.client.tubemq.errors import (
    BadFrame,
    ClosedError,
    RemoteFailure,
    TimedOut,
    TubeError,
)
from trilogue.client.tubemq.options import ClientOptions
from trilogue.client.tubemq.servers import Servers, log
from trilogue.wire.errors import WireError
from trilogue.wire.tubemq.errors import TubeCode
from trilogue.wire.tubemq.methods import BY_NAME

VERSION: Final = "trilogue"
RUNTIME: Final = f"python-{platform.python_version()}"
"""Stands where Java clients tell their version of Java."""
UNDEFINED: Final = -2
"""What the protocol says instead of leaving a number out."""
PASSES: Final = (ConnectionLost, TimedOut, RemoteFailure)
"""What another master, or another moment, may not do to us."""
FOREVER: Final = float("inf")
NAME: Final = re.compile(r"[_A-Za-z0-9.\-]+")
NAME_SIZE_MAX: Final = 1024
A = TypeVar("A", bound=Message)
_numbers = itertools.count(1)


@dataclass(slots=True)
class Core:
    """What all producers and consumers of one client share."""

    options: ClientOptions
    masters: list[Address]
    dice: random.Random
    clock: Callable[[], float] = time.time
    """Seconds since 1970."""
    host: str = ""
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def host_name(self) -> str:
        """This machine's address as the masters see it."""
        if not self.host:
            self.host = self.options.host_name or local_address(self.masters[0])
        return self.host


class Session(Closing):
    """What a producer and a consumer have in common."""

    KIND = "client"

    def __init__(self, core: Core, servers: Servers, client_id: str) -> None:
        self.core = core
        self.servers = servers
        self.client_id = client_id
        options = core.options
        self.credentials = Credentials(options.user, options.password, core.clock, core.dice)
        self.failure: ClientError | None = None
        self.closed = False
        self.registrations = 0
        """How often a master took us in."""
        self._loop = asyncio.get_running_loop()
        self._at = 0
        self._registered = False
        self._wake = asyncio.Event()
        self.lock = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    # What producers and consumers fill in.

    async def _register_once(self) -> None:
        """Ask the master to take us in, and keep what it says."""
        raise NotImplementedError

    async def _beat_once(self) -> None:
        """Tell the master that we are there, and keep what it says."""
        raise NotImplementedError

    async def _leave(self) -> None:
        """Tell everybody that we go; masters in the lock, where no heartbeat comes between."""
        raise NotImplementedError

    def _on_failed(self) -> None:
        """It is over: tell whoever waits."""
        raise NotImplementedError

    @property
    def _eager(self) -> bool:
        """Whether the next heartbeat is worth more than the usual one."""
        return False

    # Asking masters.

    @property
    def master(self) -> Address:
        """The master that is asked now."""
        return self.core.masters[self._at % len(self.core.masters)]

    async def ask_master(self, name: str, message: Message, kind: type[A]) -> A:
        """Ask the master of now; TubeError when it refuses, and what `request` raises."""
        connection = await self.servers.get(self.master)
        connection.watchers.add(self._on_master_lost)
        return await asked(connection, name, message, kind)

    def _on_master_lost(self) -> None:
        """The connection is gone: register again (seed 002, producer, second note)."""
        if not self.closed:
            self._registered = False
            self._wake.set()

    async def start(self) -> None:
        """Register for the first time: what is refused is raised, what may pass tried again."""
        try:
            await self._register_within(self.core.options.register_timeout_s)
        except BaseException:
            self.closed = True
            self._unwatch()
            raise
        self._task = self.spawn(self._live())

    async def _register_within(self, timeout_s: float) -> None:
        trouble: ClientError | None = None
        end = self._loop.time() + timeout_s
        for pause in pauses(0.05, 2.0, timeout_s, self.core.dice):
            for _ in self.core.masters:
                self._refuse_closed()
                try:
                    await self._register_at_master()
                except PASSES as problem:
                    trouble = self._switched(problem)
                except TubeError as problem:
                    if not problem.retriable:
                        raise
                    trouble = self._switched(problem)
                else:
                    return
            if self._loop.time() + pause >= end:
                break
            await asyncio.sleep(pause)
        assert trouble is not None
        raise trouble

    def _switched(self, problem: ClientError) -> ClientError:
        """Turn to the next master."""
        log.info("tubemq.master_switched", extra={"master": self.master, "problem": str(problem)})
        self._at += 1
        return problem

    async def _register_at_master(self) -> None:
        with sensible(self.master):
            await self._register_once()
        self.credentials.required = False
        self._registered = True
        self.registrations += 1

    # Heartbeats.

    async def _live(self) -> None:
        """Heartbeats, and what they lead to, until the end."""
        again = self._again()
        while True:
            await self._rest()
            if self.closed:
                return
            try:
                await self.beat()
            except ClosedError:
                return
            except PASSES as problem:
                self._switched(problem)
                self._registered = False
                await asyncio.sleep(min(next(again), self.core.options.heartbeat_s))
                self._wake.set()
                continue
            except TubeError as problem:
                self._on_refused(problem)
                if self.failure is None and not self._registered:
                    await asyncio.sleep(next(again))  # it may take us in and refuse us for ever
                    continue
            except ClientError as problem:
                self._fail(problem)
                return
            if self.failure is not None:
                return
            again = self._again()

    def _again(self) -> Iterator[float]:
        """Pauses after one failure and the next."""
        return pauses(0.05, self.core.options.heartbeat_s, FOREVER, self.core.dice)

    async def _rest(self) -> None:
        """Wait for the next heartbeat, or for something that it cannot wait for."""
        options = self.core.options
        period_s = options.first_heartbeats_s if self._eager else options.heartbeat_s
        with suppress(TimeoutError):
            async with asyncio.timeout(min(period_s, options.heartbeat_s)):
                await self._wake.wait()
        self._wake.clear()

    async def beat(self) -> None:
        """Send a heartbeat now; register first where we are not (or no longer) known."""
        async with self.lock:
            self._refuse_closed()
            if not self._registered:
                await self._register_within(self.core.options.register_timeout_s)
            with sensible(self.master):
                await self._beat_once()

    def _on_refused(self, problem: TubeError) -> None:
        log.warning("tubemq.refused", extra={"client": self.client_id, "problem": str(problem)})
        if problem.error is TubeCode.NO_NODE and self._registered:
            self._registered = False  # seed 002: a master that forgot us is told again
            self._wake.set()
        elif problem.error is TubeCode.CERTIFICATE_FAILURE and self._registered:
            self._registered = False
            self.credentials.required = True
            self._wake.set()
        elif not problem.retriable and not self._registered:
            self._fail(problem)

    def wake(self) -> None:
        """Have the next heartbeat now."""
        self._wake.set()

    def _fail(self, problem: ClientError) -> None:
        self.failure = problem
        self._on_failed()

    def check(self) -> None:
        """Raise what ended the session, if it is over."""
        if self.failure is not None:
            raise self.failure
        self._refuse_closed()

    def _refuse_closed(self) -> None:
        if self.closed:
            raise ClosedError(f"the {self.KIND} is closed")

    # The end.

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something in the background until the end."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        """A task of ours is over; nobody waits for most of them, so what went wrong is said."""
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("tubemq.failed", exc_info=task.exception())
            self._fail(ClientError(f"the {self.KIND} failed: {task.exception()!r}"))

    async def close(self) -> None:
        """Leave in order, as far as the servers answer in `close_timeout_s`."""
        if self.closed:
            return
        self.closed = True
        self._on_failed()
        self._wake.set()
        try:
            with suppress(ClientError, TimeoutError):
                async with asyncio.timeout(self.core.options.close_timeout_s):
                    await self._leave()
        finally:
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._unwatch()

    def _unwatch(self) -> None:
        """Hear no more of the masters' connections, which others may go on using."""
        for master in self.core.masters:
            connection = None
            with suppress(BadFrame):
                connection = self.servers.peek(master)
            if connection is not None:
                connection.watchers.discard(self._on_master_lost)


@contextmanager
def sensible(master: Address) -> Iterator[None]:
    """Take an answer that makes no sense for a master that cannot answer."""
    try:
        yield
    except WireError as problem:
        raise RemoteFailure("WireError", str(problem), f"{master[0]}:{master[1]}") from problem


async def asked(connection: TubeConnection, name: str, message: Message, kind: type[A]) -> A:
    """Ask a server and take a refusal for what it is: TubeError."""
    method = BY_NAME[name]
    answer = await connection.request(method, message)
    assert isinstance(answer, kind)
    checked(answer, f"{name} at {connection.address}")
    return answer


def checked(answer: Message, about: str) -> None:
    """Raise the refusal that an answer holds; some kinds of answers have no `success`."""
    fields: Any = answer
    if fields.errCode != TubeCode.SUCCESS or not getattr(fields, "success", True):
        raise TubeError(fields.errCode, fields.errMsg, about)


def new_client_id(core: Core, group: str | None = None, kind: str | None = None) -> str:
    """An id for one producer or consumer, as the Java client makes them (seed 002, clientId)."""
    parts = [core.host_name(), os.getpid(), time.monotonic_ns(), next(_numbers)]
    if kind is not None:
        parts.append(kind)
    made = "-".join(map(str, [*parts, VERSION]))
    made = made if group is None else f"{group}_{made}"
    if not NAME.fullmatch(made) or len(made) > NAME_SIZE_MAX:
        raise ClientError(f"not a name for servers of TubeMQ: {made!r}")
    return made


def local_address(master: Address) -> str:
    """This machine's IPv4 address on the way to a master; nothing is sent to find it out."""
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(master)
        return str(probe.getsockname()[0])
    return "127.0.0.1"


def as_number(host: str) -> int:
    """An IPv4 address as a signed number (sentAddr)."""
    with suppress(OSError):
        return int.from_bytes(socket.inet_aton(host), "big", signed=True)
    return 0
