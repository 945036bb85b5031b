"""From a Pulsar name to a topic and one of its partitions, and automatic creation.

How names with a domain and `-partition-<n>` are resolved (broker/names.py parses them):

    the topic has       bare name `x`                          `x-partition-2`
    numbered partitions PartitionRequired                      partition 2; UnknownTopic beyond the
                                                               last one
    none (unnumbered)   its one partition                      UnknownTopic
    no such topic       UnknownTopic, or created if the policy UnknownTopic, or created if the
                        allows it: unnumbered by default       policy's number is above 2

Non-persistent topics (`non-persistent://`) are in broker/non_persistent. The topic by which clients
find transaction coordinators does not exist: its lookups and partition count are answered to all.
"""

from __future__ import annotations

from trilogue.broker.broker import Broker
from trilogue.broker.errors import (
    NotOwner,
    NotServed,
    PartitionRequired,
    UnknownNamespace,
    UnknownTopic,
)
from trilogue.broker.names import PulsarName, parse_pulsar
from trilogue.broker.topics.cluster import Cluster, NewTopic
from trilogue.broker.topics.partition import Partition
from trilogue.broker.topics.policies import AutoCreation
from trilogue.broker.topics.topic import Topic

COORDINATOR_TOPIC = parse_pulsar("persistent://pulsar/system/transaction_coordinator_assign")


def is_coordinator_topic(cluster: Cluster, name: PulsarName) -> bool:
    """Whether a name is of the topic by which clients find transaction coordinators."""
    return name.topic == COORDINATOR_TOPIC.topic and (name.partition or 0) < coordinators(cluster)


def coordinators(cluster: Cluster) -> int:
    """Return the number of transaction coordinators: each slot has one."""
    return cluster.ownership.slot_count


def find_partition(cluster: Cluster, name: PulsarName) -> tuple[Topic, Partition]:
    """Return the topic and the partition of a name, of which this node is the owner.

    Raises UnknownTopic, PartitionRequired, NotServed or NotOwner.
    """
    topic, partition = _resolve(cluster, name)
    if partition.is_remote:
        owner = cluster.ownership.partition_owner(partition.partition_id)
        raise NotOwner(f"node {owner} is the owner of {name}", owner)
    return topic, partition


def find_partition_id(cluster: Cluster, name: PulsarName) -> int:
    """Return the id of the partition of a name, on whichever node; raises as `find_partition`."""
    return _resolve(cluster, name)[1].partition_id


def find_owner(cluster: Cluster, name: PulsarName) -> int:
    """Return the id of the node that clients of a topic connect to; this one for a new topic."""
    index = name.partition or 0
    if is_coordinator_topic(cluster, name):
        return cluster.ownership.slot_owner(index) or cluster.node_id
    topic = cluster.find_topic(name.topic)
    if topic is None:
        return cluster.node_id
    if index >= len(topic.partitions):
        return cluster.node_id
    return cluster.ownership.partition_leader(topic.row.partitions[index])


def _resolve(cluster: Cluster, name: PulsarName) -> tuple[Topic, Partition]:
    check_persistent(name)
    topic = cluster.topic(name.topic)
    if name.partition is None:
        if topic.partitioned:
            raise PartitionRequired("the topic has numbered partitions: name one of them")
        return topic, topic.partitions[0]
    if not topic.partitioned:
        raise UnknownTopic("the topic has no numbered partitions")
    return topic, topic.partition(name.partition)


def numbered_partition_count(topic: Topic) -> int:
    """Return the number of numbered partitions; 0 if the bare name is used."""
    return len(topic.partitions) if topic.partitioned else 0


def partition_index(topic: Topic, partition: Partition) -> int:
    """Return a partition's number, or -1 for the one of an unnumbered topic."""
    if not topic.partitioned:
        return -1
    return topic.row.partitions.index(partition.partition_id)


def check_auto_create(broker: Broker, name: PulsarName, *, allowed: bool = True) -> NewTopic:
    """Return the topic that a request for an unknown name creates, or UnknownTopic.

    `allowed` is the listener's own switch; the namespace's policy is stronger. If the topic is
    being created already, the caller waits for `cluster.pending_creation(name.topic)` instead.
    """
    check_persistent(name)
    policy = find_auto_creation(broker, name, allowed=allowed)
    if name.partition is not None and name.partition >= policy.partitions:
        raise UnknownTopic("there is no such topic, nor would one of this name have this partition")
    return broker.cluster.check_create(
        name.topic,
        partition_count=max(1, policy.partitions),
        partitioned=policy.partitions > 0,
    )


def find_auto_creation(broker: Broker, name: PulsarName, *, allowed: bool = True) -> AutoCreation:
    """Return how a request for an unknown name creates a topic; UnknownTopic where none may."""
    namespace = name.topic.namespace_name
    if not broker.namespaces.exists(namespace):
        raise UnknownNamespace(f"there is no namespace {namespace}")
    override = broker.namespaces.namespace(namespace).policies.get("autoTopicCreation")
    policy = broker.namespaces.namespace_policies(namespace).auto_creation
    if not (allowed if override is None else policy.allowed):
        raise UnknownTopic("there is no such topic, and automatic creation is off")
    return policy


def check_persistent(name: PulsarName) -> None:
    """Refuse names of non-persistent topics where only persistent ones are served: NotServed."""
    if not name.persistent:
        raise NotServed("this is not served for non-persistent topics: they store nothing")
