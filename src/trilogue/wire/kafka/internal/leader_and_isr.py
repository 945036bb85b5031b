"""LeaderAndIsr (4) v0-v7: a controller names the leaders and the replicas of partitions.

v1 new partitions · v2 broker epoch, partitions by topic · v3 replicas that are added or removed ·
v4 flexible · v5 topic ids, full or incremental · v6 leader recovery · v7 a controller with KRaft.
"""

from __future__ import annotations

from trilogue.wire.kafka.codec.schema import (
    boolean,
    int8,
    int16,
    int32,
    int64,
    message,
    since,
    string,
    uuid,
)


@message()
class LeaderAndIsrPartitionState:
    """The leader of one partition, its epoch and the replicas."""

    topic_name: string = since(0, until=1)
    partition_index: int32 = since(0)
    controller_epoch: int32 = since(0)
    leader: int32 = since(0)
    leader_epoch: int32 = since(0)
    isr: list[int32] = since(0)
    partition_epoch: int32 = since(0)
    replicas: list[int32] = since(0)
    adding_replicas: list[int32] = since(3)
    removing_replicas: list[int32] = since(3)
    is_new: boolean = since(1)
    leader_recovery_state: int8 = since(6)


@message()
class LeaderAndIsrTopicState:
    """The partitions of one topic."""

    topic_name: string = since(2)
    topic_id: uuid = since(5)
    partition_states: list[LeaderAndIsrPartitionState] = since(2)


@message()
class LeaderAndIsrLiveLeader:
    """The address of a leader."""

    broker_id: int32 = since(0)
    host_name: string = since(0)
    port: int32 = since(0)


@message(key=4, versions=(0, 7), flexible=4)
class LeaderAndIsrRequest:
    """Lead these partitions, or follow their leaders."""

    controller_id: int32 = since(0)
    is_k_raft_controller: boolean = since(7)
    controller_epoch: int32 = since(0)
    broker_epoch: int64 = since(2, default=-1)
    type: int8 = since(5)
    ungrouped_partition_states: list[LeaderAndIsrPartitionState] = since(0, until=1)
    topic_states: list[LeaderAndIsrTopicState] = since(2)
    live_leaders: list[LeaderAndIsrLiveLeader] = since(0)


@message()
class LeaderAndIsrPartitionError:
    """The result of one partition."""

    topic_name: string = since(0, until=4)
    partition_index: int32 = since(0)
    error_code: int16 = since(0)


@message()
class LeaderAndIsrTopicError:
    """The results of one topic."""

    topic_id: uuid = since(5)
    partition_errors: list[LeaderAndIsrPartitionError] = since(5)


@message(key=4, versions=(0, 7), flexible=4)
class LeaderAndIsrResponse:
    """The results."""

    error_code: int16 = since(0)
    partition_errors: list[LeaderAndIsrPartitionError] = since(0, until=4)
    topics: list[LeaderAndIsrTopicError] = since(5)
