"""Groups that the server balances: which event goes to which member, and when."""

from __future__ import annotations

import pytest

from tests.broker.balance_room import DONE, TERMS, Room, T, U, some
from trilogue.broker.errors import (
    GroupMaxSize,
    GroupUnavailable,
    InvalidGroupName,
    UnknownMember,
)
from trilogue.broker.tubemq.balanced_group import BalanceSettings
from trilogue.broker.tubemq.group_terms import GroupTerms
from trilogue.broker.tubemq.rebalance_events import EventKind, EventResult, EventStatus

# ---- the seed's story


def test_a_lone_member_is_directed_to_take_everything_at_its_first_heartbeat():
    room = Room()
    room.join("a")

    event = room.beat("a")

    assert event is not None
    assert (event.kind, event.parts) == (EventKind.ONLY_CONNECT, some(0, 1, 2, 3))
    assert event.status is EventStatus.PROCESSING


def test_event_is_sent_once_and_done_when_the_member_confirms_it():
    room = Room()
    room.join("a")
    event = room.beat("a")

    again = room.beat("a")
    after = room.beat("a", event)

    assert again is None
    assert after is None
    assert event is not None
    assert event.status is DONE


def test_partition_is_assigned_only_after_its_owner_releases_it():
    room = Room()
    room.join("a")
    room.settle("a")
    room.join("b")

    leave = room.beat("a")
    early = room.beat("b")
    room.beat("a", leave)
    take = room.beat("b")

    assert leave is not None
    assert take is not None
    assert (leave.kind, leave.parts) == (EventKind.ONLY_DISCONNECT, some(2, 3))
    assert early is None
    assert (take.kind, take.parts) == (EventKind.ONLY_CONNECT, some(2, 3))
    assert take.rebalance_id == leave.rebalance_id  # one round


def test_rebalance_ids_grow_with_every_round():
    room = Room()
    room.join("a")
    first = room.beat("a")
    room.beat("a", first)
    room.join("b")
    second = room.beat("a")

    assert first is not None
    assert second is not None
    assert second.rebalance_id > first.rebalance_id


def test_the_halves_of_an_exchange_are_disconnect_and_connect():
    room = Room()
    terms = GroupTerms(frozenset({T, U}))
    room.join("a", terms=terms)
    room.settle("a")
    room.counts = {T: 0, U: 5}
    room.balances.topic_changed(T)

    lose = room.beat("a")
    gain = room.beat("a", lose)

    assert lose is not None
    assert gain is not None
    assert (lose.kind, lose.parts) == (EventKind.DISCONNECT, some(0, 1, 2, 3))
    assert (gain.kind, gain.parts) == (EventKind.CONNECT, some(2, 3, 4, topic=U))


def test_a_member_that_goes_leaves_its_partitions_to_the_next_heartbeat():
    room = Room()
    room.join("a", "b")
    room.settle("a", "b")

    room.balances.leave("g", "b")
    event = room.beat("a")

    assert event is not None
    assert len(event.parts) == 2
    assert room.gone == ["b"]


def test_a_topic_that_grows_is_shared_out_at_the_next_heartbeat():
    room = Room()
    room.join("a")
    room.settle("a")

    room.counts[T] = 6
    room.balances.topic_changed(T)
    event = room.beat("a")

    assert event is not None
    assert event.parts == some(4, 5)


def test_a_topic_that_goes_is_let_go_of():
    room = Room()
    room.join("a")
    room.settle("a")

    room.counts[T] = 0
    room.balances.refresh()
    event = room.beat("a")

    assert event is not None
    assert (event.kind, len(event.parts)) == (EventKind.ONLY_DISCONNECT, 4)


def test_an_event_names_so_many_partitions_and_the_next_the_rest():
    room = Room(5, BalanceSettings(event_parts_max=3))
    room.join("a")

    first = room.beat("a")
    second = room.beat("a", first)

    assert first is not None
    assert second is not None
    assert (first.parts, second.parts) == (some(0, 1, 2), some(3, 4))


# ---- what goes wrong


def test_partitions_that_were_occupied_are_assigned_again():
    room = Room()
    room.join("a")
    event = room.beat("a")

    again = room.beat("a", event, report=some(0, 1))

    assert event is not None
    assert again is not None
    assert again.parts == some(2, 3)
    assert again.rebalance_id > event.rebalance_id
    assert room.balances.view("g").counts.occupied == 2


@pytest.mark.parametrize("status", [EventStatus.FAILED, EventStatus.UNKNOWN])
def test_failed_event_is_sent_again_with_a_new_rebalance_id(status):
    room = Room()
    room.join("a")
    event = room.beat("a")

    again = room.beat("a", event, status)

    assert event is not None
    assert again is not None
    assert again.parts == event.parts
    assert again.rebalance_id > event.rebalance_id


@pytest.mark.parametrize("status", [EventStatus.WAITING, EventStatus.PROCESSING])
def test_unfinished_event_stays_pending(status):
    room = Room()
    room.join("a")
    event = room.beat("a")

    assert room.beat("a", event, status) is None
    assert room.balances.view("g").members[0].event is event


def test_a_failed_disconnect_frees_nothing():
    room = Room()
    room.join("a")
    room.settle("a")
    room.join("b")
    event = room.beat("a")

    room.beat("a", event, EventStatus.FAILED)

    assert room.beat("b") is None
    assert room.has("a") == some(0, 1, 2, 3)


def test_partition_in_the_report_of_a_member_stays_assigned_after_done():
    room = Room()
    room.join("a")
    room.settle("a")
    room.join("b")
    event = room.beat("a")

    again = room.beat("a", event, report=some(0, 1, 2))
    take = room.beat("b")

    assert again is not None
    assert take is not None
    assert (again.kind, again.parts) == (EventKind.ONLY_DISCONNECT, some(2))
    assert take.parts == some(3)


def test_an_answer_to_an_older_event_changes_nothing():
    room = Room()
    room.join("a")
    room.settle("a")
    room.join("b")
    event = room.beat("a")
    assert event is not None

    for old in (
        EventResult(event.rebalance_id - 1, event.kind, DONE),
        EventResult(event.rebalance_id, EventKind.ONLY_CONNECT, DONE),
    ):
        room.balances.heartbeat("g", "a", 0, answer=old)

    assert room.beat("b") is None
    assert room.balances.view("g").counts.late_answers == 2


def test_unconfirmed_event_is_sent_again_after_a_report_request():
    room = Room()
    room.join("a")
    event = room.beat("a")

    room.later(299)
    early = room.beat("a")
    room.later(1)
    requested = room.beat("a")
    again = room.beat("a")

    assert event is not None
    assert early is None
    assert requested is not None
    assert (requested.kind, requested.parts) == (EventKind.REPORT, ())
    assert again is not None
    assert again.parts == event.parts
    assert again.rebalance_id > event.rebalance_id


def test_event_is_not_repeated_for_reported_partitions():
    room = Room()
    room.join("a")
    room.beat("a")

    room.later(300)

    assert room.beat("a", report=some(0, 1, 2, 3)) is None


def test_member_that_confirms_no_event_is_removed_after_some_rounds():
    room = Room()
    room.join("a")
    room.join("b")
    room.beat("a")

    for _ in range(2):
        room.later(300)
        room.beat("b", report=room.has("b"))
        assert room.beat("a", report=()) is not None
    room.later(300)
    with pytest.raises(UnknownMember, match="register again"):
        room.beat("a", report=())

    assert room.gone == ["a"]
    event = room.beat("b", report=room.has("b"))
    assert event is not None
    assert set(room.has("b")) == set(some(0, 1, 2, 3))


def test_report_does_not_change_partitions_of_a_pending_event():
    room = Room()
    room.join("a")
    room.beat("a")

    assert room.beat("a", report=some(0)) is None
    assert room.has("a") == some(0, 1, 2, 3)


def test_partition_missing_in_a_report_is_connected_again():
    room = Room()
    room.join("a")
    room.settle("a")

    event = room.beat("a", report=some(0, 2, 3))

    assert event is not None
    assert (event.kind, event.parts) == (EventKind.ONLY_CONNECT, some(1))


def test_member_with_a_partition_of_another_member_gets_a_disconnect_event():
    room = Room()
    room.join("a", "b")
    room.settle("a", "b")
    extra = room.has("a")[:1]

    event = room.beat("b", report=room.has("b") + extra)
    done = room.beat("b", event, report=room.has("b"))

    assert event is not None
    assert (event.kind, event.parts) == (EventKind.ONLY_DISCONNECT, extra)
    assert done is None


def test_partition_in_the_report_of_another_member_is_not_assigned():
    room = Room()
    room.join("a", "b")
    room.settle("a", "b")
    extra = room.has("a")[:1]

    room.beat("b", report=room.has("b") + extra)
    event = room.beat("a", report=room.has("a")[1:])

    assert event is None


def test_claim_of_a_joining_member_precedes_a_pending_connect_event():
    room = Room()
    room.join("a")
    event = room.beat("a")
    room.join("b", claims=some(2, 3))

    after = room.beat("a", event, report=some(0, 1))

    assert after is None
    assert (room.has("a"), room.has("b")) == (some(0, 1), some(2, 3))


def test_member_that_registers_with_its_partitions_keeps_them():
    room = Room()
    room.join("a", claims=some(2, 3), allocated=True)
    room.join("b", claims=some(0, 1), allocated=True)

    assert room.beat("a") is None
    assert room.beat("b") is None


def test_second_registration_keeps_the_member_and_repeats_its_event():
    """It may have registered again because the answer with the event never came."""
    room = Room()
    room.join("a")
    event = room.beat("a")

    room.join("a")
    again = room.beat("a")
    assert again == event
    after = room.beat("a", event)

    assert after is None
    assert room.has("a") == some(0, 1, 2, 3)
    assert room.balances.member_count == 1


def test_member_without_heartbeats_is_removed_after_its_session():
    room = Room()
    room.join("a", "b")
    room.settle("a", "b")

    room.later(999)
    room.beat("a")
    room.later(1)

    assert room.gone == ["b"]
    with pytest.raises(UnknownMember):
        room.beat("b")
    assert room.balances.view("g").counts.lost == 1


def test_stopped_group_gets_one_stop_event_and_no_assignment_until_resumed():
    room = Room()
    room.join("a")
    room.balances.stop("g")

    response = room.beat("a")
    quiet = room.beat("a")
    room.balances.stop("g", stopped=False)
    event = room.beat("a")

    assert response is not None
    assert (response.kind, quiet) == (EventKind.STOP_REBALANCE, None)
    assert event is not None
    assert event.kind is EventKind.ONLY_CONNECT


# ---- bounds


def test_a_group_a_node_and_a_name_have_bounds():
    room = Room()
    room.join("a", "b", "c")
    with pytest.raises(GroupMaxSize):
        room.join("d")
    room.balances.join("h", "a", TERMS, 0)
    with pytest.raises(GroupUnavailable):
        room.balances.join("h", "b", TERMS, 0)
    room.balances.leave("g", "a")
    with pytest.raises(GroupUnavailable):
        room.balances.join("i", "b", TERMS, 0)
    for name in ("", "x" * 1025):
        with pytest.raises(InvalidGroupName):
            Room().balances.join(name, "b", TERMS, 0)


def test_size_of_member_data_is_limited_until_members_leave():
    room = Room(settings=BalanceSettings(size_bytes_max=100))
    room.join("a", size=60)
    room.join("a", size=70)
    with pytest.raises(GroupUnavailable, match="too much"):
        room.join("b", size=40)
    room.join("c", size=30)

    room.balances.leave("g", "a")
    room.join("b", size=70)

    assert room.balances.member_count == 2


def test_partitions_that_are_not_there_are_not_believed_in():
    room = Room(2)
    room.join("a", claims=some(0, 1, 2, 3))
    room.join("b", terms=TERMS, claims=some(7, topic=U))

    assert room.has("a") == some(0, 1)
    assert room.has("b") == ()


def test_empty_group_is_removed():
    room = Room()
    emptied: list[str] = []
    room.balances.empty.append(emptied.append)
    room.join("a")

    room.balances.leave("g", "a")

    assert (len(room.balances), room.balances.member_count) == (0, 0)
    assert emptied == ["g"]
    assert not room.balances.leave("g", "a")
    room.balances.topic_changed(T)
    for call in (room.balances.view, room.balances.terms, room.balances.stop):
        with pytest.raises(UnknownMember):
            call("g")


def test_group_view_lists_members_with_partitions():
    room = Room(3)
    room.join("b", "a", host="here")
    room.settle("a", "b")

    view = room.balances.groups()[0]

    assert (view.name, view.parts) == ("g", frozenset(some(0, 1, 2)))
    assert [each.member_id for each in view.members] == ["a", "b"]
    assert [len(each.parts) for each in view.members] == [2, 1]
    assert view.members[0].host == "here"
    assert view.counts.events == 2


def test_a_listener_that_fails_blocks_no_other(caplog):
    room = Room()
    room.balances.gone.insert(0, lambda *_: 1 / 0)
    room.join("a")

    room.balances.leave("g", "a")

    assert room.gone == ["a"]
    assert "balance.listener_failed" in caplog.text
