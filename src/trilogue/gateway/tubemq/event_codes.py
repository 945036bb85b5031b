"""The numbers of rebalance events on the wire (docs/reference/wire/tubemq.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from trilogue.broker.tubemq.rebalance_events import EventKind, EventResult, EventStatus
from trilogue.wire.tubemq.master_pb2 import EventProto

KIND_CODES: Final[Mapping[EventKind, int]] = {
    EventKind.CONNECT: 1,
    EventKind.DISCONNECT: 2,
    EventKind.REPORT: 3,
    EventKind.STOP_REBALANCE: 5,
    EventKind.ONLY_CONNECT: 10,
    EventKind.ONLY_DISCONNECT: 20,
}
STATUS_CODES: Final[Mapping[EventStatus, int]] = {
    EventStatus.WAITING: 0,
    EventStatus.PROCESSING: 1,
    EventStatus.DONE: 2,
    EventStatus.UNKNOWN: -1,
    EventStatus.FAILED: -2,
}
_KINDS: Final = {code: kind for kind, code in KIND_CODES.items()}
_STATUSES: Final = {code: status for status, code in STATUS_CODES.items()}


def parse_event_result(event: EventProto) -> EventResult:
    """Return the result that a heartbeat reports; a status that does not exist is UNKNOWN."""
    status = _STATUSES.get(event.status, EventStatus.UNKNOWN)
    return EventResult(event.rebalanceId, _KINDS.get(event.opType), status)
