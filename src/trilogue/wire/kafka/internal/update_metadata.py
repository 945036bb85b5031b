"""UpdateMetadata (6) v0-v8: a controller sends the brokers and leaders that clients are shown.

v1 several endpoints of a broker · v2 rack · v3 name of the listener · v4 offline replicas · v5
broker epoch, partitions by topic · v6 flexible · v7 topic ids · v8 a controller with KRaft.
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
class UpdateMetadataPartitionState:
    """The leader of one partition, its epoch and the replicas."""

    topic_name: string = since(0, until=4)
    partition_index: int32 = since(0)
    controller_epoch: int32 = since(0)
    leader: int32 = since(0)
    leader_epoch: int32 = since(0)
    isr: list[int32] = since(0)
    zk_version: int32 = since(0)
    replicas: list[int32] = since(0)
    offline_replicas: list[int32] = since(4)


@message()
class UpdateMetadataTopicState:
    """The partitions of one topic."""

    topic_name: string = since(5)
    topic_id: uuid = since(7)
    partition_states: list[UpdateMetadataPartitionState] = since(5)


@message()
class UpdateMetadataEndpoint:
    """The address of a broker at one listener."""

    port: int32 = since(1)
    host: string = since(1)
    listener: string = since(3)
    security_protocol: int16 = since(1)


@message()
class UpdateMetadataBroker:
    """One broker."""

    id: int32 = since(0)
    v0_host: string = since(0, until=0)
    v0_port: int32 = since(0, until=0)
    endpoints: list[UpdateMetadataEndpoint] = since(1)
    rack: string | None = since(2, null=2)


@message(key=6, versions=(0, 8), flexible=6)
class UpdateMetadataRequest:
    """Show clients these brokers and partitions."""

    controller_id: int32 = since(0)
    is_k_raft_controller: boolean = since(8)
    type: int8 = since(8, tag=0)
    controller_epoch: int32 = since(0)
    broker_epoch: int64 = since(5, default=-1)
    ungrouped_partition_states: list[UpdateMetadataPartitionState] = since(0, until=4)
    topic_states: list[UpdateMetadataTopicState] = since(5)
    live_brokers: list[UpdateMetadataBroker] = since(0)


@message(key=6, versions=(0, 8), flexible=6)
class UpdateMetadataResponse:
    """The result."""

    error_code: int16 = since(0)
