"""CreateTopics (19) v0-v7 and DeleteTopics (20) v0-v6.

Create: v1 validate_only, error messages · v2 throttle time · v3 unchanged · v4 default counts · v5
flexible, settings in the response · v6 quota errors (KIP-599) · v7 topic id. Delete: v1 throttle
time · v4 flexible · v5 error messages · v6 topic ids.
"""

from __future__ import annotations

from trilogue.wire.kafka.codec.schema import (
    boolean,
    int8,
    int16,
    int32,
    message,
    since,
    string,
    uuid,
)


@message()
class CreatableReplicaAssignment:
    """The brokers of one partition."""

    partition_index: int32 = since(0)
    broker_ids: list[int32] = since(0)


@message()
class CreatableTopicConfig:
    """A setting of the new topic."""

    name: string = since(0)
    value: string | None = since(0, null=0)


@message()
class CreatableTopic:
    """A topic to create; -1 partitions or replicas: the assignments, or (v4+) the defaults."""

    name: string = since(0)
    num_partitions: int32 = since(0)
    replication_factor: int16 = since(0)
    assignments: list[CreatableReplicaAssignment] = since(0)
    configs: list[CreatableTopicConfig] = since(0)


@message(key=19, versions=(0, 7), flexible=5)
class CreateTopicsRequest:
    """Create these topics, or only validate the request."""

    topics: list[CreatableTopic] = since(0)
    timeout_ms: int32 = since(0, default=60000)
    validate_only: boolean = since(1)


@message()
class CreatableTopicConfigs:
    """A setting of the created topic."""

    name: string = since(5)
    value: string | None = since(5, null=5)
    read_only: boolean = since(5)
    config_source: int8 = since(5, default=-1)
    is_sensitive: boolean = since(5)


@message()
class CreatableTopicResult:
    """The result of one topic."""

    name: string = since(0)
    topic_id: uuid = since(7)
    error_code: int16 = since(0)
    error_message: string | None = since(1, null=1)
    topic_config_error_code: int16 = since(5, tag=0)
    num_partitions: int32 = since(5, default=-1)
    replication_factor: int16 = since(5, default=-1)
    configs: list[CreatableTopicConfigs] | None = since(5, null=5)


@message(key=19, versions=(0, 7), flexible=5)
class CreateTopicsResponse:
    """One result per topic."""

    throttle_time_ms: int32 = since(2)
    topics: list[CreatableTopicResult] = since(0)


@message()
class DeleteTopicState:
    """A topic to delete, by name, or by id when the name is null."""

    name: string | None = since(6, null=6, default=None)
    topic_id: uuid = since(6)


@message(key=20, versions=(0, 6), flexible=4)
class DeleteTopicsRequest:
    """Delete these topics: names up to v5, names or ids from v6."""

    topics: list[DeleteTopicState] = since(6)
    topic_names: list[string] = since(0, until=5)
    timeout_ms: int32 = since(0)


@message()
class DeletableTopicResult:
    """The result of one topic."""

    name: string | None = since(0, null=6)
    topic_id: uuid = since(6)
    error_code: int16 = since(0)
    error_message: string | None = since(5, null=5, default=None)


@message(key=20, versions=(0, 6), flexible=4)
class DeleteTopicsResponse:
    """One result per topic."""

    throttle_time_ms: int32 = since(1)
    responses: list[DeletableTopicResult] = since(0)
