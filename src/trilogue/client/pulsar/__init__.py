"""A Pulsar client in plain Python: asyncio first, and a synchronous facade (`sync`)."""

from __future__ import annotations

from trilogue.client.pulsar.client import PulsarClient
from trilogue.client.pulsar.consumer.consumer import Consumer
from trilogue.client.pulsar.consumer.reader import Reader
from trilogue.client.pulsar.errors import (
    BadMessage,
    ClosedError,
    EndOfTopic,
    MessageTooLarge,
    PulsarError,
    QueueFull,
    TimedOut,
    TransactionAborted,
    TransactionConflict,
    TransactionNotFound,
)
from trilogue.client.pulsar.message import EARLIEST, LATEST, Message, MessageId, TxnId
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
from trilogue.client.pulsar.producer.producer import Producer
from trilogue.client.pulsar.transaction import Transaction, TransactionState

__all__ = [
    "EARLIEST",
    "LATEST",
    "AccessMode",
    "BadMessage",
    "Batching",
    "ClosedError",
    "Compression",
    "Consumer",
    "EndOfTopic",
    "Hashing",
    "InitialPosition",
    "Message",
    "MessageId",
    "MessageTooLarge",
    "Producer",
    "PulsarClient",
    "PulsarError",
    "QueueFull",
    "Reader",
    "Routing",
    "Schema",
    "SchemaType",
    "SubscriptionType",
    "TimedOut",
    "Transaction",
    "TransactionAborted",
    "TransactionConflict",
    "TransactionNotFound",
    "TransactionState",
    "TxnId",
]
