"""Every method of masters and brokers: its number, its service, what is asked and answered.

11, 12, 14 and 19 are reserved: a real server does not know them, nor do we. What a gateway does
with each method is its own table (gateway/tubemq/methods.py).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from google.protobuf.message import Message

from trilogue.wire.tubemq import broker_pb2 as broker
from trilogue.wire.tubemq import master_pb2 as master


class Service(IntEnum):
    """The serviceType of a request. A real broker takes sends through READ as well."""

    MASTER = 1
    BROKER_READ = 2
    BROKER_WRITE = 3


class Method(NamedTuple):
    """A row: one method, and the classes of its messages."""

    number: int
    name: str
    service: Service
    request: type[Message]
    response: type[Message]


_MASTER, _READ, _WRITE = Service.MASTER, Service.BROKER_READ, Service.BROKER_WRITE

METHODS: Final = (
    Method(
        1, "producerRegisterP2M", _MASTER, master.RegisterRequestP2M, master.RegisterResponseM2P
    ),
    Method(2, "producerHeartbeatP2M", _MASTER, master.HeartRequestP2M, master.HeartResponseM2P),
    Method(3, "producerCloseClientP2M", _MASTER, master.CloseRequestP2M, master.CloseResponseM2P),
    Method(
        4, "consumerRegisterC2M", _MASTER, master.RegisterRequestC2M, master.RegisterResponseM2C
    ),
    Method(5, "consumerHeartbeatC2M", _MASTER, master.HeartRequestC2M, master.HeartResponseM2C),
    Method(6, "consumerCloseClientC2M", _MASTER, master.CloseRequestC2M, master.CloseResponseM2C),
    Method(7, "brokerRegisterB2M", _MASTER, master.RegisterRequestB2M, master.RegisterResponseM2B),
    Method(8, "brokerHeartbeatB2M", _MASTER, master.HeartRequestB2M, master.HeartResponseM2B),
    Method(9, "brokerCloseClientB2M", _MASTER, master.CloseRequestB2M, master.CloseResponseM2B),
    Method(
        13, "sendMessageP2B", _WRITE, broker.SendMessageRequestP2B, broker.SendMessageResponseB2P
    ),
    Method(15, "consumerRegisterC2B", _READ, broker.RegisterRequestC2B, broker.RegisterResponseB2C),
    Method(
        16, "consumerHeartbeatC2B", _READ, broker.HeartBeatRequestC2B, broker.HeartBeatResponseB2C
    ),
    Method(17, "getMessagesC2B", _READ, broker.GetMessageRequestC2B, broker.GetMessageResponseB2C),
    Method(
        18,
        "consumerCommitC2B",
        _READ,
        broker.CommitOffsetRequestC2B,
        broker.CommitOffsetResponseB2C,
    ),
    Method(
        20,
        "consumerRegisterC2MV2",
        _MASTER,
        master.RegisterRequestC2MV2,
        master.RegisterResponseM2CV2,
    ),
    Method(
        21, "consumerHeartbeatC2MV2", _MASTER, master.HeartRequestC2MV2, master.HeartResponseM2CV2
    ),
    Method(
        22,
        "consumerGetPartMetaInfoC2M",
        _MASTER,
        master.GetPartMetaRequestC2M,
        master.GetPartMetaResponseM2C,
    ),
)

_BY_NUMBER: Final = {method.number: method for method in METHODS}
BY_NAME: Final = {method.name: method for method in METHODS}


def find(number: int) -> Method | None:
    """Return the method of a number, None where there is none."""
    return _BY_NUMBER.get(number)
