"""THE TABLE: every command that the Pulsar door takes. Any other closes the connection.

`resource` and `operation` are what a command's handler asks the authorizer about, through
`PulsarConnection.may`. `raw`: the handler reads the frame itself. `answers_error`: the command has
a request id that ERROR can name; others tell what is wrong inside their own answer, or by closing.

`SINCE` is the other direction: the protocol version a client must have said for us to send it a
command unasked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from trilogue.broker.access import Operation, ResourceKind
from trilogue.gateway.pulsar import (
    acks,
    consumers,
    handshake,
    lookup,
    producers,
    schemas,
    seek,
    send,
    topics,
    transactions,
)
from trilogue.wire.pulsar.commands import COMMANDS, Sender
from trilogue.wire.pulsar.pulsar_pb2 import BaseCommand

Handler = Callable[[Any, Any, memoryview], Any]


class Row(NamedTuple):
    """One command: its number and field, who handles it, and what access it needs."""

    type: int
    field: str
    handler: Handler
    resource: ResourceKind
    operation: Operation
    raw: bool = False
    answers_error: bool = False
    before_connect: bool = False


TOPIC, CLUSTER = ResourceKind.TOPIC, ResourceKind.CLUSTER
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
KIND = BaseCommand

TABLE: tuple[Row, ...] = (
    # Before anybody can have logged in: their handlers ask for no access.
    Row(KIND.CONNECT, "connect", handshake.connect, CLUSTER, DESCRIBE, before_connect=True),
    Row(KIND.PING, "ping", handshake.ping, CLUSTER, DESCRIBE),
    Row(KIND.PONG, "pong", handshake.pong, CLUSTER, DESCRIBE),
    Row(KIND.PARTITIONED_METADATA, "partitionMetadata", lookup.partitions, TOPIC, DESCRIBE),
    Row(KIND.LOOKUP, "lookupTopic", lookup.lookup, TOPIC, DESCRIBE),
    Row(
        KIND.GET_TOPICS_OF_NAMESPACE,
        "getTopicsOfNamespace",
        topics.names,
        TOPIC,
        DESCRIBE,
        answers_error=True,
    ),
    Row(
        KIND.WATCH_TOPIC_LIST,
        "watchTopicList",
        topics.watch,
        TOPIC,
        DESCRIBE,
        answers_error=True,
    ),
    Row(
        KIND.WATCH_TOPIC_LIST_CLOSE,
        "watchTopicListClose",
        topics.unwatch,
        TOPIC,
        DESCRIBE,
        answers_error=True,
    ),
    Row(KIND.PRODUCER, "producer", producers.create, TOPIC, WRITE, answers_error=True),
    # Who could create the producer may use it.
    Row(KIND.SEND, "send", send.take, TOPIC, WRITE, raw=True),
    Row(KIND.CLOSE_PRODUCER, "close_producer", producers.close, TOPIC, WRITE, answers_error=True),
    Row(KIND.SUBSCRIBE, "subscribe", consumers.subscribe, TOPIC, READ, answers_error=True),
    # Who could create the consumer may use it.
    Row(KIND.FLOW, "flow", consumers.flow, TOPIC, READ, raw=True),
    Row(KIND.ACK, "ack", acks.take, TOPIC, READ, raw=True),
    Row(
        KIND.REDELIVER_UNACKNOWLEDGED_MESSAGES,
        "redeliverUnacknowledgedMessages",
        consumers.redeliver,
        TOPIC,
        READ,
    ),
    Row(KIND.SEEK, "seek", seek.seek, TOPIC, READ, answers_error=True),
    Row(
        KIND.GET_LAST_MESSAGE_ID,
        "getLastMessageId",
        seek.last_message_id,
        TOPIC,
        READ,
        answers_error=True,
    ),
    Row(KIND.CONSUMER_STATS, "consumerStats", consumers.stats, TOPIC, READ),
    Row(KIND.UNSUBSCRIBE, "unsubscribe", consumers.unsubscribe, TOPIC, READ, answers_error=True),
    Row(KIND.CLOSE_CONSUMER, "close_consumer", consumers.close, TOPIC, READ, answers_error=True),
    Row(KIND.GET_SCHEMA, "getSchema", schemas.get, TOPIC, DESCRIBE),
    Row(KIND.GET_OR_CREATE_SCHEMA, "getOrCreateSchema", schemas.get_or_create, TOPIC, WRITE),
    *(
        Row(kind, field, transactions.refuse, ResourceKind.TRANSACTION, WRITE, answers_error=True)
        for kind, field in (
            (KIND.NEW_TXN, "newTxn"),
            (KIND.ADD_PARTITION_TO_TXN, "addPartitionToTxn"),
            (KIND.ADD_SUBSCRIPTION_TO_TXN, "addSubscriptionToTxn"),
            (KIND.END_TXN, "endTxn"),
            (KIND.TC_CLIENT_CONNECT_REQUEST, "tcClientConnectRequest"),
        )
    ),
)

TYPES: dict[str, int] = {command.field: command.type for command in COMMANDS}

# What we send unasked. CLOSE_PRODUCER and CLOSE_CONSUMER go both ways, so the wire's table does not
# know since when a broker may send them; clients before that lose the connection instead.
SINCE: dict[int, int] = {
    command.type: command.since for command in COMMANDS if command.sender is not Sender.CLIENT
} | {KIND.CLOSE_PRODUCER: 5, KIND.CLOSE_CONSUMER: 5}

CHECKSUM_SINCE = 6  # sections begin with 0e01 and a checksum for these clients only
BATCHES_SINCE = 4  # clients before that get one message at a time
BROKER_ENTRY_METADATA_SINCE = 18

_BY_TYPE = {row.type: row for row in TABLE}


def command(field: str, fields: Mapping[str, Any]) -> BaseCommand:
    """Make a command by the name of its field."""
    made: dict[str, Any] = {"type": TYPES[field], field: fields}
    return BaseCommand(**made)


def find(kind: int) -> Row | None:
    """The row of a command's type, or None when it is not taken from clients."""
    return _BY_TYPE.get(kind)
