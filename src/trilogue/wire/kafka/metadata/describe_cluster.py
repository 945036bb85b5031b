"""DescribeCluster (60) v0-v2: the brokers of a cluster (KIP-700).

v1 endpoint types (KIP-919) · v2 fenced brokers.
"""

from __future__ import annotations

from trilogue.wire.kafka.codec.schema import boolean, int8, int16, int32, message, since, string


@message(key=60, versions=(0, 2), flexible=0)
class DescribeClusterRequest:
    """Describe the brokers, or the controllers."""

    include_cluster_authorized_operations: boolean = since(0)
    endpoint_type: int8 = since(1, default=1)
    include_fenced_brokers: boolean = since(2)


@message()
class DescribeClusterBroker:
    """One node and its address."""

    broker_id: int32 = since(0)
    host: string = since(0)
    port: int32 = since(0)
    rack: string | None = since(0, null=0, default=None)
    is_fenced: boolean = since(2)


@message(key=60, versions=(0, 2), flexible=0)
class DescribeClusterResponse:
    """The cluster id, the controller, the nodes."""

    throttle_time_ms: int32 = since(0)
    error_code: int16 = since(0)
    error_message: string | None = since(0, null=0, default=None)
    endpoint_type: int8 = since(1, default=1)
    cluster_id: string = since(0)
    controller_id: int32 = since(0, default=-1)
    brokers: list[DescribeClusterBroker] = since(0)
    cluster_authorized_operations: int32 = since(0, default=-2147483648)
