"""CreatePartitions (37), v0-3. v1 and v3 are the same as those before them, v2 is flexible."""

from __future__ import annotations

from trilogue.wire.kafka.schema import boolean, int16, int32, message, since, string


@message()
class CreatePartitionsAssignment:
    """Which brokers hold one new partition."""

    broker_ids: list[int32] = since(0)


@message()
class CreatePartitionsTopic:
    """A topic and how many partitions it shall have; without assignments the broker chooses."""

    name: string = since(0)
    count: int32 = since(0)
    assignments: list[CreatePartitionsAssignment] | None = since(0, null=0)


@message(key=37, versions=(0, 3), flexible=2)
class CreatePartitionsRequest:
    """Give these topics more partitions, or only say whether that would work."""

    topics: list[CreatePartitionsTopic] = since(0)
    timeout_ms: int32 = since(0)
    validate_only: boolean = since(0)


@message()
class CreatePartitionsTopicResult:
    """The outcome for one topic."""

    name: string = since(0)
    error_code: int16 = since(0)
    error_message: string | None = since(0, null=0, default=None)


@message(key=37, versions=(0, 3), flexible=2)
class CreatePartitionsResponse:
    """One outcome per topic."""

    throttle_time_ms: int32 = since(0)
    results: list[CreatePartitionsTopicResult] = since(0)
