"""Committed offsets of groups: described, altered, deleted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

from trilogue.client.errors import ConnectionLost
from trilogue.client.kafka.admin.groups import GroupAdmin
from trilogue.client.kafka.admin.model import GroupOffset
from trilogue.client.kafka.admin.requests import WRONG_NODE, Outcome
from trilogue.client.kafka.connection import KafkaConnection
from trilogue.client.kafka.errors import KafkaError, error_for_code, raise_for_code
from trilogue.client.kafka.model import Partition, group_by_topic
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.groups.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponseTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from trilogue.wire.kafka.groups.delete_groups import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponseTopic,
)

OFFSET_FETCH: Final = 9
MANY_SINCE: Final = 8
BY_NAME: Final = 9
"""The newest version of both requests that names topics by name."""
NO_OFFSET: Final = -1

RequestedPartitions = Iterable[tuple[str, int]]


class GroupOffsetAdmin(GroupAdmin):
    """Requests about committed offsets of groups."""

    async def group_offsets(
        self, group: str, partitions: RequestedPartitions | None = None, *, stable: bool = False
    ) -> dict[Partition, GroupOffset | KafkaError]:
        """Where a group is in these partitions, or everywhere; without those it has none in.

        `stable` waits for the outcome of transactions that move it (KIP-447).
        """
        wanted = None if partitions is None else list(partitions)

        async def fetch(connection: KafkaConnection) -> dict[Partition, GroupOffset | KafkaError]:
            return await fetch_offsets(connection, group, wanted, stable=stable)

        try:
            return await self._at(group, fetch)
        except KafkaError as refused:
            if refused.error is ErrorCode.GROUP_ID_NOT_FOUND:
                return {}
            raise

    async def alter_group_offsets(
        self, group: str, offsets: Mapping[tuple[str, int], int | GroupOffset]
    ) -> dict[Partition, KafkaError | None]:
        """Move a group without members to these offsets."""

        async def commit(connection: KafkaConnection) -> dict[Partition, KafkaError | None]:
            rows = [
                OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[_position(number, offsets[topic, number]) for number in numbers],
                )
                for topic, numbers in group_by_topic(offsets).items()
            ]
            answer: OffsetCommitResponse = await connection.request(
                OffsetCommitRequest(group_id=group, topics=rows), most=BY_NAME
            )
            return _by_partition(group, answer.topics)

        return await self._at(group, commit)

    async def delete_group_offsets(
        self, group: str, partitions: RequestedPartitions
    ) -> dict[Partition, KafkaError | None]:
        """Forget where a group is in partitions of topics that no member of it reads."""
        wanted = group_by_topic(partitions)

        async def delete(connection: KafkaConnection) -> dict[Partition, KafkaError | None]:
            rows = [
                OffsetDeleteRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetDeleteRequestPartition(partition_index=number) for number in numbers
                    ],
                )
                for topic, numbers in wanted.items()
            ]
            answer: OffsetDeleteResponse = await connection.request(
                OffsetDeleteRequest(group_id=group, topics=rows)
            )
            raise_for_code(answer.error_code, f"positions of {group}")
            return _by_partition(group, answer.topics)

        return await self._at(group, delete)

    async def _at(
        self, group: str, send: Callable[[KafkaConnection], Awaitable[Outcome]]
    ) -> Outcome:
        """Send a request to the group's current coordinator."""

        async def once() -> Outcome:
            try:
                return await send(await self._coordinators.connect(group))
            except (ConnectionLost, KafkaError):
                self._coordinators.forget([group])
                raise

        return await self._retry(once)


async def fetch_offsets(
    connection: KafkaConnection,
    group: str,
    wanted: RequestedPartitions | None,
    *,
    stable: bool = False,
    member: tuple[str, int] | None = None,
) -> dict[Partition, GroupOffset | KafkaError]:
    """Request the committed offsets of a group; `member`: its id and epoch (KIP-848)."""
    topics = None if wanted is None else group_by_topic(wanted)
    request = OffsetFetchRequest(require_stable=stable)
    if connection.version(OFFSET_FETCH, BY_NAME) >= MANY_SINCE:
        member_id, epoch = member or (None, -1)
        request.groups = [
            OffsetFetchRequestGroup(
                group_id=group,
                member_id=member_id,
                member_epoch=epoch,
                topics=None
                if topics is None
                else [
                    OffsetFetchRequestTopics(name=topic, partition_indexes=numbers)
                    for topic, numbers in topics.items()
                ],
            )
        ]
    else:
        request.group_id = group
        request.topics = (
            None
            if topics is None
            else [
                OffsetFetchRequestTopic(name=topic, partition_indexes=numbers)
                for topic, numbers in topics.items()
            ]
        )
    answer: OffsetFetchResponse = await connection.request(request, most=BY_NAME)
    about = f"positions of {group}"
    raise_for_code(answer.error_code, about)
    rows: list[OffsetFetchResponseTopic | OffsetFetchResponseTopics] = list(answer.topics)
    for one in answer.groups:
        raise_for_code(one.error_code, about)
        rows += one.topics
    found: dict[Partition, GroupOffset | KafkaError] = {}
    for topic in rows:
        for row in topic.partitions:
            partition = Partition(topic.name, row.partition_index)
            problem = error_for_code(
                row.error_code, f"{about} in {topic.name}-{row.partition_index}"
            )
            if problem is not None:
                found[partition] = problem
            elif row.committed_offset != NO_OFFSET:
                found[partition] = GroupOffset(
                    row.committed_offset, row.metadata or "", row.committed_leader_epoch
                )
    return found


def _by_partition(
    group: str, topics: Iterable[OffsetCommitResponseTopic | OffsetDeleteResponseTopic]
) -> dict[Partition, KafkaError | None]:
    """The outcome of each partition.

    In old versions every row may report that another node is the coordinator: this is raised.
    """
    found: dict[Partition, KafkaError | None] = {}
    for topic in topics:
        for row in topic.partitions:
            about = f"position of {group} in {topic.name}-{row.partition_index}"
            problem = error_for_code(row.error_code, about)
            if problem is not None and problem.error in WRONG_NODE:
                raise problem
            found[Partition(topic.name, row.partition_index)] = problem
    return found


def _position(number: int, what: int | GroupOffset) -> OffsetCommitRequestPartition:
    position = what if isinstance(what, GroupOffset) else GroupOffset(what)
    return OffsetCommitRequestPartition(
        partition_index=number,
        committed_offset=position.offset,
        committed_leader_epoch=position.leader_epoch,
        committed_metadata=position.metadata,
    )
