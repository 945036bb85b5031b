"""Balanced groups against what must be true of them, whatever clients do and in whatever order.

The world is a broker that lets one client of the group read a partition, and clients that do what
they are told: at once, late, in part, or never. Nothing of how the group finds its answers is
repeated here: each event is held against what the master could know, and in the end everything must
be read, by everybody the same number of partitions, and nobody be told anything any more.
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

from trilogue.broker.balance import Balances
from trilogue.broker.balance_events import CONNECTS, DISCONNECTS, Answer, BalanceEvent, EventStatus
from trilogue.broker.balance_group import BalanceGroup, BalanceSettings
from trilogue.broker.balance_shares import Part
from trilogue.broker.balance_terms import Kind, Terms
from trilogue.broker.errors import UnknownMember
from trilogue.broker.names import TopicName

SESSION_MS, EVENT_MS, TRIES = 1_000, 1_500, 3
LIMITS = BalanceSettings(session_ms=SESSION_MS, event_ms=EVENT_MS, tries_max=TRIES)
RUN = settings(max_examples=80, stateful_step_count=40, deadline=None)
TOPICS = [TopicName("public", "default", name) for name in ("a", "b")]
CLIENTS = 5
BEAT_MS = 200
WHICH = st.integers(0, CLIENTS - 1)


@dataclass
class Client:
    name: str
    told: BalanceEvent | None = None
    done: EventStatus | None = None  # what it will say of that
    unsaid: set[Part] = field(default_factory=set)  # it took since it last said what it has
    registered: bool = False


class World(RuleBasedStateMachine):
    kind = Kind.SERVER

    def __init__(self) -> None:
        super().__init__()
        self.counts = dict.fromkeys(TOPICS, 0)
        self.balances = Balances(LIMITS, lambda topic: self.counts[topic])
        self.balances.gone.append(self.gone)
        self.reads: dict[Part, str] = {}  # at the broker
        self.clients: list[Client] = []
        self.crashed: dict[str, int] = {}  # clients, and when
        self.now_ms = 0
        self.names = 0
        self.last_id = 0
        self.events = self.beats = 0

    # ---- the world

    @property
    def group(self) -> BalanceGroup | None:
        return self.balances._groups.get("g")

    @property
    def terms(self) -> Terms:
        count = 2 if self.kind is Kind.BOUND else 0
        return Terms(frozenset(TOPICS), self.kind, session_key="k", source_count=count)

    @property
    def parts(self) -> set[Part]:
        return {Part(topic, each) for topic, count in self.counts.items() for each in range(count)}

    def has(self, client: Client) -> set[Part]:
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
        if client.told is not None and client.done is not None:
            answer = Answer(client.told.rebalance_id, client.told.kind, client.done)
            client.told = client.done = None
            report = True
        has = self.has(client)
        try:
            pulse = self.balances.heartbeat(
                "g", client.name, self.now_ms, answer=answer, report=has if report else None
            )
        except UnknownMember:
            client.told = client.done = None
            self.register(client)
            return
        self.beats += 1
        if report:
            client.unsaid.clear()
        if pulse.event is not None:
            self.check(client, pulse.event)

    @rule(script=st.lists(st.tuples(WHICH, st.integers(0, 5)), min_size=4, max_size=16))
    def some_time(self, script: list[tuple[int, int]]) -> None:
        """Clients show life and mostly do as told, in any order."""
        for which, how in script:
            self.beat(which, report=how % 2 == 0)
            if how > 0:
                self.obey(which, fails=how == 1)
        self.later(1)

    def check(self, client: Client, event: BalanceEvent) -> None:
        """An event is new, and nobody is told to take what the master knows to be read."""
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
            client.told, client.done = event, None

    @rule(which=WHICH, fails=st.booleans())
    def obey(self, which: int, fails: bool) -> None:
        """A client does what it was told, as far as it can; its next heartbeat says so."""
        client = self.client(which)
        if client is None or client.told is None or client.done is not None:
            return
        client.done = EventStatus.FAILED if fails else EventStatus.DONE
        if fails:
            return
        for part in client.told.parts:
            if client.told.kind in DISCONNECTS:
                if self.reads.get(part) == client.name:
                    del self.reads[part]
                client.unsaid.discard(part)
            elif part not in self.reads and part in self.parts:
                self.reads[part] = client.name
                client.unsaid.add(part)

    @rule(which=WHICH, status=st.sampled_from([-2, -1, 0, 1, 2, 9]), old=st.integers(0, 3))
    def answer_late(self, which: int, status: int, old: int) -> None:
        """An answer to what is not asked, or not any more."""
        client = self.client(which)
        if client is None or self.balances.find("g", client.name) is None:
            return
        about = client.told
        answer = Answer(self.last_id - old, 10 if about is None else about.kind, status)
        if about is not None and about.rebalance_id == answer.rebalance_id:
            return
        pulse = self.balances.heartbeat("g", client.name, self.now_ms, answer=answer)
        if pulse.event is not None:
            self.check(client, pulse.event)

    @rule(which=WHICH, number=st.integers(0, 5))
    def snatch(self, which: int, number: int) -> None:
        """A client takes what nobody told it to take."""
        client, part = self.client(which), Part(TOPICS[0], number)
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
        """In the end all are well: everything is read and nobody is told anything."""
        if not self.clients:
            self.later(2 * SESSION_MS // BEAT_MS)
            assert not len(self.balances)
            return
        if self.kind is Kind.BOUND and len(self.clients) < 2:
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
        """Everybody shows life, and does what it was told at once."""
        for which in range(len(self.clients)):
            self.beat(which, report=True)
            self.obey(which, fails=False)
        self.later(1)


class BoundWorld(World):
    kind = Kind.BOUND


def test_a_balanced_group_whatever_its_members_do():
    run_state_machine_as_test(World, settings=RUN)


def test_a_bound_group_whatever_its_members_do():
    run_state_machine_as_test(BoundWorld, settings=RUN)
