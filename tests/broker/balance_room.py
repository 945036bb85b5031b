"""A group that is balanced, its members driven by hand, and a clock that only tests move."""

from __future__ import annotations

from trilogue.broker.names import TopicName
from trilogue.broker.tubemq.balanced_group import BalanceSettings
from trilogue.broker.tubemq.even_assignment import TubePartition
from trilogue.broker.tubemq.group_balancer import GroupBalancer
from trilogue.broker.tubemq.group_terms import BalanceMode, GroupTerms
from trilogue.broker.tubemq.rebalance_events import EventResult, EventStatus, RebalanceEvent

T, U = (TopicName("public", "default", name) for name in ("t", "u"))
TERMS = GroupTerms(frozenset({T}))
DONE = EventStatus.DONE
SMALL = BalanceSettings(
    session_ms=1_000, event_ms=300, groups_max=2, members_max=3, all_members_max=4
)


def some(*numbers: int, topic: TopicName = T) -> tuple[TubePartition, ...]:
    return tuple(TubePartition(topic, number) for number in numbers)


class Room:
    """A topic of four partitions and its consumers."""

    def __init__(self, count: int = 4, settings: BalanceSettings = SMALL) -> None:
        self.counts = {T: count, U: 2}
        self.now_ms = 0
        self.gone: list[str] = []
        self.begun: list[dict[TubePartition, int]] = []
        self.balances = GroupBalancer(settings, lambda topic: self.counts[topic])
        self.balances.gone.append(lambda _group, member: self.gone.append(member))
        self.balances.begins.append(lambda _group, starts: self.begun.append(dict(starts)))

    def join(self, *names: str, terms: GroupTerms = TERMS, **more) -> None:
        for name in names:
            self.balances.join("g", name, terms, self.now_ms, **more)

    def beat(self, name: str, event=None, status=DONE, report=None) -> RebalanceEvent | None:
        answer = None if event is None else EventResult(event.rebalance_id, event.kind, status)
        return self.balances.heartbeat("g", name, self.now_ms, answer=answer, report=report).event

    def settle(self, *names: str) -> None:
        """Let all members follow their events until there are none."""
        sent = dict.fromkeys(names)
        for _ in range(20):
            for name in names:
                sent[name] = self.beat(name, sent[name])
            if not any(sent.values()):
                return
        raise AssertionError("somebody is always told something")

    def has(self, name: str) -> tuple[TubePartition, ...]:
        return tuple(sorted(self.balances.member("g", name).owned))

    def later(self, ms: int) -> None:
        self.now_ms += ms
        self.balances.tick(self.now_ms)


def bound(count: int = 2, *, big: bool = False, **offsets: int) -> GroupTerms:
    where = {TubePartition(T, int(number[1:])): offset for number, offset in offsets.items()}
    return GroupTerms(
        frozenset({T}),
        BalanceMode.BOUND,
        session_key="k",
        select_big=big,
        source_count=count,
        offsets=where,
    )
