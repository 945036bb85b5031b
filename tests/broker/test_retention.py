from __future__ import annotations

import pytest

from tests.broker.fakes import extents
from tests.broker.test_cluster import Room
from trilogue.broker.retention import new_start, plan_retention
from trilogue.broker.settings import DEFAULT_RETENTION_MS, TopicSettings

NOW = 1_000_000
BY_APPEND = TopicSettings(retention_ms=1_000)
BY_RECORD = TopicSettings(retention_ms=1_000, retention_by_record_time=True)

#        base, end, newest event, newest append
OLD = (0, 10, NOW - 5_000, NOW - 2_000)
OLDER_EVENTS = (10, 20, NOW - 5_000, NOW - 500)
NEW = (20, 30, NOW, NOW)
UNTIMED = (0, 10, -1, NOW - 2_000)
EDGE = (0, 10, NOW - 1_000, NOW - 1_000)

STARTS = [
    # settings, runs, start before, start after
    (BY_APPEND, (OLD, OLDER_EVENTS, NEW), 0, 10),
    (BY_RECORD, (OLD, OLDER_EVENTS, NEW), 0, 20),
    (BY_RECORD, (NEW, (30, 40, 1, 1)), 0, 0),  # nothing goes from the middle
    (BY_RECORD, (UNTIMED, NEW), 0, 10),
    (BY_APPEND, (UNTIMED, NEW), 0, 10),
    (BY_APPEND, (EDGE,), 0, 0),
    (BY_RECORD, (EDGE,), 0, 0),
    (BY_APPEND, (OLD,), 25, 25),  # deleted up to there already
    (BY_APPEND, (), 3, 3),
    (TopicSettings(retention_ms=-1), (OLD,), 0, 0),
    (TopicSettings(retention_ms=0), (OLD, OLDER_EVENTS), 0, 20),
]


@pytest.mark.parametrize(("settings", "runs", "before", "after"), STARTS)
def test_whole_runs_go_when_their_newest_message_is_too_old(settings, runs, before, after):
    assert new_start(extents(*runs), before, settings, NOW) == after


def test_only_partitions_whose_start_moves_are_in_the_plan():
    room = Room()
    room.create("default", partition_count=2)
    room.create("kept", partition_count=1, settings={"retention.ms": "-1"})
    room.create("short", partition_count=1, settings={"retention.ms": "1000"})
    now_ms = NOW + DEFAULT_RETENTION_MS
    first, second, kept, short = room.log.partitions.values()
    first.extents = extents((0, 10, now_ms, NOW - 1), (10, 20, 0, NOW))
    second.extents = extents((0, 10, 0, NOW))
    kept.extents = extents((0, 10, 0, 0))
    short.extents = extents((0, 10, now_ms - 1_001, now_ms))

    plan = plan_retention(room.cluster, now_ms)

    assert plan == {first.partition_id: 10, short.partition_id: 10}
