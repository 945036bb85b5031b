"""Groups that are bound or balance themselves, and what the members of any group agree on."""

from __future__ import annotations

import pytest

from tests.broker.balance_room import DONE, TERMS, Room, T, U, bound, some
from trilogue.broker.errors import InconsistentMember
from trilogue.broker.tubemq.group_terms import BalanceMode, GroupTerms
from trilogue.broker.tubemq.rebalance_events import EventResult

# ---- bound groups


@pytest.mark.parametrize(("big", "starts"), [(False, (3, 7, 1)), (True, (5, 9, 1))])
def test_a_bound_group_begins_when_all_have_come_where_they_agreed(big, starts):
    room = Room()
    room.join("a", terms=bound(big=big, p0=5, p1=7))
    assert room.beat("a") is None

    room.join("b", terms=bound(big=big, p0=3, p1=9, p2=1))
    events = [room.beat("a"), room.beat("b")]

    assert room.begun == [dict(zip(some(0, 1, 2), starts, strict=True))]
    assert sorted(part for event in events if event for part in event.parts) == [*some(0, 1, 2, 3)]


def test_partition_of_a_bound_group_goes_to_the_member_with_the_smallest_offset():
    room = Room(2)
    room.join("a", terms=bound(p0=5, p1=1))
    room.join("b", terms=bound(p0=3, p1=2))

    room.settle("a", "b")

    assert (room.has("a"), room.has("b")) == (some(1), some(0))


def test_each_of_a_bound_group_believes_until_it_has_begun_that_no_client_has():
    room = Room()
    room.join("a", terms=bound())
    room.join("b", terms=bound())
    event = room.beat("a")
    assert event is not None
    answer = EventResult(event.rebalance_id, event.kind, DONE)

    assert not room.balances.heartbeat("g", "a", 0, answer=answer).not_allocated
    assert room.balances.heartbeat("g", "b", 0).not_allocated


def test_a_bound_group_that_was_there_before_goes_on_from_its_positions():
    room = Room()
    room.join("a", terms=bound(p0=5), claims=some(0, 1), allocated=True)
    assert room.beat("a") is None
    room.join("b", terms=bound(p0=3), claims=some(2, 3), allocated=True)

    assert room.beat("a") is None
    assert room.begun == []


def test_a_bound_group_goes_on_when_one_of_it_goes():
    room = Room()
    room.join("a", "b", terms=bound())
    room.settle("a", "b")

    room.balances.leave("g", "b")
    room.settle("a")

    assert len(room.has("a")) == 4


# ---- groups that balance themselves


def test_client_balance_members_get_no_events_and_report_their_partitions():
    room = Room()
    room.join("a", "b", terms=GroupTerms(frozenset({T}), BalanceMode.CLIENT))

    assert room.beat("a", report=some(0, 1)) is None
    assert room.beat("b", report=some(1, 2)) is None
    assert (room.has("a"), room.has("b")) == (some(0, 1), some(1, 2))
    room.balances.leave("g", "a")
    assert room.gone == []


@pytest.mark.parametrize(
    ("first", "second", "what"),
    [
        (TERMS, bound(), "kind"),
        (TERMS, GroupTerms(frozenset({T, U})), "topics"),
        (TERMS, GroupTerms(frozenset({T}), filters={T: frozenset({"x"})}), "filters"),
        (bound(2), bound(3), "source count"),
        (bound(), bound(big=True), "select big"),
    ],
)
def test_inconsistent_member_error_names_the_difference(first, second, what):
    room = Room()
    room.join("a", terms=first)

    with pytest.raises(InconsistentMember) as problem:
        room.join("b", terms=second)

    assert problem.value.what == what
    assert room.balances.member_count == 1


def client(count: int, node_id: int) -> GroupTerms:
    return GroupTerms(frozenset({T}), BalanceMode.CLIENT, source_count=count, node_id=node_id)


def test_node_ids_are_taken_once_where_they_are_counted():
    room = Room()
    room.join("a", terms=client(2, 0))
    room.join("a", terms=client(2, 0))

    with pytest.raises(InconsistentMember) as taken:
        room.join("b", terms=client(2, 0))
    with pytest.raises(InconsistentMember) as other:
        room.join("b", terms=client(3, 1))

    assert (taken.value.what, other.value.what) == ("node id", "source count")


def test_node_ids_do_not_matter_where_they_are_not_counted():
    room = Room()

    room.join("a", "b", terms=client(0, 0))

    assert room.balances.member_count == 2
