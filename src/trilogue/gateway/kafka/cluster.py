"""DescribeCluster v0-v2: the cluster's id, its controller, its brokers (KIP-700).

v1 kinds of endpoints (KIP-919): who asks a broker for controllers is sent away (114), another kind
is unknown (115) · v2 fenced brokers, of which there are none.

As in Metadata the one node is broker and controller. Which operations the caller may do is told to
those who may DESCRIBE the cluster; to others it is none.
"""

from __future__ import annotations

from trilogue.broker.access import CLUSTER
from trilogue.gateway.kafka.access import NOT_ASKED, operations
from trilogue.gateway.kafka.metadata import cluster_id_text
from trilogue.gateway.kafka.shared import Call
from trilogue.wire.kafka.cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from trilogue.wire.kafka.errors import ErrorCode

BROKERS, CONTROLLERS = 1, 2  # kinds of endpoints


def handle(call: Call, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """Tell of the cluster."""
    if request.endpoint_type == CONTROLLERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="this is an endpoint of brokers, not of controllers",
        )
    if request.endpoint_type != BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"there is no endpoint type {request.endpoint_type}",
        )
    cluster = call.broker.cluster
    host, port = call.door.advertised()
    allowed = NOT_ASKED
    if request.include_cluster_authorized_operations:
        kind, name = CLUSTER
        allowed = operations(call, kind, name) if call.allowed(name) else 0
    return DescribeClusterResponse(
        cluster_id=cluster_id_text(cluster.cluster_id),
        controller_id=cluster.node_id,
        brokers=[DescribeClusterBroker(broker_id=cluster.node_id, host=host, port=port)],
        cluster_authorized_operations=allowed,
    )
