"""Administration of a Kafka cluster: topics, configs, groups, offsets, nodes.

Requests about many things answer for each of them: its outcome, or the KafkaError that it met.
`granted` turns such outcomes into values, or raises the first error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trilogue.client.lazy import lazy_exports

if TYPE_CHECKING:
    from trilogue.client.kafka.admin.admin import (
        Admin,
    )
    from trilogue.client.kafka.admin.model import (
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
        TransactionDescription,
        TransactionListing,
    )

__all__ = [
    "Admin",
    "Change",
    "ClusterDescription",
    "CommittedBatch",
    "CreatedTopic",
    "GroupDescription",
    "GroupListing",
    "GroupOffset",
    "LogDir",
    "MemberDescription",
    "NewTopic",
    "Operation",
    "PartitionDescription",
    "ReplicaSize",
    "Resource",
    "ResourceType",
    "Setting",
    "SettingType",
    "Source",
    "Synonym",
    "TopicDescription",
    "TopicListing",
    "TransactionDescription",
    "TransactionListing",
]

__getattr__ = lazy_exports(
    __name__, {"model": [name for name in __all__ if name != "Admin"], "admin": ["Admin"]}
)
