"""A group that is balanced, its members driven by hand, and a clock that only tests move."""

from __future__ import annotations

from trilogue.broker.balance import Balances
from trilogue.broker.balance_events import Answer, BalanceEvent, EventStatus
from trilogue.broker.balance_group import BalanceSettings
from trilogue.broker.balance_shares import Part
from trilogue.broker.balance_terms import Kind, Terms
from trilogue.broker.names import TopicName

T, U = (TopicName("public", "default", name) for name in ("t", "u"))
TERMS = Terms(frozenset({T}))
DONE = EventStatus.DONE
SMALL = BalanceSettings(
    session_ms=1_000, event_ms=300, groups_max=2, members_max=3, all_members_max=4
)


def some(*numbers: int, topic: TopicName = T) -> tuple[Part, ...]:
    return tuple(Part(topic, number) for number in numbers)


class Room:
    """A topic of four partitions and whoever reads it."""

    def __init__(self, count: int = 4, settings: BalanceSettings = SMALL) -> None:
        self.counts = {T: count, U: 2}
        self.now_ms = 0
        self.gone: list[str] = []
        self.begun: list[dict[Part, int]] = []
        self.balances = Balances(settings, lambda topic: self.counts[topic])
        self.balances.gone.append(lambda _group, member: self.gone.append(member))
        self.balances.begins.append(lambda _group, starts: self.begun.append(dict(starts)))

    def join(self, *names: str, terms: Terms = TERMS, **more) -> None:
        for name in names:
            self.balances.join("g", name, terms, self.now_ms, **more)

    def beat(self, name: str, event=None, status=DONE, report=None) -> BalanceEvent | None:
        answer = None if event is None else Answer(event.rebalance_id, event.kind, status)
        return self.balances.heartbeat("g", name, self.now_ms, answer=answer, report=report).event

    def settle(self, *names: str) -> None:
        """All do at once what they are told, until nobody is told anything."""
        told = dict.fromkeys(names)
        for _ in range(20):
            for name in names:
                told[name] = self.beat(name, told[name])
            if not any(told.values()):
                return
        raise AssertionError("somebody is always told something")

    def has(self, name: str) -> tuple[Part, ...]:
        return tuple(sorted(self.balances.member("g", name).owned))

    def later(self, ms: int) -> None:
        self.now_ms += ms
        self.balances.tick(self.now_ms)


def bound(count: int = 2, *, big: bool = False, **offsets: int) -> Terms:
    where = {Part(T, int(number[1:])): offset for number, offset in offsets.items()}
    return Terms(
        frozenset({T}),
        Kind.BOUND,
        session_key="k",
        select_big=big,
        source_count=count,
        offsets=where,
    )
