"""When positions expire (KIP-211), and when groups are forgotten."""

from __future__ import annotations

import pytest

from tests.broker.keeping_room import DAY_MS, RETENTION_MS, SESSION_MS, Room
from trilogue.broker.errors import StorageFailed
from trilogue.broker.facts import Protocol
from trilogue.broker.groups.classic.members import JoinRequest
from trilogue.broker.groups.expiry import AT_ONCE
from trilogue.log import errors as log_errors


@pytest.fixture
def room() -> Room:
    return Room("t", "u")


def test_positions_of_a_group_without_members_count_from_their_commit(room: Room):
    room.commit("g", "t")
    room.days(3)
    room.commit("g", "u")

    room.days(3.9)
    early = room.remove_expired(), room.topics_of("g")
    room.days(0.1)
    later = room.remove_expired(), room.topics_of("g")
    room.days(3)
    last = room.remove_expired(), room.topics_of("g")

    assert (early, later, last) == ((0, {"t", "u"}), (1, {"u"}), (1, set()))


def test_positions_count_from_when_the_last_member_has_gone(room: Room):
    member = room.member("g", "t")
    room.commit("g", "t")
    room.stay("g", member, 9)
    room.leave("g", member)

    room.days(6.9)
    early = room.remove_expired()
    room.days(0.2)

    assert (early, room.remove_expired()) == (0, 1)
    assert room.topics_of("g") == set()


def test_a_session_that_ends_makes_a_group_empty_too(room: Room):
    room.member("g", "t")
    room.commit("g", "t")

    room.days(7)  # the session went on for half an hour
    early = room.remove_expired()
    room.days(0.1)

    assert (early, room.remove_expired()) == (0, 1)


def test_group_that_is_joined_in_time_keeps_its_offsets(room: Room):
    member = room.member("g", "t")
    room.commit("g", "t")
    room.leave("g", member)
    room.days(6)
    member = room.member("g", "t")
    room.stay("g", member, 6)
    room.leave("g", member)

    room.days(6)

    assert room.remove_expired() == 0
    assert room.topics_of("g") == {"t"}


def test_commit_to_an_empty_group_restarts_its_retention_time(room: Room):
    room.leave("g", room.member("g", "t"))
    room.days(6)
    room.commit("g", "t")

    room.days(6)

    assert room.remove_expired() == 0


def test_a_settled_group_of_readers_loses_what_it_does_not_read(room: Room):
    """KIP-211: no longer subscribed, and not committed for the time."""
    member = room.member("g", "t")
    room.commit("g", "t", "u")
    room.stay("g", member, 8)

    assert room.remove_expired() == 1
    assert room.topics_of("g") == {"t"}


@pytest.mark.parametrize(
    ("subscriptions", "kind"),
    [("?", "consumer"), ("t", "connect")],
    ids=["unreadable", "other kind"],
)
def test_group_with_unknown_subscription_keeps_its_offsets(
    room: Room, subscriptions: str, kind: str
):
    member = room.member("g", subscriptions, kind)
    room.commit("g", "t", "u")
    room.stay("g", member, 8)

    assert room.remove_expired() == 0


def test_a_group_that_rebalances_loses_nothing(room: Room):
    member = room.member("g", "t")
    room.commit("g", "t", "u")
    room.stay("g", member, 8)
    room.joined("h", "t")
    room.commit("h", "t", "u")
    room.broker.groups.join(
        JoinRequest("g", "", "consumer", (("range", b"t"),), 1_800_000, 1_800_000)
    )

    assert room.remove_expired() == 0


def test_client_sets_the_retention_time(room: Room):
    """OffsetCommit v2 to v4: a retention time of its own, longer or shorter."""
    room.commit("short", "t", retention_ms=DAY_MS)
    room.commit("long", "t", retention_ms=9 * DAY_MS)
    room.commit("now", "t", retention_ms=0)

    removed = []
    for _ in range(4):
        removed.append(room.remove_expired())
        room.days(1 if len(removed) == 1 else 4)

    assert removed == [1, 1, 0, 1]


def test_retention_time_of_a_client_keeps_offsets_of_subscribed_topics(room: Room):
    member = room.member("g", "t")
    room.commit("g", "t", retention_ms=0)
    room.stay("g", member, 1)

    assert room.remove_expired() == 0


def test_durable_cursors_of_other_protocols_never_expire(room: Room):
    room.commit("g", "t", protocol=Protocol.TUBEMQ)
    room.commit("g", "t", protocol=Protocol.PULSAR)
    room.days(1_000)

    assert room.remove_expired() == 0
    assert room.topics_of("g", Protocol.TUBEMQ) == room.topics_of("g", Protocol.PULSAR) == {"t"}


def test_a_restart_does_not_reset_the_time(room: Room):
    room.leave("g", room.member("g", "t"))
    room.commit("g", "t")
    room.days(5)

    room = room.restart()
    room.days(2)

    assert room.remove_expired() == 1


@pytest.mark.parametrize("flushed", [False, True])
def test_a_group_whose_members_died_with_the_server_is_empty_from_the_end_of_their_sessions(
    room: Room, flushed: bool
):
    """The time of an old commit decides nothing."""
    member = room.member("g", "t")
    room.commit("g", "t")
    room.stay("g", member, 20)
    if flushed:
        room.cut()

    room = room.restart()
    first = room.remove_expired()
    room.timers.advance(SESSION_MS / 1_000)
    room.days(6)
    early = room.remove_expired()
    room.days(1)

    assert (first, early, room.remove_expired()) == (0, 0, 1)


def test_expired_offsets_are_not_restored_after_a_restart(room: Room):
    room.commit("g", "t", "u")
    room.cut()
    room.days(7)
    room.remove_expired()
    replayed = room.restart()
    room.cut()
    loaded = room.restart()

    assert replayed.topics_of("g") == loaded.topics_of("g") == set()


def test_groups_with_neither_members_nor_positions_are_forgotten(room: Room):
    room.leave("left", room.member("left", "t"))
    stays = room.member("stays", "t")
    room.commit("by-hand", "t")
    before = room.names

    room.remove_expired()
    after = room.names
    room.leave("stays", stays)
    room.days(7)
    room.remove_expired()
    room.remove_expired()

    assert before == ["by-hand", "left", "stays"]
    assert after == ["by-hand", "stays"]
    assert room.names == []


def test_group_with_a_pending_member_is_not_removed(room: Room):
    request = JoinRequest(
        "g", "", "consumer", (("range", b"t"),), 10_000, 10_000, member_id_required=True
    )
    promise = room.broker.groups.join(request)

    room.remove_expired()

    assert promise.error is not None
    assert room.names == ["g"]


def test_a_look_gives_others_a_turn(room: Room):
    for number in range(2 * AT_ONCE + 1):
        room.commit(f"g{number}", "t")
    room.days(7)

    steps = list(room.broker.group_expiry.remove_expired(room.timers.now_ms(), RETENTION_MS))

    assert len(steps) >= 3
    assert max(steps) <= AT_ONCE
    assert sum(steps) == 2 * AT_ONCE + 1


def test_a_disk_that_refuses_ends_the_look_and_loses_nothing(room: Room):
    room.commit("g", "t")
    room.days(7)
    room.refuse(log_errors.StorageFailed("broken"))

    with pytest.raises(StorageFailed):
        room.remove_expired()

    assert room.topics_of("g") == {"t"}
