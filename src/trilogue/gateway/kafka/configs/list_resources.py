"""ListConfigResources v0-v1: the resources that have settings.

v0 lists subscriptions of client metrics only (the API was ListClientMetricsResources then); there
are none. v1 has resource types, empty for all; an unknown type is 35, as in Kafka. All nodes are
listed, of groups only those with overrides.
"""

from __future__ import annotations

from trilogue.broker.errors import BrokerError
from trilogue.broker.names import format_kafka, is_kafka_name
from trilogue.gateway.kafka.configs.config_resources import (
    BROKER_KIND,
    GROUP,
    LOGGER,
    METRICS,
    TOPIC,
    check_cluster,
)
from trilogue.gateway.kafka.context import RequestContext
from trilogue.gateway.kafka.errors import to_error_code
from trilogue.wire.kafka.configs.list_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from trilogue.wire.kafka.errors import ErrorCode

KINDS = (GROUP, METRICS, LOGGER, BROKER_KIND, TOPIC)


def handle_list_config_resources(
    context: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    """List the resources of the requested types."""
    try:
        check_cluster(context)
    except BrokerError as problem:
        return ListConfigResourcesResponse(error_code=to_error_code(problem))
    requested = set(request.resource_types) or set(KINDS)
    if context.version == 0:
        requested = {METRICS}
    if requested - set(KINDS):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in KINDS
            if kind in requested
            for name in _names(context, kind)
        ]
    )


def _names(context: RequestContext, kind: int) -> list[str]:
    if kind == TOPIC:
        return [
            format_kafka(topic.name)
            for topic in context.broker.cluster
            if is_kafka_name(topic.name)
        ]
    if kind in {BROKER_KIND, LOGGER}:
        return [str(each.node_id) for each in context.brokers()]
    if kind == GROUP:
        return context.broker.group_values.names
    return []
