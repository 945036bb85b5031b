"""A TubeMQ client in plain Python: asyncio first, and a synchronous facade (`sync`)."""

from __future__ import annotations

from trilogue.client.tubemq.client import TubeClient
from trilogue.client.tubemq.consumer import Consumer
from trilogue.client.tubemq.errors import (
    BadFrame,
    ClosedError,
    NoMessage,
    NotMaster,
    QueueFull,
    RemoteFailure,
    StandbyError,
    TimedOut,
    TubeError,
    UnknownEvent,
)
from trilogue.client.tubemq.message import Message
from trilogue.client.tubemq.options import (
    BadFrames,
    Balance,
    Bound,
    Confirm,
    Connections,
    Position,
)
from trilogue.client.tubemq.partition_state import Batch, Offsets
from trilogue.client.tubemq.producer import Producer, Sent

__all__ = [
    "BadFrame",
    "BadFrames",
    "Balance",
    "Batch",
    "Bound",
    "ClosedError",
    "Confirm",
    "Connections",
    "Consumer",
    "Message",
    "NoMessage",
    "NotMaster",
    "Offsets",
    "Position",
    "Producer",
    "QueueFull",
    "RemoteFailure",
    "Sent",
    "StandbyError",
    "TimedOut",
    "TubeClient",
    "TubeError",
    "UnknownEvent",
]
