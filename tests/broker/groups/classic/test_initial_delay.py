"""The first rebalance of an empty group waits a little, and for whom it waits longer."""

from __future__ import annotations

import pytest

from tests.broker.group_room import DELAY_S, Room, refused
from trilogue.broker.errors import MemberIdRequired
from trilogue.broker.groups.classic.initial_delay import HINTS_MAX, InitialDelays


def test_a_lone_member_waits_for_one_short_delay():
    room = Room()
    promise = room.join()

    room.timers.advance(DELAY_S - 0.01)
    before = promise.done
    room.timers.advance(0.01)

    assert (before, promise.done) == (False, True)


def test_a_burst_of_members_settles_in_one_rebalance():
    room = Room()
    promises = []
    for _ in range(20):
        promises.append(room.join())
        room.timers.advance(0.1)

    room.timers.advance(0.3)

    assert {promise.result().generation for promise in promises} == {1}


def test_the_first_rebalance_waits_three_seconds_at_most():
    room = Room()
    first = room.join()
    for _ in range(35):
        room.timers.advance(0.1)
        room.join()

    assert first.done
    assert room.timers.now < 3.6


def test_the_first_rebalance_waits_for_a_member_that_was_given_an_id():
    room = Room()
    first = room.join()
    with pytest.raises(MemberIdRequired) as required:
        room.join(member_id_required=True)
    room.timers.advance(DELAY_S)

    second = room.join(required.value.member_id)
    room.timers.advance(DELAY_S * 2)

    assert (first.result().generation, second.result().generation) == (1, 1)


def test_an_id_that_is_never_used_delays_the_first_rebalance_by_three_seconds_at_most():
    room = Room()
    refused(MemberIdRequired, lambda: room.join(member_id_required=True))
    promise = room.join()

    room.timers.advance(3.1)

    assert promise.done


def test_without_a_delay_the_first_rebalance_is_over_at_once():
    room = Room(initial_delay_ms=0)
    refused(MemberIdRequired, lambda: room.join(member_id_required=True))
    promise = room.join()

    room.timers.advance(0)

    assert promise.done


def test_initial_delay_waits_for_a_client_that_looked_up_the_coordinator():
    room = Room()
    first = room.join()
    room.initial_delays.expect("g")
    room.timers.advance(DELAY_S * HINTS_MAX)

    second = room.join()
    room.timers.advance(DELAY_S * 2)

    assert (first.result().generation, second.result().generation) == (1, 1)


def test_initial_delay_ends_when_the_expected_client_has_joined():
    room = Room()
    first = room.join()
    room.initial_delays.expect("g")

    room.join()
    room.timers.advance(DELAY_S * 2)

    assert first.done


def test_coordinator_lookups_extend_the_initial_delay_a_limited_number_of_times():
    room = Room()
    first = room.join()
    room.initial_delays.expect("g")

    room.timers.advance(DELAY_S * (HINTS_MAX + 1) + 0.01)

    assert first.done


def test_coordinator_lookups_of_other_groups_or_before_a_join_delay_nothing():
    room = Room()
    room.initial_delays.expect("g")
    first = room.join()
    room.initial_delays.expect("h")

    room.timers.advance(DELAY_S)

    assert first.done


def test_while_newcomers_come_to_other_groups_the_wait_goes_on_a_few_times():
    initial_delays = InitialDelays()
    room, other = Room(initial_delays), Room(initial_delays, name="other")
    first = room.join()
    done = []
    for _ in range(HINTS_MAX + 1):
        other.join()
        room.timers.advance(DELAY_S + 0.001)
        done.append(first.done)

    assert done == [False] * HINTS_MAX + [True]


def test_a_group_that_waits_no_more_is_forgotten():
    room = Room()
    room.join()
    waits = dict(room.initial_delays.waits)
    room.timers.advance(DELAY_S)

    assert (list(waits), room.initial_delays.waits) == (["g"], {})


def test_a_group_that_ends_while_it_waits_is_forgotten():
    room = Room()
    room.join()

    room.group.dissolve()

    assert not room.initial_delays.waits
