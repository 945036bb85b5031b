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
from trilogue.broker.groups.classic.group import ClassicGroup
from trilogue.broker.groups.classic.members import (
    JoinRequest,
    JoinResult,
    JoinResultMember,
    MemberHandover,
)
from trilogue.broker.groups.classic.states import TRANSITIONS, GroupAction, GroupEvent, GroupState

# -- the table: for each row how the state is reached, what happens, and what is seen of it


def empty_join(room: Room) -> None:
    promise = room.join()
    assert not promise.done
    room.timers.advance(DELAY_S)
    assert promise.result() == JoinResult(
        1, "consumer", "range", "m-1", "m-1", (JoinResultMember("m-1", None, b"m"),)
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
    assert (room.state, room.ids) == (GroupState.COMPLETING, ["m-2"])


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
    room.group.resume(7, [MemberHandover(request, b"mine")], rebalance=False)
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


ROWS: dict[tuple[GroupState, GroupEvent], tuple[Callable[[Room], None], GroupState]] = {
    (GroupState.EMPTY, GroupEvent.JOIN): (empty_join, GroupState.COMPLETING),
    (GroupState.EMPTY, GroupEvent.MANUAL): (empty_manual, GroupState.EMPTY),
    (GroupState.EMPTY, GroupEvent.FORGET): (empty_forget, GroupState.DEAD),
    (GroupState.EMPTY, GroupEvent.RESUME): (empty_resume, GroupState.STABLE),
    (GroupState.PREPARING, GroupEvent.JOIN): (preparing_join, GroupState.PREPARING),
    (GroupState.PREPARING, GroupEvent.REJOIN): (preparing_rejoin, GroupState.COMPLETING),
    (GroupState.PREPARING, GroupEvent.REPEAT): (preparing_repeat, GroupState.PREPARING),
    (GroupState.PREPARING, GroupEvent.REPEAT_LEADER): (
        preparing_repeat_leader,
        GroupState.COMPLETING,
    ),
    (GroupState.PREPARING, GroupEvent.REPLACE): (preparing_replace, GroupState.COMPLETING),
    (GroupState.PREPARING, GroupEvent.REPLACE_CHANGED): (
        preparing_replace_changed,
        GroupState.COMPLETING,
    ),
    (GroupState.PREPARING, GroupEvent.DEPART): (preparing_depart, GroupState.COMPLETING),
    (GroupState.PREPARING, GroupEvent.LEAD): (preparing_lead, GroupState.PREPARING),
    (GroupState.PREPARING, GroupEvent.FOLLOW): (preparing_follow, GroupState.PREPARING),
    (GroupState.PREPARING, GroupEvent.HEARTBEAT): (preparing_heartbeat, GroupState.PREPARING),
    (GroupState.PREPARING, GroupEvent.COMMIT): (preparing_commit, GroupState.PREPARING),
    (GroupState.PREPARING, GroupEvent.MANUAL): (preparing_manual, GroupState.PREPARING),
    (GroupState.PREPARING, GroupEvent.JOIN_OVER): (preparing_join_over, GroupState.COMPLETING),
    (GroupState.PREPARING, GroupEvent.JOINED): (preparing_joined, GroupState.COMPLETING),
    (GroupState.PREPARING, GroupEvent.NONE_LEFT): (preparing_none_left, GroupState.EMPTY),
    (GroupState.PREPARING, GroupEvent.DISSOLVE): (preparing_dissolve, GroupState.DEAD),
    (GroupState.COMPLETING, GroupEvent.JOIN): (completing_join, GroupState.PREPARING),
    (GroupState.COMPLETING, GroupEvent.REJOIN): (completing_rejoin, GroupState.PREPARING),
    (GroupState.COMPLETING, GroupEvent.REPEAT): (completing_repeat, GroupState.COMPLETING),
    (GroupState.COMPLETING, GroupEvent.REPEAT_LEADER): (
        completing_repeat_leader,
        GroupState.COMPLETING,
    ),
    (GroupState.COMPLETING, GroupEvent.REPLACE): (completing_replace, GroupState.PREPARING),
    (GroupState.COMPLETING, GroupEvent.REPLACE_CHANGED): (
        completing_replace_changed,
        GroupState.PREPARING,
    ),
    (GroupState.COMPLETING, GroupEvent.DEPART): (completing_depart, GroupState.PREPARING),
    (GroupState.COMPLETING, GroupEvent.LEAD): (completing_lead, GroupState.STABLE),
    (GroupState.COMPLETING, GroupEvent.FOLLOW): (completing_follow, GroupState.COMPLETING),
    (GroupState.COMPLETING, GroupEvent.HEARTBEAT): (completing_heartbeat, GroupState.COMPLETING),
    (GroupState.COMPLETING, GroupEvent.COMMIT): (completing_commit, GroupState.COMPLETING),
    (GroupState.COMPLETING, GroupEvent.MANUAL): (completing_manual, GroupState.COMPLETING),
    (GroupState.COMPLETING, GroupEvent.SYNC_OVER): (completing_sync_over, GroupState.PREPARING),
    (GroupState.COMPLETING, GroupEvent.DISSOLVE): (completing_dissolve, GroupState.DEAD),
    (GroupState.STABLE, GroupEvent.JOIN): (stable_join, GroupState.PREPARING),
    (GroupState.STABLE, GroupEvent.REJOIN): (stable_rejoin, GroupState.PREPARING),
    (GroupState.STABLE, GroupEvent.REPEAT): (stable_repeat, GroupState.STABLE),
    (GroupState.STABLE, GroupEvent.REPEAT_LEADER): (stable_repeat_leader, GroupState.PREPARING),
    (GroupState.STABLE, GroupEvent.REPLACE): (stable_replace, GroupState.STABLE),
    (GroupState.STABLE, GroupEvent.REPLACE_CHANGED): (stable_replace_changed, GroupState.PREPARING),
    (GroupState.STABLE, GroupEvent.DEPART): (stable_depart, GroupState.PREPARING),
    (GroupState.STABLE, GroupEvent.LEAD): (stable_lead, GroupState.STABLE),
    (GroupState.STABLE, GroupEvent.FOLLOW): (stable_follow, GroupState.STABLE),
    (GroupState.STABLE, GroupEvent.HEARTBEAT): (stable_heartbeat, GroupState.STABLE),
    (GroupState.STABLE, GroupEvent.COMMIT): (stable_commit, GroupState.STABLE),
    (GroupState.STABLE, GroupEvent.MANUAL): (stable_manual, GroupState.STABLE),
    (GroupState.STABLE, GroupEvent.SYNC_OVER): (stable_sync_over, GroupState.PREPARING),
    (GroupState.STABLE, GroupEvent.DISSOLVE): (stable_dissolve, GroupState.DEAD),
}


def test_there_is_an_example_for_every_row_and_a_method_for_every_action():
    assert ROWS.keys() == TRANSITIONS.keys()
    assert (
        ClassicGroup._ACTIONS.keys()
        == set(GroupAction)
        == {action for action, _ in TRANSITIONS.values()}
    )


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0].name}-{row[1].name}")
def test_transition_leads_to_its_state(row: tuple[GroupState, GroupEvent]):
    example, after = ROWS[row]
    room = Room()

    example(room)

    assert row in room.group.fired
    assert room.state is after


@pytest.mark.parametrize("state", GroupState)
@pytest.mark.parametrize("event", GroupEvent)
def test_transition_outside_the_table_raises_key_error(state: GroupState, event: GroupEvent):
    room = Room()
    room.group.state = state
    if (state, event) not in TRANSITIONS:
        with pytest.raises(KeyError):
            room.group._fire(event, None)
