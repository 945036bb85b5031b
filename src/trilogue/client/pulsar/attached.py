"""A producer's or consumer's hold on the broker that serves its topic, kept through everything.

            attach()                     the broker answers
    (none) ----------> attaching ------------------------------> attached
                        ^   |  lost, refused for now, timed out     |
                        |   v                                       | connection lost, closed by
                        +-- pause <---------------------------------+ the broker, moved, told to
                            |
                            +--> failed: refused for good;   close() --> closed, from everywhere

Each time the topic is looked up anew (seed 000, "topic lookup ... each time a client needs to
create or reconnect a producer or a consumer"). After a time-out the old one is closed before it is
created again, and nobody waits for the answer to that (seed 000, CLOSE_PRODUCER).
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from trilogue.client.errors import ClientError, ConnectionLost
from trilogue.client.pulsar.connection import PulsarConnection
from trilogue.client.pulsar.errors import BUSY, ClosedError, PulsarError, TimedOut
from trilogue.client.pulsar.lookup import Lookup
from trilogue.client.pulsar.options import ClientOptions
from trilogue.client.retry import pauses
from trilogue.client.tasks import Tasks
from trilogue.wire.pulsar.pulsar_pb2 import BaseCommand

log = logging.getLogger("trilogue.client.pulsar")
FOREVER: Final = float("inf")
LASTING_S: Final = 1.0
"""Who was attached for less than this waits before the next try: a broker may be refusing us."""


@dataclass(slots=True)
class Core:
    """What all parts of one client share."""

    options: ClientOptions
    lookup: Lookup
    dice: random.Random
    clock: Callable[[], float] = time.time
    """Seconds since 1970, for publish times."""
    ids: itertools.count[int] = field(default_factory=itertools.count)
    tasks: Tasks = field(default_factory=Tasks)
    """What runs in the background until the client is closed."""


class Attached:
    """One topic (or partition) on the client's side of the protocol."""

    def __init__(self, core: Core, topic: str) -> None:
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

    # What producers and consumers fill in.

    def _enlist(self, connection: PulsarConnection) -> None:
        """Be told of what the connection gets for us."""
        raise NotImplementedError

    def _strike(self, connection: PulsarConnection) -> None:
        """Be told no more."""
        raise NotImplementedError

    def _creation(self, connection: PulsarConnection, request_id: int) -> BaseCommand:
        """The command that creates us at the broker."""
        raise NotImplementedError

    def _closing(self, request_id: int) -> BaseCommand:
        """The command that closes us at the broker."""
        raise NotImplementedError

    async def _created(self, connection: PulsarConnection, answer: Any, request_id: int) -> None:
        """Take in the answer; may wait for more."""

    def _on_attached(self, connection: PulsarConnection) -> None:
        """Go on where we stopped."""
        raise NotImplementedError

    def _on_detached(self) -> None:
        """Whatever belonged to the connection is gone."""

    def _on_failed(self, problem: ClientError) -> None:
        """We will never be attached again: tell whoever waits."""
        raise NotImplementedError

    def _is_final(self, problem: PulsarError, *, again: bool) -> bool:
        """Whether trying again is of no use; some refusals pass for one who was there before."""
        return not (problem.retriable or (again and problem.error in BUSY))

    # The machine.

    async def attach(self) -> None:
        """The first time: what is refused is raised, what may pass is tried until the time-out."""
        timeout_s = self.core.options.operation_timeout_s
        end = asyncio.get_running_loop().time() + timeout_s
        for pause in pauses(0.05, 2.0, timeout_s, self.core.dice):
            try:
                await self._attach_once()
            except (ConnectionLost, TimedOut) as problem:
                trouble: ClientError = problem
            except PulsarError as problem:
                if self._is_final(problem, again=False):
                    raise
                trouble = problem
            else:
                return
            if asyncio.get_running_loop().time() + pause >= end:
                break
            await asyncio.sleep(pause)
        raise trouble

    async def _attach_once(self) -> None:
        connection = await self.core.lookup.broker(self.topic)
        self._refuse_closed(None)
        request_id = connection.new_request_id()
        self._answered = connection.expect(request_id)
        self._broken = False
        self._enlist(connection)
        try:
            answer = await connection.request(
                request_id, self._creation(connection, request_id), self.topic, self._answered
            )
            await self._created(connection, answer, request_id)
        except BaseException as problem:
            self._strike(connection)
            if isinstance(problem, TimedOut | asyncio.CancelledError):
                self._close_at(connection)
            raise
        if self._broken or not connection.is_open:
            self._strike(connection)
            raise ConnectionLost(f"{self.topic}: closed again at once")
        self._refuse_closed(connection)
        self.connection = connection
        self._since = asyncio.get_running_loop().time()
        self._on_attached(connection)

    def _refuse_closed(self, connection: PulsarConnection | None) -> None:
        """Whoever closed us in the meantime did not see what we are about to use."""
        if self.closed:
            if connection is not None:
                self._close_at(connection)
            raise ClosedError(f"{self.topic}: closed")

    def _close_at(self, connection: PulsarConnection) -> None:
        """Close what may exist at the broker, without waiting for the answer."""
        self._strike(connection)
        if connection.is_open:
            connection.send(self._closing(connection.new_request_id()))

    def on_lost(self, connection: PulsarConnection) -> None:
        """The connection is gone."""
        self._detach(connection)

    def on_closed(self, connection: PulsarConnection) -> None:
        """The broker closed us. Before the answer to our creation it means one that was before."""
        self._detach(connection)

    def _detach(self, connection: PulsarConnection) -> None:
        if self.connection is connection:
            self._strike(connection)
            self.reattach()
        elif self._answered is not None and self._answered.done():
            self._broken = True

    def reattach(self) -> None:
        """Let go, and take hold again: nothing is said to the broker that let us go."""
        self.connection = None
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

    async def attached_again(self) -> None:
        """Wait for the end of a reattachment that is under way; its failure is raised."""
        if self._task is not None:
            await asyncio.shield(self._task)
        if self.failure is not None:
            raise self.failure

    async def _reattach(self) -> None:
        waits = pauses(0.1, 10.0, FOREVER, self.core.dice)
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
                    problem = lost
                except ClientError as final:
                    self.fail(final)
                    return
                else:
                    return
                log.info("pulsar.reattach topic=%s problem=%s", self.topic, problem)
                await asyncio.sleep(next(waits))
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
            await connection.request(request_id, self._closing(request_id), f"close {self.topic}")
        except ClientError as problem:
            log.info("pulsar.close topic=%s problem=%s", self.topic, problem)
        finally:
            self._strike(connection)
