"""A Kafka client in plain Python: asyncio first, and a synchronous facade (`sync`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trilogue.client.kafka import admin
from trilogue.client.lazy import lazy_exports

if TYPE_CHECKING:
    from trilogue.client.kafka.admin import (
        Admin,
        Change,
        ClusterDescription,
        CommittedBatch,
        CreatedTopic,
        GroupDescription,
        GroupListing,
        GroupOffset,
        LogDir,
        MemberDescription,
        NewTopic,
        Operation,
        PartitionDescription,
        ReplicaSize,
        Resource,
        ResourceType,
        Setting,
        SettingType,
        Source,
        Synonym,
        TopicDescription,
        TopicListing,
    )
    from trilogue.client.kafka.client import (
        KafkaClient,
    )
    from trilogue.client.kafka.consumer.assignors import (
        Assignor,
    )
    from trilogue.client.kafka.consumer.consumer import (
        Consumer,
    )
    from trilogue.client.kafka.consumer.message import (
        BadRecords,
        Message,
    )
    from trilogue.client.kafka.errors import (
        ClosedError,
        KafkaError,
        MessageTooLarge,
        NoPosition,
        OffsetOutOfRange,
        ProducerFenced,
        QueueFull,
        TimedOut,
        TransactionAborted,
    )
    from trilogue.client.kafka.model import (
        EARLIEST,
        EARLIEST_LOCAL,
        LATEST,
        LATEST_TIERED,
        MAX_TIMESTAMP,
        READ_COMMITTED,
        READ_UNCOMMITTED,
        Node,
        OffsetAt,
        Partition,
        PreparedTransaction,
        granted,
    )
    from trilogue.client.kafka.options import (
        Acks,
        Compression,
        GroupProtocol,
        Hashing,
        WhenFull,
    )
    from trilogue.client.kafka.producer.batch import (
        BulkDelivery,
        Sent,
    )
    from trilogue.client.kafka.producer.producer import (
        BulkRecord,
        Producer,
    )
    from trilogue.client.kafka.producer.transactions import (
        Transaction,
    )

__all__ = [
    "EARLIEST",
    "EARLIEST_LOCAL",
    "LATEST",
    "LATEST_TIERED",
    "MAX_TIMESTAMP",
    "READ_COMMITTED",
    "READ_UNCOMMITTED",
    "Acks",
    "Admin",
    "Assignor",
    "BadRecords",
    "BulkDelivery",
    "BulkRecord",
    "Change",
    "ClosedError",
    "ClusterDescription",
    "CommittedBatch",
    "Compression",
    "Consumer",
    "CreatedTopic",
    "GroupDescription",
    "GroupListing",
    "GroupOffset",
    "GroupProtocol",
    "Hashing",
    "KafkaClient",
    "KafkaError",
    "LogDir",
    "MemberDescription",
    "Message",
    "MessageTooLarge",
    "NewTopic",
    "NoPosition",
    "Node",
    "OffsetAt",
    "OffsetOutOfRange",
    "Operation",
    "Partition",
    "PartitionDescription",
    "PreparedTransaction",
    "Producer",
    "ProducerFenced",
    "QueueFull",
    "ReplicaSize",
    "Resource",
    "ResourceType",
    "Sent",
    "Setting",
    "SettingType",
    "Source",
    "Synonym",
    "TimedOut",
    "TopicDescription",
    "TopicListing",
    "Transaction",
    "TransactionAborted",
    "WhenFull",
    "granted",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "admin": admin.__all__,
        "consumer.assignors": ("Assignor",),
        "producer.batch": ("BulkDelivery", "Sent"),
        "producer.transactions": ("Transaction",),
        "client": ("KafkaClient",),
        "consumer.consumer": ("Consumer",),
        "errors": (
            "ClosedError",
            "KafkaError",
            "MessageTooLarge",
            "NoPosition",
            "OffsetOutOfRange",
            "ProducerFenced",
            "QueueFull",
            "TimedOut",
            "TransactionAborted",
        ),
        "consumer.message": (
            "BadRecords",
            "Message",
        ),
        "options": (
            "Acks",
            "Compression",
            "GroupProtocol",
            "Hashing",
            "WhenFull",
        ),
        "producer.producer": ("BulkRecord", "Producer"),
        "model": (
            "EARLIEST",
            "EARLIEST_LOCAL",
            "LATEST",
            "LATEST_TIERED",
            "MAX_TIMESTAMP",
            "Node",
            "OffsetAt",
            "Partition",
            "PreparedTransaction",
            "PreparedTransaction",
            "READ_COMMITTED",
            "READ_UNCOMMITTED",
            "granted",
        ),
    },
)
