"""The assignors by example, and what holds whatever members subscribe to (KIP-848)."""

from __future__ import annotations

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.broker.consumer_room import parts_of, slots_of
from trilogue.broker.groups.consumer.assignors import (
    ASSIGNORS,
    MemberSpec,
    PartitionIndexes,
)
from trilogue.broker.groups.partition_sets import intersect, subtract, unite
from trilogue.log.steps import to_the_end


def at_once(name: str):
    """An assignor that goes to its end."""
    return lambda specs, counts: to_the_end(ASSIGNORS[name](specs, counts))


assign_range, assign_uniform = at_once("range"), at_once("uniform")
A, B, C = (bytes([each]) * 16 for each in (1, 2, 3))
BOTH = pytest.mark.parametrize("assign", [*map(at_once, ASSIGNORS)], ids=ASSIGNORS)


def spec(
    name: str, *topics: bytes, previous: PartitionIndexes | None = None, instance: str | None = None
) -> MemberSpec:
    return MemberSpec(name, frozenset(topics), instance, previous or {})


def some(topic: bytes, *indexes: int) -> PartitionIndexes:
    return {topic: frozenset(indexes)}


def test_range_gives_runs_of_neighbours_in_the_order_of_the_ids():
    target = assign_range([spec("m2", A), spec("m1", A), spec("m3", A)], {A: 7})

    assert target == {"m1": some(A, 0, 1, 2), "m2": some(A, 3, 4), "m3": some(A, 5, 6)}


def test_range_gives_the_same_numbers_of_topics_of_the_same_size():
    target = assign_range([spec("m1", A, B), spec("m2", A, B)], {A: 3, B: 3})

    assert target["m1"] == some(A, 0, 1) | some(B, 0, 1)
    assert target["m2"] == some(A, 2) | some(B, 2)


def test_range_puts_static_members_first_by_their_instances():
    """They come back under other ids, and keep their runs."""
    members = [spec("a", A), spec("z", A, instance="i2"), spec("y", A, instance="i1")]

    assert assign_range(members, {A: 3}) == {"y": some(A, 0), "z": some(A, 1), "a": some(A, 2)}


def test_range_leaves_members_without_partitions_when_there_are_more_of_them():
    target = assign_range([spec("m1", A), spec("m2", A), spec("m3", A)], {A: 2})

    assert target == {"m1": some(A, 0), "m2": some(A, 1), "m3": {}}


def test_uniform_gives_a_newcomer_its_share_and_moves_nothing_else():
    previous = some(A, 0, 1, 2, 3, 4, 5)

    target = assign_uniform([spec("m1", A, previous=previous), spec("m2", A)], {A: 6})

    assert target == {"m1": some(A, 0, 1, 2), "m2": some(A, 3, 4, 5)}


def test_uniform_assignment_is_kept_if_balanced():
    m1, m2 = spec("m1", A, previous=some(A, 0, 1)), spec("m2", A, previous=some(A, 2, 3, 4))

    assert assign_uniform([m1, m2], {A: 5}) == {"m1": m1.previous, "m2": m2.previous}


def test_uniform_counts_the_partitions_of_all_topics_together():
    target = assign_uniform([spec("m1", A, B), spec("m2", A, B)], {A: 1, B: 3})

    assert sorted(len(slots_of(parts)) for parts in target.values()) == [2, 2]


def test_uniform_forgets_partitions_of_topics_that_no_client_wants_any_more():
    target = assign_uniform([spec("m1", A, previous=some(A, 0) | some(B, 0))], {A: 1})

    assert target == {"m1": some(A, 0)}


def test_uniform_assignment_is_balanced_for_different_subscriptions():
    members = [spec("m1", A), spec("m2", A, B)]

    target = assign_uniform(members, {A: 3, B: 3})

    assert target == {"m1": some(A, 0, 1, 2), "m2": some(B, 0, 1, 2)}


def test_uniform_moves_a_partition_back_to_its_previous_owner():
    """m1 has lost nothing but its interest in B: what it takes from m2 is what it had of A."""
    m1 = spec("m1", A, previous=some(A, 0, 1, 5))
    m2 = spec("m2", A, B, previous=some(A, 2, 3, 4) | some(B, 0, 1, 2))

    target = assign_uniform([m1, m2], {A: 6, B: 3})

    assert {0, 1, 5} <= target["m1"][A]
    assert sorted(len(slots_of(parts)) for parts in target.values()) == [4, 5]


@BOTH
def test_assignment_without_topics_or_members_is_empty(assign):
    assert assign([], {}) == {}
    assert assign([spec("m1")], {}) == {"m1": {}}


def test_partitions_are_added_and_taken_away_topic_by_topic():
    mine, yours = some(A, 0, 1) | some(B, 0), some(A, 1, 2) | some(C, 0)

    assert subtract(mine, yours) == some(A, 0) | some(B, 0)
    assert intersect(mine, yours) == some(A, 1)
    assert unite(mine, yours) == some(A, 0, 1, 2) | some(B, 0) | some(C, 0)
    assert parts_of(slots_of(mine)) == mine


TOPICS = st.dictionaries(st.sampled_from([A, B, C]), st.integers(1, 9), min_size=1)


@st.composite
def groups(draw) -> tuple[list[MemberSpec], dict[bytes, int]]:
    counts = draw(TOPICS)
    free = [(topic, index) for topic, count in counts.items() for index in range(count)]
    members = []
    for number in range(draw(st.integers(1, 6))):
        wants = frozenset(draw(st.sets(st.sampled_from(sorted(counts)))))
        mine = draw(st.sets(st.sampled_from(free))) if free else set()
        free = [slot for slot in free if slot not in mine]
        instance = draw(st.sampled_from([None, f"i{number}"]))
        members.append(MemberSpec(f"m{number}", wants, instance, parts_of(sorted(mine))))
    return members, counts


@BOTH
@given(group=groups())
def test_every_subscribed_partition_has_one_subscribed_owner(assign, group):
    members, counts = group

    target = assign(members, counts)

    assert target.keys() == {each.member_id for each in members}
    given_out = sorted(chain.from_iterable(map(slots_of, target.values())))
    wanted = {topic for each in members for topic in each.topics}
    assert given_out == [(t, index) for t in sorted(wanted) for index in range(counts[t])]
    assert all(target[each.member_id].keys() <= each.topics for each in members)
    assert all(indexes for parts in target.values() for indexes in parts.values())


@given(group=groups())
def test_uniform_assignment_differs_by_at_most_one_among_shared_topics(group):
    members, counts = group

    target = assign_uniform(members, counts)

    size = {name: len(slots_of(parts)) for name, parts in target.items()}
    for taker in members:
        for giver, parts in target.items():
            if taker.topics & parts.keys():
                assert size[giver] - size[taker.member_id] < 2


@BOTH
@given(group=groups())
def test_an_assignment_made_again_moves_nothing(assign, group):
    members, counts = group
    target = assign(members, counts)

    again = [
        MemberSpec(each.member_id, each.topics, each.instance_id, target[each.member_id])
        for each in members
    ]

    assert assign(again, counts) == target
