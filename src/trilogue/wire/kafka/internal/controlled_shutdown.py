"""ControlledShutdown (7) v0-v3: a broker requests that its controller moves its partitions away.

v0 has a request header without client id · v1 unchanged · v2 broker epoch · v3 flexible.
"""

from __future__ import annotations

from trilogue.wire.kafka.codec.schema import int16, int32, int64, message, since, string


@message(key=7, versions=(0, 3), flexible=3)
class ControlledShutdownRequest:
    """The broker that shuts down."""

    broker_id: int32 = since(0)
    broker_epoch: int64 = since(2, default=-1)


@message()
class RemainingPartition:
    """A partition that the broker still leads."""

    topic_name: string = since(0)
    partition_index: int32 = since(0)


@message(key=7, versions=(0, 3), flexible=3)
class ControlledShutdownResponse:
    """The partitions that the broker still leads."""

    error_code: int16 = since(0)
    remaining_partitions: list[RemainingPartition] = since(0)
