"""Many members come, go, hang and come back: each generation is consistent, and all settles."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest

from tests.broker.group_room import SESSION_S, Room
from trilogue.broker.errors import (
    BrokerError,
    FencedInstance,
    IllegalGeneration,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMember,
)
from trilogue.broker.groups.classic.states import GroupState

PARTITIONS = range(12)


class Reader:
    """A client that follows the protocol: joins, syncs, heartbeats, joins again when it has to."""

    def __init__(self, world: World, instance_id: str | None, *, gets_id_first: bool) -> None:
        self.world = world
        self.instance_id = instance_id
        self.gets_id_first = gets_id_first
        self.member_id = ""
        self.generation = -1
        self.owned: frozenset[int] | None = None
        self.waiting = None  # a promise and what to do with it
        self.next_step = self.join
        self.fenced = False

    def step(self) -> None:
        """Do the next thing, unless an answer is still to come."""
        if self.waiting is not None:
            promise, received = self.waiting
            if not promise.done:
                return
            self.waiting = None
            try:
                received(promise.result())
            except BrokerError as error:
                self.on_error(error)
            return
        try:
            self.next_step()
        except BrokerError as error:
            self.on_error(error)

    def on_error(self, error: BrokerError) -> None:
        self.owned = None
        if isinstance(error, MemberIdRequired):
            self.member_id = error.member_id
        elif isinstance(error, FencedInstance):
            self.fenced = True
        elif isinstance(error, UnknownMember):
            self.member_id = ""
        else:
            assert isinstance(error, RebalanceInProgress | IllegalGeneration), error
        self.next_step = self.join

    def join(self) -> None:
        promise = self.world.room.join(
            self.member_id,
            instance_id=self.instance_id,
            member_id_required=self.gets_id_first,
            can_skip_assignment=self.gets_id_first,
            protocols=(("range", str(self.world.random.randrange(3)).encode()),),
            session_timeout_ms=SESSION_S * 1_000,
            rebalance_timeout_ms=15_000,
        )
        self.waiting = promise, self.joined

    def joined(self, answer) -> None:
        self.member_id, self.generation = answer.member_id, answer.generation
        assigns = answer.leader_id == answer.member_id and not answer.skip_assignment
        self.world.note_leader(answer, assigns=assigns)
        members = [each.member_id for each in answer.members]
        assignment: dict[str, bytes] = {}
        if assigns:
            assignment = {
                each: bytes(PARTITIONS[i :: len(members)]) for i, each in enumerate(members)
            }

        def sync() -> None:
            promise = self.world.room.group.sync(
                self.member_id, self.generation, self.instance_id, assignments=assignment
            )
            self.waiting = promise, self.synced

        self.next_step = sync

    def synced(self, answer) -> None:
        self.owned = frozenset(answer.assignment)
        self.world.note_assignment(self)
        self.next_step = self.beat

    def beat(self) -> None:
        self.world.room.group.heartbeat(self.member_id, self.generation, self.instance_id)

    def leave(self) -> None:
        with suppress(UnknownMember, FencedInstance):
            self.world.room.group.leave(self.member_id, self.instance_id)


class World:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.room = Room()
        self.readers: list[Reader] = []
        self.leaders: dict[int, set[str]] = {}
        self.assigned: dict[int, dict[str, frozenset[int]]] = {}

    def note_leader(self, answer, *, assigns: bool) -> None:
        if assigns:
            self.leaders.setdefault(answer.generation, set()).add(answer.member_id)

    def note_assignment(self, reader: Reader) -> None:
        """Whatever is handed out in one generation must not be handed out twice in it."""
        assert reader.owned is not None
        key = reader.instance_id or reader.member_id
        given = self.assigned.setdefault(reader.generation, {})
        assert given.setdefault(key, reader.owned) == reader.owned
        owned = [each for partitions in given.values() for each in partitions]
        assert len(owned) == len(set(owned))

    def churn(self) -> None:
        random, readers = self.random, self.readers
        chance = random.random()
        if chance < 0.10 and len(readers) < 8:
            instance_id = random.choice([None, None, "s1", "s2"])
            readers.append(Reader(self, instance_id, gets_id_first=random.random() < 0.6))
        elif chance < 0.13 and readers:
            readers.pop(random.randrange(len(readers)))  # hangs for ever
        elif chance < 0.16 and readers:
            readers.pop(random.randrange(len(readers))).leave()

    def tick(self) -> None:
        self.room.timers.advance(self.random.choice([0.01, 0.1, 0.5, 1.0]))
        for reader in self.random.sample(self.readers, len(self.readers)):
            if self.random.random() < 0.9:
                reader.step()
        self.readers = [reader for reader in self.readers if not reader.fenced]
        self.check()

    def check(self) -> None:
        group = self.room.group
        assert all(len(leaders) == 1 for leaders in self.leaders.values())
        members = list(group.members)
        if group.state is GroupState.EMPTY:
            assert not members
        else:
            assert members
            assert group.members.leader in members
        if group.state is GroupState.STABLE:
            assert not any(member.joining or member.syncing for member in members)
        # every member is watched, or waits for something that is
        watched = [member for member in members if member.timer is not None or member.waits]
        assert watched == members
        timers = len(members) + len(group.members.pending) + 2
        assert self.room.timers.pending <= timers


@pytest.mark.parametrize("seed", range(40))
def test_members_that_come_and_go_settle(seed: int):
    world = World(seed)
    for _ in range(300):
        world.churn()
        world.tick()
    if not world.readers:
        world.readers.append(Reader(world, None, gets_id_first=True))

    for _ in range(150):
        world.tick()

    group = world.room.group
    readers = world.readers
    assert group.state is GroupState.STABLE
    assert sorted(world.room.ids) == sorted(reader.member_id for reader in readers)
    assert {reader.generation for reader in readers} == {group.generation}
    owned = sorted(each for reader in readers for each in reader.owned or ())
    assert owned == list(PARTITIONS)


def test_cooperative_members_hand_over_in_two_rebalances():
    """The protocol needs nothing of us but this: new metadata starts a rebalance, bytes arrive."""
    room = Room()

    def meets(owned: bytes):
        return (("cooperative-sticky", b"topic" + owned),)

    room.join(protocols=meets(b""))
    room.timers.advance(1)
    room.sync("m-1", m1=b"ab")
    newcomer = room.join(protocols=meets(b""))
    with pytest.raises(RebalanceInProgress):
        room.beat("m-1")
    first = room.join("m-1", protocols=meets(b"ab")).result()  # keeps reading meanwhile
    kept = room.sync("m-1", m1=b"a", m2=b"").result().assignment  # b is revoked, not given yet
    nothing = room.sync("m-2").result().assignment
    second = room.join("m-1", protocols=meets(b"a"))  # has let go of b
    with pytest.raises(RebalanceInProgress):
        room.beat("m-2")
    room.join("m-2", protocols=meets(b""))
    described = {each.member_id: each.metadata for each in second.result().members}
    last = room.sync("m-2"), room.sync("m-1", m1=b"a", m2=b"b")

    assert (first.generation, newcomer.result().generation, second.result().generation) == (2, 2, 3)
    assert (kept, nothing) == (b"a", b"")
    assert described == {"m-1": b"topica", "m-2": b"topic"}
    assert [each.result().assignment for each in last] == [b"b", b"a"]
