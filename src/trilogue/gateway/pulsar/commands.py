"""The table of every command that the Pulsar gateway takes. Any other closes the connection.

`resource` and `operation` are what a command's handler passes to the authorizer, through
`PulsarConnection.is_allowed`. Transactions are not served: their requests are refused in the
answers of their own. A client that is configured for transactions fails earlier, since the topic of
the transaction coordinators does not exist.
"""

from __future__ import annotations

from typing import Protocol

from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.gateway.pulsar import (
    acks,
    consumers,
    handshake,
    producers,
    schemas,
    seek,
    send,
)
from trilogue.gateway.pulsar.connection import CommandRow, PulsarConnection
from trilogue.gateway.pulsar.metadata import lookup, topic_lists
from trilogue.wire.pulsar.errors import ServerError
from trilogue.wire.pulsar.pulsar_pb2 import BaseCommand

TOPIC, CLUSTER = ResourceKind.TOPIC, ResourceKind.CLUSTER
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
KIND = BaseCommand

TRANSACTION_ANSWERS = {
    "CommandNewTxn": "newTxnResponse",
    "CommandAddPartitionToTxn": "addPartitionToTxnResponse",
    "CommandAddSubscriptionToTxn": "addSubscriptionToTxnResponse",
    "CommandEndTxn": "endTxnResponse",
    "CommandTcClientConnectRequest": "tcClientConnectResponse",
}


class TransactionCommand(Protocol):
    """What all requests of transactions have."""

    @property
    def request_id(self) -> int:
        """The number that the answer repeats."""


def refuse_transaction(
    connection: PulsarConnection, command: TransactionCommand, _frame: memoryview
) -> None:
    """Answer NotAllowedError, in the answer that belongs to the request."""
    connection.send_command(
        TRANSACTION_ANSWERS[type(command).__name__],
        request_id=command.request_id,
        error=ServerError.NotAllowedError,
        message="transactions are not served",
    )


TABLE: tuple[CommandRow, ...] = (
    # Before a client can be authenticated: these handlers check no access.
    CommandRow(
        KIND.CONNECT, "connect", handshake.handle_connect, CLUSTER, DESCRIBE, before_connect=True
    ),
    CommandRow(
        KIND.AUTH_RESPONSE, "authResponse", handshake.handle_auth_response, CLUSTER, DESCRIBE
    ),
    CommandRow(KIND.PING, "ping", handshake.handle_ping, CLUSTER, DESCRIBE),
    CommandRow(KIND.PONG, "pong", handshake.handle_pong, CLUSTER, DESCRIBE),
    CommandRow(
        KIND.PARTITIONED_METADATA,
        "partitionMetadata",
        lookup.handle_partitioned_metadata,
        TOPIC,
        DESCRIBE,
    ),
    CommandRow(KIND.LOOKUP, "lookupTopic", lookup.handle_lookup, TOPIC, DESCRIBE),
    CommandRow(
        KIND.GET_TOPICS_OF_NAMESPACE,
        "getTopicsOfNamespace",
        topic_lists.handle_get_topics_of_namespace,
        TOPIC,
        DESCRIBE,
        answers_error=True,
    ),
    CommandRow(
        KIND.WATCH_TOPIC_LIST,
        "watchTopicList",
        topic_lists.handle_watch_topic_list,
        TOPIC,
        DESCRIBE,
        answers_error=True,
    ),
    CommandRow(
        KIND.WATCH_TOPIC_LIST_CLOSE,
        "watchTopicListClose",
        topic_lists.handle_watch_topic_list_close,
        TOPIC,
        DESCRIBE,
        answers_error=True,
    ),
    CommandRow(
        KIND.PRODUCER, "producer", producers.handle_producer, TOPIC, WRITE, answers_error=True
    ),
    # Access was checked when the producer was created.
    CommandRow(KIND.SEND, "send", send.handle_send, TOPIC, WRITE, raw=True),
    CommandRow(
        KIND.CLOSE_PRODUCER,
        "close_producer",
        producers.handle_close_producer,
        TOPIC,
        WRITE,
        answers_error=True,
    ),
    CommandRow(
        KIND.SUBSCRIBE, "subscribe", consumers.handle_subscribe, TOPIC, READ, answers_error=True
    ),
    # Access was checked when the consumer was created.
    CommandRow(KIND.FLOW, "flow", consumers.handle_flow, TOPIC, READ, raw=True),
    CommandRow(KIND.ACK, "ack", acks.handle_ack, TOPIC, READ, raw=True),
    CommandRow(
        KIND.REDELIVER_UNACKNOWLEDGED_MESSAGES,
        "redeliverUnacknowledgedMessages",
        consumers.handle_redeliver,
        TOPIC,
        READ,
    ),
    CommandRow(KIND.SEEK, "seek", seek.handle_seek, TOPIC, READ, answers_error=True),
    CommandRow(
        KIND.GET_LAST_MESSAGE_ID,
        "getLastMessageId",
        seek.handle_get_last_message_id,
        TOPIC,
        READ,
        answers_error=True,
    ),
    CommandRow(KIND.CONSUMER_STATS, "consumerStats", consumers.handle_consumer_stats, TOPIC, READ),
    CommandRow(
        KIND.UNSUBSCRIBE,
        "unsubscribe",
        consumers.handle_unsubscribe,
        TOPIC,
        READ,
        answers_error=True,
    ),
    CommandRow(
        KIND.CLOSE_CONSUMER,
        "close_consumer",
        consumers.handle_close_consumer,
        TOPIC,
        READ,
        answers_error=True,
    ),
    CommandRow(KIND.GET_SCHEMA, "getSchema", schemas.handle_get_schema, TOPIC, DESCRIBE),
    CommandRow(
        KIND.GET_OR_CREATE_SCHEMA,
        "getOrCreateSchema",
        schemas.handle_get_or_create_schema,
        TOPIC,
        WRITE,
    ),
    *(
        CommandRow(
            kind, field, refuse_transaction, ResourceKind.TRANSACTION, WRITE, answers_error=True
        )
        for kind, field in (
            (KIND.NEW_TXN, "newTxn"),
            (KIND.ADD_PARTITION_TO_TXN, "addPartitionToTxn"),
            (KIND.ADD_SUBSCRIPTION_TO_TXN, "addSubscriptionToTxn"),
            (KIND.END_TXN, "endTxn"),
            (KIND.TC_CLIENT_CONNECT_REQUEST, "tcClientConnectRequest"),
        )
    ),
)

ROWS = {row.type: row for row in TABLE}
