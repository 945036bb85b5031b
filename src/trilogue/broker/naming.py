"""From a name to a topic and one of its partitions, and how a topic comes to be by its name.

The rules of names with a domain and `-partition-<n>` (names.py reads them):

    the topic has       bare name `x`                          `x-partition-2`
    numbered partitions NeedsPartition                         partition 2; UnknownTopic beyond the
                                                               last one
    none (unnumbered)   its one partition                      UnknownTopic
    no such topic       UnknownTopic, or made if the policy    UnknownTopic, or made if the policy
                        says so: unnumbered by default         makes topics of more than 2

A topic that only this node's memory would keep (`non-persistent://`) is not served.
"""

from __future__ import annotations

from trilogue.broker.broker import Broker
from trilogue.broker.cluster import Cluster, NewTopic
from trilogue.broker.errors import NeedsPartition, NotServed, UnknownNamespace, UnknownTopic
from trilogue.broker.names import PulsarName
from trilogue.broker.partition import Partition
from trilogue.broker.topic import Topic


def find_partition(cluster: Cluster, name: PulsarName) -> tuple[Topic, Partition]:
    """Return what a name stands for: UnknownTopic, NeedsPartition or NotServed if nothing."""
    check_kept(name)
    topic = cluster.topic(name.topic)
    if name.partition is None:
        if topic.partitioned:
            raise NeedsPartition("the topic has numbered partitions: name one of them")
        return topic, topic.partitions[0]
    if not topic.partitioned:
        raise UnknownTopic("the topic has no numbered partitions")
    return topic, topic.partition(name.partition)


def partitions_told(topic: Topic) -> int:
    """Return how many numbered partitions there are; 0: reached by the bare name."""
    return len(topic.partitions) if topic.partitioned else 0


def partition_index(topic: Topic, partition: Partition) -> int:
    """Return the number clients know a partition by, -1 for the one of an unnumbered topic."""
    if not topic.partitioned:
        return -1
    return topic.row.partitions.index(partition.partition_id)


def check_auto_create(broker: Broker, name: PulsarName, *, allowed: bool = True) -> NewTopic:
    """Return the topic that comes to be because its name was said, or UnknownTopic.

    `allowed` is the door's own switch; the namespace's policy is stronger. Two who say a name at
    once: ask `cluster.creating(name.topic)` first, and wait for what it returns.
    """
    check_kept(name)
    namespace = name.topic.home
    if not broker.namespaces.exists(namespace):
        raise UnknownNamespace(f"there is no namespace {namespace}")
    said = broker.namespaces.find(namespace).policies.get("autoTopicCreation")
    policy = broker.namespaces.policies_of(namespace).auto_creation
    if not (allowed if said is None else policy.allowed):
        raise UnknownTopic("there is no such topic, and none is made by mentioning it")
    if name.partition is not None and name.partition >= policy.partitions:
        raise UnknownTopic("there is no such topic, nor would one of this name have this partition")
    return broker.cluster.check_create(
        name.topic,
        partition_count=max(1, policy.partitions),
        partitioned=policy.partitions > 0,
    )


def check_kept(name: PulsarName) -> None:
    """Refuse names of topics that no disk would keep."""
    if not name.persistent:
        raise NotServed("non-persistent topics are not served: every message here is kept")
