"""The attachment of a producer or consumer to the broker of its topic, kept over reconnections.

            attach()                     the broker answers
    (none) ----------> attaching ------------------------------> attached
                        ^   |  lost, refused for now, timed out     |
                        |   v                                       | connection lost, closed by
                        +-- pause <---------------------------------+ the broker, moved, ordered
                            |
                            +--> failed: refused for good;   close() --> closed, from everywhere

Each attempt begins with a topic lookup. After a time-out the old producer or consumer is closed at
the broker before it is created again; the response to that is not awaited.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from trilogue.client.errors import (
    ClientError,
    ConnectionLost,
    ServerUnreachable,
    describe_unreachable,
)
from trilogue.client.pulsar.connection import PulsarConnection
from trilogue.client.pulsar.errors import BUSY, ClosedError, PulsarError, TimedOut
from trilogue.client.pulsar.lookup import Lookup
from trilogue.client.pulsar.options import ClientOptions
from trilogue.client.retry import FOREVER_S, pauses, retry
from trilogue.client.tasks import BackgroundTasks
from trilogue.wire.pulsar.pulsar_pb2 import BaseCommand

log = logging.getLogger("trilogue.client.pulsar")
LASTING_S: Final = 1.0
"""After a shorter attachment the next attempt waits: the broker may be refusing it."""


@dataclass(slots=True)
class ClientContext:
    """What all parts of one client share."""

    options: ClientOptions
    lookup: Lookup
    address: str
    """The address of the service, as the application gave it."""
    dice: random.Random
    clock: Callable[[], float] = time.time
    """Seconds since 1970, for publish times."""
    ids: itertools.count[int] = field(default_factory=itertools.count)
    tasks: BackgroundTasks = field(default_factory=BackgroundTasks)
    """What runs in the background until the client is closed."""


class TopicAttachment(ABC):
    """A producer or consumer of one topic or partition, attached to its broker."""

    def __init__(self, core: ClientContext, topic: str) -> None:
        self.core = core
        self.topic = topic
        self.id = next(core.ids)
        self.connection: PulsarConnection | None = None
        self.failure: ClientError | None = None
        self.closed = False
        self._answered: asyncio.Future[Any] | None = None
        self._broken = False
        self._task: asyncio.Task[None] | None = None
        self._since = 0.0
        self._detached_at = 0.0
        self._outage: ClientError | None = None

    def outage(self, waited_s: float) -> ServerUnreachable | None:
        """The error where no broker could be reached for half of `waited_s` or more."""
        if self.connection is not None or self._outage is None:
            return None
        if asyncio.get_running_loop().time() - self._detached_at < waited_s / 2:
            return None
        if isinstance(self._outage, ServerUnreachable):
            return ServerUnreachable(str(self._outage))
        return ServerUnreachable(describe_unreachable(self.core.address, self._outage))

    # What producers and consumers fill in.

    @abstractmethod
    def _register_events(self, connection: PulsarConnection) -> None:
        """Register for the frames of this producer or consumer."""

    @abstractmethod
    def _unregister_events(self, connection: PulsarConnection) -> None:
        """Unregister from the connection."""

    @abstractmethod
    def _create_command(self, connection: PulsarConnection, request_id: int) -> BaseCommand:
        """The command that creates us at the broker."""

    @abstractmethod
    def _close_command(self, request_id: int) -> BaseCommand:
        """The command that closes us at the broker."""

    async def _on_created(self, connection: PulsarConnection, answer: Any, request_id: int) -> None:
        """Take in the answer; may wait for more."""

    @abstractmethod
    def _on_attached(self, connection: PulsarConnection) -> None:
        """Go on where we stopped."""

    def _on_detached(self) -> None:
        """Whatever belonged to the connection is gone."""

    @abstractmethod
    def _on_failed(self, problem: ClientError) -> None:
        """Fail every waiting call: there will be no further attempt."""

    def _is_final(self, problem: PulsarError, *, again: bool) -> bool:
        """Whether trying again is of no use; some refusals pass for one who was there before."""
        return not (problem.retriable or (again and problem.error in BUSY))

    # The machine.

    async def attach(self) -> None:
        """The first time: what is refused is raised, what may pass is tried until the time-out."""
        await retry(
            self._attach_once,
            about=self.topic,
            server=self.core.address,
            total_s=self.core.options.request_timeout_s,
            may_pass=lambda problem: (
                isinstance(problem, ConnectionLost | TimedOut)
                or (isinstance(problem, PulsarError) and not self._is_final(problem, again=False))
            ),
            growing=pauses(0.05, 2.0, FOREVER_S, self.core.dice),
        )

    async def _attach_once(self) -> None:
        connection = await self.core.lookup.broker(self.topic)
        self._check_not_closed(None)
        request_id = connection.new_request_id()
        self._answered = connection.expect(request_id)
        self._broken = False
        self._register_events(connection)
        try:
            answer = await connection.request(
                request_id, self._create_command(connection, request_id), self.topic, self._answered
            )
            await self._on_created(connection, answer, request_id)
        except BaseException as problem:
            self._unregister_events(connection)
            if isinstance(problem, TimedOut | asyncio.CancelledError):
                self._close_at(connection)
            raise
        if self._broken or not connection.is_open:
            self._unregister_events(connection)
            raise ConnectionLost(f"{self.topic}: closed again at once")
        self._check_not_closed(connection)
        self.connection = connection
        self._outage = None
        self._since = asyncio.get_running_loop().time()
        self._on_attached(connection)

    def _check_not_closed(self, connection: PulsarConnection | None) -> None:
        """Raise ClosedError after a concurrent close, and close at the broker."""
        if self.closed:
            if connection is not None:
                self._close_at(connection)
            raise ClosedError(f"{self.topic}: closed")

    def _close_at(self, connection: PulsarConnection) -> None:
        """Close what may exist at the broker, without waiting for the answer."""
        self._unregister_events(connection)
        if connection.is_open:
            connection.send(self._close_command(connection.new_request_id()))

    def on_lost(self, connection: PulsarConnection) -> None:
        """The connection is gone."""
        self._detach(connection)

    def on_closed(self, connection: PulsarConnection) -> None:
        """The broker closed us. Before the answer to our creation it means one that was before."""
        self._detach(connection)

    def _detach(self, connection: PulsarConnection) -> None:
        if self.connection is connection:
            self._unregister_events(connection)
            self.reattach()
        elif self._answered is not None and self._answered.done():
            self._broken = True

    def reattach(self) -> None:
        """Attach again; the broker that closed the producer or consumer gets no command."""
        self.connection = None
        self._detached_at = asyncio.get_running_loop().time()
        self._on_detached()
        if not self.closed and self.failure is None and self._task is None:
            self._task = self.core.tasks.spawn(self._reattach())

    def recreate(self, *, now: bool = False) -> None:
        """Close what there is at the broker, and create it again; `now` means without a pause."""
        if self.connection is not None:
            self._close_at(self.connection)
            if now:
                self._since = -LASTING_S
            self.reattach()

    async def wait_reattached(self) -> None:
        """Wait for the end of a reattachment that is under way; its failure is raised."""
        if self._task is not None:
            await asyncio.shield(self._task)
        if self.failure is not None:
            raise self.failure

    async def _reattach(self) -> None:
        waits = pauses(0.1, 10.0, FOREVER_S, self.core.dice)
        if asyncio.get_running_loop().time() - self._since < LASTING_S:
            await asyncio.sleep(next(waits))
        problem: ClientError
        try:
            while not self.closed:
                try:
                    await self._attach_once()
                except PulsarError as refused:
                    if self._is_final(refused, again=True):
                        self.fail(refused)
                        return
                    problem = refused
                except (ConnectionLost, TimedOut) as lost:
                    problem = self._outage = lost
                except ClientError as final:
                    self.fail(final)
                    return
                else:
                    return
                log.info("pulsar.reattach topic=%s problem=%s", self.topic, problem)
                await asyncio.sleep(next(waits))
        except Exception as failure:
            log.exception("pulsar.reattach_failed topic=%s", self.topic)
            self.fail(ClientError(f"{self.topic}: {failure!r}"))
        finally:
            self._task = None

    def fail(self, problem: ClientError) -> None:
        """Give up for good."""
        if self.failure is None and not self.closed:
            self.failure = problem
            self._on_failed(problem)

    async def detach(self) -> None:
        """Close at the broker and wait for its answer; errors of a dying connection are nothing."""
        connection, self.connection = self.connection, None
        self.closed = True
        if self._task is not None:
            self._task.cancel()
        if connection is None or not connection.is_open:
            return
        request_id = connection.new_request_id()
        try:
            await connection.request(
                request_id, self._close_command(request_id), f"close {self.topic}"
            )
        except ClientError as problem:
            log.info("pulsar.close topic=%s problem=%s", self.topic, problem)
        finally:
            self._unregister_events(connection)
