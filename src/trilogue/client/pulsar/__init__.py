"""A Pulsar client in plain Python: asyncio first, and a synchronous face over it (sync.py)."""

from __future__ import annotations

from trilogue.client.pulsar.client import PulsarClient
from trilogue.client.pulsar.errors import (
    BadMessage,
    ClosedError,
    EndOfTopic,
    MessageTooLarge,
    PulsarError,
    QueueFull,
    TimedOut,
)
from trilogue.client.pulsar.message import Message, MessageId
from trilogue.client.pulsar.options import (
    AccessMode,
    Batching,
    Compression,
    Hashing,
    InitialPosition,
    Routing,
    Schema,
    SchemaType,
    SubscriptionType,
)

__all__ = [
    "AccessMode",
    "BadMessage",
    "Batching",
    "ClosedError",
    "Compression",
    "EndOfTopic",
    "Hashing",
    "InitialPosition",
    "Message",
    "MessageId",
    "MessageTooLarge",
    "PulsarClient",
    "PulsarError",
    "QueueFull",
    "Routing",
    "Schema",
    "SchemaType",
    "SubscriptionType",
    "TimedOut",
]
