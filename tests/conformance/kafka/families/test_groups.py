"""Members of groups from every library: they share, go on where they committed, and mix."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conformance.clients.administrators import CONFLUENT
from tests.conformance.clients.driven import Driven
from tests.conformance.clients.kafka_programs import (
    FRANZ_GO,
    JAVA_2,
    JAVA_3,
    JAVA_4,
    KAFKAJS,
    SARAMA,
)
from tests.conformance.members import (
    COOPERATIVE,
    PARTITIONS,
    AioMember,
    ConfluentMember,
    Make,
    Member,
    PythonMember,
    kinds,
    pump,
    shares,
    values_of,
    write,
)

RANGE = "org.apache.kafka.clients.consumer.RangeAssignor"


def driven(client: Driven, **settings: object) -> Make:
    return lambda address, group, topic: client.join(address, group, [topic], settings)


def java(client: Driven, assignor: str) -> Make:
    return driven(client, **{"partition.assignment.strategy": assignor})


def library(kind: type, strategy: str) -> Make:
    return lambda address, group, topic: kind(address, group, topic, strategy=strategy)


# What tests/conformance/kafka/groups/test_groups.py has of the libraries in this process is not
# done again here.
SHARING = kinds(
    ("java-2.0.0-range", java(JAVA_2, RANGE)),
    ("java-3.9.1-range", java(JAVA_3, RANGE)),
    ("java-4.3.1-cooperative", java(JAVA_4, COOPERATIVE)),
    ("franz-go-range", driven(FRANZ_GO, strategy="range")),
    ("sarama-range", driven(SARAMA, strategy="range")),
    ("sarama-sticky", driven(SARAMA, strategy="sticky")),
    ("sarama-cooperative", driven(SARAMA, strategy="cooperative")),
    ("franz-go-cooperative", driven(FRANZ_GO, strategy="cooperative")),
    ("kafkajs-round-robin", driven(KAFKAJS)),
)


@pytest.mark.parametrize("make", SHARING)
def test_two_members_share_and_one_goes_on_where_both_committed(
    address: str, wide_topic: str, join: Callable[..., Member], make: Make
):
    first, second = (join(make, wide_topic, wide_topic) for _ in range(2))
    both = [first, second]
    pump(both, lambda: shares(both) == [2, 2], "each has half")
    sent = write(address, wide_topic, "first")
    pump(both, lambda: values_of(both) == sent, "all records are read")
    for member in both:
        assert {read.partition for read in member.reads} == member.partitions()
        member.commit()
    mine = len(first.reads)

    second.close()
    pump([first], lambda: shares([first]) == [4], "one has all")
    later = write(address, wide_topic, "later")
    pump([first], lambda: later <= values_of([first]), "all later records are read by one")

    assert len(first.reads) == mine + len(later)


@pytest.mark.java
def test_members_of_five_libraries_share_a_group(
    address: str, wide_topic: str, join: Callable[..., Member]
):
    """By range, in one protocol: each leader understands the metadata of the others."""
    makes = [
        library(AioMember, "range"),  # it waits until it has joined, the others join in `pump`
        java(JAVA_2, RANGE),
        java(JAVA_4, RANGE),
        driven(FRANZ_GO, strategy="range"),
        library(ConfluentMember, "range"),
        library(PythonMember, "range"),
    ]
    members = [join(make, wide_topic, wide_topic) for make in makes]
    pump(members, lambda: shares(members) == [0, 0, 1, 1, 1, 1], "four have one each")

    sent = write(address, wide_topic, "mixed")

    pump(members, lambda: values_of(members) == sent, "all records are read")
    assert set.union(*(member.partitions() for member in members)) == set(range(PARTITIONS))


STATIC = kinds(
    ("java-3.9.1", driven(JAVA_3, **{"group.instance.id": "the-one"})),
    ("java-4.3.1", driven(JAVA_4, **{"group.instance.id": "the-one"})),
    ("franz-go", driven(FRANZ_GO, **{"group.instance.id": "the-one"})),
    ("sarama", driven(SARAMA, **{"group.instance.id": "the-one"})),
)


@pytest.mark.parametrize("make", STATIC)
def test_a_static_member_comes_back_without_a_rebalance(
    address: str, wide_topic: str, join: Callable[..., Member], make: Make
):
    """KIP-345: it does not leave when it closes, and finds what it had."""
    one = join(make, wide_topic, wide_topic)
    pump([one], lambda: shares([one]) == [4], "it has all")
    before = CONFLUENT.describe_group(address, wide_topic)

    one.close()
    between = CONFLUENT.describe_group(address, wide_topic)
    back = join(make, wide_topic, wide_topic)
    pump([back], lambda: shares([back]) == [4], "it has all again")

    assert (between, between["state"]) == (before, "STABLE")
