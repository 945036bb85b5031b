"""Writing by partition: ready-made record batches, acknowledged when they are durable.

At least once: a batch whose answer was lost is sent again. Batches of one partition are sent one
after the other, so that a retry never changes their order.
"""

from __future__ import annotations

from trilogue.client.errors import ClientError, ConnectionLost, ServerRefused
from trilogue.client.kafka.cluster import KafkaCluster
from trilogue.client.kafka.errors import raise_for_code
from trilogue.client.retry import retry
from trilogue.wire.kafka.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

PRODUCE_NEWEST = 12  # the newest that names topics by name
ACKS_ALL = -1


class BatchWriter:
    """Sends batches with acks=all; retries errors that may pass, within its time-out."""

    def __init__(
        self, cluster: KafkaCluster, *, retry_s: float = 60.0, timeout_ms: int = 30_000
    ) -> None:
        self._cluster = cluster
        self._retry_s = retry_s
        self._timeout_ms = timeout_ms

    async def send(
        self, topic: str, partition: int, batch: bytes, *, transactional_id: str | None = None
    ) -> int:
        """Append one batch; returns its first offset once it is durable.

        `transactional_id`: of the transaction that the batch is stamped for.
        """

        def may_pass(problem: ClientError) -> bool:
            if isinstance(problem, ConnectionLost) or (
                isinstance(problem, ServerRefused) and problem.retriable
            ):
                self._cluster.forget_topic(topic)
                return True
            return False

        return await retry(
            lambda: self._send_once(topic, partition, batch, transactional_id),
            about=f"produce to {topic}-{partition}",
            server=self._cluster.servers,
            total_s=self._retry_s,
            may_pass=may_pass,
        )

    async def _send_once(
        self, topic: str, partition: int, batch: bytes, transactional_id: str | None
    ) -> int:
        connection = await self._cluster.leader(topic, partition)
        data = PartitionProduceData(index=partition, records=[batch])
        answer: ProduceResponse = await connection.request(
            ProduceRequest(
                transactional_id=transactional_id,
                acks=ACKS_ALL,
                timeout_ms=self._timeout_ms,
                topic_data=[TopicProduceData(name=topic, partition_data=[data])],
            ),
            most=PRODUCE_NEWEST,
        )
        part = answer.responses[0].partition_responses[0]
        raise_for_code(part.error_code, f"produce to {topic}-{partition}")
        return part.base_offset
