"""The events by which the broker moves partitions between members, and how far each one is.

    WAITING -> PROCESSING               it was put into a heartbeat response
    PROCESSING -> DONE                  a later heartbeat reported it as done
    PROCESSING -> FAILED, UNKNOWN       a later heartbeat reported anything else: it is sent again,
                                        where it is still needed

A member has one event at a time. DISCONNECT and CONNECT are the two halves of an exchange; the
ONLY_ kinds stand alone. REPORT requests the list of partitions that a member has, STOP_REBALANCE
announces that no more events will come; neither is answered. The numbers of the wire are in
gateway/tubemq/event_codes.py.
"""

from __future__ import annotations

from enum import Enum, auto, unique
from typing import NamedTuple

import msgspec

from trilogue.broker.tubemq.even_assignment import TubePartition


@unique
class EventKind(Enum):
    """What a member has to do."""

    CONNECT = auto()
    DISCONNECT = auto()
    REPORT = auto()
    STOP_REBALANCE = auto()
    ONLY_CONNECT = auto()
    ONLY_DISCONNECT = auto()


@unique
class EventStatus(Enum):
    """How far an event is."""

    WAITING = auto()
    PROCESSING = auto()
    DONE = auto()
    UNKNOWN = auto()
    FAILED = auto()


CONNECTS = frozenset({EventKind.CONNECT, EventKind.ONLY_CONNECT})
DISCONNECTS = frozenset({EventKind.DISCONNECT, EventKind.ONLY_DISCONNECT})
UNANSWERED = frozenset({EventKind.REPORT, EventKind.STOP_REBALANCE})


class RebalanceEvent(msgspec.Struct):
    """One event for one member. `rebalance_id` grows with every round of the node."""

    rebalance_id: int
    kind: EventKind
    parts: tuple[TubePartition, ...] = ()
    status: EventStatus = EventStatus.WAITING
    sent_ms: int = 0  # when it was put into a response

    def send(self, now_ms: int) -> RebalanceEvent:
        """Mark it as put into a response."""
        self.status = EventStatus.PROCESSING
        self.sent_ms = now_ms
        return self


class EventResult(NamedTuple):
    """An event as a member's heartbeat reports it; kind None: a kind that does not exist."""

    rebalance_id: int
    kind: EventKind | None
    status: EventStatus
