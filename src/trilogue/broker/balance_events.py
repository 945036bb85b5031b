"""What members are told to do in their heartbeats' answers, and how that goes.

    WAITING -> PROCESSING       it was put into an answer
    PROCESSING -> DONE          a later heartbeat brought it back as done
    PROCESSING -> FAILED, UNKNOWN    or as anything else: what is still wanted is asked again

A member has one event at a time. DISCONNECT and CONNECT are the two halves of an exchange; the
ONLY_ ones stand alone. REPORT asks what a member has, STOP_REBALANCE says that no more will come;
neither is answered. Numbers are those of seed 002's protocol, which are also our own.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from trilogue.broker.balance_shares import Part


class EventKind(IntEnum):
    """What a member shall do."""

    CONNECT = 1
    DISCONNECT = 2
    REPORT = 3
    STOP_REBALANCE = 5
    ONLY_CONNECT = 10
    ONLY_DISCONNECT = 20


class EventStatus(IntEnum):
    """How far that is."""

    WAITING = 0
    PROCESSING = 1
    DONE = 2
    UNKNOWN = -1
    FAILED = -2


CONNECTS = frozenset({EventKind.CONNECT, EventKind.ONLY_CONNECT})
DISCONNECTS = frozenset({EventKind.DISCONNECT, EventKind.ONLY_DISCONNECT})
UNANSWERED = frozenset({EventKind.REPORT, EventKind.STOP_REBALANCE})


@dataclass(slots=True)
class BalanceEvent:
    """One thing that one member is told. `rebalance_id` grows with every round of the node."""

    rebalance_id: int
    kind: EventKind
    parts: tuple[Part, ...] = ()
    status: EventStatus = EventStatus.WAITING
    given_ms: int = 0  # when it was put into an answer

    def give(self, now_ms: int) -> BalanceEvent:
        """Put it into an answer."""
        self.status = EventStatus.PROCESSING
        self.given_ms = now_ms
        return self


class Answer(NamedTuple):
    """An event as a member's heartbeat brings it back; numbers as they came."""

    rebalance_id: int
    kind: int
    status: int


def status_of(number: int) -> EventStatus:
    """Read a status; what is none is UNKNOWN."""
    try:
        return EventStatus(number)
    except ValueError:
        return EventStatus.UNKNOWN
