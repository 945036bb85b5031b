"""ElectLeaders (43) v0-v2: start leader elections (KIP-183).

v0 preferred leaders · v1 election type (KIP-460) · v2 flexible.
"""

from __future__ import annotations

from trilogue.wire.kafka.codec.schema import int8, int16, int32, message, since, string


@message()
class ElectionTopic:
    """Partitions of a topic."""

    topic: string = since(0)
    partitions: list[int32] = since(0)


@message(key=43, versions=(0, 2), flexible=2)
class ElectLeadersRequest:
    """Elect the preferred leaders, or any live replica, of these partitions or of all."""

    election_type: int8 = since(1)
    topic_partitions: list[ElectionTopic] | None = since(0, null=0)
    timeout_ms: int32 = since(0, default=60000)


@message()
class PartitionResult:
    """The result of one partition."""

    partition_id: int32 = since(0)
    error_code: int16 = since(0)
    error_message: string | None = since(0, null=0)


@message()
class ReplicaElectionResult:
    """Results of one topic."""

    topic: string = since(0)
    partition_result: list[PartitionResult] = since(0)


@message(key=43, versions=(0, 2), flexible=2)
class ElectLeadersResponse:
    """Results by topic."""

    throttle_time_ms: int32 = since(0)
    error_code: int16 = since(1)
    replica_election_results: list[ReplicaElectionResult] = since(0)
