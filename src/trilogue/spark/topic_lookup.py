"""Which partitions exist and where they begin and end: from a cluster, or from a data directory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from trilogue.spark.link import link
from trilogue.spark.offsets import Ids, Offsets, Partition
from trilogue.spark.read_options import ReadOptions


class TopicLookup(Protocol):
    """What the planning of a read needs: `Link`, `SegmentLookup`, one for each other protocol."""

    def partitions(self, options: ReadOptions) -> list[Partition]:
        """Return every partition that the options subscribe to now."""

    def ids(self, partitions: Iterable[Partition]) -> Ids:
        """Return the ids of the topics of `partitions`, where they are known."""

    def firsts(self, begin: Offsets, latest: Offsets) -> Offsets:
        """Return `begin` with offsets that `latest` can be compared with, where there are such."""

    def lags(self, begin: Offsets, latest: Offsets) -> Offsets:
        """Return how many offsets of each partition are to be read."""

    def admit(self, begin: Offsets, latest: Offsets, rows: int) -> Offsets:
        """Return where a micro-batch of up to `rows` offsets ends, shared by lag."""

    def at_times(self, times: Mapping[Partition, int]) -> Offsets:
        """Return the first offset at or after a time (ms) in each partition; -1 if none."""

    def mean_sizes(self, latest: Mapping[Partition, int]) -> dict[Partition, float]:
        """Return the bytes that an offset of each partition takes on disk, on average."""

    def resolve(self, wanted: Mapping[Partition, int]) -> Offsets:
        """Replace -1 (latest) and -2 (earliest) by offsets; others are unchanged."""


class GroupLookup(Protocol):
    """A cluster whose tools show the positions of a query."""

    def publish_positions(self, group: str, offsets: Offsets) -> None:
        """Commit positions for a group or subscription; OptionError if it takes none."""


def find_group_lookup(options: ReadOptions) -> GroupLookup:
    """Return the cluster that has the group or subscription of the options."""
    if options.service is None:
        return link(options)
    from trilogue.spark.protocols.pulsar_lookup import PulsarLookup

    return PulsarLookup(options.service)


def find_lookup(options: ReadOptions) -> TopicLookup:
    """Return the cluster of the options, or, where none is named, their data directory."""
    if options.service is not None:
        if options.service.protocol == "tubemq":
            from trilogue.spark.protocols.tubemq_lookup import TubeLookup

            return TubeLookup(options.service)
        from trilogue.spark.protocols.pulsar_lookup import PulsarLookup

        return PulsarLookup(options.service, options.administration)
    if options.servers:
        return link(options)
    assert options.segments is not None
    from trilogue.spark.segments.segment_lookup import segment_lookup

    return segment_lookup(options.segments)


def find_partition_ids(
    options: ReadOptions, partitions: Iterable[Partition], ids: Ids
) -> dict[Partition, int]:
    """Return the ids that partitions have in the data directory of the options.

    A topic that was created again since the manifest was written has another id there: the broker
    alone has its messages.
    """
    if options.segments is None:
        return {}
    from trilogue.spark.segments.segment_lookup import find_topics

    topics = find_topics(options.segments)
    found = {}
    for name, number in partitions:
        topic = topics.get(name)
        if topic is None or number >= len(topic.partitions):  # newer than the manifest
            continue
        if ids.get(name, topic.topic_id.hex()) == topic.topic_id.hex():
            found[name, number] = topic.partitions[number]
    return found
