"""What being a member of a group has in common, whoever shares the partitions out.

One task does it all, beside the application, which is asked before anything is taken from it: that
happens only while it waits for messages (or comes for more), so that whatever it was given before
has been dealt with, and its positions can be told. A server waits for that as long as the longest
time between two polls (`max_poll_s`, which is the rebalance timeout); who takes longer is out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol

from trilogue.client.errors import ClientError, ConnectionLost
from trilogue.client.kafka.cluster import KafkaCluster
from trilogue.client.kafka.committing import COORDINATOR_MOVED, Committing, Identity
from trilogue.client.kafka.errors import KafkaError
from trilogue.client.kafka.options import ConsumerOptions, GroupProtocol
from trilogue.client.kafka.shapes import Partition
from trilogue.wire.errors import WireError
from trilogue.wire.kafka.errors import ErrorCode

FAILED_PAUSE_S: Final = 1.0


class Reader(Protocol):
    """The consumer, as its membership sees it."""

    topics: frozenset[str]

    @property
    def assignment(self) -> frozenset[Partition]:
        """What it reads now."""

    async def pause_for_rebalance(self, wake_s: float) -> bool:
        """Wait until the application is done with what it has, at most so long; whether it is."""

    async def give_up(self, partitions: frozenset[Partition], *, lost: bool) -> None:
        """Read these no more; where they are not lost, positions are told before."""

    async def take_up(self, partitions: frozenset[Partition]) -> None:
        """Read these, too."""

    def resume_after_rebalance(self) -> None:
        """The application may go on."""

    def failed(self, problem: Exception) -> None:
        """Tell the application."""

    def is_too_slow(self) -> bool:
        """Whether the application has not come for more for too long."""


class GroupMember:
    """One member of a group; what differs by protocol is in its kinds."""

    FENCED: frozenset[ErrorCode] = frozenset()
    """Refusals that say: the group goes on without you; come again."""
    COME_AGAIN: frozenset[ErrorCode] = frozenset()
    """Refusals that are no refusals: the next step is another."""

    def __init__(
        self,
        cluster: KafkaCluster,
        options: ConsumerOptions,
        committing: Committing,
        reader: Reader,
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._committing = committing
        self._reader = reader
        self.member_id = ""
        self.generation = -1
        """The generation of the group, or the epoch of the member (KIP-848)."""
        self.is_leader = False
        self._is_out = False
        self._changed = asyncio.Event()

    @property
    def identity(self) -> Identity:
        """Who commits."""
        return Identity(self.member_id, self.generation, self._options.instance_id)

    def rejoin(self) -> None:
        """What is wanted has changed."""
        raise NotImplementedError

    def came_back(self) -> None:
        """The application polls again, after we had left because it did not."""
        if self._is_out:
            self._is_out = False
            self._changed.set()

    @property
    def leader_topics(self) -> set[str]:
        """The topics whose growth a leader has to look for."""
        return set()

    def topics_changed(self, counts: Mapping[str, int]) -> None:
        """Topics have so many partitions now."""

    async def run(self) -> None:
        """Be a member until cancelled."""
        while True:
            try:
                if self._is_out:
                    await self._changed.wait()
                    self._changed.clear()
                else:
                    await self._step()
            except ConnectionLost:
                self._unheard()
                self._committing.moved()
                await asyncio.sleep(self._options.retry_pause_s)
            except KafkaError as problem:
                await self._met(problem)
            except (ClientError, WireError) as problem:
                self._reader.failed(problem)
                await asyncio.sleep(FAILED_PAUSE_S)

    async def _step(self) -> None:
        """Do what is next: join, wait, beat."""
        raise NotImplementedError

    async def _beat(self) -> None:
        """Say that we are here; leave if the application is not."""
        if not self._reader.is_too_slow():
            await self._beat_once()
            return
        await self.leave("the application does not poll")
        await self._out(keep_id=False)
        self._is_out = True

    async def _beat_once(self) -> None:
        raise NotImplementedError

    async def leave(self, reason: str) -> None:
        """Leave the group, as far as one of our kind does."""
        raise NotImplementedError

    async def _met(self, problem: KafkaError) -> None:
        """A coordinator said no."""
        error = problem.error
        if error in self.COME_AGAIN:
            self._again()
        elif error in self.FENCED:
            had_some = bool(self._reader.assignment)
            await self._out(keep_id=error is not ErrorCode.UNKNOWN_MEMBER_ID)
            while had_some and not await self._reader.pause_for_rebalance(FAILED_PAUSE_S):
                pass  # it may still commit what it has: not as who has come back
        elif problem.retriable:
            if error in COORDINATOR_MOVED:
                self._committing.moved()
            self._unheard()
            await asyncio.sleep(self._options.retry_pause_s)
        else:
            await self._out(keep_id=False)
            self._reader.failed(problem)
            self._is_out = True  # until the application asks for more all the same

    def _unheard(self) -> None:
        """An answer was lost, or was none: the server may know what we do not."""

    def interrupted(self) -> None:
        """Our task was ended, whatever it waited for; only to leave is left to do."""

    def _again(self) -> None:
        """The next step is another."""

    async def _out(self, *, keep_id: bool) -> None:
        """The group goes on without us: what we had is others' by now."""
        self.generation, self.is_leader = -1, False
        if not keep_id:
            self.member_id = ""
        if self._reader.assignment:
            await self._reader.give_up(self._reader.assignment, lost=True)

    async def _pause(self, for_s: float) -> bool:
        """Wait until something has changed, at most so long; whether it has."""
        try:
            async with asyncio.timeout(for_s):
                await self._changed.wait()
        except TimeoutError:
            return False
        self._changed.clear()
        return True

    @property
    def _beat_every_s(self) -> float:
        return self._options.heartbeat_s

    async def _with_application(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do something when the application is done with what it has; meanwhile stay a member."""
        while not await self._reader.pause_for_rebalance(self._beat_every_s):
            try:
                await self._beat()
            except KafkaError as problem:
                if problem.error is not ErrorCode.REBALANCE_IN_PROGRESS:
                    raise
            if self._is_out:
                raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, "left meanwhile")
        await work()

    async def _ask(self, request: Any, timeout_s: float | None = None) -> Any:
        connection = await self._committing.coordinator()
        return await connection.request(request, timeout_s=timeout_s)


def member_of(
    cluster: KafkaCluster, options: ConsumerOptions, committing: Committing, reader: Reader
) -> GroupMember:
    """A member by the protocol of the options."""
    if options.protocol is GroupProtocol.CLASSIC:
        from trilogue.client.kafka.membership import ClassicMember

        return ClassicMember(cluster, options, committing, reader)
    from trilogue.client.kafka.server_membership import ConsumerMember

    return ConsumerMember(cluster, options, committing, reader)
