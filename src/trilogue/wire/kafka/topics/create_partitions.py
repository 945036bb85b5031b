"""CreatePartitions (37) v0-v3: add partitions to topics.

v1, v3 unchanged · v2 flexible.
"""

from __future__ import annotations

from trilogue.wire.kafka.codec.schema import boolean, int16, int32, message, since, string


@message()
class CreatePartitionsAssignment:
    """The brokers of one new partition."""

    broker_ids: list[int32] = since(0)


@message()
class CreatePartitionsTopic:
    """A topic and its new partition count; without assignments the broker chooses."""

    name: string = since(0)
    count: int32 = since(0)
    assignments: list[CreatePartitionsAssignment] | None = since(0, null=0)


@message(key=37, versions=(0, 3), flexible=2)
class CreatePartitionsRequest:
    """Add partitions to these topics, or only validate the request."""

    topics: list[CreatePartitionsTopic] = since(0)
    timeout_ms: int32 = since(0)
    validate_only: boolean = since(0)


@message()
class CreatePartitionsTopicResult:
    """The result of one topic."""

    name: string = since(0)
    error_code: int16 = since(0)
    error_message: string | None = since(0, null=0, default=None)


@message(key=37, versions=(0, 3), flexible=2)
class CreatePartitionsResponse:
    """One result per topic."""

    throttle_time_ms: int32 = since(0)
    results: list[CreatePartitionsTopicResult] = since(0)
