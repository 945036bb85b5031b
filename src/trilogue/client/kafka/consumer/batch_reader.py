"""Reading by partition: offsets by time, and whole record batches as the log holds them.

No groups here: the caller decides what to read (Spark plans offsets itself).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from trilogue.client.errors import ClientError, ConnectionLost, ServerRefused
from trilogue.client.kafka.cluster import KafkaCluster
from trilogue.client.kafka.errors import raise_for_code
from trilogue.client.kafka.model import READ_COMMITTED
from trilogue.client.retry import retry
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from trilogue.wire.kafka.offsets.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

FETCH_NEWEST = 12  # the newest that names topics by name
MOVED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # gone from that node, or from everywhere
    }
)

TopicPartition = tuple[str, int]


class FetchedRecords(NamedTuple):
    """One partition's part of a fetch."""

    records: memoryview
    high_watermark: int
    stable_end: int
    log_start: int
    aborted: tuple[tuple[int, int], ...] = ()
    """(producer id, first offset) of aborted transactions that overlap the records."""


class BatchReader:
    """Reads partitions of a cluster; calls retry errors that may pass, within `retry_s`."""

    def __init__(
        self, cluster: KafkaCluster, *, retry_s: float = 30.0, isolation: int = READ_COMMITTED
    ) -> None:
        self._cluster = cluster
        self._isolation = isolation
        self._retry_s = retry_s

    async def offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Offsets for timestamps (ms), LATEST or EARLIEST; -1 where no record is that late."""
        return await retry(
            lambda: self._offsets_once(wanted),
            about="offsets",
            server=self._cluster.servers,
            total_s=self._retry_s,
            may_pass=lambda problem: self._may_pass(problem, wanted),
        )

    async def _offsets_once(
        self, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for connection, partitions in (await self._cluster.connections_by_leader(wanted)).items():
            topics: dict[str, list[ListOffsetsPartition]] = {}
            for topic, partition in partitions:
                topics.setdefault(topic, []).append(
                    ListOffsetsPartition(
                        partition_index=partition, timestamp=wanted[topic, partition]
                    )
                )
            answer: ListOffsetsResponse = await connection.request(
                ListOffsetsRequest(
                    replica_id=-1,
                    isolation_level=self._isolation,
                    topics=[
                        ListOffsetsTopic(name=name, partitions=rows)
                        for name, rows in topics.items()
                    ],
                ),
                most=7,
            )
            for row in answer.topics:
                for part in row.partitions:
                    raise_for_code(part.error_code, f"offsets of {row.name}-{part.partition_index}")
                    found[row.name, part.partition_index] = part.offset
        return found

    async def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int = 4 << 20,
        max_wait_ms: int = 500,
    ) -> FetchedRecords:
        """Batches from the one that contains `offset` on; empty when none came in `max_wait_ms`."""
        return await retry(
            lambda: self._fetch_once(topic, partition, offset, max_bytes, max_wait_ms),
            about=f"fetch of {topic}-{partition}",
            server=self._cluster.servers,
            total_s=self._retry_s,
            may_pass=lambda problem: self._may_pass(problem, {(topic, partition): 0}),
        )

    async def _fetch_once(
        self, topic: str, partition: int, offset: int, max_bytes: int, max_wait_ms: int
    ) -> FetchedRecords:
        connection = await self._cluster.leader(topic, partition)
        partition_request = FetchPartition(
            partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes
        )
        answer: FetchResponse = await connection.request(
            FetchRequest(
                replica_id=-1,
                max_wait_ms=max_wait_ms,
                min_bytes=1,
                max_bytes=max_bytes,
                isolation_level=self._isolation,
                session_id=0,
                session_epoch=-1,
                topics=[FetchTopic(topic=topic, partitions=[partition_request])],
            ),
            most=FETCH_NEWEST,
        )
        raise_for_code(answer.error_code, f"fetch of {topic}-{partition}")
        part = answer.responses[0].partitions[0]
        raise_for_code(part.error_code, f"fetch of {topic}-{partition} at {offset}")
        records = part.records if isinstance(part.records, memoryview) else memoryview(b"")
        return FetchedRecords(
            records,
            part.high_watermark,
            part.last_stable_offset,
            part.log_start_offset,
            tuple((one.producer_id, one.first_offset) for one in part.aborted_transactions or ()),
        )

    def _may_pass(self, problem: ClientError, partitions: Mapping[TopicPartition, int]) -> bool:
        """Whether a retry makes sense; drops the leaders where another attempt needs others."""
        if isinstance(problem, ServerRefused):
            if not problem.retriable or problem.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                return False
            if problem.code not in MOVED:
                return True
        elif not isinstance(problem, ConnectionLost):
            return False
        for topic, _ in partitions:
            self._cluster.forget_topic(topic)
        return True
