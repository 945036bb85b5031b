"""Balanced groups against a model: what must hold whatever clients do, and in whatever order.

The world is a broker that lets one client of the group read a partition, and clients that carry out
their events: at once, late, in part, or never. The model does not repeat how the group computes
events: each event is compared with what the master could know. In the end every partition must be
read, every client must have the same number of them, and no more events may come.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from trilogue.broker.errors import UnknownMember
from trilogue.broker.names import TopicName
from trilogue.broker.tubemq.balanced_group import BalancedGroup, BalanceSettings
from trilogue.broker.tubemq.even_assignment import TubePartition
from trilogue.broker.tubemq.group_balancer import GroupBalancer
from trilogue.broker.tubemq.group_terms import BalanceMode, GroupTerms
from trilogue.broker.tubemq.rebalance_events import (
    CONNECTS,
    DISCONNECTS,
    EventKind,
    EventResult,
    EventStatus,
    RebalanceEvent,
)

SESSION_MS, EVENT_MS, TRIES = 1_000, 1_500, 3
LIMITS = BalanceSettings(session_ms=SESSION_MS, event_ms=EVENT_MS, tries_max=TRIES)
RUN = settings(max_examples=40, stateful_step_count=40, deadline=None)
TOPICS = [TopicName("public", "default", name) for name in ("a", "b")]
CLIENTS = 5
BEAT_MS = 200
WHICH = st.integers(0, CLIENTS - 1)


@dataclass
class Client:
    name: str
    sent_event: RebalanceEvent | None = None
    done: EventStatus | None = None  # its result, for the next heartbeat
    unsaid: set[TubePartition] = field(default_factory=set)  # taken since its last report
    registered: bool = False


class World(RuleBasedStateMachine):
    kind = BalanceMode.SERVER

    def __init__(self) -> None:
        super().__init__()
        self.counts = dict.fromkeys(TOPICS, 0)
        self.balances = GroupBalancer(LIMITS, lambda topic: self.counts[topic])
        self.balances.gone.append(self.gone)
        self.reads: dict[TubePartition, str] = {}  # at the broker
        self.clients: list[Client] = []
        self.crashed: dict[str, int] = {}  # clients, and when
        self.now_ms = 0
        self.names = 0
        self.last_id = 0
        self.events = self.beats = 0

    # ---- the world

    @property
    def group(self) -> BalancedGroup | None:
        return self.balances._groups.get("g")

    @property
    def terms(self) -> GroupTerms:
        count = 2 if self.kind is BalanceMode.BOUND else 0
        return GroupTerms(frozenset(TOPICS), self.kind, session_key="k", source_count=count)

    @property
    def parts(self) -> set[TubePartition]:
        return {
            TubePartition(topic, each)
            for topic, count in self.counts.items()
            for each in range(count)
        }

    def has(self, client: Client) -> set[TubePartition]:
        return {part for part, name in self.reads.items() if name == client.name}

    def gone(self, _group: str, member_id: str) -> None:
        for part in [part for part, name in self.reads.items() if name == member_id]:
            del self.reads[part]

    def client(self, which: int) -> Client | None:
        return self.clients[which % len(self.clients)] if self.clients else None

    # ---- what happens

    @initialize(a=st.integers(0, 5), b=st.integers(0, 3))
    def begin(self, a: int, b: int) -> None:
        self.counts = {TOPICS[0]: a, TOPICS[1]: b}
        self.come()

    @precondition(lambda self: len(self.clients) < CLIENTS)
    @rule()
    def come(self) -> None:
        self.names += 1
        client = Client(f"c{self.names * 7 % 10}-{self.names}")
        self.clients.append(client)
        self.register(client)

    def register(self, client: Client) -> None:
        has = self.has(client)
        self.balances.join("g", client.name, self.terms, self.now_ms, claims=has)
        client.registered = True
        client.unsaid.clear()

    @rule(which=WHICH)
    def register_twice(self, which: int) -> None:
        if (client := self.client(which)) is not None:
            self.register(client)

    @rule(which=WHICH, report=st.booleans())
    def beat(self, which: int, report: bool) -> None:
        client = self.client(which)
        if client is None:
            return
        answer = None
        if client.sent_event is not None and client.done is not None:
            answer = EventResult(
                client.sent_event.rebalance_id, client.sent_event.kind, client.done
            )
            client.sent_event = client.done = None
            report = True
        has = self.has(client)
        try:
            pulse = self.balances.heartbeat(
                "g", client.name, self.now_ms, answer=answer, report=has if report else None
            )
        except UnknownMember:
            client.sent_event = client.done = None
            self.register(client)
            return
        self.beats += 1
        if report:
            client.unsaid.clear()
        if pulse.event is not None:
            self.check(client, pulse.event)

    @rule(script=st.lists(st.tuples(WHICH, st.integers(0, 5)), min_size=4, max_size=16))
    def some_time(self, script: list[tuple[int, int]]) -> None:
        """Clients send heartbeats and mostly follow their events, in any order."""
        for which, how in script:
            self.beat(which, report=how % 2 == 0)
            if how > 0:
                self.obey(which, fails=how == 1)
        self.later(1)

    def check(self, client: Client, event: RebalanceEvent) -> None:
        """An event is new, and does not give a partition that the master knows to be read."""
        self.events += 1
        assert event.status is EventStatus.PROCESSING
        assert event.rebalance_id >= self.last_id
        self.last_id = event.rebalance_id
        group = self.group
        assert group is not None
        if event.kind in CONNECTS:
            for other in self.clients:
                if other is client or other.name not in group.members:
                    continue
                known = self.has(other) - other.unsaid
                assert not known & set(event.parts), "told to take what another has"
        if event.kind in CONNECTS | DISCONNECTS:
            client.sent_event, client.done = event, None

    @rule(which=WHICH, fails=st.booleans())
    def obey(self, which: int, fails: bool) -> None:
        """A client carries out its event as far as it can; its next heartbeat reports that."""
        client = self.client(which)
        if client is None or client.sent_event is None or client.done is not None:
            return
        client.done = EventStatus.FAILED if fails else EventStatus.DONE
        if fails:
            return
        for part in client.sent_event.parts:
            if client.sent_event.kind in DISCONNECTS:
                if self.reads.get(part) == client.name:
                    del self.reads[part]
                client.unsaid.discard(part)
            elif part not in self.reads and part in self.parts:
                self.reads[part] = client.name
                client.unsaid.add(part)

    @rule(which=WHICH, status=st.sampled_from([-2, -1, 0, 1, 2, 9]), old=st.integers(0, 3))
    def answer_late(self, which: int, status: int, old: int) -> None:
        """A result of an event that is over, or never existed."""
        client = self.client(which)
        if client is None or self.balances.find_member("g", client.name) is None:
            return
        about = client.sent_event
        answer = EventResult(
            self.last_id - old, EventKind.ONLY_CONNECT if about is None else about.kind, status
        )
        if about is not None and about.rebalance_id == answer.rebalance_id:
            return
        pulse = self.balances.heartbeat("g", client.name, self.now_ms, answer=answer)
        if pulse.event is not None:
            self.check(client, pulse.event)

    @rule(which=WHICH, number=st.integers(0, 5))
    def snatch(self, which: int, number: int) -> None:
        """A client takes partitions without an event."""
        client, part = self.client(which), TubePartition(TOPICS[0], number)
        if client is not None and part in self.parts and part not in self.reads:
            self.reads[part] = client.name
            client.unsaid.add(part)

    @rule(which=WHICH)
    def lose_a_partition(self, which: int) -> None:
        """The broker has let go of a registration."""
        client = self.client(which)
        if client is not None and (has := sorted(self.has(client))):
            del self.reads[has[0]]
            client.unsaid.discard(has[0])

    @rule(which=WHICH)
    def close(self, which: int) -> None:
        if (client := self.client(which)) is not None:
            self.clients.remove(client)
            self.gone("g", client.name)
            self.balances.leave("g", client.name)

    @rule(which=WHICH)
    def crash(self, which: int) -> None:
        """Nothing is heard any more; master and broker find out by themselves."""
        if (client := self.client(which)) is not None:
            self.clients.remove(client)
            self.crashed[client.name] = self.now_ms

    @rule(steps=st.integers(1, 8))
    def later(self, steps: int) -> None:
        self.now_ms += steps * BEAT_MS
        self.balances.tick(self.now_ms)
        for name, since_ms in self.crashed.items():
            if self.now_ms - since_ms >= SESSION_MS:
                self.gone("g", name)

    @rule(topic=st.sampled_from(TOPICS), count=st.integers(0, 6))
    def resize(self, topic: TopicName, count: int) -> None:
        """A topic grows, or goes, or is there again."""
        if count < self.counts[topic]:
            count = 0
            for part in [part for part in self.reads if part.topic == topic]:
                del self.reads[part]
            for client in self.clients:
                client.unsaid = {part for part in client.unsaid if part.topic != topic}
        self.counts[topic] = count
        self.balances.topic_changed(topic)

    # ---- what must be true

    @invariant()
    def a_partition_has_one_owner(self) -> None:
        if (group := self.group) is None:
            return
        owners = Counter(part for member in group for part in member.owned)
        assert all(count == 1 for count in owners.values())
        assert all(group.owner(part) is not None for part in owners)
        assert all(member.coming <= member.owned for member in group)

    @invariant()
    def nothing_is_kept_without_a_reason(self) -> None:
        group = self.group
        assert self.balances.member_count == (0 if group is None else len(group.members))
        if group is None:
            return
        assert group.members
        strays = Counter(part for member in group for part in member.stray)
        assert group._strays == strays
        assert len(group._owner) == sum(len(member.owned) for member in group)

    def teardown(self) -> None:
        """In the end all are well: everything is read and no events are left."""
        if not self.clients:
            self.later(2 * SESSION_MS // BEAT_MS)
            assert not len(self.balances)
            return
        if self.kind is BalanceMode.BOUND and len(self.clients) < 2:
            self.come()
        for _ in range(30):
            self.turn()
        before = self.events
        for _ in range(3):
            self.turn()
        assert before == self.events, "still told something"
        assert set(self.reads) == self.parts
        shares = Counter(self.reads.values())
        counts = [shares[client.name] for client in self.clients]
        assert max(counts) - min(counts) <= 1
        group = self.group
        assert group is not None
        assert all(group.owner(part) == name for part, name in self.reads.items())
        assert self.events <= self.beats

    def turn(self) -> None:
        """Every client sends heartbeats, and carries out its event at once."""
        for which in range(len(self.clients)):
            self.beat(which, report=True)
            self.obey(which, fails=False)
        self.later(1)


class BoundWorld(World):
    kind = BalanceMode.BOUND


def test_a_balanced_group_whatever_its_members_do():
    run_state_machine_as_test(World, settings=RUN)


def test_a_bound_group_whatever_its_members_do():
    run_state_machine_as_test(BoundWorld, settings=RUN)
