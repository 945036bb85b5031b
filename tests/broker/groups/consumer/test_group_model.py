"""Consumer groups against a model: what must hold whatever clients do, and in whatever order.

Clients follow KIP-848: they take what a response assigns, revoke what it takes away, at once or
late, and report what they have. Responses get lost; clients fall silent, crash, return, go away for
a while, change subscriptions; topics are created, grow and are deleted; some clients speak the
classic protocol. The model does not repeat how the group computes its responses. Two rules must
hold: no two members ever read the same partition; and when everything is quiet, every subscribed
partition is read, by shares as equal as the assignor promises.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.broker.consumer_room import Room, names, parts_of, slots_of
from trilogue.broker.errors import (
    BrokerError,
    FencedMemberEpoch,
    RebalanceInProgress,
    UnknownMember,
    UnreleasedInstance,
)
from trilogue.broker.groups.classic.members import JoinRequest
from trilogue.broker.groups.consumer import assignors as consumer_group_assignors
from trilogue.broker.groups.consumer import patterns as consumer_group_patterns
from trilogue.broker.groups.consumer import steps as consumer_group_steps
from trilogue.broker.groups.consumer import subscribed_topics as consumer_group_topics
from trilogue.broker.groups.consumer.group import Heartbeat
from trilogue.broker.groups.consumer.mixed_group import MixedGroup
from trilogue.broker.groups.reconciliation import LEAVE_EPOCH, STATIC_LEAVE_EPOCH
from trilogue.gateway.kafka.groups.member_metadata import read_assignment
from trilogue.wire.kafka.groups.member_metadata import (
    OwnedPartitions,
    Subscription,
    encode_subscription,
)

RUN = settings(max_examples=25, stateful_step_count=50, deadline=None)
TOPICS = ("a", "b1", "b2")
CLIENTS = 5
SESSION_MS, REBALANCE_MS = 10_000, 20_000
WHICH = st.integers(0, CLIENTS - 1)
TOPIC_SETS = st.one_of(
    st.sets(st.sampled_from(TOPICS)).map(lambda chosen: (tuple(sorted(chosen)), "")),
    st.just((("a",), "b.*")),
    st.just(((), "b.*")),
)
Slot = tuple[bytes, int]  # topic id


@dataclass
class Client:
    """What a client knows."""

    name: str
    instance: str | None = None
    wants: tuple[tuple[str, ...], str] = (("a",), "")
    classic: bool = False
    member_id: str = ""
    epoch: int = 0  # or generation
    joined: bool = False
    reads: set[Slot] = field(default_factory=set)
    assigned: set[Slot] = field(default_factory=set)
    lazy: bool = False  # it does not revoke what it has to
    reports_all: bool = True
    here: bool = False

    def lose_all(self) -> None:
        self.joined, self.reads, self.assigned, self.epoch = False, set(), set(), 0


class World(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.room = Room(session_timeout_ms=SESSION_MS)
        self.clients = [
            Client(f"c{each}", f"i{each}" if each % 2 else None) for each in range(CLIENTS)
        ]
        self.ids = 0
        self.before: tuple[MixedGroup, int, int] | None = None

    @initialize(
        counts=st.tuples(st.integers(1, 5), *[st.integers(0, 5)] * 2),
        assignor=st.sampled_from(["uniform", "range"]),
        slow=st.booleans(),
    )
    def begin(self, counts: tuple[int, ...], assignor: str, slow: bool) -> None:
        self.assignor = assignor
        if slow:  # topics are looked at, and targets made, between heartbeats
            self.room.broker.consumer_groups.context.turns.at_once = 0
        for name, count in zip(TOPICS, counts, strict=True):
            if count:
                self.room.topic(name, count)
        for client in self.clients[:2]:
            self.take_turn(client, lost=False)

    # ---- topics

    @rule(name=st.sampled_from(TOPICS), count=st.integers(1, 4))
    def topic_comes_or_grows(self, name: str, count: int) -> None:
        (topic,) = names(name)
        found = self.room.broker.cluster.find_topic(topic)
        if found is None:
            self.room.topic(name, count)
        elif len(found.partitions) < 12:
            self.room.grow(name, len(found.partitions) + count)

    @rule(name=st.sampled_from(TOPICS))
    def topic_goes(self, name: str) -> None:
        (topic,) = names(name)
        if self.room.broker.cluster.find_topic(topic) is not None:
            self.room.delete(name)

    # ---- clients

    @rule(which=WHICH, wants=TOPIC_SETS)
    def wants_something_else(self, which: int, wants) -> None:
        client = self.clients[which]
        client.wants, client.reports_all = wants, True

    @rule(which=WHICH, lazy=st.booleans())
    def is_slow_to_give_up(self, which: int, lazy: bool) -> None:
        self.clients[which].lazy = lazy

    @rule(turns=st.lists(st.tuples(WHICH, st.integers(0, 9)), min_size=1, max_size=8))
    def some_beat(self, turns: list[tuple[int, int]]) -> None:
        """One answer in ten is lost."""
        for which, luck in turns:
            self.take_turn(self.clients[which], lost=luck == 9)
            self.no_slot_has_two_readers()

    @rule(which=WHICH)
    def crashes(self, which: int) -> None:
        client = self.clients[which]
        client.lose_all()
        client.member_id, client.classic, client.here = "", False, False

    @rule(which=WHICH, classic=st.booleans())
    def leaves(self, which: int, classic: bool) -> None:
        """It comes back as a member of either kind."""
        client = self.clients[which]
        if client.joined:
            self.go(client, LEAVE_EPOCH)
        client.classic, client.here = classic, False

    @rule(which=WHICH)
    def goes_away(self, which: int) -> None:
        client = self.clients[which]
        if client.joined and client.instance and not client.classic:
            self.go(client, STATIC_LEAVE_EPOCH)
            client.here = False

    @rule(seconds=st.sampled_from([1, 1, 2, 4, 11]))
    def time_goes_by(self, seconds: int) -> None:
        self.room.timers.advance(seconds)

    @rule()
    def everything_gets_quiet(self) -> None:
        """Present members heartbeat until no response changes; then all subscriptions are read."""
        for client in self.clients:
            client.lazy = False
        for _ in range(40):
            self.room.timers.advance(1)
            for client in self.present:
                self.take_turn(client, lost=False)
            if self.is_quiet():
                break
        else:
            raise AssertionError(f"never quiet: {self.describe()}")
        self.check_shares()

    def take_turn(self, client: Client, *, lost: bool) -> None:
        client.here = True
        if client.classic:
            self.classic_turn(client)
        else:
            self.turn(client, lost=lost)

    @property
    def present(self) -> list[Client]:
        return [client for client in self.clients if client.here]

    def is_quiet(self) -> bool:
        group = self.room.broker.groups.find_group("g")
        if group is None or group.type == "classic":
            return all(each.classic for each in self.present)
        return (
            group.state_name == ("Stable" if self.present else "Empty")
            and not group.context.turns  # and pattern matching waits too
            and len(group.members) == len(self.present)
            and all(each.joined and each.reads == each.assigned for each in self.present)
        )

    # ---- what a member of the new kind does

    def turn(self, client: Client, *, lost: bool) -> None:
        if not client.joined:
            self.ids += 1
            client.member_id = client.member_id or f"{client.name}-{self.ids}"
        full = client.reports_all or not client.joined
        heartbeat = Heartbeat(
            "g",
            client.member_id,
            client.epoch,
            client.instance,
            rebalance_timeout_ms=REBALANCE_MS if full else -1,
            topics=names(*client.wants[0]) if full else None,
            pattern=client.wants[1] if full else None,
            assignor=self.assignor,
            owned=parts_of(client.reads) if client.joined else {},
        )
        try:
            response = self.room.broker.consumer_groups.heartbeat(heartbeat)
        except (UnknownMember, FencedMemberEpoch):
            client.lose_all()
            return
        except UnreleasedInstance:
            client.member_id = ""  # its own former self: it waits for its session to end
            return
        if lost:
            client.reports_all = True
            return
        client.joined, client.epoch, client.reports_all = True, response.epoch, False
        if response.assigned is not None:
            client.assigned = set(slots_of(response.assigned))
            client.reads &= client.assigned if not client.lazy else client.reads
            if client.reads <= client.assigned:
                client.reads = set(client.assigned)
        elif not client.lazy:
            client.reads = set(client.assigned)

    def go(self, client: Client, epoch: int) -> None:
        with suppress(BrokerError):  # it may be unknown by now
            if client.classic:
                self.room.broker.groups.leave("g", client.member_id, client.instance)
            else:
                self.room.broker.consumer_groups.heartbeat(
                    Heartbeat("g", client.member_id, epoch, client.instance)
                )
        client.lose_all()
        client.member_id = ""

    # ---- what a classic member does: cooperative, it gives up what it no longer has

    def classic_turn(self, client: Client) -> None:
        groups = self.room.broker.groups
        if client.joined:
            try:
                groups.heartbeat("g", client.member_id, client.epoch, client.instance)
            except RebalanceInProgress:
                pass
            except BrokerError:
                client.lose_all()
                client.member_id = ""
            else:
                if not client.reports_all:
                    return
        self.classic_join(client)

    def classic_join(self, client: Client) -> None:
        groups = self.room.broker.groups
        names_of = {topic.topic_id: topic.name.name for topic in self.room.broker.cluster}
        owned = [
            OwnedPartitions(topic=names_of[topic_id], partitions=sorted(indexes))
            for topic_id, indexes in parts_of(client.reads).items()
            if topic_id in names_of
        ]
        topics = [each for each in TOPICS if each in client.wants[0]]
        topics += [each for each in TOPICS[1:] if client.wants[1] and each not in topics]
        metadata = encode_subscription(Subscription(topics=topics, owned_partitions=owned), 1)
        joining = groups.join(
            JoinRequest(
                "g",
                client.member_id,
                "consumer",
                (("cooperative-sticky", metadata),),
                SESSION_MS,
                REBALANCE_MS,
                client.instance,
                client.name,
            )
        )
        if not joining.done or joining.error is not None:
            # A group of classic members only: they would assign among themselves.
            client.lose_all()
            client.member_id = ""
            return
        joined = joining.result()
        client.joined, client.reports_all = True, False
        client.member_id, client.epoch = joined.member_id, joined.generation
        syncing = groups.sync("g", client.member_id, client.epoch, client.instance)
        if syncing.done and syncing.error is None:
            share = read_assignment(syncing.result().assignment) or {}
            ids = {topic.name: topic.topic_id for topic in self.room.broker.cluster}
            there = share.keys() & ids.keys()  # a topic may go while a target is being made
            client.assigned = {(ids[name], i) for name in there for i in share[name]}
            if not client.reads <= client.assigned:
                client.reports_all = True  # it revokes, and joins again to report it
            client.reads = set(client.assigned)

    # ---- what is true

    @invariant()
    def no_slot_has_two_readers(self) -> None:
        group = self.room.broker.groups.find_group("g")
        if group is None or group.type != "consumer":
            return
        counted = [each for each in self.clients if group.members.find_member(each.member_id)]
        alive = [each for each in counted if each.joined]
        slots = [slot for each in alive for slot in each.reads]
        assert len(slots) == len(set(slots)), self.describe()

    @invariant()
    def epochs_do_not_go_back(self) -> None:
        group = self.room.broker.groups.find_group("g")
        if not isinstance(group, MixedGroup):
            self.before = None
            return
        before, now = self.before, (group, group.epoch, group.target_epoch)
        if before is not None and before[0] is group:
            assert before[1] <= group.epoch
            assert before[2] <= group.target_epoch <= group.epoch
        self.before = now
        assert group.context.load.members == len(group.members)

    def check_shares(self) -> None:
        group = self.room.broker.groups.find_group("g")
        if group is None or group.type != "consumer":
            return
        there = {
            topic.name.name: (topic.topic_id, len(topic.partitions))
            for topic in self.room.broker.cluster
        }
        here = self.present
        wanted = {
            each.name: {there[topic] for topic in self.wanted_by(each) & there.keys()}
            for each in here
        }
        slots = {(t, i) for topics in wanted.values() for t, count in topics for i in range(count)}
        assert sorted(slot for each in here for slot in each.reads) == sorted(slots)
        for each in here:
            assert {topic for topic, _ in each.reads} <= {topic for topic, _ in wanted[each.name]}
        alike = len(set(map(frozenset, wanted.values()))) == 1
        if group.assignor == "uniform" and alike:
            sizes = [len(each.reads) for each in here]
            assert max(sizes) - min(sizes) <= 1

    def wanted_by(self, client: Client) -> set[str]:
        topics, pattern = client.wants
        return set(topics) | (set(TOPICS[1:]) if pattern else set())

    def describe(self) -> str:
        group = self.room.broker.groups.find_group("g")
        return f"{group and (group.type, group.state_name)} {self.clients}"


class SlowWorld(World):
    """Topics are looked at and targets made one name, member and partition at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        for module in (consumer_group_topics, consumer_group_assignors):
            self.patch.setattr(module, "STEP", 1)
        self.patch.setattr(consumer_group_patterns, "MATCHES_A_STEP", 1)
        self.patch.setattr(consumer_group_steps, "STEPS_AT_A_TIME", 1)

    def teardown(self) -> None:
        self.patch.undo()

    @rule(turns=st.integers(1, 4))
    def some_turns_go_by(self, turns: int) -> None:
        self.room.timers.advance(turns * consumer_group_steps.PAUSE_S * 1.01)


TestConsumerGroups = World.TestCase
TestConsumerGroups.settings = RUN
TestSlowConsumerGroups = SlowWorld.TestCase
TestSlowConsumerGroups.settings = settings(RUN, max_examples=20)
