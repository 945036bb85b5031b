"""Membership of a classic group: join, sync, heartbeats, leaving; the leader shares partitions out.

One task does it all, beside the application, which is asked before anything is taken from it: that
happens only while it waits for messages (or comes for more), so that whatever it was given before
has been dealt with, and its positions can be told. A server waits for that as long as the longest
time between two polls (`max_poll_s`, which is the rebalance timeout); who takes longer is out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, Protocol

from trilogue.client.errors import ClientError, ConnectionLost
from trilogue.client.kafka import assignors
from trilogue.client.kafka.assignors import Assignor, Member
from trilogue.client.kafka.cluster import KafkaCluster
from trilogue.client.kafka.committing import COORDINATOR_MOVED, Committing, Identity
from trilogue.client.kafka.errors import KafkaError, refuse
from trilogue.client.kafka.options import ConsumerOptions
from trilogue.client.kafka.shapes import Partition, by_topic
from trilogue.wire.errors import WireError
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from trilogue.wire.kafka.membership import (
    AssignedPartitions,
    Assignment,
    OwnedPartitions,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)

CONSUMER: Final = "consumer"
NO_GENERATION: Final = -1
SLACK_S: Final = 5.0
"""How much longer than it may take a rebalance is waited for."""
GENERATION_SIZE: Final = 4
OUT: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
FOR_GOOD: Final = frozenset(
    {
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.INVALID_SESSION_TIMEOUT,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)


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


class Membership:
    """One member of a classic group."""

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
        self._loop = asyncio.get_running_loop()
        self.member_id = ""
        self.generation = NO_GENERATION
        self.is_leader = False
        self._must_join = True
        self._is_out = False
        self._changed = asyncio.Event()
        self._counts: dict[str, int] = {}
        """As leader: the partitions that were shared out, by topic."""

    @property
    def identity(self) -> Identity:
        """Who commits."""
        return Identity(self.member_id, self.generation, self._options.instance_id)

    @property
    def is_stable(self) -> bool:
        """Whether it has its share."""
        return self.generation != NO_GENERATION and not self._must_join

    def rejoin(self) -> None:
        """Join again: something has changed."""
        self._must_join = True
        self._changed.set()

    def came_back(self) -> None:
        """The application polls again, after we had left because it did not."""
        if self._is_out:
            self._is_out = False
            self._changed.set()

    def topics_changed(self, counts: Mapping[str, int]) -> None:
        """Topics have so many partitions now: a leader shares them out again."""
        if self.is_leader and any(
            self._counts.get(topic, count) != count for topic, count in counts.items()
        ):
            self.rejoin()

    @property
    def leader_topics(self) -> set[str]:
        """As leader: all topics that the group reads."""
        return set(self._counts) if self.is_leader else set()

    async def run(self) -> None:
        """Be a member until cancelled."""
        while True:
            try:
                if self._is_out:
                    await self._changed.wait()
                    self._changed.clear()
                    continue
                if self._must_join:
                    await self._join_and_sync()
                else:
                    await self._wait_and_beat()
            except ConnectionLost:
                self._committing.moved()
                await asyncio.sleep(self._options.retry_pause_s)
            except KafkaError as problem:
                await self._met(problem)
            except (ClientError, WireError) as problem:
                self._reader.failed(problem)
                await asyncio.sleep(1.0)

    async def _met(self, problem: KafkaError) -> None:
        """A coordinator said no."""
        error = problem.error
        if error in COORDINATOR_MOVED:
            self._committing.moved()
        elif error is ErrorCode.REBALANCE_IN_PROGRESS:
            self._must_join = True
            return
        elif error is ErrorCode.MEMBER_ID_REQUIRED:
            return  # joins again with the id it was given
        elif error in OUT:
            await self._out(keep_id=error is ErrorCode.ILLEGAL_GENERATION)
            return
        elif error in FOR_GOOD or not problem.retriable:
            await self._out(keep_id=False)
            self._reader.failed(problem)
            self._is_out = True
            return
        await asyncio.sleep(self._options.retry_pause_s)

    async def _out(self, *, keep_id: bool) -> None:
        """The group goes on without us: what we had is others' by now."""
        self.generation, self.is_leader = NO_GENERATION, False
        if not keep_id:
            self.member_id = ""
        self._must_join = True
        if self._reader.assignment:
            await self._reader.give_up(self._reader.assignment, lost=True)

    # Heartbeats.

    async def _wait_and_beat(self) -> None:
        try:
            async with asyncio.timeout(self._options.heartbeat_s):
                await self._changed.wait()
        except TimeoutError:
            await self._beat()
        self._changed.clear()

    async def _beat(self) -> None:
        if self._reader.is_too_slow():
            await self.leave("the application does not poll")
            await self._out(keep_id=False)
            self._is_out = True
            return
        answer: HeartbeatResponse = await self._ask(
            HeartbeatRequest(
                group_id=self._committing.group,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self._options.instance_id,
            )
        )
        refuse(answer.error_code, f"heartbeat in {self._committing.group}")

    async def _ask(self, request: Any, timeout_s: float | None = None) -> Any:
        connection = await self._committing.coordinator()
        return await connection.request(request, timeout_s=timeout_s)

    # Joining.

    async def _join_and_sync(self) -> None:
        reader, cooperative = self._reader, self._options.is_cooperative
        if not cooperative and reader.assignment:
            await self._with_application(lambda: reader.give_up(reader.assignment, lost=False))
        joined = await self._join()
        self._must_join = False
        shares = await self._shared(joined) if joined.leader == joined.member_id else {}
        share = await self._sync(joined, shares)
        before = reader.assignment
        gone = before - share
        if gone:
            await self._with_application(lambda: reader.give_up(gone, lost=False))
            self._must_join = True  # others wait for them
        await reader.take_up(share - before)
        reader.resume_after_rebalance()

    async def _with_application(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do something when the application is done with what it has; meanwhile stay a member."""
        while not await self._reader.pause_for_rebalance(self._options.heartbeat_s):
            try:
                await self._beat()
            except KafkaError as problem:
                if problem.error is not ErrorCode.REBALANCE_IN_PROGRESS:
                    raise
            if self._is_out:
                raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, "left meanwhile")
        await work()

    async def _join(self) -> JoinGroupResponse:
        options = self._options
        answer: JoinGroupResponse = await self._ask(
            JoinGroupRequest(
                group_id=self._committing.group,
                session_timeout_ms=int(options.session_timeout_s * 1000),
                rebalance_timeout_ms=int(options.max_poll_s * 1000),
                member_id=self.member_id,
                group_instance_id=options.instance_id,
                protocol_type=CONSUMER,
                protocols=[
                    JoinGroupRequestProtocol(name=one.value, metadata=self._subscription(one))
                    for one in options.assignors
                ],
            ),
            options.max_poll_s + options.session_timeout_s + SLACK_S,
        )
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
        refuse(answer.error_code, f"join {self._committing.group}")
        self.member_id, self.generation = answer.member_id, answer.generation_id
        self.is_leader = answer.leader == answer.member_id
        return answer

    def _subscription(self, assignor: Assignor) -> bytes:
        owned = by_topic(sorted(self._reader.assignment)) if assignor.is_cooperative else {}
        generation = self.generation if assignor.is_cooperative else NO_GENERATION
        return encode_subscription(
            Subscription(
                topics=sorted(self._reader.topics),
                # Java's assignor of this name looks here, too, where a generation is missing.
                user_data=generation.to_bytes(GENERATION_SIZE, "big", signed=True)
                if assignor.is_cooperative
                else None,
                owned_partitions=[
                    OwnedPartitions(topic=topic, partitions=numbers)
                    for topic, numbers in owned.items()
                ],
                generation_id=generation,
            )
        )

    async def _shared(self, joined: JoinGroupResponse) -> assignors.Shares:
        """As leader: what each member gets."""
        members = [_member(row) for row in joined.members]
        wanted = sorted({topic for member in members for topic in member.topics})
        counts = await self._partition_counts(wanted)
        self._counts = {topic: counts.get(topic, 0) for topic in wanted}
        if joined.skip_assignment:
            return {}
        try:
            assignor = Assignor(joined.protocol_name)
        except ValueError:
            raise ClientError(f"the group chose {joined.protocol_name!r}") from None
        return assignors.assign(assignor, members, counts)

    async def _partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        """How many partitions topics have; those that are not there are left out."""
        names = list(topics)
        answer = await self._cluster.ask(names, create=self._options.create_topics)
        return {row.name or "": len(row.partitions) for row in answer.topics if not row.error_code}

    async def _sync(
        self, joined: JoinGroupResponse, shares: assignors.Shares
    ) -> frozenset[Partition]:
        options = self._options
        answer: SyncGroupResponse = await self._ask(
            SyncGroupRequest(
                group_id=self._committing.group,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=options.instance_id,
                protocol_type=CONSUMER,
                protocol_name=joined.protocol_name,
                assignments=[
                    SyncGroupRequestAssignment(member_id=member_id, assignment=_assignment(share))
                    for member_id, share in shares.items()
                ],
            ),
            options.max_poll_s + SLACK_S,
        )
        refuse(answer.error_code, f"sync {self._committing.group}")
        if not answer.assignment:
            return frozenset()
        rows = decode_assignment(answer.assignment).assigned_partitions
        return frozenset(Partition(row.topic, number) for row in rows for number in row.partitions)

    async def leave(self, reason: str) -> None:
        """Leave the group, unless as a static member, whose place is kept until it times out."""
        if not self.member_id or self._options.instance_id is not None:
            return
        answer: LeaveGroupResponse = await self._ask(
            LeaveGroupRequest(
                group_id=self._committing.group,
                member_id=self.member_id,
                members=[MemberIdentity(member_id=self.member_id, reason=reason)],
            )
        )
        self.member_id = ""
        if answer.error_code not in {ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID}:
            refuse(answer.error_code, f"leave {self._committing.group}")


def _member(row: JoinGroupResponseMember) -> Member:
    said = decode_subscription(row.metadata)
    generation = said.generation_id
    if generation == NO_GENERATION and len(said.user_data or b"") == GENERATION_SIZE:
        generation = int.from_bytes(said.user_data or b"", "big", signed=True)
    return Member(
        row.member_id,
        row.group_instance_id,
        frozenset(said.topics),
        tuple(
            Partition(owned.topic, number)
            for owned in said.owned_partitions
            for number in owned.partitions
        ),
        generation,
    )


def _assignment(share: Iterable[Partition]) -> bytes:
    return encode_assignment(
        Assignment(
            assigned_partitions=[
                AssignedPartitions(topic=topic, partitions=numbers)
                for topic, numbers in by_topic(sorted(share)).items()
            ]
        ),
        version=1,
    )
