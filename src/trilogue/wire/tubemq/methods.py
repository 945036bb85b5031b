"""Every method of masters and brokers: its number, its service, its request and response.

11, 12, 14 and 19 are reserved and unknown to real servers, and here. The handlers of the methods
are in gateway/tubemq/methods.py.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from google.protobuf.message import Message

from trilogue.wire.tubemq import broker_pb2 as b
from trilogue.wire.tubemq import master_pb2 as m


class Service(IntEnum):
    """The serviceType of a request. A real broker accepts sends through READ as well."""

    MASTER = 1
    BROKER_READ = 2
    BROKER_WRITE = 3


class Method(NamedTuple):
    """One method, and the classes of its messages."""

    number: int
    name: str
    service: Service
    request: type[Message]
    response: type[Message]


_MASTER, _READ, _WRITE = Service.MASTER, Service.BROKER_READ, Service.BROKER_WRITE

_PART_META: Final = (m.GetPartMetaRequestC2M, m.GetPartMetaResponseM2C)
METHODS: Final = (
    Method(1, "producerRegisterP2M", _MASTER, m.RegisterRequestP2M, m.RegisterResponseM2P),
    Method(2, "producerHeartbeatP2M", _MASTER, m.HeartRequestP2M, m.HeartResponseM2P),
    Method(3, "producerCloseClientP2M", _MASTER, m.CloseRequestP2M, m.CloseResponseM2P),
    Method(4, "consumerRegisterC2M", _MASTER, m.RegisterRequestC2M, m.RegisterResponseM2C),
    Method(5, "consumerHeartbeatC2M", _MASTER, m.HeartRequestC2M, m.HeartResponseM2C),
    Method(6, "consumerCloseClientC2M", _MASTER, m.CloseRequestC2M, m.CloseResponseM2C),
    Method(7, "brokerRegisterB2M", _MASTER, m.RegisterRequestB2M, m.RegisterResponseM2B),
    Method(8, "brokerHeartbeatB2M", _MASTER, m.HeartRequestB2M, m.HeartResponseM2B),
    Method(9, "brokerCloseClientB2M", _MASTER, m.CloseRequestB2M, m.CloseResponseM2B),
    Method(13, "sendMessageP2B", _WRITE, b.SendMessageRequestP2B, b.SendMessageResponseB2P),
    Method(15, "consumerRegisterC2B", _READ, b.RegisterRequestC2B, b.RegisterResponseB2C),
    Method(16, "consumerHeartbeatC2B", _READ, b.HeartBeatRequestC2B, b.HeartBeatResponseB2C),
    Method(17, "getMessagesC2B", _READ, b.GetMessageRequestC2B, b.GetMessageResponseB2C),
    Method(18, "consumerCommitC2B", _READ, b.CommitOffsetRequestC2B, b.CommitOffsetResponseB2C),
    Method(20, "consumerRegisterC2MV2", _MASTER, m.RegisterRequestC2MV2, m.RegisterResponseM2CV2),
    Method(21, "consumerHeartbeatC2MV2", _MASTER, m.HeartRequestC2MV2, m.HeartResponseM2CV2),
    Method(22, "consumerGetPartMetaInfoC2M", _MASTER, *_PART_META),
)

_BY_NUMBER: Final = {method.number: method for method in METHODS}
BY_NAME: Final = {method.name: method for method in METHODS}


def find_method(number: int) -> Method | None:
    """Return the method of a number, None where there is none."""
    return _BY_NUMBER.get(number)
