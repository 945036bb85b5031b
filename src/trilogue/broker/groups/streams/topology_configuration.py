"""Whether the topics of a topology are there, and how many partitions its internal topics need.

A repartition topic has as many partitions as the subtopologies that write it have tasks, unless the
application gives a number; topics that are read together (copartitioned) have the same number; a
changelog has one partition per task. Messages are those of Kafka 4.3.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum, auto, unique
from typing import NamedTuple

import msgspec

from trilogue.broker.errors import InvalidTopology
from trilogue.broker.groups.streams.topology import InternalTopic, Subtopology, Topology
from trilogue.broker.names import TopicName, format_kafka

SHOWN_MAX = 3  # topics in a message

Counts = Mapping[TopicName, int]  # partitions by topic


@unique
class TopologyProblem(Enum):
    """Why tasks cannot be assigned."""

    MISSING_SOURCE_TOPICS = auto()
    INCORRECTLY_PARTITIONED_TOPICS = auto()
    MISSING_INTERNAL_TOPICS = auto()


class ConfiguredSubtopology(NamedTuple):
    """A subtopology with the numbers of its tasks and of the partitions of its internal topics."""

    task_count: int
    subtopology: Subtopology

    @property
    def is_stateful(self) -> bool:
        """Whether it has stores, which standby tasks can follow."""
        return bool(self.subtopology.changelogs)


class ConfiguredTopology(NamedTuple):
    """A topology held against the topics that exist; without subtopologies where that failed."""

    subtopologies: Mapping[str, ConfiguredSubtopology] = {}
    missing: tuple[InternalTopic, ...] = ()  # internal topics to create
    problem: TopologyProblem | None = None
    problem_text: str = ""

    @property
    def is_ready(self) -> bool:
        """Whether tasks can be assigned."""
        return self.problem is None


class _Misconfigured(Exception):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


def configure_topology(topology: Topology, existing: Counts) -> ConfiguredTopology:
    """Hold a topology against the topics that exist; InvalidTopology where none could fit."""
    sources = {name for each in topology.subtopologies for name in each.source_topics}
    absent = sorted(format_kafka(name) for name in sources if name not in existing)
    if absent:
        text = f"Source topics {_summarize(absent)} are missing."
        return ConfiguredTopology(problem=TopologyProblem.MISSING_SOURCE_TOPICS, problem_text=text)
    try:
        counts = _decide_counts(topology, existing)
        known = {**counts, **existing}
        subtopologies = {
            each.subtopology_id: _configure_subtopology(each, known, counts)
            for each in topology.subtopologies
        }
        missing = _find_missing(subtopologies.values(), existing)
    except _Misconfigured as error:
        return ConfiguredTopology(
            problem=TopologyProblem.INCORRECTLY_PARTITIONED_TOPICS, problem_text=error.text
        )
    if not missing:
        return ConfiguredTopology(subtopologies)
    names = _summarize([format_kafka(each.name) for each in missing])
    return ConfiguredTopology(
        subtopologies,
        missing,
        TopologyProblem.MISSING_INTERNAL_TOPICS,
        f"Internal topics are missing: {names}",
    )


def _decide_counts(topology: Topology, existing: Counts) -> dict[TopicName, int]:
    """Return how many partitions each internal topic is to have."""
    counts = _count_repartition_topics(topology, existing)
    fixed = {
        each.name
        for sub in topology.subtopologies
        for each in sub.repartition_sources
        if each.partition_count
    }
    flexible = {each.name for sub in topology.subtopologies for each in sub.repartition_sources}
    flexible -= fixed
    for sub in topology.subtopologies:
        for together in sub.copartition_groups:
            counts.update(_copartition(together, fixed, flexible, {**counts, **existing}))
    known = {**counts, **existing}
    for sub in topology.subtopologies:
        tasks = _count_tasks(sub, known)
        counts.update((each.name, tasks) for each in sub.changelogs)
    return counts


def _count_repartition_topics(topology: Topology, existing: Counts) -> dict[TopicName, int]:
    counts = {
        each.name: each.partition_count
        for sub in topology.subtopologies
        for each in sub.repartition_sources
        if each.partition_count
    }
    pending = [
        (sub, name)
        for sub in topology.subtopologies
        for name in sub.repartition_sinks
        if name not in counts
    ]
    while pending:
        left = []
        for sub, name in pending:
            known = [counts[each.name] for each in sub.repartition_sources if each.name in counts]
            known += [existing[each] for each in sub.source_topics if each in existing]
            if name in counts:
                continue
            if known:
                counts[name] = max(known)
            else:
                left.append((sub, name))
        if len(left) == len(pending):
            raise InvalidTopology(
                "Failed to compute number of partitions for all repartition topics. "
                "There may be loops in the topology that cannot be resolved."
            )
        pending = left
    if any(
        each.name not in counts
        for sub in topology.subtopologies
        for each in sub.repartition_sources
    ):
        raise InvalidTopology(
            "Failed to compute number of partitions for all repartition topics, because "
            "a repartition source topic is never used as a sink topic."
        )
    return counts


def _copartition(
    together: Iterable[TopicName],
    fixed: set[TopicName],
    flexible: set[TopicName],
    counts: Counts,
) -> dict[TopicName, int]:
    """Return the numbers of partitions of repartition topics that are read with others."""
    names = set(together)
    if not names:
        return {}
    repartitioned = {name for name in names if name in fixed or name in flexible}
    others = names - repartitioned
    if others:
        count = _same_count(others, counts)
    elif fixed:
        count = _same_count(fixed, counts)
    else:
        count = max(counts[name] for name in repartitioned)
    for name in sorted(repartitioned & fixed):
        if counts[name] != count:
            raise _Misconfigured(
                f"Number of partitions [{counts[name]}] of repartition topic"
                f" [{format_kafka(name)}] doesn't match number of partitions [{count}]"
                " of the source topic."
            )
    return dict.fromkeys(repartitioned, count)


def _same_count(names: set[TopicName], counts: Counts) -> int:
    found = {counts[name] for name in names}
    if len(found) > 1:
        listed = ", ".join(f"{format_kafka(name)}={counts[name]}" for name in sorted(names))
        raise _Misconfigured(
            f"Following topics do not have the same number of partitions: [{{{listed}}}]"
        )
    return found.pop()


def _count_tasks(sub: Subtopology, counts: Counts) -> int:
    found = [counts[name] for name in sub.read_topics()]
    if not found:
        raise InvalidTopology(f"No source topics found for subtopology {sub.subtopology_id}")
    return max(found)


def _configure_subtopology(
    sub: Subtopology, known: Counts, counts: Counts
) -> ConfiguredSubtopology:
    def resolve(topics: tuple[InternalTopic, ...]) -> tuple[InternalTopic, ...]:
        return tuple(
            msgspec.structs.replace(each, partition_count=each.partition_count or counts[each.name])
            for each in topics
        )

    resolved = msgspec.structs.replace(
        sub,
        repartition_sources=resolve(sub.repartition_sources),
        changelogs=resolve(sub.changelogs),
    )
    return ConfiguredSubtopology(_count_tasks(sub, known), resolved)


def _find_missing(
    subtopologies: Iterable[ConfiguredSubtopology], existing: Counts
) -> tuple[InternalTopic, ...]:
    """Return the internal topics that do not exist; one of another size is a problem."""
    wanted = {
        each.name: each
        for _, sub in subtopologies
        for topics in (sub.repartition_sources, sub.changelogs)
        for each in topics
    }
    for name, topic in wanted.items():
        if name in existing and existing[name] != topic.partition_count:
            raise _Misconfigured(
                f"Existing topic {format_kafka(name)} has different number of partitions:"
                f" expected {topic.partition_count}, found {existing[name]}"
            )
    return tuple(topic for name, topic in wanted.items() if name not in existing)


def _summarize(names: list[str]) -> str:
    more = len(names) - SHOWN_MAX
    listed = ", ".join(names[:SHOWN_MAX])
    return f"{listed} and {more} additional topics" if more > 0 else listed
