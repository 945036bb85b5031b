"""Plans reads of a data directory from its manifest: partitions, their ranges, times and sizes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from trilogue.log.errors import LogError, UnknownPartition
from trilogue.log.files import OsFileSystem
from trilogue.log.segments.manifest import ManifestTopic, read_manifest
from trilogue.log.segments.sealed import SEGMENTS, SealedLog
from trilogue.spark.errors import OptionError, UnreadableSegments
from trilogue.spark.offsets import CountedOffsets, Ids, Offsets, Partition, select_assigned
from trilogue.spark.read_options import EARLIEST, LATEST, ReadOptions
from trilogue.spark.segments.entries import first_at_time
from trilogue.spark.segments.segment_place import SegmentPlace

DEFAULT_SPACE = ("public", "default")
"""Tenant and namespace of a topic that Kafka's clients name without slashes."""
NOT_FOUND = -1


class SegmentLookup(CountedOffsets):
    """The topics of one data directory, by their names as Kafka's clients spell them."""

    def __init__(self, place: SegmentPlace) -> None:
        self._place = place

    def partitions(self, options: ReadOptions) -> list[Partition]:
        """Return every partition that the options subscribe to in the newest manifest."""
        topics = find_topics(self._place)
        names: Iterable[str] = options.topics if options.assign is None else options.assign
        if options.pattern is not None:
            names = [name for name in topics if re.fullmatch(options.pattern, name)]
        there = sorted(
            (name, number)
            for name in names
            for number in range(len(self._topic(topics, name).partitions))
        )
        return there if options.assign is None else select_assigned(options.assign, there)

    def ids(self, partitions: Iterable[Partition]) -> Ids:
        """Return the ids of the topics of `partitions`."""
        topics = find_topics(self._place)
        return {name: topics[name].topic_id.hex() for name, _ in partitions if name in topics}

    def resolve(self, wanted: Mapping[Partition, int]) -> Offsets:
        """Replace -1 (latest) and -2 (earliest) by offsets; others are unchanged."""
        topics, log = find_topics(self._place), open_log(self._place)
        found = dict(wanted)
        with readable_segments(self._place):
            for (name, number), offset in wanted.items():
                if offset in {EARLIEST, LATEST}:
                    partition_id = self._topic(topics, name).partitions[number]
                    start, end = log.range_of(partition_id)
                    found[name, number] = start if offset == EARLIEST else end
        return found

    def at_times(self, times: Mapping[Partition, int]) -> Offsets:
        """Return the first offset at or after a time (ms) in each partition; -1 if none."""
        topics, log = find_topics(self._place), open_log(self._place)
        found = {}
        with readable_segments(self._place):
            for (name, number), time in times.items():
                partition_id = self._topic(topics, name).partitions[number]
                offset = first_at_time(log, partition_id, time)
                found[name, number] = NOT_FOUND if offset is None else offset
        return found

    def mean_sizes(self, latest: Mapping[Partition, int]) -> dict[Partition, float]:
        """Return the bytes that an offset of each partition takes in segments, on average."""
        topics, log = find_topics(self._place), open_log(self._place)
        partition_ids = {
            key: topics[key[0]].partitions[key[1]] for key in latest if key[0] in topics
        }
        sizes = {}
        with readable_segments(self._place):
            plans = log.plan_all(dict.fromkeys(partition_ids.values(), (None, None)))
            for key, partition_id in partition_ids.items():
                start, end = log.range_of(partition_id)
                size = sum(piece.extent.size for piece in plans[partition_id])
                if size and end > start:
                    sizes[key] = size / (end - start)
        return sizes

    def _topic(self, topics: Mapping[str, ManifestTopic], name: str) -> ManifestTopic:
        if name not in topics:
            raise OptionError(f"there is no topic {name!r} in {self._place.directory}")
        return topics[name]


def segment_lookup(place: SegmentPlace) -> SegmentLookup:
    """Return the topics of a data directory."""
    return SegmentLookup(place)


_logs: dict[tuple[int, SegmentPlace], SealedLog] = {}


def open_log(place: SegmentPlace) -> SealedLog:
    """Return this process's reader of a data directory, with the manifest that it read last."""
    key = (os.getpid(), place)
    if key not in _logs:
        with readable_segments(place):
            _logs[key] = _open_log(place)
    return _logs[key]


def _open_log(place: SegmentPlace) -> SealedLog:
    directory = Path(place.directory)
    if place.store is None:
        return SealedLog(directory)
    from trilogue.log.objects.obstore_store import Reach

    cluster_id = read_manifest(OsFileSystem(), directory / SEGMENTS).cluster_id
    return SealedLog(directory, objects=Reach(place.store, cluster_id).cache())


def find_topics(place: SegmentPlace) -> dict[str, ManifestTopic]:
    """Read the newest manifest, and return its topics by name."""
    log = open_log(place)
    with readable_segments(place):
        log.refresh()
    return {_name_topic(topic): topic for topic in log.manifest.topics}


def _name_topic(topic: ManifestTopic) -> str:
    if (topic.tenant, topic.namespace) == DEFAULT_SPACE:
        return topic.name
    return f"{topic.tenant}/{topic.namespace}/{topic.name}"


@contextmanager
def readable_segments(place: SegmentPlace) -> Iterator[None]:
    """Raise UnreadableSegments for what is damaged, away or not permitted."""
    try:
        yield
    except UnknownPartition:
        raise
    except (LogError, OSError) as error:
        raise UnreadableSegments(f"{place.directory} cannot be read: {error}") from error
