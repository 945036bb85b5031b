"""ControlledShutdown v0-v3: a broker requests that its partitions get other leaders.

No partition has another node to go to, so the response lists all that this node leads, as
partitions that are unavailable once it ends. A Kafka broker leaves out those with one replica. Any
other broker is not in the cluster (BROKER_NOT_AVAILABLE, 8). The request changes nothing.
"""

from __future__ import annotations

from trilogue.broker.names import format_kafka
from trilogue.gateway.kafka.context import RequestContext
from trilogue.gateway.kafka.internal.epochs import check_broker_epoch
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.internal.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)


def handle_controlled_shutdown(
    context: RequestContext, request: ControlledShutdownRequest
) -> ControlledShutdownResponse:
    """List the partitions that this node leads."""
    cluster = context.broker.cluster
    if request.broker_id != cluster.node_id:
        return ControlledShutdownResponse(error_code=ErrorCode.BROKER_NOT_AVAILABLE)
    code = check_broker_epoch(context, request.broker_epoch)
    if code:
        return ControlledShutdownResponse(error_code=code)
    return ControlledShutdownResponse(
        remaining_partitions=[
            RemainingPartition(topic_name=format_kafka(topic.name), partition_index=index)
            for topic in cluster
            for index in range(len(topic.partitions))
        ]
    )
