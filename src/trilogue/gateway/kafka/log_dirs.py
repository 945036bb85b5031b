"""DescribeLogDirs v0-v5, AlterReplicaLogDirs v0-v2: where replicas lie and how large they are.

Describe: v1 the same · v2 flexible · v3 top-level error · v4 room of the disk · v5 cordoned, which
a folder never is. Alter: v1 the same · v2 flexible.

There is one folder, the data directory. A partition's size is that of its entries, in segments and
in memory; what the journal holds of it besides is not counted twice. Nothing lags behind, and
nothing is on its way elsewhere. To move a replica to where it is already is done (0); any other
folder does not exist (57). Both are of the cluster: 31 for who may not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from trilogue.broker.access import CLUSTER
from trilogue.broker.names import kafka_can_spell, spelled_kafka
from trilogue.broker.topic import Topic
from trilogue.gateway.kafka.shared import Call
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

YIELD_EVERY = 1_000  # partitions that are looked at in one go, before others may use the loop
SPACE_SINCE = 4


async def describe(call: Call, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    """Tell of the one folder, and of the partitions asked for that exist."""
    if not call.allowed(CLUSTER.name):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    result = DescribeLogDirsResult(log_dir=str(call.door.log.directory.path.absolute()))
    counted = 0
    for topic, spelled, indexes in _asked(call, request):
        rows: list[DescribeLogDirsPartition] = []
        for index in indexes:
            counted += 1
            if counted % YIELD_EVERY == 0:
                await asyncio.sleep(0)
            size = topic.partitions[index].log.size_bytes
            rows.append(DescribeLogDirsPartition(partition_index=index, partition_size=size))
        if rows:
            result.topics.append(DescribeLogDirsTopic(name=spelled, partitions=rows))
    if call.version >= SPACE_SINCE:
        space = await call.door.loop.run_in_executor(call.door.executor, call.door.log.disk_space)
        result.total_bytes, result.usable_bytes = space
    return DescribeLogDirsResponse(results=[result])


def _asked(call: Call, request: DescribeLogDirsRequest) -> Iterator[tuple[Topic, str, list[int]]]:
    """Topics, how Kafka spells them, and the indexes asked for, each once."""
    if request.topics is None:
        for topic in list(call.broker.cluster):
            if kafka_can_spell(topic.name):
                yield topic, spelled_kafka(topic.name), list(range(len(topic.partitions)))
        return
    wanted: dict[str, dict[int, None]] = {}
    for each in request.topics:
        wanted.setdefault(each.topic, {}).update(dict.fromkeys(each.partitions))
    for spelled, indexes in wanted.items():
        found = call.door.find_topic(spelled)
        if found is not None:
            count = len(found.partitions)
            yield found, spelled, [index for index in indexes if 0 <= index < count]


def alter(call: Call, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    """Say of each partition that it is there, or that it cannot go there."""
    allowed = call.allowed(CLUSTER.name)
    here = str(call.door.log.directory.path.absolute())
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    for folder in request.dirs:
        for asked in folder.topics:
            topic = call.door.find_topic(asked.name)
            count = 0 if topic is None else len(topic.partitions)
            answer = results.setdefault(
                asked.name, AlterReplicaLogDirTopicResult(topic_name=asked.name)
            )
            for index in asked.partitions:
                code = ErrorCode.NONE
                if not allowed:
                    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                elif folder.path != here:
                    code = ErrorCode.LOG_DIR_NOT_FOUND
                elif not 0 <= index < count:
                    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                answer.partitions.append(
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                )
    return AlterReplicaLogDirsResponse(results=list(results.values()))
