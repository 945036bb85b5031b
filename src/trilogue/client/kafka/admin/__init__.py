"""Administration of a Kafka cluster: topics, settings, groups, positions, nodes.

Requests about many things answer for each of them: its outcome, or the KafkaError that it met.
`granted` turns such outcomes into values, or raises the first error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trilogue.client.lazy import late

if TYPE_CHECKING:
    from trilogue.client.kafka.admin.shapes import (
        Change,
        ClusterDescription,
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
    from trilogue.client.kafka.admin.whole import (
        Admin,
    )

__all__ = [
    "Admin",
    "Change",
    "ClusterDescription",
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
]

__getattr__ = late(
    __name__, {"shapes": [name for name in __all__ if name != "Admin"], "whole": ["Admin"]}
)
