"""Membership of a group whose partitions the server shares out (KIP-848).

There is one request, the heartbeat. It says what the member wants where that has changed, and what
it has once it has done what it was told; the answer says which partitions it shall have. What it
shall not have any more is given up first, and told; what others still have is not told to it yet.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from uuid import uuid4

from trilogue.client.errors import Unsupported
from trilogue.client.kafka.cluster import KafkaCluster
from trilogue.client.kafka.committing import Committing
from trilogue.client.kafka.connection import KafkaConnection
from trilogue.client.kafka.errors import KafkaError, refuse
from trilogue.client.kafka.member import GroupMember, Reader
from trilogue.client.kafka.options import ConsumerOptions
from trilogue.client.kafka.shapes import Partition, by_topic
from trilogue.wire.kafka.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from trilogue.wire.kafka.errors import ErrorCode

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
        committing: Committing,
        reader: Reader,
    ) -> None:
        super().__init__(cluster, options, committing, reader)
        self.generation = JOINING
        self._every_s = options.heartbeat_s
        self._target: frozenset[Partition] | None = None
        """What it shall have; None before it was told."""
        self._shall: list[TopicPartitions] | None = None
        """What it was told to have, until all of it is in `_target` by its name."""
        self._told_wishes: frozenset[str] | None = None
        self._told: frozenset[Partition] | None = None
        """What the server knows that we have; None: the application has not heard of its share."""
        self._hurry = True
        self._is_in_doubt = False
        """Whether an answer was lost: then everything is said, so that everything is told."""
        self._names: dict[bytes, str] = {}

    @property
    def _beat_every_s(self) -> float:
        return self._every_s

    def rejoin(self) -> None:
        """What is wanted has changed: it is said with the next heartbeat, which is now."""
        self._hurry = True
        self._changed.set()

    async def _out(self, *, keep_id: bool) -> None:
        await super()._out(keep_id=keep_id)
        self.generation = JOINING
        self._target = self._told = self._told_wishes = self._shall = None
        self._hurry, self._is_in_doubt = True, keep_id

    def _unheard(self) -> None:
        """What the lost answer said is told once only, but to who says everything (KIP-848)."""
        self._is_in_doubt = self._hurry = True

    async def _step(self) -> None:
        if not self._hurry:
            await self._pause(self._every_s)
        self._hurry = False
        await self._beat()
        if self._shall is not None:
            await self._find_names(self._shall)
        if self._target is not None and self._target != self._told and not self._is_out:
            await self._reconcile(self._target)
            self._hurry = True  # what we have now is to be told

    async def _reconcile(self, target: frozenset[Partition]) -> None:
        reader = self._reader
        gone = reader.assignment - target
        if gone:
            await self._with_application(lambda: reader.give_up(gone, lost=False))
        new = target - reader.assignment
        if new or self._told is None:
            await reader.take_up(new)
        reader.resume_after_rebalance()

    async def _beat_once(self) -> None:
        connection = await self._committing.coordinator()
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
        asked = self._news()
        has, wishes = self._reader.assignment, self._reader.topics
        answer: ConsumerGroupHeartbeatResponse = await connection.request(asked)
        refuse(answer.error_code, f"heartbeat in {self._committing.group}", answer.error_message)
        self._is_in_doubt = False
        self.member_id = answer.member_id or self.member_id
        self.generation = answer.member_epoch
        self._every_s = answer.heartbeat_interval_ms / 1000 or self._every_s
        self._told_wishes = wishes
        if asked.topic_partitions is not None:
            self._told = None if self._target is None else has
        if answer.assignment is not None:
            self._shall = answer.assignment.topic_partitions

    def _news(self) -> ConsumerGroupHeartbeatRequest:
        """A heartbeat with what the server does not know yet, or with everything."""
        joining, everything = self.generation == JOINING, self._is_in_doubt
        wishes, has = self._reader.topics, self._reader.assignment
        asked = ConsumerGroupHeartbeatRequest(
            group_id=self._committing.group,
            member_id=self.member_id,
            member_epoch=self.generation,
            instance_id=self._options.instance_id,
            topic_partitions=[] if joining else None,
        )
        if joining or everything or wishes != self._told_wishes:
            asked.subscribed_topic_names = sorted(wishes)
            asked.rebalance_timeout_ms = int(self._options.max_poll_s * 1000)
        done = self._target is not None and has != self._told and has <= self._target
        if not joining and (everything or done):
            asked.topic_partitions = self._by_id(has)
        return asked

    async def _leave_lost_join(self, connection: KafkaConnection) -> None:
        """A static member may have joined unheard: nobody gets its place before it is given up."""
        if self.member_id and self._options.instance_id is not None:
            await connection.request(self._farewell())  # a refusal: it had not joined

    def _by_id(self, partitions: Iterable[Partition]) -> list[TopicPartitions]:
        ids = {name: topic_id for topic_id, name in self._names.items()}
        return [
            TopicPartitions(topic_id=ids[topic], partitions=sorted(numbers))
            for topic, numbers in by_topic(partitions).items()
            if topic in ids
        ]

    async def _find_names(self, rows: list[TopicPartitions]) -> None:
        """Know what we shall have by the names of its topics.

        Where nobody can tell them (yet), the next heartbeat asks again: it is not told again.
        """
        if any(bytes(row.topic_id) not in self._names for row in rows):
            answer = await self._cluster.ask(sorted(self._reader.topics))
            self._names |= {bytes(row.topic_id): row.name or "" for row in answer.topics}
        known = [row for row in rows if bytes(row.topic_id) in self._names]
        self._target = frozenset(
            Partition(self._names[bytes(row.topic_id)], number)
            for row in known
            for number in row.partitions
        )
        if len(known) == len(rows):
            self._shall = None

    async def leave(self, reason: str) -> None:  # noqa: ARG002 - this protocol has no words for it
        """Leave the group; a static member only for a while."""
        if self.generation <= JOINING:
            return
        await self._ask(self._farewell())
        self.generation = JOINING

    def _farewell(self) -> ConsumerGroupHeartbeatRequest:
        static = self._options.instance_id
        return ConsumerGroupHeartbeatRequest(
            group_id=self._committing.group,
            member_id=self.member_id,
            member_epoch=LEAVING if static is None else LEAVING_FOR_A_WHILE,
            instance_id=static,
        )
