"""Metadata (3) v0-v13: brokers, topics, partitions and their leaders.

v1 rack, controller, internal topics · v2 cluster id · v3 throttle time · v4 automatic topic
creation · v5 offline replicas · v6 unchanged · v7 leader epochs · v8 authorized operations · v9
flexible · v10 topic ids (usable from v12) · v11 no authorized operations of the cluster · v13
top-level error.
"""

from __future__ import annotations

from trilogue.wire.kafka.codec.schema import boolean, int16, int32, message, since, string, uuid


@message()
class MetadataRequestTopic:
    """A topic by name, or by id if the name is null."""

    topic_id: uuid = since(10)
    name: string | None = since(0, null=10)


@message(key=3, versions=(0, 13), flexible=9)
class MetadataRequest:
    """Describe these topics; null is all of them, an empty list none (v0: empty is all)."""

    topics: list[MetadataRequestTopic] | None = since(0, null=1)
    allow_auto_topic_creation: boolean = since(4, default=True)
    include_cluster_authorized_operations: boolean = since(8, until=10)
    include_topic_authorized_operations: boolean = since(8)


@message()
class MetadataResponseBroker:
    """A broker and the address where clients reach it."""

    node_id: int32 = since(0)
    host: string = since(0)
    port: int32 = since(0)
    rack: string | None = since(1, null=1, default=None)


@message()
class MetadataResponsePartition:
    """A partition: its leader and its replicas."""

    error_code: int16 = since(0)
    partition_index: int32 = since(0)
    leader_id: int32 = since(0)
    leader_epoch: int32 = since(7, default=-1)
    replica_nodes: list[int32] = since(0)
    isr_nodes: list[int32] = since(0)
    offline_replicas: list[int32] = since(5)


@message()
class MetadataResponseTopic:
    """A topic and its partitions, or its error."""

    error_code: int16 = since(0)
    name: string | None = since(0, null=12)
    topic_id: uuid = since(10)
    is_internal: boolean = since(1)
    partitions: list[MetadataResponsePartition] = since(0)
    topic_authorized_operations: int32 = since(8, default=-0x80000000)


@message(key=3, versions=(0, 13), flexible=9)
class MetadataResponse:
    """Brokers, controller and the requested topics."""

    throttle_time_ms: int32 = since(3)
    brokers: list[MetadataResponseBroker] = since(0)
    cluster_id: string | None = since(2, null=2, default=None)
    controller_id: int32 = since(1, default=-1)
    topics: list[MetadataResponseTopic] = since(0)
    cluster_authorized_operations: int32 = since(8, until=10, default=-0x80000000)
    error_code: int16 = since(13)
