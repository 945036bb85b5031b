from __future__ import annotations

import pytest

from trilogue.broker.tubemq.rebalance_events import EventKind, EventResult, EventStatus
from trilogue.gateway.tubemq.event_codes import KIND_CODES, STATUS_CODES, parse_event_result
from trilogue.wire.tubemq.master_pb2 import EventProto


def test_every_kind_and_status_has_one_code():
    assert KIND_CODES.keys() == set(EventKind)
    assert STATUS_CODES.keys() == set(EventStatus)
    assert sorted(KIND_CODES.values()) == [1, 2, 3, 5, 10, 20]
    assert sorted(STATUS_CODES.values()) == [-2, -1, 0, 1, 2]


@pytest.mark.parametrize(
    ("kind", "status", "expected"),
    [
        (10, 2, EventResult(7, EventKind.ONLY_CONNECT, EventStatus.DONE)),
        (2, -2, EventResult(7, EventKind.DISCONNECT, EventStatus.FAILED)),
        (1, 17, EventResult(7, EventKind.CONNECT, EventStatus.UNKNOWN)),
        (4, 2, EventResult(7, None, EventStatus.DONE)),
    ],
)
def test_a_result_is_parsed_also_with_codes_that_do_not_exist(kind, status, expected):
    event = EventProto(rebalanceId=7, opType=kind, status=status)

    assert parse_event_result(event) == expected
