"""Even assignment: division, remainder, and no move without need."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.broker.balance_room import T, U, some
from trilogue.broker.tubemq.even_assignment import TubePartition, assign_evenly


@pytest.mark.parametrize(("parts", "members"), [(0, 3), (1, 3), (4, 1), (7, 3), (9, 3), (2, 5)])
def test_shares_differ_by_at_most_one_partition(parts, members):
    names = [f"m{each}" for each in range(members)]

    shares = Counter(assign_evenly(some(*range(parts)), names, {}).values())

    assert sum(shares.values()) == parts
    assert all(shares[name] in {parts // members, -(-parts // members)} for name in names)


def test_assignment_without_members_is_empty():
    assert assign_evenly(some(0, 1), [], {}) == {}


def test_remainder_stays_with_the_member_that_holds_most():
    held = dict.fromkeys(some(0, 1, 2), "b")

    found = assign_evenly(some(0, 1, 2), ["a", "b"], held)

    assert found == {some(0)[0]: "b", some(1)[0]: "b", some(2)[0]: "a"}


def test_a_member_keeps_some_of_every_topic():
    parts = sorted((*some(0, 1), *some(0, 1, topic=U)))

    found = assign_evenly(parts, ["a", "b"], dict.fromkeys(parts, "a"))

    assert {part for part, member in found.items() if member == "a"} == {
        TubePartition(T, 0),
        TubePartition(U, 0),
    }


def test_partitions_of_unknown_members_are_free():
    assert assign_evenly(some(0), ["a"], {some(0)[0]: "z"}) == {some(0)[0]: "a"}
