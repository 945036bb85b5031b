"""The brokers that TubeMQ's clients see, and the number of a partition at its broker.

Each node that owns slots is a broker. Clients count a broker's partitions of a topic from 0 on,
without gaps, and most requests to a broker name no broker: so a broker's partition ids are the
positions of the partitions among those of the topic that its node owns.

    orders-0 .. orders-3, of the nodes 1 2 1 2     broker of node 1: 0, 1     broker of node 2: 0, 1

A node that owns everything is broker 1, whose partition ids are those of the topic. Otherwise the
broker's id stands for the slots of its node: with other slots the same partition id may stand for
another partition, so then the broker has another id, and no client takes an offset that it kept for
one partition to another (docs/decisions/0081-tubemq-brokers.md).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple
from zlib import crc32

from trilogue.broker.names import TopicName
from trilogue.broker.topics.cluster import Cluster
from trilogue.broker.topics.topic import Topic
from trilogue.wire.tubemq.text_fields import BrokerInfo, Hosting

BROKER_ID = 1
NO_BROKER = 0
CLEAR, TLS = "tubemq-broker", "tubemq-broker-ssl"
_ID_MASK = 0x7FFF_FFFF

Address = Callable[..., tuple[str, int]]  # called with tls=


class PartitionPlacement(NamedTuple):
    """Where the partitions of a topic are."""

    locations: tuple[tuple[int, int], ...]  # by number: the broker, and the partition id there
    numbers: dict[int, tuple[int, ...]]  # by broker: the numbers of its partitions, by their ids


class BrokerMap:
    """The brokers, as owners of slots."""

    def __init__(self, cluster: Cluster, own_address: Address) -> None:
        self._cluster = cluster
        self._own_address = own_address
        self._generation = -1  # of the owners of slots
        self._broker_ids: dict[int, int] = {}  # by node
        self._placements: dict[TopicName, tuple[Topic, PartitionPlacement]] = {}

    @property
    def own_id(self) -> int:
        """The id of this node's broker; 0 while it owns nothing."""
        return self._by_node().get(self._cluster.node_id, NO_BROKER)

    @property
    def broker_ids(self) -> Collection[int]:
        """The ids of all brokers."""
        return self._by_node().values()

    def brokers(self, *, tls: bool = False) -> dict[int, BrokerInfo]:
        """Return id and address of each broker; those without an address yet are left out."""
        found = {}
        for node_id, broker_id in self._by_node().items():
            address = self._address(node_id, tls=tls)
            if address is not None:
                found[broker_id] = BrokerInfo(broker_id, *address)
        return found

    def placement(self, topic: Topic) -> PartitionPlacement:
        """Return where the partitions of a topic are."""
        by_node = self._by_node()
        known, placement = self._placements.get(topic.name, (None, None))
        if known is topic and placement is not None:
            return placement
        owner_of = self._cluster.ownership.partition_owner
        numbers: dict[int, list[int]] = {}
        locations = []
        for number, partition in enumerate(topic.partitions):
            broker_id = by_node.get(owner_of(partition.partition_id), NO_BROKER)
            there = numbers.setdefault(broker_id, [])
            locations.append((broker_id, len(there)))
            there.append(number)
        placement = PartitionPlacement(
            tuple(locations), {each: tuple(there) for each, there in numbers.items()}
        )
        if len(self._placements) > 2 * len(self._cluster) + 100:  # of topics that were deleted
            self._placements.clear()
        self._placements[topic.name] = topic, placement
        return placement

    def hostings(self, topic: Topic) -> tuple[Hosting, ...]:
        """Return how many partitions of a topic each of its brokers has."""
        there = sorted(self.placement(topic).numbers.items())
        return tuple(Hosting(broker_id, len(numbers)) for broker_id, numbers in there)

    def locate(self, name: TopicName, number: int) -> tuple[int, int] | None:
        """Return broker and partition id of a partition; None where it is not known.

        Of a topic that was deleted, where the partition was: consumers have to give it up there.
        """
        by_node = self._by_node()
        if len(by_node) == 1:
            return next(iter(by_node.values())), number
        topic = self._cluster.find_topic(name)
        if topic is not None:
            locations = self.placement(topic).locations
        elif name in self._placements:
            locations = self._placements[name][1].locations
        else:
            return None
        return locations[number] if 0 <= number < len(locations) else None

    def find_number(self, name: TopicName, broker_id: int, partition_id: int) -> int | None:
        """Return the number of the partition with this id at a broker; None where there is none.

        Broker 1 has all partitions there may be, also of topics that do not exist.
        """
        if len(self._by_node()) == 1:
            return partition_id if broker_id in self._broker_ids.values() else None
        topic = self._cluster.find_topic(name)
        if topic is None:
            return None
        numbers = self.placement(topic).numbers.get(broker_id, ())
        return numbers[partition_id] if 0 <= partition_id < len(numbers) else None

    def _by_node(self) -> dict[int, int]:
        ownership = self._cluster.ownership
        if self._generation != ownership.generation:
            slots = ownership.slots_by_node()
            self._broker_ids = {each: _broker_id(slots[each], len(slots)) for each in sorted(slots)}
            self._placements.clear()
            self._generation = ownership.generation
        return self._broker_ids

    def _address(self, node_id: int, *, tls: bool) -> tuple[str, int] | None:
        if node_id == self._cluster.node_id:
            return self._own_address(tls=tls)
        listeners = self._cluster.ownership.listeners(node_id)
        text = (listeners.get(TLS) if tls else "") or listeners.get(CLEAR) or listeners.get(TLS)
        if not text:
            return None
        host, _, port = text.rpartition(":")
        return host, int(port)


def _broker_id(slots: Collection[int], nodes: int) -> int:
    """Return a number that stands for a set of slots."""
    if nodes == 1:
        return BROKER_ID
    return max(BROKER_ID + 1, crc32(repr(sorted(slots)).encode()) & _ID_MASK)
