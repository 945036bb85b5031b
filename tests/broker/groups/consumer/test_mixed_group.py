"""Classic members in consumer groups, and groups that change their kind (KIP-848).

Responses are those of Kafka 4.3.1 to the same requests, except where a test
notes a difference.
"""

from __future__ import annotations

from itertools import count

import pytest

from tests.broker.consumer_room import BEAT_MS, names, refused, some
from tests.broker.consumer_room import Room as ConsumerRoom
from trilogue.broker.errors import (
    FencedInstance,
    GroupMaxSize,
    IllegalGeneration,
    InconsistentProtocol,
    InvalidSessionTimeout,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownGroup,
    UnknownMember,
)
from trilogue.broker.groups.classic.group import ClassicGroup
from trilogue.broker.groups.classic.members import JoinRequest
from trilogue.broker.groups.classic.states import GroupState
from trilogue.broker.groups.consumer.mixed_group import NO_CODEC
from trilogue.broker.groups.reconciliation import LEAVE_EPOCH, STATIC_LEAVE_EPOCH
from trilogue.broker.names import TopicName
from trilogue.gateway.kafka.groups.member_metadata import read_assignment, write_assignment
from trilogue.wire.kafka.groups.member_metadata import (
    OwnedPartitions,
    Subscription,
    encode_subscription,
)

SESSION_S, REBALANCE_S = 10, 30
SIX = range(6)
DELAY_S = 0.2


class Room(ConsumerRoom):
    """Members of both kinds; classic ones read topic t by default."""

    def __init__(self, **settings) -> None:
        super().__init__(**settings)
        self.generations: dict[str, int] = {}
        self.ids: dict[str, str] = {}
        self.t = self.topic("t")

    # -- classic members

    def subscription(self, owned=(), topics=("t",), version: int = 2) -> bytes:
        parts = [OwnedPartitions(topic="t", partitions=list(owned))] if owned else []
        return encode_subscription(
            Subscription(topics=list(topics), owned_partitions=parts), version
        )

    def enter(self, name: str, owned=(), **how):
        """Join; the promise."""
        protocols = how.pop("protocols", ("cooperative-sticky",))
        metadata = how.pop("metadata", self.subscription(owned))
        given = {
            "protocol_type": "consumer",
            "protocols": tuple((each, metadata) for each in protocols),
            "session_timeout_ms": SESSION_S * 1_000,
            "rebalance_timeout_ms": REBALANCE_S * 1_000,
            "client_id": name,
        }
        member_id = how.pop("member_id", self.ids.get(name, ""))
        promise = self.broker.groups.join(JoinRequest("g", member_id, **(given | how)))

        def joined(promise) -> None:
            if promise.error is None:
                self.ids[name] = promise.result().member_id
                self.generations[name] = promise.result().generation

        promise.then(joined)
        return promise

    def sync(self, name: str, instance_id=None, **given: tuple[int, ...]) -> tuple[int, ...]:
        """The partitions of t that a member gets; the leader brings it as x=(0, 1)."""
        shares = {
            self.ids[each]: write_assignment(dict.fromkeys(names("t"), indexes), b"\0\1")
            for each, indexes in given.items()
        }
        promise = self.broker.groups.sync(
            "g", self.ids[name], self.generations[name], instance_id, assignments=shares
        )
        parts = read_assignment(promise.result().assignment)
        return tuple(parts.get(TopicName("public", "default", "t"), ()))

    def alive(self, name: str, instance_id=None) -> None:
        self.broker.groups.heartbeat("g", self.ids[name], self.generations[name], instance_id)

    @property
    def found(self):
        return self.broker.groups.find_group("g")

    def classic_group(self, *members: str) -> ClassicGroup:
        """x leads the others; each has a run of t."""
        for name in members:
            self.enter(name)
        self.timers.advance(DELAY_S * 2)
        runs = dict(zip(members, ((0, 1, 2), (3, 4, 5)), strict=False))
        if len(members) == 1:
            runs = {members[0]: tuple(SIX)}
        for name in members:
            self.sync(name, **(runs if name == members[0] else {}))
        assert self.found.state is GroupState.STABLE
        return self.found


@pytest.fixture
def room() -> Room:
    return Room()


# -- classic members of a consumer group


def test_a_classic_member_joins_at_once_and_is_not_a_leader(room: Room):
    room.join("a", "t")

    joined = room.enter("x").result()

    assert (joined.generation, joined.protocol, joined.leader_id) == (3, "cooperative-sticky", "")
    assert (joined.members, joined.skip_assignment) == ((), False)
    assert room.sync("x") == ()
    room.alive("x")  # what it waits for is not free yet
    room.heartbeat("a")
    room.heartbeat("a", owned=some(room.t, 0, 1, 2))
    refused(RebalanceInProgress, lambda: room.alive("x"))
    assert room.enter("x").result().generation == 3
    assert room.sync("x") == (3, 4, 5)
    room.alive("x")
    assert room.group.state_name == "Stable"


def test_a_classic_member_gives_up_by_joining_again(room: Room):
    room.classic_group("x")
    room.join("a", "t")

    refused(RebalanceInProgress, lambda: room.alive("x"))
    refused(RebalanceInProgress, lambda: room.sync("x"))
    assert room.enter("x", owned=SIX).result().generation == 1  # not yet
    assert room.sync("x") == (0, 1, 2)
    refused(RebalanceInProgress, lambda: room.alive("x"))
    assert room.heartbeat("a").assigned is None
    assert room.enter("x", owned=(0, 1, 2)).result().generation == 2
    room.alive("x")
    assert room.heartbeat("a").assigned == some(room.t, 3, 4, 5)


def test_a_classic_member_that_does_not_join_again_goes(room: Room):
    room.classic_group("x")
    room.join("a", "t")
    refused(RebalanceInProgress, lambda: room.alive("x"))

    for _ in range(REBALANCE_S // 5 - 1):
        room.timers.advance(5)
        room.heartbeat("a")
        refused(RebalanceInProgress, lambda: room.alive("x"))
    room.timers.advance(5)

    refused(UnknownMember, lambda: room.alive("x"))
    assert room.heartbeat("a").assigned == some(room.t, *SIX)


@pytest.mark.parametrize("lost", ["sync", "beat"])
def test_a_classic_member_that_is_silent_goes(room: Room, lost: str):
    room.join("a", "t")
    room.enter("x", rebalance_timeout_ms=5_000)
    room.heartbeat("a")
    room.heartbeat("a", owned=some(room.t, 0, 1, 2))
    if lost == "beat":
        room.sync("x")

    room.timers.advance(5 if lost == "sync" else SESSION_S)

    refused(UnknownMember, lambda: room.alive("x"))
    assert room.heartbeat("a").assigned == some(room.t, *SIX)


def test_classic_members_have_a_protocol_in_common(room: Room):
    room.join("a", "t")
    room.enter("x")

    refused(InconsistentProtocol, lambda: room.enter("y", protocols=("range",)).result())
    joined = room.enter("y", protocols=("range", "cooperative-sticky")).result()
    assert joined.protocol == "range"
    refused(
        InconsistentProtocol,
        lambda: room.broker.groups.sync("g", room.ids["y"], 4, protocol="sticky").result(),
    )


def test_invalid_classic_join_is_refused_with_its_error(room: Room):
    room.join("a", "t")
    wrong = [
        (InconsistentProtocol, {"protocol_type": "connect"}),
        (InconsistentProtocol, {"protocols": ()}),
        (InconsistentProtocol, {"metadata": b"\0"}),  # Kafka: -1
        (InvalidSessionTimeout, {"session_timeout_ms": 1}),
        (MemberIdRequired, {"member_id_required": True}),
        (GroupMaxSize, {"metadata": b"\0" * (2 << 20)}),
        (UnknownMember, {"instance_id": "i", "member_id": "m"}),
    ]

    for kind, how in wrong:
        refused(kind, lambda how=how: room.enter("x", **how).result())

    assert [each.member_id for each in room.group.members] == ["a"]


def test_an_id_that_was_given_is_used(room: Room):
    room.join("a", "t")
    error = refused(MemberIdRequired, lambda: room.enter("x", member_id_required=True).result())

    joined = room.enter("x", member_id=error.member_id, member_id_required=True).result()

    assert joined.member_id == error.member_id


def test_generations_of_classic_members_are_epochs(room: Room):
    room.join("a", "t")
    room.enter("x")
    check = room.broker.groups.check_commit
    x = room.ids["x"]

    check("g", x, 3)
    refused(IllegalGeneration, lambda: check("g", x, 2))
    room.generations["x"] = 2
    refused(IllegalGeneration, lambda: room.alive("x"))
    refused(IllegalGeneration, lambda: room.sync("x"))
    refused(UnknownMember, lambda: room.broker.groups.heartbeat("g", "a", 2))


def test_a_member_of_either_kind_may_be_sent_away_as_classic_ones_are(room: Room):
    """LeaveGroup, as administrators use it (KIP-345)."""
    leave = room.broker.groups.leave
    room.join("a", "t")
    room.join("s", "t", instance_id="i")
    room.enter("x")

    leave("g", room.ids["x"])
    leave("g", "", "i")
    refused(UnknownMember, lambda: leave("g", "", "i"))
    refused(UnknownMember, lambda: leave("g", "nobody"))
    room.join("s", "t", instance_id="i")
    refused(FencedInstance, lambda: leave("g", "other", "i"))
    leave("g", "s", "i")
    leave("g", "a")

    assert room.group.is_empty


def test_a_classic_member_that_speaks_as_the_others_is_one_of_them(room: Room):
    room.join("a", "t")
    room.enter("x")

    x = room.ids["x"]
    assert room.heartbeat(x, 3).epoch == 3
    assert room.group.require_member(x).classic is None
    refused(UnknownMember, lambda: room.alive("x"))
    room.timers.advance(SESSION_S + 1)
    room.heartbeat("a")
    assert room.heartbeat(x, 3).epoch == 3  # neither the session nor the sync of a classic member


def test_an_instance_goes_from_one_kind_to_the_other_and_back_with_its_share(room: Room):
    room.join("c", "t")
    room.join("s1", "t", instance_id="i")
    room.settle("c", "s1")
    share = room.assigned("s1")

    joined = room.enter("s", instance_id="i").result()  # s1 lives: still it may
    assert joined.generation == 3
    assert room.sync("s", "i") == tuple(sorted(share[room.t]))
    room.alive("s", "i")
    refused(UnknownMember, lambda: room.heartbeat("s1", 3))
    assert room.join("s2", "t", instance_id="i").assigned == share
    refused(FencedInstance, lambda: room.alive("s", "i"))
    assert room.enter("s", instance_id="i", member_id="").result().generation == 3
    assert room.enter("s", instance_id="i").result().generation == 3
    assert room.group.require_member(room.ids["s"]).classic is not None


# -- from a classic group to a consumer group


def test_the_first_member_of_the_new_kind_brings_the_group_over(room: Room):
    room.classic_group("x", "y")
    generation = room.generations["x"]

    assert room.join("a", "t") == ("a", generation + 1, BEAT_MS, {})

    assert room.found.type == "consumer"
    assert room.shares() == {room.ids["x"]: [0, 1, 2], room.ids["y"]: [3, 4, 5], "a": []}
    room.broker.groups.check_commit("g", room.ids["x"], generation)  # no member stops reading
    for name in "xy":
        refused(RebalanceInProgress, lambda name=name: room.alive(name))


def test_upgrade_refuses_a_pending_classic_join_with_rebalance_in_progress(room: Room):
    room.classic_group("x")
    waiting = room.enter("y")
    assert not waiting.done

    room.join("a", "t")

    refused(RebalanceInProgress, waiting.result)
    assert len(room.group.members) == 3
    room.timers.advance(SESSION_S + 1)
    assert room.heartbeat("a").epoch == room.group.epoch
    assert [each.member_id for each in room.group.members] == ["a"]


def test_classic_members_without_assignment_are_upgraded_without_partitions(room: Room):
    room.enter("x")
    room.timers.advance(DELAY_S)

    assert room.join("a", "t").assigned == some(room.t, 3, 4, 5)
    refused(RebalanceInProgress, lambda: room.sync("x"))


def test_a_partition_that_was_given_twice_belongs_to_the_first(room: Room):
    for name in "xy":
        room.enter(name)
    room.timers.advance(DELAY_S * 2)
    room.sync("x", x=(0, 1, 2), y=(2, 3))
    room.sync("y")

    room.join("a", "t")

    assert room.shares() == {room.ids["x"]: [0, 1, 2], room.ids["y"]: [3], "a": [4, 5]}


def test_a_group_that_cannot_change_its_kind_stays_as_it_is(room: Room):
    room.enter("x", protocol_type="connect")
    refused(UnknownGroup, lambda: room.join("a", "t"))
    assert room.found.type == "classic"

    malformed = Room()
    malformed.enter("x", metadata=b"abc")
    refused(UnknownGroup, lambda: malformed.join("a", "t"))
    assert malformed.found.type == "classic"

    unread = Room(assignment_codec=NO_CODEC)
    unread.enter("x")
    unread.timers.advance(DELAY_S)
    unread.broker.groups.sync("g", unread.ids["x"], 1, assignments={unread.ids["x"]: b"what?"})
    refused(UnknownGroup, lambda: unread.join("a", "t"))

    for settings in ({"upgrade": False}, {"size_max": 1}):
        fixed = Room(**settings)
        fixed.classic_group("x")
        refused(UnknownGroup, lambda fixed=fixed: fixed.join("a", "t"))
        fixed.alive("x")


def test_an_empty_group_changes_its_kind_whatever_is_set():
    room = Room(upgrade=False, downgrade=False)
    room.classic_group("x")
    room.broker.groups.leave("g", room.ids.pop("x"))

    room.join("a", "t")
    assert room.found.type == "consumer"
    room.heartbeat("a", LEAVE_EPOCH)
    room.enter("x")
    assert room.found.type == "classic"


# -- from a consumer group to a classic group


def test_when_the_last_member_of_the_new_kind_goes_classic_ones_go_on_by_themselves(room: Room):
    room.join("a", "t")
    room.enter("x")
    generation = room.generations["x"]

    room.heartbeat("a", LEAVE_EPOCH)

    assert (room.found.type, room.found.state) == ("classic", GroupState.PREPARING)
    refused(RebalanceInProgress, lambda: room.alive("x"))  # Kafka: 22 where epochs were behind
    room.broker.groups.check_commit("g", room.ids["x"], generation)
    joined = room.enter("x").result()
    assert (joined.generation, joined.leader_id) == (generation + 1, room.ids["x"])
    refused(UnknownGroup, lambda: room.heartbeat("a", LEAVE_EPOCH))
    refused(UnknownMember, lambda: room.heartbeat("a", 3))


def test_it_may_also_have_been_silent_or_sent_away():
    for how in ("silent", "sent"):
        room = Room()
        room.join("a", "t")
        room.enter("x", session_timeout_ms=120_000, rebalance_timeout_ms=120_000)
        room.sync("x")
        if how == "sent":
            room.broker.groups.leave("g", "a")
        else:
            room.timers.advance(45)
        assert room.found.type == "classic"


def test_an_instance_that_goes_back_takes_the_group_with_it_without_a_rebalance(room: Room):
    room.join("a", "t", instance_id="i")

    joined = room.enter("s", instance_id="i").result()

    assert (room.found.type, room.found.state) == ("classic", GroupState.STABLE)
    assert joined.generation == 2
    assert room.sync("s", "i") == tuple(SIX)
    room.alive("s", "i")
    room.timers.advance(SESSION_S)
    assert room.found.is_empty


def test_downgrade_rebalances_while_partitions_are_owned_by_another_member(room: Room):
    """Otherwise two would read the same partition for a while."""
    room.join("a", "t", instance_id="i")
    room.enter("x")

    room.enter("s", instance_id="i")

    assert (room.found.type, room.found.state) == ("classic", GroupState.PREPARING)


def test_a_group_that_may_not_go_back_stays_a_consumer_group_of_classic_members():
    room = Room(downgrade=False)
    room.join("a", "t")
    room.enter("x")

    room.heartbeat("a", LEAVE_EPOCH)

    assert room.found.type == "consumer"
    refused(RebalanceInProgress, lambda: room.alive("x"))
    room.enter("x")
    assert room.sync("x") == tuple(SIX)


def test_a_static_member_that_is_away_still_counts(room: Room):
    room.join("a", "t", instance_id="i")
    room.enter("x")

    room.heartbeat("a", STATIC_LEAVE_EPOCH, instance_id="i")
    assert room.found.type == "consumer"
    numbers = count()
    while room.found.type == "consumer":
        assert next(numbers) < 20
        room.timers.advance(5)
        if room.found.type == "consumer":
            room.enter("x")
            room.sync("x")
    assert [each.member_id for each in room.found.members] == [room.ids["x"]]
