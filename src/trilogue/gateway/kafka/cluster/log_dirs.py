"""DescribeLogDirs v0-v5, AlterReplicaLogDirs v0-v2: log directories and sizes of replicas.

Describe: v1 unchanged · v2 flexible · v3 top-level error · v4 total and usable bytes · v5 cordoned
directories, of which there are none. Alter: v1 unchanged · v2 flexible.

There is one log directory, the data directory. The size of a partition is that of its entries in
segments and in memory; the journal's copy is not counted again. There is no lag and no move in
progress. Moving a replica to its own directory succeeds (0); any other directory does not exist
(57). Both APIs need access to the cluster (31).
"""

from __future__ import annotations

from collections.abc import Iterator

from trilogue.broker.access.authorizer import CLUSTER
from trilogue.broker.names import format_kafka, is_kafka_name
from trilogue.broker.topics.topic import Topic
from trilogue.gateway.kafka.context import RequestContext
from trilogue.gateway.steps import next_step
from trilogue.wire.kafka.cluster.log_dirs import (
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
from trilogue.wire.kafka.errors import ErrorCode

YIELD_EVERY = 1_000  # partitions per loop iteration
SPACE_SINCE = 4


async def handle_describe_log_dirs(
    context: RequestContext, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    """Describe the data directory and the requested partitions that exist."""
    if not context.is_allowed(CLUSTER.name):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    result = DescribeLogDirsResult(log_dir=str(context.gateway.log.directory.path.absolute()))
    counted = 0
    for topic, spelled, indexes in _requested_partitions(context, request):
        rows: list[DescribeLogDirsPartition] = []
        for index in indexes:
            counted += 1
            if counted % YIELD_EVERY == 0:
                await next_step()
            if topic.partitions[index].is_remote:
                continue
            size = topic.partitions[index].log.size_bytes
            rows.append(DescribeLogDirsPartition(partition_index=index, partition_size=size))
        if rows:
            result.topics.append(DescribeLogDirsTopic(name=spelled, partitions=rows))
    if context.version >= SPACE_SINCE:
        space = await context.gateway.loop.run_in_executor(
            context.gateway.executor, context.gateway.log.disk_space
        )
        result.total_bytes, result.usable_bytes = space
    return DescribeLogDirsResponse(results=[result])


def _requested_partitions(
    context: RequestContext, request: DescribeLogDirsRequest
) -> Iterator[tuple[Topic, str, list[int]]]:
    """Yield topics, their Kafka names, and the requested partition indexes, each once."""
    if request.topics is None:
        for topic in list(context.broker.cluster):
            if is_kafka_name(topic.name):
                yield topic, format_kafka(topic.name), list(range(len(topic.partitions)))
        return
    wanted: dict[str, dict[int, None]] = {}
    for each in request.topics:
        wanted.setdefault(each.topic, {}).update(dict.fromkeys(each.partitions))
    for spelled, indexes in wanted.items():
        found = context.gateway.find_topic(spelled)
        if found is not None:
            count = len(found.partitions)
            yield found, spelled, [index for index in indexes if 0 <= index < count]


def handle_alter_replica_log_dirs(
    context: RequestContext, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    """Report for each replica whether it already is in the requested directory."""
    allowed = context.is_allowed(CLUSTER.name)
    here = str(context.gateway.log.directory.path.absolute())
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    for folder in request.dirs:
        for requested in folder.topics:
            topic = context.gateway.find_topic(requested.name)
            count = 0 if topic is None else len(topic.partitions)
            answer = results.setdefault(
                requested.name, AlterReplicaLogDirTopicResult(topic_name=requested.name)
            )
            for index in requested.partitions:
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
