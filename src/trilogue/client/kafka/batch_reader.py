"""Reading by partition: offsets by time, and whole record batches as the log holds them.

No groups here: who calls decides what to read (Spark plans offsets itself).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from trilogue.client.errors import ConnectionLost, ServerRefused
from trilogue.client.kafka.cluster import KafkaCluster
from trilogue.client.kafka.errors import refuse
from trilogue.client.kafka.shapes import READ_COMMITTED
from trilogue.client.retry import pauses
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from trilogue.wire.kafka.list_offsets import (
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

Partition = tuple[str, int]


class Fetched(NamedTuple):
    """One partition's part of a fetch."""

    records: memoryview
    high_watermark: int
    stable_end: int
    log_start: int
    aborted: tuple[tuple[int, int], ...] = ()
    """(producer id, first offset) of aborted transactions that overlap the records."""


class BatchReader:
    """Reads partitions of a cluster; every call retries what may pass, until its time is over."""

    def __init__(self, cluster: KafkaCluster, *, retry_s: float = 30.0) -> None:
        self._cluster = cluster
        self._retry_s = retry_s

    async def offsets(self, wanted: Mapping[Partition, int]) -> dict[Partition, int]:
        """Offsets for timestamps (ms), LATEST or EARLIEST; -1 where no record is that late."""
        found: dict[Partition, int] = {}
        trouble: Exception = ConnectionLost("no answer")
        for pause in pauses(total_s=self._retry_s):
            rest = {key: time for key, time in wanted.items() if key not in found}
            try:
                found |= await self._offsets_once(rest)
            except (ConnectionLost, ServerRefused) as problem:
                self._forget_or_raise(problem, rest)
                trouble = problem
            else:
                return found
            await asyncio.sleep(pause)
        raise trouble

    async def _offsets_once(self, wanted: Mapping[Partition, int]) -> dict[Partition, int]:
        found: dict[Partition, int] = {}
        for connection, partitions in (await self._cluster.by_leader(wanted)).items():
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
                    isolation_level=READ_COMMITTED,
                    topics=[
                        ListOffsetsTopic(name=name, partitions=rows)
                        for name, rows in topics.items()
                    ],
                ),
                most=7,
            )
            for row in answer.topics:
                for part in row.partitions:
                    refuse(part.error_code, f"offsets of {row.name}-{part.partition_index}")
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
    ) -> Fetched:
        """Batches from the one that contains `offset` on; empty when none came in `max_wait_ms`."""
        trouble: Exception = ConnectionLost("no answer")
        for pause in pauses(total_s=self._retry_s):
            try:
                return await self._fetch_once(topic, partition, offset, max_bytes, max_wait_ms)
            except (ConnectionLost, ServerRefused) as problem:
                self._forget_or_raise(problem, {(topic, partition): 0})
                trouble = problem
            await asyncio.sleep(pause)
        raise trouble

    async def _fetch_once(
        self, topic: str, partition: int, offset: int, max_bytes: int, max_wait_ms: int
    ) -> Fetched:
        connection = await self._cluster.leader(topic, partition)
        asked = FetchPartition(
            partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes
        )
        answer: FetchResponse = await connection.request(
            FetchRequest(
                replica_id=-1,
                max_wait_ms=max_wait_ms,
                min_bytes=1,
                max_bytes=max_bytes,
                isolation_level=READ_COMMITTED,
                session_id=0,
                session_epoch=-1,
                topics=[FetchTopic(topic=topic, partitions=[asked])],
            ),
            most=FETCH_NEWEST,
        )
        refuse(answer.error_code, f"fetch of {topic}-{partition}")
        part = answer.responses[0].partitions[0]
        refuse(part.error_code, f"fetch of {topic}-{partition} at {offset}")
        records = part.records if isinstance(part.records, memoryview) else memoryview(b"")
        return Fetched(
            records,
            part.high_watermark,
            part.last_stable_offset,
            part.log_start_offset,
            tuple((one.producer_id, one.first_offset) for one in part.aborted_transactions or ()),
        )

    def _forget_or_raise(self, problem: Exception, partitions: Mapping[Partition, int]) -> None:
        if isinstance(problem, ServerRefused):
            if not problem.retriable or problem.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                raise problem
            if problem.code not in MOVED:
                return
        for topic, _ in partitions:
            self._cluster.forget(topic)
