from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.broker.fakes import extents
from tests.broker.topics.test_cluster import Room
from trilogue.broker.settings.topic_settings import TopicSettings
from trilogue.broker.settings.topic_table import DEFAULT_RETENTION_MS
from trilogue.broker.topics import retention
from trilogue.broker.topics.policies import RetentionPolicy
from trilogue.broker.topics.retention import find_new_start, plan_retention, retention_rules
from trilogue.log.errors import CorruptLog
from trilogue.log.segments.extents import Extents
from trilogue.log.segments.segment_info import SegmentInfo

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
    assert find_new_start(extents(*runs), before, retention_rules(settings), NOW) == after


SMALL, LARGE, TINY = (0, 10, NOW, NOW, 10), (10, 20, NOW, NOW, 80), (20, 30, NOW, NOW, 5)
SIZES = [
    # limit, tail bytes, start before, start after; the runs have 95 bytes
    (-1, 1_000, 0, 0),
    (95, 0, 0, 0),
    (86, 0, 0, 0),  # without the first run it were less than what is kept at least
    (85, 0, 0, 10),
    (85, 5, 0, 10),
    (5, 0, 0, 20),
    (6, 0, 0, 10),
    (5, 4, 0, 20),
    (4, 4, 0, 30),  # what is in the journal stays, and counts
    (0, 0, 0, 30),
    (1_000, 0, 3, 3),
]


@pytest.mark.parametrize(("limit", "tail", "before", "after"), SIZES)
def test_the_oldest_runs_go_while_the_rest_is_no_smaller_than_the_limit(limit, tail, before, after):
    """Kafka: a log keeps at least retention.bytes, the active segment included."""
    settings = TopicSettings(retention_ms=-1, retention_bytes=limit)

    runs, rules = extents(SMALL, LARGE, TINY), retention_rules(settings)
    start = find_new_start(runs, before, rules, NOW, tail_bytes=tail)

    assert start == after


def test_expired_segments_are_removed_before_the_size_limit_applies():
    old = (0, 10, NOW - 5_000, NOW - 5_000, 10)
    settings = TopicSettings(retention_ms=1_000, retention_bytes=85)

    rules = retention_rules(settings)
    assert find_new_start(extents(old, LARGE, TINY), 0, rules, NOW) == 10
    assert find_new_start(extents(LARGE, old, TINY), 0, rules, NOW) == 0


# -- the plan ------------------------------------------------------------------------------------


class Segments:
    """A cluster whose partitions have runs in segments; records which were looked up."""

    def __init__(self) -> None:
        self.room = Room()
        self.known: list[SegmentInfo] = []
        self.looked_up: list[int] = []

    def topic(self, name: str, partitions: int = 1, **settings: str) -> list[int]:
        settings = {key.replace("_", "."): value for key, value in settings.items()}
        topic = self.room.create(name, partition_count=partitions, settings=settings)
        return [each.partition_id for each in topic.partitions]

    def add(self, *runs) -> None:
        """One segment, from (partition, base, end, newest event, newest append, size)."""
        made = [
            replace(extents(rest)[0], partition_id=partition_id) for partition_id, *rest in runs
        ]
        number = len(self.known) + 1
        self.known.append(
            SegmentInfo(number, 0, "", 0, 1, 1, 0, number, number, 0, 0, Extents.of(made))
        )
        for extent in made:
            self.room.log.partition(extent.partition_id).extents.append(extent)

    def plan(self, now_ms: int = NOW, **needs) -> dict[int, int]:
        for partition in self.room.log.partitions.values():
            partition.on_extents = self.looked_up.append
        starts: dict[int, int] = {}
        for some in plan_retention(self.room.cluster, self.known, now_ms, **needs):
            starts |= some
        return starts


def test_only_partitions_whose_start_moves_are_in_the_plan():
    known = Segments()
    first, second = known.topic("default", 2)
    (kept,) = known.topic("kept", retention_ms="-1")
    (short,) = known.topic("short", retention_ms="1000")
    now_ms = NOW + DEFAULT_RETENTION_MS
    known.add(
        (first, 0, 10, now_ms, NOW - 1),
        (second, 0, 10, 0, NOW),
        (kept, 0, 10, 0, 0),
        (short, 0, 10, now_ms - 1_001, now_ms),
    )
    known.add((first, 10, 20, 0, NOW))

    assert known.plan(now_ms) == {first: 10, short: 10}
    assert sorted(known.looked_up) == [first, short]


def test_a_partition_that_is_too_large_is_found_over_all_its_segments():
    known = Segments()
    (limited,) = known.topic("limited", retention_bytes="100")
    (roomy,) = known.topic("roomy", retention_bytes="1000")
    for base in range(0, 50, 10):
        known.add((limited, base, base + 10, NOW, NOW, 40), (roomy, base, base + 10, NOW, NOW, 40))

    assert known.plan() == {limited: 20}
    assert known.looked_up == [limited]


def test_journal_bytes_count_for_retention_by_size():
    known = Segments()
    (limited,) = known.topic("limited", retention_bytes="100")
    known.add((limited, 0, 10, NOW, NOW, 40))
    assert known.plan() == {}

    known.room.log.partition(limited).tail_bytes = 100

    assert known.plan() == {limited: 10}


def test_retention_of_young_segments_looks_up_no_partition(monkeypatch):
    known = Segments()
    ids = known.topic("many", 50)
    known.add(*((each, 0, 10, 0, NOW) for each in ids))  # the time of the record does not count
    monkeypatch.setattr(known.room.cluster, "find_partition", known.looked_up.append)

    assert known.plan(NOW + DEFAULT_RETENTION_MS) == {}
    assert known.looked_up == []


def test_a_partition_that_was_deleted_is_passed_over():
    known = Segments()
    (gone,) = known.topic("gone", retention_ms="1000", retention_bytes="1")
    known.add((gone, 0, 10, 0, 0, 50))
    steps = plan_retention(known.room.cluster, known.known, NOW)
    next(steps)

    (topic,) = known.room.cluster
    known.room.carry_out(known.room.cluster.plan_delete(topic.name))

    assert list(filter(None, steps)) == []


def test_a_partition_whose_segments_contradict_each_other_costs_no_other():
    """Its reads fail; the node must not end because of it, again and again."""
    known = Segments()
    bad, good = known.topic("short", 2, retention_ms="1000")
    known.add((bad, 0, 10, 0, 0), (good, 0, 10, 0, 0))

    def contradict(_):
        raise CorruptLog("segments 1 and 2 both have offset 5")

    known.room.log.partition(bad).on_extents = contradict

    assert list(filter(None, plan_retention(known.room.cluster, known.known, NOW))) == [{good: 10}]


def test_a_plan_with_many_partitions_comes_in_steps(monkeypatch):
    monkeypatch.setattr(retention, "PLACES_A_STEP", 10)
    monkeypatch.setattr(retention, "EXTENTS_A_STEP", 20 * (1 + retention.LOOKUP))
    known = Segments()
    ids = known.topic("many", 50, retention_ms="1000")
    known.add(*((each, 0, 10, 0, 0) for each in ids))

    steps = list(plan_retention(known.room.cluster, known.known, NOW))

    assert [len(each) for each in steps] == [0] * 5 + [20, 20, 10]


def test_a_partition_in_many_segments_is_a_step_of_its_own(monkeypatch):
    """Each extent has its price: 200 partitions in 200 segments held the loop up for 0.1 s."""
    monkeypatch.setattr(retention, "EXTENTS_A_STEP", retention.LOOKUP + 5)
    known = Segments()
    ids = known.topic("many", 3, retention_ms="1000")
    for base in range(0, 50, 10):
        known.add(*((each, base, base + 10, 0, 0) for each in ids))

    steps = list(plan_retention(known.room.cluster, known.known, NOW))

    assert [step for step in steps if step] == [{each: 50} for each in ids]


# -- a topic that is shared: durable subscriptions, Kafka's settings, Pulsar's policies ------------

EARLY = (0, 10, NOW - 90_000, NOW - 90_000, 1 << 20)
LATE = (10, 20, NOW - 30_000, NOW - 30_000, 1 << 20)
DEFAULT = TopicSettings(retention_ms=60_000)
SET = TopicSettings(retention_ms=60_000, retention_by_record_time=True)
SIZED = TopicSettings(retention_ms=-1, retention_bytes=1 << 20)
COMPACTED = TopicSettings(retention_ms=-1, deletes=False, compacts=True)
SHARED = [
    # settings, policy (minutes, megabytes), needed from, start after: docs/reference/retention.md
    (DEFAULT, None, None, 10),  # no subscription: the node's default time
    (DEFAULT, None, 10, 10),
    (DEFAULT, None, 9, 0),  # what is not acked stays
    (SET, None, 0, 10),  # set by hand: as in Kafka
    (SIZED, None, 0, 10),
    (DEFAULT, RetentionPolicy(0, 0), None, 20),  # nothing is kept that is acked by all
    (DEFAULT, RetentionPolicy(0, 0), 20, 20),
    (DEFAULT, RetentionPolicy(0, 0), 15, 10),
    (DEFAULT, RetentionPolicy(0, 0), 5, 0),
    (DEFAULT, RetentionPolicy(1, -1), None, 10),
    (DEFAULT, RetentionPolicy(1, -1), 5, 0),
    (
        DEFAULT,
        RetentionPolicy(-1, 1),
        None,
        10,
    ),  # acked, and the rest is no smaller than a megabyte
    (DEFAULT, RetentionPolicy(-1, 1), 5, 0),
    (DEFAULT, RetentionPolicy(-1, 2), None, 0),
    (DEFAULT, RetentionPolicy(-1, -1), None, 0),  # instead of the default
    (DEFAULT, RetentionPolicy(100, -1), None, 0),
    (SET, RetentionPolicy(-1, -1), 0, 10),  # both were set by hand, and both act
    (SET, RetentionPolicy(0, 0), 20, 20),
    (COMPACTED, None, None, 0),
    (COMPACTED, RetentionPolicy(0, 0), None, 0),
]


@pytest.mark.parametrize(("settings", "policy", "needed", "after"), SHARED)
def test_each_system_keeps_what_it_would_keep(settings, policy, needed, after):
    rules = retention_rules(settings, policy)

    assert find_new_start(extents(EARLY, LATE), 0, rules, NOW, needed=needed) == after


def test_retention_looks_up_no_partition_that_a_subscription_needs():
    known = Segments()
    (slow,) = known.topic("slow")
    (by_hand,) = known.topic("by.hand", retention_ms="1000")
    now_ms = NOW + DEFAULT_RETENTION_MS
    known.add((slow, 0, 10, 0, NOW - 1), (by_hand, 0, 10, 0, NOW))

    assert known.plan(now_ms, needed=lambda _: 0) == {by_hand: 10}
    assert known.looked_up == [by_hand]
    assert known.plan(now_ms, needed=lambda _: 10) == {slow: 10, by_hand: 10}


def test_retention_of_a_policy_is_obeyed():
    known = Segments()
    ids = known.topic("policies", 2)
    known.add(*((each, 0, 10, NOW, NOW - 61_000, 1 << 20) for each in ids))
    known.add(*((each, 10, 20, NOW, NOW - 61_000, 1 << 20) for each in ids))
    (topic,) = known.room.cluster
    for partition, policy in zip(
        topic.partitions, (RetentionPolicy(1, -1), RetentionPolicy(1, -1)), strict=True
    ):
        partition.policies = replace(partition.policies, retention=policy)

    assert known.plan(needed={ids[0]: 20, ids[1]: 10}.get) == {ids[0]: 20, ids[1]: 10}

    for partition in topic.partitions:
        partition.policies = replace(partition.policies, retention=RetentionPolicy(-1, 1))
    assert known.plan() == dict.fromkeys(ids, 10)
