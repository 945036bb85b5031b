"""THE TABLE: every method that the TubeMQ doors take, at the master and at the broker.

`resource` and `operation` are what a method's handler asks the authorizer about, through
`Call.check_access`. `raw`: the handler is given the connection and the envelope, and reads the
message itself. `failed`: what a refusal must have besides errCode and errMsg, as real servers fill
it.

Any other number is answered with FATAL "Unsupported method ID", a method of the other door with
ERROR.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from google.protobuf.message import Message

from trilogue.broker.access import Operation, ResourceKind
from trilogue.gateway.tubemq import (
    brokers,
    client_balance,
    consumers,
    getting,
    producers,
    registering,
    send,
)
from trilogue.wire.tubemq.errors import TubeCode
from trilogue.wire.tubemq.methods import BY_NAME, METHODS, Method, Service


class Row(NamedTuple):
    """One method: who handles it, what access it needs, how it is refused."""

    method: Method
    handler: Callable[..., Any]  # a Handler, where it is not raw
    resource: ResourceKind
    operation: Operation
    failed: Mapping[str, Any] = MappingProxyType({})
    raw: bool = False

    def refusal(self, code: TubeCode, text: str) -> Message:
        """The method's response that says no."""
        return self.method.response(errCode=code, errMsg=text, **self.failed)


TOPIC, GROUP, CLUSTER = ResourceKind.TOPIC, ResourceKind.GROUP, ResourceKind.CLUSTER
READ, WRITE = Operation.READ, Operation.WRITE
NO = {"success": False}
NO_CHECKSUM = {**NO, "brokerCheckSum": -1}
NO_OFFSET = {**NO, "currOffset": -1}
NO_MESSAGES = {**NO_OFFSET, "minLimitTime": 0, "escFlowCtrl": False, "currDataDlt": -1}
NO_BROKER = {**NO, "stopRead": False, "stopWrite": False, "takeConfInfo": False}
NO_BEAT = {
    **NO_BROKER,
    "curBrokerConfId": -1,
    "confCheckSumId": -1,
    "needReportData": False,
    "takeRemoveTopicInfo": False,
}


def _row(
    name: str,
    handler: Callable[..., Any],
    resource: ResourceKind,
    operation: Operation,
    failed: Mapping[str, Any],
    **more: Any,
) -> Row:
    return Row(BY_NAME[name], handler, resource, operation, failed, **more)


MASTER: tuple[Row, ...] = (
    _row("producerRegisterP2M", producers.register, TOPIC, WRITE, NO_CHECKSUM),
    _row("producerHeartbeatP2M", producers.heartbeat, TOPIC, WRITE, NO_CHECKSUM),
    # Who could register may close.
    _row("producerCloseClientP2M", producers.close, TOPIC, WRITE, NO),
    _row("consumerRegisterC2M", consumers.register, TOPIC, READ, NO),
    _row("consumerHeartbeatC2M", consumers.heartbeat, GROUP, READ, NO),
    _row("consumerCloseClientC2M", consumers.close, GROUP, READ, NO),
    # Our nodes do not register with each other: these are refused, and say so.
    _row("brokerRegisterB2M", brokers.refuse, CLUSTER, Operation.CLUSTER_ACTION, NO_BROKER),
    _row("brokerHeartbeatB2M", brokers.refuse, CLUSTER, Operation.CLUSTER_ACTION, NO_BEAT),
    _row("brokerCloseClientB2M", brokers.refuse, CLUSTER, Operation.CLUSTER_ACTION, NO),
    _row("consumerRegisterC2MV2", client_balance.register, TOPIC, READ, {}),
    _row("consumerHeartbeatC2MV2", client_balance.heartbeat, GROUP, READ, {}),
    _row("consumerGetPartMetaInfoC2M", client_balance.part_meta, GROUP, READ, {}),
)

BROKER: tuple[Row, ...] = (
    _row("sendMessageP2B", send.take, TOPIC, WRITE, NO, raw=True),
    _row("consumerRegisterC2B", registering.register, TOPIC, READ, NO_OFFSET),
    _row("consumerHeartbeatC2B", registering.heartbeat, GROUP, READ, NO),
    _row("getMessagesC2B", getting.take, TOPIC, READ, NO_MESSAGES),
    _row("consumerCommitC2B", registering.commit, GROUP, READ, NO_OFFSET),
)

SERVICES: dict[str, frozenset[int]] = {
    "master": frozenset({Service.MASTER}),
    # A real broker takes sends through the service for reading too, as the Go client asks.
    "broker": frozenset({Service.BROKER_READ, Service.BROKER_WRITE}),
}

assert {row.method for row in (*MASTER, *BROKER)} == set(METHODS), "a method has no row"
