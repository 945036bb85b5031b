"""Topics: listed, described, created, extended, deleted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from trilogue.client.kafka.admin.model import (
    SERVERS_DEFAULT,
    CreatedTopic,
    NewTopic,
    PartitionDescription,
    Setting,
    Source,
    TopicDescription,
    TopicListing,
    operations_of,
)
from trilogue.client.kafka.admin.requests import AdminRequests
from trilogue.client.kafka.errors import KafkaError, error_for_code
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.metadata.metadata import MetadataResponse, MetadataResponseTopic
from trilogue.wire.kafka.topics.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from trilogue.wire.kafka.topics.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

DELETE_TOPICS: Final = 20
STATES_SINCE: Final = 6


class TopicAdmin(AdminRequests):
    """Requests about topics."""

    async def list_topics(self, *, internal: bool = False) -> list[TopicListing]:
        """All topics by name, with internal ones only if `internal`."""
        answer: MetadataResponse = await self._retry(lambda: self._cluster.request_metadata(None))
        rows = [row for row in answer.topics if internal or not row.is_internal]
        return [
            TopicListing(
                row.name or "",
                bytes(row.topic_id),
                row.is_internal,
                len(row.partitions),
                max((len(part.replica_nodes) for part in row.partitions), default=0),
            )
            for row in sorted(rows, key=lambda row: row.name or "")
        ]

    async def describe_topics(
        self, names: Iterable[str] | None = None, *, operations: bool = False
    ) -> dict[str, TopicDescription | KafkaError]:
        """These topics (all, if none are named) and their partitions."""
        wanted = None if names is None else list(dict.fromkeys(names))
        answer: MetadataResponse = await self._retry(
            lambda: self._cluster.request_metadata(wanted, operations=operations)
        )
        found = {row.name or "": _build_description(row) for row in answer.topics}
        return found if wanted is None else {name: found[name] for name in wanted if name in found}

    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False
    ) -> dict[str, CreatedTopic | KafkaError]:
        """Create topics, or only validate the request."""
        wanted = {topic.name: topic for topic in topics}

        async def attempt(names: list[str]) -> dict[str, CreatedTopic | KafkaError]:
            answer: CreateTopicsResponse = await self._send_to_any(
                CreateTopicsRequest(
                    topics=[_creatable(wanted[name]) for name in names],
                    timeout_ms=self._timeout_ms,
                    validate_only=validate_only,
                )
            )
            return {row.name: _created(row) for row in answer.topics}

        return await self._run_for_each(wanted, attempt)

    async def delete_topics(self, names: Iterable[str]) -> dict[str, KafkaError | None]:
        """Remove topics and what they hold."""

        async def attempt(left: list[str]) -> dict[str, KafkaError | None]:
            connection = await self._cluster.any_connection()
            states = connection.version(DELETE_TOPICS) >= STATES_SINCE
            answer: DeleteTopicsResponse = await self._send_request(
                connection,
                DeleteTopicsRequest(
                    topics=[DeleteTopicState(name=name) for name in left] if states else [],
                    topic_names=[] if states else left,
                    timeout_ms=self._timeout_ms,
                ),
            )
            return {
                row.name or "": error_for_code(
                    row.error_code, f"delete topic {row.name}", row.error_message
                )
                for row in answer.responses
            }

        outcomes = await self._run_for_each(names, attempt)
        for name in outcomes:
            self._cluster.forget_topic(name)
        return outcomes

    async def create_partitions(
        self, totals: Mapping[str, int], *, validate_only: bool = False
    ) -> dict[str, KafkaError | None]:
        """Let topics have so many partitions in all, more than before."""

        async def attempt(left: list[str]) -> dict[str, KafkaError | None]:
            answer: CreatePartitionsResponse = await self._send_to_any(
                CreatePartitionsRequest(
                    topics=[
                        CreatePartitionsTopic(name=name, count=totals[name], assignments=None)
                        for name in left
                    ],
                    timeout_ms=self._timeout_ms,
                    validate_only=validate_only,
                )
            )
            return {
                row.name: error_for_code(
                    row.error_code, f"partitions of {row.name}", row.error_message
                )
                for row in answer.results
            }

        outcomes = await self._run_for_each(totals, attempt)
        for name in outcomes:
            self._cluster.forget_topic(name)
        return outcomes

    async def create_topic(
        self,
        name: str,
        partitions: int = SERVERS_DEFAULT,
        settings: Mapping[str, str] | None = None,
    ) -> bool:
        """Make a topic and wait until it can be used; False when it was there already."""
        outcomes = await self.create_topics([NewTopic(name, partitions, settings=settings or {})])
        outcome = outcomes[name]
        if isinstance(outcome, KafkaError):
            if outcome.error is ErrorCode.TOPIC_ALREADY_EXISTS:
                return False
            raise outcome
        await self._cluster.refresh([name], is_new=True)
        return True

    async def delete_topic(self, name: str) -> bool:
        """Remove a topic; False when there was none."""
        problem = (await self.delete_topics([name]))[name]
        if problem is not None:
            if problem.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return False
            raise problem
        return True


def _build_description(row: MetadataResponseTopic) -> TopicDescription | KafkaError:
    problem = error_for_code(row.error_code, f"topic {row.name}")
    if problem is not None:
        return problem
    return TopicDescription(
        row.name or "",
        bytes(row.topic_id),
        row.is_internal,
        tuple(
            PartitionDescription(
                part.partition_index,
                part.leader_id,
                part.leader_epoch,
                tuple(part.replica_nodes),
                tuple(part.isr_nodes),
                tuple(part.offline_replicas),
            )
            for part in sorted(row.partitions, key=lambda part: part.partition_index)
        ),
        operations_of(row.topic_authorized_operations),
    )


def _creatable(topic: NewTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication,
        assignments=[
            CreatableReplicaAssignment(partition_index=number, broker_ids=list(nodes))
            for number, nodes in topic.assignments.items()
        ],
        configs=[
            CreatableTopicConfig(name=key, value=value) for key, value in topic.settings.items()
        ],
    )


def _created(row: CreatableTopicResult) -> CreatedTopic | KafkaError:
    problem = error_for_code(row.error_code, f"create topic {row.name}", row.error_message)
    if problem is not None:
        return problem
    return CreatedTopic(
        row.name,
        bytes(row.topic_id),
        row.num_partitions,
        row.replication_factor,
        {
            one.name: Setting(
                one.name,
                one.value,
                Source(max(one.config_source, 0)),
                one.read_only,
                one.is_sensitive,
            )
            for one in row.configs or ()
        },
    )
