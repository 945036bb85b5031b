"""Commits and fetches of the offsets of one group, by a member or without membership."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, NamedTuple, TypeVar

from trilogue.client.errors import ClientError, ConnectionLost
from trilogue.client.kafka.admin.group_offsets import BY_NAME, fetch_offsets
from trilogue.client.kafka.admin.model import GroupOffset
from trilogue.client.kafka.cluster import KafkaCluster
from trilogue.client.kafka.connection import KafkaConnection
from trilogue.client.kafka.coordinators import Coordinators
from trilogue.client.kafka.errors import KafkaError
from trilogue.client.kafka.model import Partition, granted, group_by_topic
from trilogue.client.retry import retry
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.groups.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

COORDINATOR_MOVED: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
PASSES: Final = COORDINATOR_MOVED | {
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}


Result = TypeVar("Result")


class MemberIdentity(NamedTuple):
    """The committing member and its generation (or epoch); empty without membership."""

    member_id: str = ""
    generation: int = -1
    instance_id: str | None = None


class OffsetCommitter:
    """Requests to the coordinator of one group, on a lane of its own."""

    def __init__(self, cluster: KafkaCluster, group: str, lane: str) -> None:
        self._cluster = cluster
        self._coordinators = Coordinators(cluster)
        self.group = group
        self._lane = lane

    async def coordinator(self) -> KafkaConnection:
        """A connection to the current coordinator."""
        return await self._coordinators.connect(self.group, self._lane)

    def moved(self) -> None:
        """Look for the coordinator again."""
        self._coordinators.forget([self.group])

    def close(self) -> None:
        """Close the connection."""
        connection = self._coordinators.peek(self.group, self._lane)
        if connection is not None:
            connection.close()

    async def commit(
        self,
        offsets: Mapping[Partition, GroupOffset],
        identity: Callable[[], MemberIdentity],
        *,
        total_s: float,
    ) -> None:
        """Commit offsets; KafkaError where the coordinator refuses them.

        `identity` returns the current member: epochs of KIP-848 change between attempts.
        """
        await self._retry(lambda: self._commit_once(offsets, identity()), total_s)

    async def _retry(self, work: Callable[[], Awaitable[Result]], total_s: float) -> Result:
        """Retry a request to the coordinator for `total_s` seconds."""

        def may_pass(problem: ClientError) -> bool:
            if isinstance(problem, ConnectionLost):
                self.moved()
                return True
            if not isinstance(problem, KafkaError):
                return False
            if problem.error in COORDINATOR_MOVED:
                self.moved()
            return problem.error in PASSES

        about = f"coordinator of group {self.group}"
        return await retry(
            work, about=about, server=self._cluster.servers, total_s=total_s, may_pass=may_pass
        )

    async def _commit_once(
        self, offsets: Mapping[Partition, GroupOffset], identity: MemberIdentity
    ) -> None:
        connection = await self.coordinator()
        rows = [
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=number,
                        committed_offset=offsets[Partition(topic, number)].offset,
                        committed_leader_epoch=offsets[Partition(topic, number)].leader_epoch,
                        committed_metadata=offsets[Partition(topic, number)].metadata,
                    )
                    for number in numbers
                ],
            )
            for topic, numbers in group_by_topic(offsets).items()
        ]
        answer: OffsetCommitResponse = await connection.request(
            OffsetCommitRequest(
                group_id=self.group,
                generation_id_or_member_epoch=identity.generation,
                member_id=identity.member_id,
                group_instance_id=identity.instance_id,
                topics=rows,
            ),
            most=BY_NAME,
        )
        for topic in answer.topics:
            for row in topic.partitions:
                if row.error_code:
                    raise KafkaError(
                        row.error_code,
                        f"commit of {self.group} in {topic.name}-{row.partition_index}",
                    )

    async def committed(
        self,
        partitions: Iterable[Partition],
        *,
        stable: bool,
        total_s: float,
        identity: MemberIdentity | None = None,
    ) -> dict[Partition, GroupOffset]:
        """Where the group is in partitions; those it has no position in are left out."""
        wanted = list(partitions)
        member = (identity.member_id, identity.generation) if identity else None

        async def fetch() -> dict[Partition, GroupOffset]:
            connection = await self.coordinator()
            return granted(
                await fetch_offsets(connection, self.group, wanted, stable=stable, member=member)
            )

        try:
            return await self._retry(fetch, total_s)
        except KafkaError as refused:
            if refused.error is ErrorCode.GROUP_ID_NOT_FOUND:
                return {}
            raise
