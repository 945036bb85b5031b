"""The cluster: its nodes, their API versions and log directories."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from trilogue.client.errors import Unsupported
from trilogue.client.kafka.admin.model import (
    ClusterDescription,
    LogDir,
    ReplicaSize,
    operations_of,
)
from trilogue.client.kafka.admin.requests import AdminRequests
from trilogue.client.kafka.errors import KafkaError, error_for_code, raise_for_code
from trilogue.client.kafka.model import Node, Partition, group_by_topic
from trilogue.wire.kafka.cluster.log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from trilogue.wire.kafka.metadata.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)

DESCRIBE_CLUSTER: Final = 60


class NodeAdmin(AdminRequests):
    """Requests about nodes."""

    async def describe_cluster(self, *, operations: bool = False) -> ClusterDescription:
        """The cluster's id, its controller and its nodes; from metadata where it must be."""

        async def describe() -> ClusterDescription:
            connection = await self._cluster.any_connection()
            try:
                connection.version(DESCRIBE_CLUSTER)
            except Unsupported:
                await self._cluster.refresh_nodes()
                return ClusterDescription(
                    self._cluster.cluster_id,
                    self._cluster.controller_id,
                    tuple(self._cluster.nodes[number] for number in sorted(self._cluster.nodes)),
                )
            answer: DescribeClusterResponse = await self._send_request(
                connection, DescribeClusterRequest(include_cluster_authorized_operations=operations)
            )
            raise_for_code(answer.error_code, "describe cluster", answer.error_message)
            nodes = sorted(answer.brokers, key=lambda row: row.broker_id)
            return ClusterDescription(
                answer.cluster_id,
                answer.controller_id,
                tuple(Node(row.broker_id, row.host, row.port, row.rack) for row in nodes),
                operations_of(answer.cluster_authorized_operations),
            )

        return await self._retry(describe)

    async def api_versions(self) -> dict[int, tuple[int, int]]:
        """What some node speaks: API key to lowest and highest version."""
        return dict((await self._cluster.any_connection()).served)

    async def log_dirs(
        self,
        partitions: Iterable[tuple[str, int]] | None = None,
        nodes: Iterable[int] | None = None,
    ) -> dict[int, list[LogDir | KafkaError]]:
        """What partitions take on the disks of nodes; of all partitions, on all nodes."""
        topics = None
        if partitions is not None:
            topics = [
                DescribableLogDirTopic(topic=topic, partitions=numbers)
                for topic, numbers in group_by_topic(partitions).items()
            ]
        wanted = None if nodes is None else set(nodes)

        async def describe_dirs() -> dict[int, list[LogDir | KafkaError]]:
            found: dict[int, list[LogDir | KafkaError]] = {}
            for number, connection in (await self._all_nodes()).items():
                if wanted is None or number in wanted:
                    answer: DescribeLogDirsResponse = await self._send_request(
                        connection, DescribeLogDirsRequest(topics=topics)
                    )
                    raise_for_code(answer.error_code, f"log dirs of node {number}")
                    found[number] = [_log_dir(row) for row in answer.results]
            return found

        return await self._retry(describe_dirs)


def _log_dir(row: DescribeLogDirsResult) -> LogDir | KafkaError:
    problem = error_for_code(row.error_code, f"log dir {row.log_dir}")
    if problem is not None:
        return problem
    sizes = {
        Partition(topic.name, one.partition_index): ReplicaSize(
            one.partition_size, one.offset_lag, one.is_future_key
        )
        for topic in row.topics
        for one in topic.partitions
    }
    return LogDir(row.log_dir, sizes, row.total_bytes, row.usable_bytes)
