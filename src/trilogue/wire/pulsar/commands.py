"""Every command between clients and brokers: number, field, sender, first protocol version.

The number of a type is also the number of its field in BaseCommand. `since` is the protocol
version of the peer from which on the command may be sent to it: nothing newer goes to an older
peer. 58-61, of transactions, pass between brokers only and are left out. The gateway has a table of
its own with their handlers (gateway/pulsar/commands.py).
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

LATEST_VERSION: Final = 21


class Sender(Enum):
    """Which side may send a command."""

    CLIENT = "client"
    BROKER = "broker"
    BOTH = "both"


class Command(NamedTuple):
    """A row: one command of the protocol."""

    type: int
    name: str
    field: str
    sender: Sender
    since: int = 0
    has_section: bool = False


_CLIENT, _BROKER, _BOTH = Sender.CLIENT, Sender.BROKER, Sender.BOTH

COMMANDS: Final = (
    Command(2, "CONNECT", "connect", _CLIENT),
    Command(3, "CONNECTED", "connected", _BROKER),
    Command(4, "SUBSCRIBE", "subscribe", _CLIENT),
    Command(5, "PRODUCER", "producer", _CLIENT),
    Command(6, "SEND", "send", _CLIENT, has_section=True),
    Command(7, "SEND_RECEIPT", "send_receipt", _BROKER),
    Command(8, "SEND_ERROR", "send_error", _BROKER),
    Command(9, "MESSAGE", "message", _BROKER, has_section=True),
    Command(10, "ACK", "ack", _CLIENT),
    Command(11, "FLOW", "flow", _CLIENT),
    Command(12, "UNSUBSCRIBE", "unsubscribe", _CLIENT),
    Command(13, "SUCCESS", "success", _BROKER),
    Command(14, "ERROR", "error", _BROKER),
    Command(15, "CLOSE_PRODUCER", "close_producer", _BOTH),  # from the broker: since 5
    Command(16, "CLOSE_CONSUMER", "close_consumer", _BOTH),  # from the broker: since 5
    Command(17, "PRODUCER_SUCCESS", "producer_success", _BROKER),
    Command(18, "PING", "ping", _BOTH, 1),
    Command(19, "PONG", "pong", _BOTH, 1),
    Command(20, "REDELIVER_UNACKNOWLEDGED_MESSAGES", "redeliverUnacknowledgedMessages", _CLIENT, 2),
    Command(21, "PARTITIONED_METADATA", "partitionMetadata", _CLIENT),
    Command(22, "PARTITIONED_METADATA_RESPONSE", "partitionMetadataResponse", _BROKER),
    Command(23, "LOOKUP", "lookupTopic", _CLIENT, 7),
    Command(24, "LOOKUP_RESPONSE", "lookupTopicResponse", _BROKER),
    Command(25, "CONSUMER_STATS", "consumerStats", _CLIENT, 8),
    Command(26, "CONSUMER_STATS_RESPONSE", "consumerStatsResponse", _BROKER),
    Command(27, "REACHED_END_OF_TOPIC", "reachedEndOfTopic", _BROKER, 9),
    Command(28, "SEEK", "seek", _CLIENT),
    Command(29, "GET_LAST_MESSAGE_ID", "getLastMessageId", _CLIENT, 12),
    Command(30, "GET_LAST_MESSAGE_ID_RESPONSE", "getLastMessageIdResponse", _BROKER),
    Command(31, "ACTIVE_CONSUMER_CHANGE", "active_consumer_change", _BROKER, 12),
    Command(32, "GET_TOPICS_OF_NAMESPACE", "getTopicsOfNamespace", _CLIENT, 12),
    Command(33, "GET_TOPICS_OF_NAMESPACE_RESPONSE", "getTopicsOfNamespaceResponse", _BROKER),
    Command(34, "GET_SCHEMA", "getSchema", _CLIENT),
    Command(35, "GET_SCHEMA_RESPONSE", "getSchemaResponse", _BROKER),
    Command(36, "AUTH_CHALLENGE", "authChallenge", _BROKER, 14),
    Command(37, "AUTH_RESPONSE", "authResponse", _CLIENT, 14),
    Command(38, "ACK_RESPONSE", "ackResponse", _BROKER),
    Command(39, "GET_OR_CREATE_SCHEMA", "getOrCreateSchema", _CLIENT, 15),
    Command(40, "GET_OR_CREATE_SCHEMA_RESPONSE", "getOrCreateSchemaResponse", _BROKER),
    Command(50, "NEW_TXN", "newTxn", _CLIENT),
    Command(51, "NEW_TXN_RESPONSE", "newTxnResponse", _BROKER),
    Command(52, "ADD_PARTITION_TO_TXN", "addPartitionToTxn", _CLIENT),
    Command(53, "ADD_PARTITION_TO_TXN_RESPONSE", "addPartitionToTxnResponse", _BROKER),
    Command(54, "ADD_SUBSCRIPTION_TO_TXN", "addSubscriptionToTxn", _CLIENT),
    Command(55, "ADD_SUBSCRIPTION_TO_TXN_RESPONSE", "addSubscriptionToTxnResponse", _BROKER),
    Command(56, "END_TXN", "endTxn", _CLIENT),
    Command(57, "END_TXN_RESPONSE", "endTxnResponse", _BROKER),
    Command(62, "TC_CLIENT_CONNECT_REQUEST", "tcClientConnectRequest", _CLIENT, 19),
    Command(63, "TC_CLIENT_CONNECT_RESPONSE", "tcClientConnectResponse", _BROKER),
    Command(64, "WATCH_TOPIC_LIST", "watchTopicList", _CLIENT),  # by feature flag 4
    Command(65, "WATCH_TOPIC_LIST_SUCCESS", "watchTopicListSuccess", _BROKER),
    Command(66, "WATCH_TOPIC_UPDATE", "watchTopicUpdate", _BROKER),
    Command(67, "WATCH_TOPIC_LIST_CLOSE", "watchTopicListClose", _CLIENT),
    Command(68, "TOPIC_MIGRATED", "topicMigrated", _BROKER, 20),
)

BY_TYPE: Final = {command.type: command for command in COMMANDS}
BY_NAME: Final = {command.name: command for command in COMMANDS}
