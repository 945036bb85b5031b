"""The methods that the TubeMQ gateway serves, at the master and at the broker: the dispatch table.

`resource` and `operation` are what a method's handler passes to `RequestContext.check_access`.
`raw`: the handler gets the connection and the envelope, and parses the message itself. `failed`:
the fields that an error response must have besides errCode and errMsg, as real servers fill them.

Any other number is answered with FATAL "Unsupported method ID", a method of the other endpoint
with ERROR.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.gateway.tubemq import (
    client_balance_consumers,
    consumers,
    get_messages,
    producers,
    registrations,
    send,
)
from trilogue.gateway.tubemq.request_context import MethodSpec, RequestContext
from trilogue.wire.tubemq.errors import TubeCode
from trilogue.wire.tubemq.methods import BY_NAME, METHODS, Service

TOPIC, GROUP, CLUSTER = ResourceKind.TOPIC, ResourceKind.GROUP, ResourceKind.CLUSTER
READ, WRITE = Operation.READ, Operation.WRITE
NO = {"success": False}
NO_CHECKSUM = {**NO, "brokerCheckSum": -1}
NO_OFFSET = {**NO, "currOffset": -1}
NO_MESSAGES = {**NO_OFFSET, "minLimitTime": 0, "escFlowCtrl": False, "currDataDlt": -1}
NO_BROKER = {**NO, "stopRead": False, "stopWrite": False, "takeConfInfo": False}
NO_HEARTBEAT = {
    **NO_BROKER,
    "curBrokerConfId": -1,
    "confCheckSumId": -1,
    "needReportData": False,
    "takeRemoveTopicInfo": False,
}


NO_BROKERS = "brokers cannot join: the nodes of this cluster do not register with a master"


def refuse_broker(context: RequestContext) -> None:
    """Refuse a broker that registers with the master (methods 7 to 9): nodes do not do this."""
    context.respond_error(TubeCode.FORBIDDEN, NO_BROKERS)


def _spec(
    name: str,
    handler: Callable[..., Any],
    resource: ResourceKind,
    operation: Operation,
    failed: Mapping[str, Any],
    **more: Any,
) -> MethodSpec:
    return MethodSpec(BY_NAME[name], handler, resource, operation, failed, **more)


MASTER: tuple[MethodSpec, ...] = (
    _spec("producerRegisterP2M", producers.register, TOPIC, WRITE, NO_CHECKSUM),
    _spec("producerHeartbeatP2M", producers.heartbeat, TOPIC, WRITE, NO_CHECKSUM),
    # A producer that could register may close.
    _spec("producerCloseClientP2M", producers.close, TOPIC, WRITE, NO),
    _spec("consumerRegisterC2M", consumers.register, TOPIC, READ, NO),
    _spec("consumerHeartbeatC2M", consumers.heartbeat, GROUP, READ, NO),
    _spec("consumerCloseClientC2M", consumers.close, GROUP, READ, NO),
    # Nodes do not register with each other: these are refused with a reason.
    _spec("brokerRegisterB2M", refuse_broker, CLUSTER, Operation.CLUSTER_ACTION, NO_BROKER),
    _spec("brokerHeartbeatB2M", refuse_broker, CLUSTER, Operation.CLUSTER_ACTION, NO_HEARTBEAT),
    _spec("brokerCloseClientB2M", refuse_broker, CLUSTER, Operation.CLUSTER_ACTION, NO),
    _spec("consumerRegisterC2MV2", client_balance_consumers.register, TOPIC, READ, {}),
    _spec("consumerHeartbeatC2MV2", client_balance_consumers.heartbeat, GROUP, READ, {}),
    _spec(
        "consumerGetPartMetaInfoC2M", client_balance_consumers.get_partition_meta, GROUP, READ, {}
    ),
)

BROKER: tuple[MethodSpec, ...] = (
    _spec("sendMessageP2B", send.append_message, TOPIC, WRITE, NO, raw=True),
    _spec("consumerRegisterC2B", registrations.register, TOPIC, READ, NO_OFFSET),
    _spec("consumerHeartbeatC2B", registrations.heartbeat, GROUP, READ, NO),
    _spec("getMessagesC2B", get_messages.get_messages, TOPIC, READ, NO_MESSAGES),
    _spec("consumerCommitC2B", registrations.commit_offset, GROUP, READ, NO_OFFSET),
)

SERVICES: dict[str, frozenset[int]] = {
    "master": frozenset({Service.MASTER}),
    # A real broker accepts sends through the read service too: the Go client uses it.
    "broker": frozenset({Service.BROKER_READ, Service.BROKER_WRITE}),
}

assert {spec.method for spec in (*MASTER, *BROKER)} == set(METHODS), "a method has no handler"
