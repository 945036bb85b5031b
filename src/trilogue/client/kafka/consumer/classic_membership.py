"""Membership of a classic group: join, sync, heartbeat, leave; the leader assigns partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from trilogue.client.errors import ClientError
from trilogue.client.kafka.cluster import KafkaCluster
from trilogue.client.kafka.consumer import assignors
from trilogue.client.kafka.consumer.assignors import Assignor, MemberSubscription
from trilogue.client.kafka.consumer.group_member import AssignedConsumer, GroupMember
from trilogue.client.kafka.consumer.offset_committer import OffsetCommitter
from trilogue.client.kafka.errors import raise_for_code
from trilogue.client.kafka.model import Partition, group_by_topic
from trilogue.client.kafka.options import ConsumerOptions
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.groups.classic import (
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
from trilogue.wire.kafka.groups.member_metadata import (
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


class ClassicMember(GroupMember):
    """One member of a classic group."""

    FENCED = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
    COME_AGAIN = frozenset({ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.MEMBER_ID_REQUIRED})

    def __init__(
        self,
        cluster: KafkaCluster,
        options: ConsumerOptions,
        committer: OffsetCommitter,
        reader: AssignedConsumer,
    ) -> None:
        super().__init__(cluster, options, committer, reader)
        self._must_join = True
        self._is_joining = False
        self._counts: dict[str, int] = {}
        """As leader: the partitions that were shared out, by topic."""

    def rejoin(self) -> None:
        """Join again: something has changed."""
        self._must_join = True
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

    async def _step(self) -> None:
        if self._must_join:
            await self._join_and_sync()
        elif not await self._pause(self._options.heartbeat_s):
            await self._heartbeat()

    def _next_step(self) -> None:
        self._must_join = True  # with the id it was given, where one is required

    async def _lose_membership(self, *, keep_id: bool) -> None:
        self._must_join = True
        await super()._lose_membership(keep_id=keep_id)

    async def _send_heartbeat(self) -> None:
        answer: HeartbeatResponse = await self._send_request(
            HeartbeatRequest(
                group_id=self._committer.group,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self._options.instance_id,
            )
        )
        raise_for_code(answer.error_code, f"heartbeat in {self._committer.group}")

    # Joining.

    async def _join_and_sync(self) -> None:
        reader, cooperative = self._reader, self._options.is_cooperative
        if not cooperative and reader.assignment:
            await self._while_polling(lambda: reader.revoke(reader.assignment, lost=False))
        self._must_join = False  # a later change of the subscription needs another join
        self._is_joining = True
        try:
            joined = await self._join()
            shares = (
                await self._assign_as_leader(joined) if joined.leader == joined.member_id else {}
            )
            await self._adopt(await self._sync(joined, shares))
        except Exception:
            self._must_join = True  # the server may hold that we have our share
            self._is_joining = False
            raise
        self._is_joining = False

    def on_task_cancelled(self) -> None:
        """A server answers in order: behind a join that waits for others it hears nothing."""
        if self._is_joining:
            self._committer.close()

    async def _adopt(self, share: frozenset[Partition]) -> None:
        """Read the partitions of the assignment, and no others."""
        reader = self._reader
        before = reader.assignment
        gone = before - share
        if gone:
            await self._while_polling(lambda: reader.revoke(gone, lost=False))
            self._must_join = True  # others wait for them
        await reader.add_assigned(share - before)
        reader.resume_after_rebalance()

    async def _join(self) -> JoinGroupResponse:
        options = self._options
        answer: JoinGroupResponse = await self._send_request(
            JoinGroupRequest(
                group_id=self._committer.group,
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
            options.max_poll_s + SLACK_S,
        )
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
        raise_for_code(answer.error_code, f"join {self._committer.group}")
        self.member_id, self.generation = answer.member_id, answer.generation_id
        self.is_leader = answer.leader == answer.member_id
        return answer

    def _subscription(self, assignor: Assignor) -> bytes:
        owned = group_by_topic(sorted(self._reader.assignment)) if assignor.is_cooperative else {}
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

    async def _assign_as_leader(self, joined: JoinGroupResponse) -> assignors.Assignment:
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
        return assignors.assign_partitions(assignor, members, counts)

    async def _partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        """How many partitions topics have; those that are not there are left out."""
        names = list(topics)
        answer = await self._cluster.request_metadata(names, create=self._options.create_topics)
        return {row.name or "": len(row.partitions) for row in answer.topics if not row.error_code}

    async def _sync(
        self, joined: JoinGroupResponse, shares: assignors.Assignment
    ) -> frozenset[Partition]:
        options = self._options
        answer: SyncGroupResponse = await self._send_request(
            SyncGroupRequest(
                group_id=self._committer.group,
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
        raise_for_code(answer.error_code, f"sync {self._committer.group}")
        if not answer.assignment:
            return frozenset()
        rows = decode_assignment(answer.assignment).assigned_partitions
        return frozenset(Partition(row.topic, number) for row in rows for number in row.partitions)

    async def leave(self, reason: str) -> None:
        """Leave the group, unless as a static member, whose place is kept until it times out."""
        if not self.member_id or self._options.instance_id is not None:
            return
        answer: LeaveGroupResponse = await self._send_request(
            LeaveGroupRequest(
                group_id=self._committer.group,
                member_id=self.member_id,
                members=[MemberIdentity(member_id=self.member_id, reason=reason)],
            )
        )
        self.member_id = ""
        if answer.error_code not in {ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID}:
            raise_for_code(answer.error_code, f"leave {self._committer.group}")


def _member(row: JoinGroupResponseMember) -> MemberSubscription:
    subscription = decode_subscription(row.metadata)
    generation = subscription.generation_id
    if generation == NO_GENERATION and len(subscription.user_data or b"") == GENERATION_SIZE:
        generation = int.from_bytes(subscription.user_data or b"", "big", signed=True)
    return MemberSubscription(
        row.member_id,
        row.group_instance_id,
        frozenset(subscription.topics),
        tuple(
            Partition(owned.topic, number)
            for owned in subscription.owned_partitions
            for number in owned.partitions
        ),
        generation,
    )


def _assignment(share: Iterable[Partition]) -> bytes:
    return encode_assignment(
        Assignment(
            assigned_partitions=[
                AssignedPartitions(topic=topic, partitions=numbers)
                for topic, numbers in group_by_topic(sorted(share)).items()
            ]
        ),
        version=1,
    )
