"""ListConfigResources v0-v1: which things have settings, or may have.

v0 asks for subscriptions of client metrics alone (its name was ListClientMetricsResources then);
there are none. v1 asks by kind, no kind is all of them; an unknown kind is error 35, as in Kafka.
Groups are told that settings were said of.
"""

from __future__ import annotations

from trilogue.broker.errors import BrokerError
from trilogue.broker.names import kafka_can_spell, spelled_kafka
from trilogue.gateway.kafka.config_kinds import (
    BROKER_KIND,
    GROUP,
    LOGGER,
    METRICS,
    TOPIC,
    check_cluster,
)
from trilogue.gateway.kafka.errors import code_of
from trilogue.gateway.kafka.shared import Call
from trilogue.wire.kafka.config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from trilogue.wire.kafka.errors import ErrorCode

KINDS = (GROUP, METRICS, LOGGER, BROKER_KIND, TOPIC)


def handle(call: Call, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    """List them."""
    try:
        check_cluster(call)
    except BrokerError as problem:
        return ListConfigResourcesResponse(error_code=code_of(problem))
    asked = set(request.resource_types) or set(KINDS)
    if call.version == 0:
        asked = {METRICS}
    if asked - set(KINDS):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in KINDS
            if kind in asked
            for name in _names(call, kind)
        ]
    )


def _names(call: Call, kind: int) -> list[str]:
    if kind == TOPIC:
        return [
            spelled_kafka(topic.name)
            for topic in call.broker.cluster
            if kafka_can_spell(topic.name)
        ]
    if kind in {BROKER_KIND, LOGGER}:
        return [str(call.broker.cluster.node_id)]
    if kind == GROUP:
        return call.broker.group_values.names
    return []
