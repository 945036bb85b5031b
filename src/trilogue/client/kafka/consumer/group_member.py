"""The base of group members of both group protocols.

One task runs beside the application. It revokes partitions only while the application polls: then
the messages it got before are processed, and their offsets can be committed. The server waits for
that up to `max_poll_s`, which is the rebalance time-out, and then removes the member.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol

from trilogue.client.errors import ClientError, ConnectionLost
from trilogue.client.kafka.cluster import KafkaCluster
from trilogue.client.kafka.consumer.offset_committer import (
    COORDINATOR_MOVED,
    MemberIdentity,
    OffsetCommitter,
)
from trilogue.client.kafka.errors import KafkaError
from trilogue.client.kafka.model import Partition
from trilogue.client.kafka.options import ConsumerOptions
from trilogue.wire.errors import WireError
from trilogue.wire.kafka.errors import ErrorCode

FAILED_PAUSE_S: Final = 1.0


class AssignedConsumer(Protocol):
    """The consumer, as its membership sees it."""

    topics: frozenset[str]

    @property
    def assignment(self) -> frozenset[Partition]:
        """What it reads now."""

    async def pause_for_rebalance(self, wake_s: float) -> bool:
        """Wait until the application is done with what it has, at most so long; whether it is."""

    async def revoke(self, partitions: frozenset[Partition], *, lost: bool) -> None:
        """Stop reading these; unless they are lost, offsets are committed before."""

    async def add_assigned(self, partitions: frozenset[Partition]) -> None:
        """Read these, too."""

    def resume_after_rebalance(self) -> None:
        """The application may go on."""

    def report_error(self, problem: Exception) -> None:
        """Report an error to the application."""

    def exceeds_max_poll(self) -> bool:
        """Whether the application has not come for more for too long."""


class GroupMember(ABC):
    """One member of a group; a subclass for each group protocol."""

    FENCED: frozenset[ErrorCode] = frozenset()
    """Errors after which the member has to join again."""
    COME_AGAIN: frozenset[ErrorCode] = frozenset()
    """Refusals that are no refusals: the next step is another."""

    def __init__(
        self,
        cluster: KafkaCluster,
        options: ConsumerOptions,
        committer: OffsetCommitter,
        reader: AssignedConsumer,
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._committer = committer
        self._reader = reader
        self.member_id = ""
        self.generation = -1
        """The generation of the group, or the epoch of the member (KIP-848)."""
        self.is_leader = False
        self._has_left = False
        self._changed = asyncio.Event()

    @property
    def identity(self) -> MemberIdentity:
        """The member, as a commit names it."""
        return MemberIdentity(self.member_id, self.generation, self._options.instance_id)

    @abstractmethod
    def rejoin(self) -> None:
        """What is wanted has changed."""

    def on_poll(self) -> None:
        """The application polls again, after we had left because it did not."""
        if self._has_left:
            self._has_left = False
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
                if self._has_left:
                    await self._changed.wait()
                    self._changed.clear()
                else:
                    await self._step()
            except ConnectionLost:
                self._on_answer_lost()
                self._committer.moved()
                await asyncio.sleep(self._options.retry_pause_s)
            except KafkaError as problem:
                await self._on_refused(problem)
            except (ClientError, WireError) as problem:
                self._reader.report_error(problem)
                await asyncio.sleep(FAILED_PAUSE_S)

    @abstractmethod
    async def _step(self) -> None:
        """Do what is next: join, wait, beat."""

    async def _heartbeat(self) -> None:
        """Send a heartbeat; leave the group if the application does not poll."""
        if not self._reader.exceeds_max_poll():
            await self._send_heartbeat()
            return
        await self.leave("the application does not poll")
        await self._lose_membership(keep_id=False)
        self._has_left = True

    @abstractmethod
    async def _send_heartbeat(self) -> None:
        """Send a heartbeat and handle its response."""

    @abstractmethod
    async def leave(self, reason: str) -> None:
        """Leave the group, as far as one of our kind does."""

    async def _on_refused(self, problem: KafkaError) -> None:
        """Handle the error of a coordinator."""
        error = problem.error
        if error in self.COME_AGAIN:
            self._next_step()
        elif error in self.FENCED:
            had_some = bool(self._reader.assignment)
            await self._lose_membership(keep_id=error is not ErrorCode.UNKNOWN_MEMBER_ID)
            while had_some and not await self._reader.pause_for_rebalance(FAILED_PAUSE_S):
                pass  # it may still commit what it has: not as who has come back
        elif problem.retriable:
            if error in COORDINATOR_MOVED:
                self._committer.moved()
            self._on_answer_lost()
            await asyncio.sleep(self._options.retry_pause_s)
        else:
            await self._lose_membership(keep_id=False)
            self._reader.report_error(problem)
            self._has_left = True  # until the application polls again

    def _on_answer_lost(self) -> None:
        """An answer was lost, or was none: the server may know what we do not."""

    def on_task_cancelled(self) -> None:
        """Our task was ended, whatever it waited for; only to leave is left to do."""

    def _next_step(self) -> None:
        """The next step is another."""

    async def _lose_membership(self, *, keep_id: bool) -> None:
        """The group goes on without us: what we had is others' by now."""
        self.generation, self.is_leader = -1, False
        if not keep_id:
            self.member_id = ""
        if self._reader.assignment:
            await self._reader.revoke(self._reader.assignment, lost=True)

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
    def _heartbeat_interval_s(self) -> float:
        return self._options.heartbeat_s

    async def _while_polling(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do something when the application is done with what it has; meanwhile stay a member."""
        while not await self._reader.pause_for_rebalance(self._heartbeat_interval_s):
            try:
                await self._heartbeat()
            except KafkaError as problem:
                if problem.error is not ErrorCode.REBALANCE_IN_PROGRESS:
                    raise
            if self._has_left:
                raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, "left meanwhile")
        await work()

    async def _send_request(self, request: Any, timeout_s: float | None = None) -> Any:
        connection = await self._committer.coordinator()
        return await connection.request(request, timeout_s=timeout_s)
