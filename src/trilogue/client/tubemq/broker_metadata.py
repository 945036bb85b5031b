"""Brokers and topics as the master reports them; a newer report replaces the older.

The checksum goes with every request to the master, which sends the brokers again only when its own
differs. A topic's partitions are numbered by store and then by place in
it: `store * 10000 + partition`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from trilogue.client.pool import Address
from trilogue.wire.errors import WireError
from trilogue.wire.tubemq.text_fields import BrokerInfo, Hosting, Partition, TopicInfo

UNKNOWN: Final = -1
SIZE_MAX: Final = 1 << 20
"""The size limit of a message where the master reports none."""
STORE_STEP: Final = 10_000
PLACES_MAX: Final = 100_000
"""Partitions of one topic that a master is believed."""


@dataclass(frozen=True)
class BrokerPartition:
    """A partition and the broker that serves it."""

    partition: Partition

    @classmethod
    def parse(cls, text: str) -> BrokerPartition:
        """Read `brokerId:host:port#topic:partitionId`; WireError."""
        return cls(Partition.parse(text))

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self.partition.topic

    @property
    def partition_id(self) -> int:
        """The number of the partition at its broker."""
        return self.partition.partition_id

    @cached_property
    def address(self) -> Address:
        """Where its broker is."""
        return self.partition.broker.host, self.partition.broker.port

    @cached_property
    def key(self) -> str:
        """What it is called everywhere: `brokerId:topic:partitionId`."""
        return str(self.partition.key)

    def __str__(self) -> str:
        return str(self.partition)


class BrokerMetadata:
    """Brokers, and the partitions of published topics."""

    def __init__(self) -> None:
        self.checksum = UNKNOWN
        self._brokers: dict[int, BrokerInfo] = {}
        self._topics: dict[str, TopicInfo] = {}
        self._places: dict[str, list[BrokerPartition]] = {}

    def take_brokers(self, checksum: int, infos: Iterable[str]) -> None:
        """Keep an answer's brokers: all of them, or none where nothing changed."""
        found = [BrokerInfo.parse(info) for info in infos]
        self.checksum = checksum
        if found:
            self._brokers = {broker.broker_id: broker for broker in found}
            self._place_all()

    def take_topics(self, infos: Iterable[str]) -> None:
        """Keep an answer's topics: what is not among them has no partitions now."""
        found = [TopicInfo.parse(info) for info in infos]
        self._topics = {topic.topic: topic for topic in found}
        self._place_all()

    def forget(self, topic: str) -> None:
        """A topic is not of interest any more."""
        self._topics.pop(topic, None)
        self._places.pop(topic, None)

    def _place_all(self) -> None:
        self._places = {
            name: places(name, topic.brokers, self._brokers) for name, topic in self._topics.items()
        }

    def places(self, topic: str) -> Sequence[BrokerPartition]:
        """The partitions of a topic, those of different brokers in turn."""
        return self._places.get(topic, ())

    def addresses(self) -> set[Address]:
        """Where messages may have to go."""
        return {place.address for placed in self._places.values() for place in placed}

    def size_max(self, topic: str, approved: int) -> int:
        """How long a message may be, in bytes: the topic's limit, or what the master approved."""
        known = self._topics.get(topic)
        return (known and known.size_max) or (approved if approved > 0 else SIZE_MAX)


def places(
    topic: str, hostings: Iterable[Hosting], brokers: dict[int, BrokerInfo]
) -> list[BrokerPartition]:
    """The partitions of a topic at its known brokers."""
    found: list[BrokerPartition] = []
    for hosting in hostings:
        broker = brokers.get(hosting.broker_id)
        if broker is None:
            continue
        if hosting.stores * hosting.partitions > PLACES_MAX - len(found):
            raise WireError(f"more than {PLACES_MAX} partitions of {topic}")
        found += [
            BrokerPartition(Partition(broker, topic, store * STORE_STEP + number))
            for store in range(hosting.stores)
            for number in range(hosting.partitions)
        ]
    return sorted(found, key=lambda place: (place.partition_id, place.partition.broker.broker_id))
