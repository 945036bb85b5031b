"""Offsets of partitions: found by time and at the ends, and moved by deleting records."""

from __future__ import annotations

from collections.abc import Mapping

from trilogue.client.kafka.admin.requests import AdminRequests
from trilogue.client.kafka.cluster import KafkaCluster
from trilogue.client.kafka.connection import KafkaConnection
from trilogue.client.kafka.errors import KafkaError, error_for_code
from trilogue.client.kafka.model import (
    READ_UNCOMMITTED,
    OffsetAt,
    Partition,
    group_by_topic,
)
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.offsets.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from trilogue.wire.kafka.topics.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)


class OffsetAdmin(AdminRequests):
    """Requests about offsets; each goes to the partition's leader."""

    async def list_offsets(
        self, wanted: Mapping[tuple[str, int], int], *, isolation: int = READ_UNCOMMITTED
    ) -> dict[Partition, OffsetAt | KafkaError]:
        """The first record at or after a time (ms) in each partition, or LATEST, EARLIEST, ...

        The offset is -1 where no record is that late.
        """

        async def attempt(left: list[Partition]) -> dict[Partition, OffsetAt | KafkaError]:
            found: dict[Partition, OffsetAt | KafkaError] = {}
            found |= await unknown_partitions(self._cluster, left)
            missing = [one for one in left if one not in found]
            for connection, some in (await self._cluster.connections_by_leader(missing)).items():
                times = {Partition(*one): wanted[one] for one in some}
                found |= await request_offsets(connection, times, isolation, self._timeout_ms)
            return found

        partitions = [Partition(*one) for one in wanted]
        return await self._run_for_each(partitions, attempt, repeatable=True, moved=self._moved)

    async def delete_records(
        self, before: Mapping[tuple[str, int], int]
    ) -> dict[Partition, int | KafkaError]:
        """Drop what is before an offset (-1: everything); the first offset that is left."""

        async def attempt(left: list[Partition]) -> dict[Partition, int | KafkaError]:
            found: dict[Partition, int | KafkaError] = {}
            found |= await unknown_partitions(self._cluster, left)
            missing = [one for one in left if one not in found]
            for connection, some in (await self._cluster.connections_by_leader(missing)).items():
                rows = [
                    DeleteRecordsTopic(
                        name=topic,
                        partitions=[
                            DeleteRecordsPartition(
                                partition_index=number, offset=before[topic, number]
                            )
                            for number in numbers
                        ],
                    )
                    for topic, numbers in group_by_topic(some).items()
                ]
                answer: DeleteRecordsResponse = await self._send_request(
                    connection, DeleteRecordsRequest(topics=rows, timeout_ms=self._timeout_ms)
                )
                for topic in answer.topics:
                    for row in topic.partitions:
                        partition = Partition(topic.name, row.partition_index)
                        about = f"delete records of {topic.name}-{row.partition_index}"
                        problem = error_for_code(row.error_code, about)
                        found[partition] = row.low_watermark if problem is None else problem
            return found

        partitions = [Partition(*one) for one in before]
        return await self._run_for_each(partitions, attempt, moved=self._moved)

    def _moved(self, left: list[Partition]) -> None:
        for one in left:
            self._cluster.invalidate_leader(*one)


async def unknown_partitions(
    cluster: KafkaCluster, partitions: list[Partition]
) -> dict[Partition, KafkaError]:
    """Those of partitions that are not there, with the reason."""
    found: dict[Partition, KafkaError] = {}
    for topic, numbers in group_by_topic(partitions).items():
        try:
            there = (await cluster.topic_metadata(topic)).epochs
        except KafkaError as problem:
            found |= {Partition(topic, number): problem for number in numbers}
            continue
        for number in numbers:
            if number not in there:
                found[Partition(topic, number)] = KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{number}"
                )
    return found


async def request_offsets(
    connection: KafkaConnection,
    times: Mapping[Partition, int],
    isolation: int,
    timeout_ms: int,
) -> dict[Partition, OffsetAt | KafkaError]:
    """Request offsets of partitions from their leader."""
    topics = [
        ListOffsetsTopic(
            name=topic,
            partitions=[
                ListOffsetsPartition(
                    partition_index=number, timestamp=times[Partition(topic, number)]
                )
                for number in numbers
            ],
        )
        for topic, numbers in group_by_topic(times).items()
    ]
    answer: ListOffsetsResponse = await connection.request(
        ListOffsetsRequest(
            replica_id=-1, isolation_level=isolation, topics=topics, timeout_ms=timeout_ms
        )
    )
    found: dict[Partition, OffsetAt | KafkaError] = {}
    for topic in answer.topics:
        for row in topic.partitions:
            partition = Partition(topic.name, row.partition_index)
            problem = error_for_code(
                row.error_code, f"offsets of {topic.name}-{row.partition_index}"
            )
            offset = row.old_style_offsets[0] if row.old_style_offsets else row.offset
            found[partition] = problem or OffsetAt(offset, row.timestamp, row.leader_epoch)
    return found
