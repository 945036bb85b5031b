"""Numbers of partitions of internal topics, and what is wrong with topics."""

from __future__ import annotations

import pytest

from trilogue.broker.errors import InvalidTopology
from trilogue.broker.groups.streams.topology import InternalTopic, Subtopology, Topology
from trilogue.broker.groups.streams.topology_configuration import (
    TopologyProblem,
    configure_topology,
)
from trilogue.broker.names import TopicName, parse_kafka


def names(*spelled: str) -> tuple[TopicName, ...]:
    return tuple(map(parse_kafka, spelled))


def internal(name: str, count: int = 0) -> InternalTopic:
    return InternalTopic(parse_kafka(name), count)


def topology(*subtopologies: Subtopology) -> Topology:
    return Topology(0, subtopologies)


def existing(**counts: int) -> dict[TopicName, int]:
    return {parse_kafka(name): count for name, count in counts.items()}


WORD_COUNT = topology(
    Subtopology("0", source_topics=names("lines"), repartition_sinks=names("words")),
    Subtopology("1", repartition_sources=(internal("words"),), changelogs=(internal("counts"),)),
)


def test_internal_topics_get_the_partitions_of_the_sources_and_are_missing_at_first():
    found = configure_topology(WORD_COUNT, existing(lines=3))

    assert found.problem is TopologyProblem.MISSING_INTERNAL_TOPICS
    assert found.problem_text == "Internal topics are missing: words, counts"
    assert {each.name.name: each.partition_count for each in found.missing} == {
        "words": 3,
        "counts": 3,
    }


def test_a_topology_whose_topics_exist_is_ready():
    found = configure_topology(WORD_COUNT, existing(lines=3, words=3, counts=3))

    assert found.is_ready
    assert {name: sub.task_count for name, sub in found.subtopologies.items()} == {"0": 3, "1": 3}
    assert [sub.is_stateful for sub in found.subtopologies.values()] == [False, True]


def test_missing_source_topics_are_named():
    found = configure_topology(WORD_COUNT, {})

    assert found.problem is TopologyProblem.MISSING_SOURCE_TOPICS
    assert found.problem_text == "Source topics lines are missing."
    assert found.missing == ()


def test_an_internal_topic_of_another_size_is_a_problem():
    found = configure_topology(WORD_COUNT, existing(lines=3, words=2, counts=2))

    assert found.problem is TopologyProblem.INCORRECTLY_PARTITIONED_TOPICS
    assert "Existing topic words has different number of partitions" in found.problem_text


def test_topics_that_are_read_together_need_the_same_number_of_partitions():
    joined = topology(
        Subtopology("0", source_topics=names("a", "b"), copartition_groups=(names("a", "b"),))
    )

    assert configure_topology(joined, existing(a=2, b=2)).is_ready
    found = configure_topology(joined, existing(a=2, b=3))
    assert found.problem is TopologyProblem.INCORRECTLY_PARTITIONED_TOPICS
    assert found.problem_text == (
        "Following topics do not have the same number of partitions: [{a=2, b=3}]"
    )


def test_a_repartition_topic_follows_the_topic_that_it_is_read_with():
    joined = topology(
        Subtopology("0", source_topics=names("few"), repartition_sinks=names("again")),
        Subtopology(
            "1",
            source_topics=names("many"),
            repartition_sources=(internal("again"),),
            copartition_groups=(names("many", "again"),),
        ),
    )

    (again,) = configure_topology(joined, existing(few=1, many=6)).missing
    assert again.partition_count == 6
    fixed = topology(
        joined.subtopologies[0],
        Subtopology(
            "1",
            source_topics=names("many"),
            repartition_sources=(internal("again", 4),),
            copartition_groups=(names("many", "again"),),
        ),
    )
    found = configure_topology(fixed, existing(few=1, many=6))
    assert found.problem is TopologyProblem.INCORRECTLY_PARTITIONED_TOPICS


@pytest.mark.parametrize(
    "impossible",
    [
        topology(Subtopology("0", repartition_sources=(internal("r"),))),
        topology(
            Subtopology("0", repartition_sources=(internal("r"),), repartition_sinks=names("r"))
        ),
        topology(Subtopology("0")),
    ],
)
def test_a_topology_that_no_topics_could_fit_is_refused(impossible: Topology):
    with pytest.raises(InvalidTopology):
        configure_topology(impossible, {})
