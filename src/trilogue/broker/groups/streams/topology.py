"""The topology of a Kafka Streams application, as its members report it (KIP-1071).

A subtopology reads source topics, writes repartition topics that other subtopologies read, and
keeps its stores in changelogs. Repartition topics and changelogs are internal: the broker creates
them, with the number of partitions that follows from the source topics (topology_configuration.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import msgspec

from trilogue.broker.names import TopicName


class InternalTopic(msgspec.Struct, frozen=True):
    """A topic that the application needs. A number of partitions of 0 is to be found out."""

    name: TopicName
    partition_count: int = 0
    replication_factor: int = 0  # 0: the broker's default
    settings: tuple[tuple[str, str], ...] = ()


class Subtopology(msgspec.Struct, frozen=True):
    """A part of a topology whose tasks are assigned each on its own."""

    subtopology_id: str
    source_topics: tuple[TopicName, ...] = ()
    repartition_sinks: tuple[TopicName, ...] = ()
    repartition_sources: tuple[InternalTopic, ...] = ()
    changelogs: tuple[InternalTopic, ...] = ()
    copartition_groups: tuple[tuple[TopicName, ...], ...] = ()

    def read_topics(self) -> Iterator[TopicName]:
        """Yield the topics that its tasks read."""
        yield from self.source_topics
        for topic in self.repartition_sources:
            yield topic.name

    def topics(self) -> Iterator[TopicName]:
        """Yield the topics that must exist, those that are written included."""
        yield from self.read_topics()
        yield from self.repartition_sinks
        for topic in self.changelogs:
            yield topic.name


class Topology(msgspec.Struct, frozen=True, dict=True):
    """All subtopologies, in the order of their ids."""

    epoch: int
    subtopologies: tuple[Subtopology, ...]

    @cached_property
    def topics(self) -> frozenset[TopicName]:
        """The topics that must exist."""
        return frozenset(name for each in self.subtopologies for name in each.topics())

    @cached_property
    def read_topics(self) -> frozenset[TopicName]:
        """The topics that tasks read."""
        return frozenset(name for each in self.subtopologies for name in each.read_topics())

    @cached_property
    def encoded(self) -> bytes:
        """The form in which it is stored."""
        return msgspec.json.encode(self)
