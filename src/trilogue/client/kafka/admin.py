"""Making and removing topics."""

from __future__ import annotations

from collections.abc import Mapping

from trilogue.client.kafka.cluster import KafkaCluster, refuse
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

BROKERS_DEFAULT = -1


class KafkaAdmin:
    """Administrative requests, answered by any node."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster

    async def create_topic(
        self,
        name: str,
        partitions: int = BROKERS_DEFAULT,
        settings: Mapping[str, str] | None = None,
    ) -> bool:
        """Create a topic and wait until it can be used; False when it was there already."""
        connection = await self._cluster.any_connection()
        row = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=-1,
            assignments=[],
            configs=[
                CreatableTopicConfig(name=key, value=value)
                for key, value in (settings or {}).items()
            ],
        )
        answer: CreateTopicsResponse = await connection.request(
            CreateTopicsRequest(topics=[row], timeout_ms=30_000)
        )
        code = answer.topics[0].error_code
        if code == ErrorCode.TOPIC_ALREADY_EXISTS:
            return False
        refuse(code, f"create topic {name}: {answer.topics[0].error_message or ''}")
        await self._cluster.refresh([name], is_new=True)
        return True

    async def delete_topic(self, name: str) -> bool:
        """Delete a topic; False when there was none."""
        connection = await self._cluster.any_connection()
        answer: DeleteTopicsResponse = await connection.request(
            DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000), most=5
        )
        code = answer.responses[0].error_code
        if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return False
        refuse(code, f"delete topic {name}")
        self._cluster.forget(name)
        return True
