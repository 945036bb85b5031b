"""The registration of a producer or consumer at the masters, kept over reconnections.

             register                      the master agrees
    (new) -------------> registering ---------------------------> registered -- heartbeats --+
                          ^   |  lost, silent, standby:               |  ^                   |
                          |   +--> the next master                    |  +-------------------+
                          +-------------------------------------------+
                            connection lost, no answer, "no such node" (411), certificate (415)

Of several masters one is active; the others answer StandbyException. What a master refuses for good
ends the session: every call raises it from then on.
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
import warnings
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from google.protobuf.message import Message

from trilogue.client.errors import (
    ClientError,
    ConnectionLost,
    ServerUnreachable,
    describe_unreachable,
)
from trilogue.client.lifecycle import AsyncCloseable
from trilogue.client.pool import Address
from trilogue.client.retry import FOREVER_S, pauses, retry
from trilogue.client.tubemq.auth import Credentials
from trilogue.client.tubemq.connection import TubeConnection
from trilogue.client.tubemq.errors import (
    BadFrame,
    ClosedError,
    NotMaster,
    RemoteFailure,
    TimedOut,
    TubeError,
)
from trilogue.client.tubemq.options import ClientOptions
from trilogue.client.tubemq.server_connections import ServerConnections, log
from trilogue.wire.errors import WireError
from trilogue.wire.tubemq.errors import TubeCode
from trilogue.wire.tubemq.methods import BY_NAME

VERSION: Final = "trilogue"
RUNTIME: Final = f"python-{platform.python_version()}"
"""Sent in the field for the Java version."""
UNDEFINED: Final = -2
"""The protocol's value of an absent number."""
RETRIABLE: Final = (ConnectionLost, TimedOut, RemoteFailure)
"""What another master, or another moment, may not do to us."""
NAME: Final = re.compile(r"[_A-Za-z0-9.\-]+")
NAME_SIZE_MAX: Final = 1024
A = TypeVar("A", bound=Message)
_numbers = itertools.count(1)


@dataclass(slots=True)
class ClientContext:
    """What all producers and consumers of one client share."""

    options: ClientOptions
    masters: list[Address]
    dice: random.Random
    clock: Callable[[], float] = time.time
    """Seconds since 1970."""
    host: str = ""
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def address(self) -> str:
        """The masters as errors name them."""
        return ",".join(f"{host}:{port}" for host, port in self.masters)

    def host_name(self) -> str:
        """This machine's address as the masters see it."""
        if not self.host:
            self.host = self.options.host_name or local_address(self.masters[0])
        return self.host


class MasterSession(AsyncCloseable):
    """The base of a producer and a consumer."""

    KIND = "client"

    def __init__(self, core: ClientContext, servers: ServerConnections, client_id: str) -> None:
        self.core = core
        self.servers = servers
        self.client_id = client_id
        options = core.options
        self.credentials = Credentials(options.user, options.password, core.clock, core.dice)
        self.failure: ClientError | None = None
        self.closed = False
        self.registrations = 0
        """How often a master took us in."""
        self._check_loop()
        self._loop = asyncio.get_running_loop()
        self._at = 0
        self._registered = False
        self._outage: tuple[float, ClientError] | None = None
        self._wake = asyncio.Event()
        self.lock = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    # What producers and consumers fill in.

    @abstractmethod
    async def _register_once(self) -> None:
        """Register at the master and keep its response."""

    @abstractmethod
    async def _heartbeat_once(self) -> None:
        """Send a heartbeat to the master and keep its response."""

    @abstractmethod
    async def _leave(self) -> None:
        """Leave the servers; the lock keeps heartbeats to masters out."""

    @abstractmethod
    def _on_failed(self) -> None:
        """Fail every waiting call: the session is over."""

    @property
    def _needs_heartbeat(self) -> bool:
        """Whether the next heartbeat is worth more than the usual one."""
        return False

    # Requests to masters.

    @property
    def master(self) -> Address:
        """The master of the next request."""
        return self.core.masters[self._at % len(self.core.masters)]

    async def request_master(self, name: str, message: Message, kind: type[A]) -> A:
        """Send a request to the current master; TubeError, and what `request` raises."""
        connection = await self.servers.get(self.master)
        connection.watchers.add(self._on_master_lost)
        try:
            return await request_checked(connection, name, message, kind)
        finally:
            self.servers.has_answered |= connection.has_answered

    def _on_master_lost(self) -> None:
        """The connection is gone: register again."""
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
        self._task = self.spawn(self._run_heartbeats())

    async def _register_within(self, timeout_s: float) -> None:
        def may_pass(problem: ClientError) -> bool:
            if isinstance(problem, TubeError):
                return problem.retriable
            return isinstance(problem, RETRIABLE) and not isinstance(problem, NotMaster)

        async def attempt() -> None:
            failure: ClientError | None = None
            for _ in self.core.masters:
                self._check_not_closed()
                try:
                    await self._register_at_master()
                except ClientError as problem:
                    if not (may_pass(problem) or isinstance(problem, NotMaster)):
                        raise
                    failure = self._switch_master(problem)
                else:
                    return
            assert failure is not None
            raise failure

        await retry(
            attempt,
            about=f"registration of the {self.KIND}",
            server=self.core.address,
            total_s=timeout_s,
            may_pass=may_pass,
            growing=pauses(0.05, 2.0, FOREVER_S, self.core.dice),
            was_reached=lambda: self.servers.has_answered,
        )

    def check_reachable(self, waited_s: float) -> None:
        """Raise ServerUnreachable where no server could be reached for half of `waited_s`."""
        if self._outage is None or self.servers.has_open:
            return
        since, problem = self._outage
        if self._loop.time() - since >= waited_s / 2:
            raise ServerUnreachable(describe_unreachable(self.core.address, problem))

    def _switch_master(self, problem: ClientError) -> ClientError:
        """Turn to the next master."""
        if self._outage is None and isinstance(problem, ConnectionLost | TimedOut):
            self._outage = self._loop.time(), problem
        log.info("tubemq.master_switched", extra={"master": self.master, "problem": str(problem)})
        self._at += 1
        return problem

    async def _register_at_master(self) -> None:
        with wire_errors_as_failures(self.master):
            await self._register_once()
        self.credentials.required = False
        self._registered = True
        self._outage = None
        self.registrations += 1

    # Heartbeats.

    async def _run_heartbeats(self) -> None:
        """Heartbeats, and what they lead to, until the end."""
        again = self._retry()
        while True:
            await self._wait_for_heartbeat()
            if self.closed:
                return
            try:
                await self.send_heartbeat()
            except ClosedError:
                return
            except RETRIABLE as problem:
                self._switch_master(problem)
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
            again = self._retry()

    def _retry(self) -> Iterator[float]:
        """Pauses after one failure and the next."""
        return pauses(0.05, self.core.options.heartbeat_s, FOREVER_S, self.core.dice)

    async def _wait_for_heartbeat(self) -> None:
        """Wait for the next heartbeat, or for something that it cannot wait for."""
        options = self.core.options
        period_s = options.first_heartbeats_s if self._needs_heartbeat else options.heartbeat_s
        with suppress(TimeoutError):
            async with asyncio.timeout(min(period_s, options.heartbeat_s)):
                await self._wake.wait()
        self._wake.clear()

    async def beat(self) -> None:
        """Deprecated: `send_heartbeat`."""
        warnings.warn("beat is now called send_heartbeat", DeprecationWarning, stacklevel=2)
        await self.send_heartbeat()

    async def send_heartbeat(self) -> None:
        """Send a heartbeat now; register first where we are not (or no longer) known."""
        async with self.lock:
            self._check_not_closed()
            if not self._registered:
                await self._register_within(self.core.options.register_timeout_s)
            with wire_errors_as_failures(self.master):
                await self._heartbeat_once()

    def _on_refused(self, problem: TubeError) -> None:
        log.warning("tubemq.refused", extra={"client": self.client_id, "problem": str(problem)})
        if problem.error is TubeCode.NO_NODE and self._registered:
            self._registered = False  # the master has forgotten the client: register again
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
        """Raise what ended the session, if it is over; ClientError in another event loop."""
        self._check_loop()
        if self.failure is not None:
            raise self.failure
        self._check_not_closed()

    def _check_not_closed(self) -> None:
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
        """Log the error of a background task, and end the session with it."""
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("tubemq.failed", exc_info=task.exception())
            self._fail(ClientError(f"the {self.KIND} failed: {task.exception()!r}"))

    async def close(self) -> None:
        """Leave in order, as far as the servers answer in `close_timeout_s`."""
        if self.closed:
            return
        self._check_loop()
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
def wire_errors_as_failures(master: Address) -> Iterator[None]:
    """Take an answer that makes no sense for a master that cannot answer."""
    try:
        yield
    except WireError as problem:
        raise RemoteFailure("WireError", str(problem), f"{master[0]}:{master[1]}") from problem


async def request_checked(
    connection: TubeConnection, name: str, message: Message, kind: type[A]
) -> A:
    """Send a request; raises TubeError for a refusal."""
    method = BY_NAME[name]
    answer = await connection.request(method, message)
    assert isinstance(answer, kind)
    check_answer(answer, f"{name} at {connection.address}")
    return answer


def check_answer(answer: Message, about: str) -> None:
    """Raise the refusal that an answer holds; some kinds of answers have no `success`."""
    fields: Any = answer
    if fields.errCode != TubeCode.SUCCESS or not getattr(fields, "success", True):
        raise TubeError(fields.errCode, fields.errMsg, about)


def new_client_id(core: ClientContext, group: str | None = None, kind: str | None = None) -> str:
    """An id for one producer or consumer, as the Java client makes them."""
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


def ipv4_as_int(host: str) -> int:
    """An IPv4 address as a signed number (sentAddr)."""
    with suppress(OSError):
        return int.from_bytes(socket.inet_aton(host), "big", signed=True)
    return 0
