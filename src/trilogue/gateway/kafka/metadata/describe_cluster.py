"""DescribeCluster v0-v2: cluster id, controller, brokers (KIP-700).

v1 endpoint types (KIP-919): 114 for controllers, 115 for an unknown type · v2 fenced brokers, of
which there are none.

The one node is broker and controller, as in Metadata. Authorized operations are reported to clients
that may DESCRIBE the cluster; others get none.
"""

from __future__ import annotations

from trilogue.broker.access.authorizer import CLUSTER
from trilogue.gateway.kafka.authorized_operations import NOT_REQUESTED, authorized_operations
from trilogue.gateway.kafka.context import RequestContext
from trilogue.gateway.kafka.metadata.metadata import cluster_id_text
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.metadata.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS, CONTROLLERS = 1, 2  # endpoint types


def handle_describe_cluster(
    context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    """Describe the cluster."""
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
    cluster = context.broker.cluster
    allowed = NOT_REQUESTED
    if request.include_cluster_authorized_operations:
        kind, name = CLUSTER
        allowed = (
            authorized_operations(context, kind, name)
            if context.can_see(context.operation, kind, name)
            else 0
        )
    return DescribeClusterResponse(
        cluster_id=cluster_id_text(cluster.cluster_id),
        controller_id=cluster.node_id,
        brokers=[
            DescribeClusterBroker(broker_id=each.node_id, host=each.host, port=each.port)
            for each in context.brokers()
        ],
        cluster_authorized_operations=allowed,
    )
