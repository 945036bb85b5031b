"""StopReplica (5) v0-v4: a controller ends replicas of a broker, and may delete them.

v1 broker epoch, partitions by topic · v2 flexible · v3 leader epoch and deletion of each partition
(KIP-570) · v4 a controller with KRaft.
"""

from __future__ import annotations

from trilogue.wire.kafka.codec.schema import boolean, int16, int32, int64, message, since, string


@message()
class StopReplicaPartitionV0:
    """One partition."""

    topic_name: string = since(0, until=0)
    partition_index: int32 = since(0, until=0)


@message()
class StopReplicaTopicV1:
    """The partitions of one topic."""

    name: string = since(1, until=2)
    partition_indexes: list[int32] = since(1, until=2)


@message()
class StopReplicaPartitionState:
    """One partition, the epoch of its leader, and whether to delete the replica."""

    partition_index: int32 = since(3)
    leader_epoch: int32 = since(3, default=-1)
    delete_partition: boolean = since(3)


@message()
class StopReplicaTopicState:
    """The partitions of one topic."""

    topic_name: string = since(3)
    partition_states: list[StopReplicaPartitionState] = since(3)


@message(key=5, versions=(0, 4), flexible=2)
class StopReplicaRequest:
    """End these replicas."""

    controller_id: int32 = since(0)
    is_k_raft_controller: boolean = since(4)
    controller_epoch: int32 = since(0)
    broker_epoch: int64 = since(1, default=-1)
    delete_partitions: boolean = since(0, until=2)
    ungrouped_partitions: list[StopReplicaPartitionV0] = since(0, until=0)
    topics: list[StopReplicaTopicV1] = since(1, until=2)
    topic_states: list[StopReplicaTopicState] = since(3)


@message()
class StopReplicaPartitionError:
    """The result of one partition."""

    topic_name: string = since(0)
    partition_index: int32 = since(0)
    error_code: int16 = since(0)


@message(key=5, versions=(0, 4), flexible=2)
class StopReplicaResponse:
    """The results."""

    error_code: int16 = since(0)
    partition_errors: list[StopReplicaPartitionError] = since(0)
