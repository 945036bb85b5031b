"""Membership of a group whose partitions the server assigns (KIP-848).

There is one request, the heartbeat. It carries the subscription where that has changed, and the
owned partitions once the member has reconciled them; the response carries the target assignment.
Revoked partitions are released and reported first; partitions that other members still own are not
part of the target yet.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from uuid import uuid4

from trilogue.client.errors import Unsupported
from trilogue.client.kafka.cluster import KafkaCluster
from trilogue.client.kafka.connection import KafkaConnection
from trilogue.client.kafka.consumer.group_member import AssignedConsumer, GroupMember
from trilogue.client.kafka.consumer.offset_committer import OffsetCommitter
from trilogue.client.kafka.errors import KafkaError, raise_for_code
from trilogue.client.kafka.model import Partition, group_by_topic
from trilogue.client.kafka.options import ConsumerOptions
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.groups.consumer import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatTopicPartitions,
)

HEARTBEAT: Final = 68
JOINING: Final = 0
LEAVING, LEAVING_FOR_A_WHILE = -1, -2
OWN_ID_SINCE: Final = 1
"""The version from which members name themselves (KIP-1082)."""


class ConsumerMember(GroupMember):
    """One member of a group of KIP-848."""

    FENCED = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})

    def __init__(
        self,
        cluster: KafkaCluster,
        options: ConsumerOptions,
        committer: OffsetCommitter,
        reader: AssignedConsumer,
    ) -> None:
        super().__init__(cluster, options, committer, reader)
        self.generation = JOINING
        self._every_s = options.heartbeat_s
        self._target: frozenset[Partition] | None = None
        """The target assignment; None before the first one."""
        self._unnamed: list[HeartbeatTopicPartitions] | None = None
        """The last assignment by topic id, until every topic name is known."""
        self._reported_topics: frozenset[str] | None = None
        self._reported: frozenset[Partition] | None = None
        """The owned partitions that were reported; None before the application has any."""
        self._hurry = True
        self._is_in_doubt = False
        """Whether a response was lost: then a full heartbeat gets a full response."""
        self._names: dict[bytes, str] = {}

    @property
    def _heartbeat_interval_s(self) -> float:
        return self._every_s

    def rejoin(self) -> None:
        """Send the changed subscription in a heartbeat now."""
        self._hurry = True
        self._changed.set()

    async def _lose_membership(self, *, keep_id: bool) -> None:
        await super()._lose_membership(keep_id=keep_id)
        self.generation = JOINING
        self._target = self._reported = self._reported_topics = self._unnamed = None
        self._hurry, self._is_in_doubt = True, keep_id

    def _on_answer_lost(self) -> None:
        """The server repeats an assignment only after a full heartbeat (KIP-848)."""
        self._is_in_doubt = self._hurry = True

    async def _step(self) -> None:
        if not self._hurry:
            await self._pause(self._every_s)
        self._hurry = False
        await self._heartbeat()
        if self._unnamed is not None:
            await self._find_names(self._unnamed)
        if self._target is not None and self._target != self._reported and not self._has_left:
            await self._reconcile(self._target)
            self._hurry = True  # report the owned partitions now

    async def _reconcile(self, target: frozenset[Partition]) -> None:
        reader = self._reader
        gone = reader.assignment - target
        if gone:
            await self._while_polling(lambda: reader.revoke(gone, lost=False))
        new = target - reader.assignment
        if new or self._reported is None:
            await reader.add_assigned(new)
        reader.resume_after_rebalance()

    async def _send_heartbeat(self) -> None:
        connection = await self._committer.coordinator()
        try:
            version = connection.version(HEARTBEAT)
        except Unsupported:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, "group", "the server knows no KIP-848"
            ) from None
        if not self.member_id and version >= OWN_ID_SINCE:
            self.member_id = uuid4().hex
        if self._is_in_doubt and self.generation == JOINING:
            await self._leave_lost_join(connection)
        request = self._build_heartbeat()
        has, topics = self._reader.assignment, self._reader.topics
        answer: ConsumerGroupHeartbeatResponse = await connection.request(request)
        raise_for_code(
            answer.error_code, f"heartbeat in {self._committer.group}", answer.error_message
        )
        self._is_in_doubt = False
        self.member_id = answer.member_id or self.member_id
        self.generation = answer.member_epoch
        self._every_s = answer.heartbeat_interval_ms / 1000 or self._every_s
        self._reported_topics = topics
        if request.topic_partitions is not None:
            self._reported = None if self._target is None else has
        if answer.assignment is not None:
            self._unnamed = answer.assignment.topic_partitions

    def _build_heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        """A heartbeat with what the server does not know yet, or with everything."""
        joining, everything = self.generation == JOINING, self._is_in_doubt
        topics, has = self._reader.topics, self._reader.assignment
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._committer.group,
            member_id=self.member_id,
            member_epoch=self.generation,
            instance_id=self._options.instance_id,
            topic_partitions=[] if joining else None,
        )
        if joining or everything or topics != self._reported_topics:
            request.subscribed_topic_names = sorted(topics)
            request.rebalance_timeout_ms = int(self._options.max_poll_s * 1000)
        done = self._target is not None and has != self._reported and has <= self._target
        if not joining and (everything or done):
            request.topic_partitions = self._by_id(has)
        return request

    async def _leave_lost_join(self, connection: KafkaConnection) -> None:
        """Release the instance id: the member may have joined although the response was lost."""
        if self.member_id and self._options.instance_id is not None:
            await connection.request(self._build_leave())  # a refusal: it had not joined

    def _by_id(self, partitions: Iterable[Partition]) -> list[HeartbeatTopicPartitions]:
        ids = {name: topic_id for topic_id, name in self._names.items()}
        return [
            HeartbeatTopicPartitions(topic_id=ids[topic], partitions=sorted(numbers))
            for topic, numbers in group_by_topic(partitions).items()
            if topic in ids
        ]

    async def _find_names(self, rows: list[HeartbeatTopicPartitions]) -> None:
        """Resolve the topic ids of the assignment to names.

        For ids without a name, the next heartbeat tries again: the server does not repeat them.
        """
        if any(bytes(row.topic_id) not in self._names for row in rows):
            answer = await self._cluster.request_metadata(sorted(self._reader.topics))
            self._names |= {bytes(row.topic_id): row.name or "" for row in answer.topics}
        known = [row for row in rows if bytes(row.topic_id) in self._names]
        self._target = frozenset(
            Partition(self._names[bytes(row.topic_id)], number)
            for row in known
            for number in row.partitions
        )
        if len(known) == len(rows):
            self._unnamed = None

    async def leave(self, reason: str) -> None:  # noqa: ARG002 - this protocol has no words for it
        """Leave the group; a static member only for a while."""
        if self.generation <= JOINING:
            return
        await self._send_request(self._build_leave())
        self.generation = JOINING

    def _build_leave(self) -> ConsumerGroupHeartbeatRequest:
        static = self._options.instance_id
        return ConsumerGroupHeartbeatRequest(
            group_id=self._committer.group,
            member_id=self.member_id,
            member_epoch=LEAVING if static is None else LEAVING_FOR_A_WHILE,
            instance_id=static,
        )
