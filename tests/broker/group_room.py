"""A group and a clock, and the way to each of its states."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest

from tests.broker.fakes import FakeTimers
from trilogue.broker.groups.classic.group import ClassicGroup
from trilogue.broker.groups.classic.initial_delay import InitialDelays
from trilogue.broker.groups.classic.members import GroupSettings, JoinRequest, JoinResult
from trilogue.broker.groups.classic.states import GroupEvent, GroupState
from trilogue.broker.promise import Promise

DELAY_S = 0.15
SESSION_S, REBALANCE_S = 10, 60
RANGE = (("range", b"m"),)
COOPERATIVE = (("cooperative-sticky", b"c"), ("range", b"m"))


class WatchedGroup(ClassicGroup):
    """Notes which rows of the table it went through."""

    fired: list[tuple[GroupState, GroupEvent]]

    def _fire(self, event, member):
        self.fired.append((self.state, event))
        super()._fire(event, member)


class Room:
    """A group and a clock; members are m-1, m-2, ... in the order in which they came."""

    def __init__(self, initial_delays: InitialDelays | None = None, name="g", **settings) -> None:
        self.timers = FakeTimers()
        self.initial_delays = initial_delays or InitialDelays()
        self.emptied: list[ClassicGroup] = []
        ids = count(1)
        self.group = WatchedGroup(
            name,
            GroupSettings(**{"initial_delay_ms": round(DELAY_S * 1000), **settings}),
            self.timers,
            lambda: str(next(ids)),
            self.emptied.append,
            initial_delays=self.initial_delays,
        )
        self.group.fired = []

    @property
    def state(self) -> GroupState:
        return self.group.state

    def join(self, member_id: str = "", **fields) -> Promise[JoinResult]:
        given = {
            "protocol_type": "consumer",
            "protocols": RANGE,
            "session_timeout_ms": SESSION_S * 1_000,
            "rebalance_timeout_ms": REBALANCE_S * 1_000,
            "client_id": "m",
        }
        return self.group.join(JoinRequest("g", member_id, **(given | fields)))

    def sync(self, member_id: str, instance_id: str | None = None, **given: bytes):
        """Assignments are given as m1=b"..." for member m-1."""
        assignments = {name.replace("m", "m-"): data for name, data in given.items()}
        generation = self.group.generation
        return self.group.sync(member_id, generation, instance_id, assignments=assignments)

    def beat(self, *member_ids: str) -> None:
        for member_id in member_ids:
            self.group.heartbeat(member_id, self.group.generation)

    @property
    def ids(self) -> list[str]:
        return [member.member_id for member in self.group.members]


def preparing(room: Room) -> None:
    """m-1 and m-2 are members; m-2 has joined again with something new, m-1 has not."""
    stable(room)
    room.join("m-2", protocols=COOPERATIVE)


def completing(room: Room, instances: tuple[str | None, ...] = (None, None)) -> None:
    """m-1 leads m-2; no member has synced."""
    for instance_id in instances:
        room.join(instance_id=instance_id, client_id="m")
    room.timers.advance(DELAY_S * 2)


def stable(room: Room, instances: tuple[str | None, ...] = (None, None)) -> None:
    """m-1 leads m-2, everyone has an assignment."""
    completing(room, instances)
    first, second = room.ids
    room.group.sync(second, room.group.generation)
    room.group.sync(first, room.group.generation, assignments={first: b"one", second: b"two"})


STATIC = ("m", None)  # instance "m": its member ids look like the others'


def refused(reason: type[Exception], call: Callable[[], object]) -> None:
    with pytest.raises(reason):
        call()
