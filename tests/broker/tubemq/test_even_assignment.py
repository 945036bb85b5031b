"""Even assignment: division, remainder, and no move without need."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.broker.balance_room import T, U, some
from trilogue.broker.tubemq.even_assignment import TubePartition, assign_evenly


@pytest.mark.parametrize(("parts", "members"), [(0, 3), (1, 3), (4, 1), (7, 3), (9, 3), (2, 5)])
def test_shares_are_what_division_and_remainder_say(parts, members):
    names = [f"m{each}" for each in range(members)]

    shares = Counter(assign_evenly(some(*range(parts)), names, {}).values())

    assert sum(shares.values()) == parts
    assert all(shares[name] in {parts // members, -(-parts // members)} for name in names)


def test_nobody_gets_anything_where_nobody_is():
    assert assign_evenly(some(0, 1), [], {}) == {}


def test_who_has_most_keeps_what_is_left_over():
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


def test_what_is_held_by_who_is_no_member_is_free():
    assert assign_evenly(some(0), ["a"], {some(0)[0]: "z"}) == {some(0)[0]: "a"}
