"""Every row of the group's table."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.broker.group_room import (
    COOPERATIVE,
    DELAY_S,
    RANGE,
    REBALANCE_S,
    SESSION_S,
    STATIC,
    Room,
    completing,
    preparing,
    refused,
    stable,
)
from trilogue.broker.errors import MemberIdRequired, RebalanceInProgress, UnknownMember
from trilogue.broker.group import Group
from trilogue.broker.group_members import Arrival, Joined, JoinedMember, JoinRequest
from trilogue.broker.group_states import TABLE, Action, Event, State

# -- the table: for each row how the state is reached, what happens, and what is seen of it


def empty_join(room: Room) -> None:
    promise = room.join()
    assert not promise.done
    room.timers.advance(DELAY_S)
    assert promise.result() == Joined(
        1, "consumer", "range", "m-1", "m-1", (JoinedMember("m-1", None, b"m"),)
    )


def empty_manual(room: Room) -> None:
    room.group.check_commit("", -1)


def empty_forget(room: Room) -> None:
    refused(MemberIdRequired, lambda: room.join(member_id_required=True))
    room.group.forget()
    assert room.timers.pending == 0


def preparing_join(room: Room) -> None:
    preparing(room)
    assert not room.join().done


def preparing_rejoin(room: Room) -> None:
    preparing(room)
    assert room.join("m-1", protocols=COOPERATIVE).done


def preparing_repeat(room: Room) -> None:
    preparing(room)
    assert not room.join("m-2", protocols=COOPERATIVE).done


def preparing_repeat_leader(room: Room) -> None:
    preparing(room)
    joined = room.join("m-1").result()
    assert (joined.generation, joined.leader_id) == (2, "m-1")


def preparing_replace(room: Room) -> None:
    stable(room, STATIC)
    room.join("m-2", protocols=COOPERATIVE)
    joined = room.join(instance_id="m").result()
    assert (joined.generation, joined.member_id, joined.leader_id) == (2, "m-3", "m-3")


def preparing_replace_changed(room: Room) -> None:
    stable(room, STATIC)
    room.join("m-2", protocols=COOPERATIVE)
    joined = room.join(instance_id="m", protocols=COOPERATIVE).result()
    assert joined.protocol == "cooperative-sticky"


def preparing_depart(room: Room) -> None:
    preparing(room)
    room.group.leave("m-1")
    assert (room.state, room.ids) == (State.COMPLETING, ["m-2"])


def preparing_lead(room: Room) -> None:
    preparing(room)
    refused(RebalanceInProgress, lambda: room.sync("m-1"))


def preparing_follow(room: Room) -> None:
    preparing(room)
    refused(RebalanceInProgress, lambda: room.sync("m-2"))


def preparing_heartbeat(room: Room) -> None:
    preparing(room)
    room.timers.advance(SESSION_S - 1)
    refused(RebalanceInProgress, lambda: room.beat("m-1"))
    room.timers.advance(SESSION_S - 1)
    assert room.ids == ["m-1", "m-2"]


def preparing_commit(room: Room) -> None:
    preparing(room)
    room.group.check_commit("m-1", 1)


def preparing_manual(room: Room) -> None:
    preparing(room)
    refused(UnknownMember, lambda: room.group.check_commit("", -1))


def preparing_join_over(room: Room) -> None:
    preparing(room)
    for _ in range(REBALANCE_S // 5):
        refused(RebalanceInProgress, lambda: room.beat("m-1"))
        room.timers.advance(5)
    assert room.ids == ["m-2"]


def preparing_joined(room: Room) -> None:
    preparing(room)
    room.join("m-1")
    assert room.group.generation == 2


def preparing_none_left(room: Room) -> None:
    room.join()
    room.group.leave("m-1")
    assert (room.group.generation, room.emptied) == (1, [room.group])


def completing_join(room: Room) -> None:
    completing(room)
    waiting = room.sync("m-2")
    assert not room.join().done
    assert isinstance(waiting.error, RebalanceInProgress)


def completing_rejoin(room: Room) -> None:
    completing(room)
    assert not room.join("m-2", protocols=COOPERATIVE).done


def completing_repeat(room: Room) -> None:
    completing(room)
    joined = room.join("m-2").result()
    assert (joined.generation, joined.leader_id, joined.members) == (1, "m-1", ())


def completing_repeat_leader(room: Room) -> None:
    completing(room)
    joined = room.join("m-1").result()
    assert [each.member_id for each in joined.members] == ["m-1", "m-2"]


def completing_replace(room: Room) -> None:
    """Whom the leader assigns to has another id now, so it must assign again."""
    completing(room, STATIC)
    assert not room.join(instance_id="m").done


def completing_replace_changed(room: Room) -> None:
    room.join(instance_id="m", protocols=COOPERATIVE)
    room.join(protocols=COOPERATIVE)
    room.timers.advance(DELAY_S * 2)
    assert not room.join(instance_id="m").done


def completing_depart(room: Room) -> None:
    completing(room)
    room.group.leave("m-1")
    assert room.ids == ["m-2"]


def completing_lead(room: Room) -> None:
    completing(room)
    waiting = room.sync("m-2")
    lead = room.sync("m-1", m1=b"one", m9=b"nobody")
    assert (lead.result().assignment, waiting.result().assignment) == (b"one", b"")
    assert waiting.result().protocol == "range"


def completing_follow(room: Room) -> None:
    completing(room)
    first, second = room.sync("m-2"), room.sync("m-2")
    assert isinstance(first.error, RebalanceInProgress)
    assert not second.done


def completing_heartbeat(room: Room) -> None:
    completing(room)
    room.timers.advance(SESSION_S - 1)
    room.beat("m-1", "m-2")
    room.timers.advance(SESSION_S - 1)


def completing_commit(room: Room) -> None:
    completing(room)
    refused(RebalanceInProgress, lambda: room.group.check_commit("m-1", 1))


def completing_manual(room: Room) -> None:
    completing(room)
    refused(UnknownMember, lambda: room.group.check_commit("", -1))


def completing_sync_over(room: Room) -> None:
    completing(room)
    waiting = room.sync("m-2")
    for _ in range(REBALANCE_S // 5):
        room.beat("m-1", "m-2")
        room.timers.advance(5)
    assert isinstance(waiting.error, RebalanceInProgress)
    assert room.ids == ["m-2"]


def stable_join(room: Room) -> None:
    stable(room)
    assert not room.join().done


def stable_rejoin(room: Room) -> None:
    stable(room)
    assert not room.join("m-2", protocols=COOPERATIVE).done


def stable_repeat(room: Room) -> None:
    stable(room)
    assert room.join("m-2").result().generation == 1


def stable_repeat_leader(room: Room) -> None:
    stable(room)
    assert not room.join("m-1").done


def stable_replace(room: Room) -> None:
    stable(room, STATIC)
    room.join(instance_id="m")
    assert room.sync("m-3", "m").result().assignment == b"one"


def stable_replace_changed(room: Room) -> None:
    room.join(instance_id="m", protocols=COOPERATIVE)
    room.join(protocols=COOPERATIVE)
    room.timers.advance(DELAY_S * 2)
    room.sync("m-2")
    room.sync("m-1")
    assert room.group.protocol == "cooperative-sticky"
    assert not room.join(instance_id="m").done


def stable_depart(room: Room) -> None:
    stable(room)
    room.group.leave("m-2")
    refused(RebalanceInProgress, lambda: room.beat("m-1"))


def stable_lead(room: Room) -> None:
    stable(room)
    assert room.sync("m-1", m2=b"other").result().assignment == b"one"
    assert room.sync("m-2").result().assignment == b"two"


def stable_follow(room: Room) -> None:
    stable(room)
    assert room.sync("m-2").result().assignment == b"two"


def stable_heartbeat(room: Room) -> None:
    stable(room)
    for _ in range(5):
        room.timers.advance(SESSION_S - 1)
        room.beat("m-1", "m-2")


def stable_commit(room: Room) -> None:
    stable(room)
    room.timers.advance(SESSION_S - 1)
    room.group.check_commit("m-1", 1)
    room.beat("m-2")
    room.timers.advance(SESSION_S - 1)


def stable_manual(room: Room) -> None:
    stable(room)
    refused(UnknownMember, lambda: room.group.check_commit("", -1))


def stable_sync_over(room: Room) -> None:
    completing(room)
    room.sync("m-1")
    for _ in range(REBALANCE_S // 5):
        room.beat("m-1", "m-2")
        room.timers.advance(5)
    assert room.ids == ["m-1"]


def empty_resume(room: Room) -> None:
    request = JoinRequest("g", "m-9", "consumer", RANGE, SESSION_S * 1_000, REBALANCE_S * 1_000)
    room.group.resume(7, [Arrival(request, b"mine")], rebalance=False)
    assert room.group.sync("m-9", 7).result().assignment == b"mine"
    room.timers.advance(SESSION_S - 1)
    assert room.ids == ["m-9"]


def preparing_dissolve(room: Room) -> None:
    preparing(room)
    waiting = room.join("m-2", protocols=COOPERATIVE)
    room.group.dissolve()
    refused(RebalanceInProgress, waiting.result)
    assert room.timers.pending == 0


def completing_dissolve(room: Room) -> None:
    completing(room)
    waiting = room.sync("m-2")
    room.group.dissolve()
    refused(RebalanceInProgress, waiting.result)
    assert room.timers.pending == 0


def stable_dissolve(room: Room) -> None:
    stable(room)
    room.group.dissolve()
    assert room.timers.pending == 0


ROWS: dict[tuple[State, Event], tuple[Callable[[Room], None], State]] = {
    (State.EMPTY, Event.JOIN): (empty_join, State.COMPLETING),
    (State.EMPTY, Event.MANUAL): (empty_manual, State.EMPTY),
    (State.EMPTY, Event.FORGET): (empty_forget, State.DEAD),
    (State.EMPTY, Event.RESUME): (empty_resume, State.STABLE),
    (State.PREPARING, Event.JOIN): (preparing_join, State.PREPARING),
    (State.PREPARING, Event.REJOIN): (preparing_rejoin, State.COMPLETING),
    (State.PREPARING, Event.REPEAT): (preparing_repeat, State.PREPARING),
    (State.PREPARING, Event.REPEAT_LEADER): (preparing_repeat_leader, State.COMPLETING),
    (State.PREPARING, Event.REPLACE): (preparing_replace, State.COMPLETING),
    (State.PREPARING, Event.REPLACE_CHANGED): (preparing_replace_changed, State.COMPLETING),
    (State.PREPARING, Event.DEPART): (preparing_depart, State.COMPLETING),
    (State.PREPARING, Event.LEAD): (preparing_lead, State.PREPARING),
    (State.PREPARING, Event.FOLLOW): (preparing_follow, State.PREPARING),
    (State.PREPARING, Event.HEARTBEAT): (preparing_heartbeat, State.PREPARING),
    (State.PREPARING, Event.COMMIT): (preparing_commit, State.PREPARING),
    (State.PREPARING, Event.MANUAL): (preparing_manual, State.PREPARING),
    (State.PREPARING, Event.JOIN_OVER): (preparing_join_over, State.COMPLETING),
    (State.PREPARING, Event.JOINED): (preparing_joined, State.COMPLETING),
    (State.PREPARING, Event.NONE_LEFT): (preparing_none_left, State.EMPTY),
    (State.PREPARING, Event.DISSOLVE): (preparing_dissolve, State.DEAD),
    (State.COMPLETING, Event.JOIN): (completing_join, State.PREPARING),
    (State.COMPLETING, Event.REJOIN): (completing_rejoin, State.PREPARING),
    (State.COMPLETING, Event.REPEAT): (completing_repeat, State.COMPLETING),
    (State.COMPLETING, Event.REPEAT_LEADER): (completing_repeat_leader, State.COMPLETING),
    (State.COMPLETING, Event.REPLACE): (completing_replace, State.PREPARING),
    (State.COMPLETING, Event.REPLACE_CHANGED): (completing_replace_changed, State.PREPARING),
    (State.COMPLETING, Event.DEPART): (completing_depart, State.PREPARING),
    (State.COMPLETING, Event.LEAD): (completing_lead, State.STABLE),
    (State.COMPLETING, Event.FOLLOW): (completing_follow, State.COMPLETING),
    (State.COMPLETING, Event.HEARTBEAT): (completing_heartbeat, State.COMPLETING),
    (State.COMPLETING, Event.COMMIT): (completing_commit, State.COMPLETING),
    (State.COMPLETING, Event.MANUAL): (completing_manual, State.COMPLETING),
    (State.COMPLETING, Event.SYNC_OVER): (completing_sync_over, State.PREPARING),
    (State.COMPLETING, Event.DISSOLVE): (completing_dissolve, State.DEAD),
    (State.STABLE, Event.JOIN): (stable_join, State.PREPARING),
    (State.STABLE, Event.REJOIN): (stable_rejoin, State.PREPARING),
    (State.STABLE, Event.REPEAT): (stable_repeat, State.STABLE),
    (State.STABLE, Event.REPEAT_LEADER): (stable_repeat_leader, State.PREPARING),
    (State.STABLE, Event.REPLACE): (stable_replace, State.STABLE),
    (State.STABLE, Event.REPLACE_CHANGED): (stable_replace_changed, State.PREPARING),
    (State.STABLE, Event.DEPART): (stable_depart, State.PREPARING),
    (State.STABLE, Event.LEAD): (stable_lead, State.STABLE),
    (State.STABLE, Event.FOLLOW): (stable_follow, State.STABLE),
    (State.STABLE, Event.HEARTBEAT): (stable_heartbeat, State.STABLE),
    (State.STABLE, Event.COMMIT): (stable_commit, State.STABLE),
    (State.STABLE, Event.MANUAL): (stable_manual, State.STABLE),
    (State.STABLE, Event.SYNC_OVER): (stable_sync_over, State.PREPARING),
    (State.STABLE, Event.DISSOLVE): (stable_dissolve, State.DEAD),
}


def test_there_is_an_example_for_every_row_and_a_method_for_every_action():
    assert ROWS.keys() == TABLE.keys()
    assert Group._ACTIONS.keys() == set(Action) == {action for action, _ in TABLE.values()}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0].name}-{row[1].name}")
def test_a_row_does_what_it_says(row: tuple[State, Event]):
    example, after = ROWS[row]
    room = Room()

    example(room)

    assert row in room.group.fired
    assert room.state is after


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("event", Event)
def test_what_is_not_in_the_table_cannot_happen(state: State, event: Event):
    room = Room()
    room.group.state = state
    if (state, event) not in TABLE:
        with pytest.raises(KeyError):
            room.group._fire(event, None)
