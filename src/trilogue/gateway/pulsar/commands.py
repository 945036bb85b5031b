"""The table of every command that the Pulsar gateway takes. Any other closes the connection.

`resource` and `operation` are what a command's handler passes to the authorizer, through
`PulsarConnection.is_allowed`.
"""

from __future__ import annotations

from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.gateway.pulsar import (
    acks,
    consumers,
    producers,
    seek,
    send,
)
from trilogue.gateway.pulsar.auth import handshake
from trilogue.gateway.pulsar.connection import CommandRow
from trilogue.gateway.pulsar.metadata import lookup, schema_requests, topic_lists
from trilogue.gateway.pulsar.transactions import transactions
from trilogue.wire.pulsar.pulsar_pb2 import BaseCommand

TOPIC, CLUSTER = ResourceKind.TOPIC, ResourceKind.CLUSTER
TRANSACTION = ResourceKind.TRANSACTION
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
KIND = BaseCommand

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
    CommandRow(KIND.GET_SCHEMA, "getSchema", schema_requests.handle_get_schema, TOPIC, DESCRIBE),
    CommandRow(
        KIND.GET_OR_CREATE_SCHEMA,
        "getOrCreateSchema",
        schema_requests.handle_get_or_create_schema,
        TOPIC,
        WRITE,
    ),
    CommandRow(
        KIND.TC_CLIENT_CONNECT_REQUEST,
        "tcClientConnectRequest",
        transactions.handle_connect_coordinator,
        CLUSTER,
        DESCRIBE,
    ),
    CommandRow(KIND.NEW_TXN, "newTxn", transactions.handle_new_txn, TRANSACTION, WRITE),
    CommandRow(
        KIND.ADD_PARTITION_TO_TXN,
        "addPartitionToTxn",
        transactions.handle_add_partition,
        TRANSACTION,
        WRITE,
    ),
    CommandRow(
        KIND.ADD_SUBSCRIPTION_TO_TXN,
        "addSubscriptionToTxn",
        transactions.handle_add_subscription,
        TRANSACTION,
        WRITE,
    ),
    CommandRow(KIND.END_TXN, "endTxn", transactions.handle_end_txn, TRANSACTION, WRITE),
)

ROWS = {row.type: row for row in TABLE}
