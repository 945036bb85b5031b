"""When segments are merged, and which: never what lies apart, and never too much twice."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterable, Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.log.jobs.merge_world import GIB, HEADER, MIB, World, extent, segment
from trilogue.log.jobs.merge_plan import (
    FIRST_LEVEL_DUE,
    FIRST_LEVEL_MAX,
    INPUTS_MAX,
    LARGE_BYTES,
    LARGE_EXTENT,
    OWN_BYTES,
    OWN_FROM_BYTES,
    REST_MS,
    SMALL_BYTES,
    SMALL_MIN,
    SPAN_MS_MAX,
    TARGET_BYTES,
    KnownSegments,
    Plan,
    data_bytes,
    first_level,
    is_apart,
    is_large_flush,
    may_be_due,
    plan_merge,
    plan_rewrite,
)
from trilogue.log.segments.extents import Extent, Extents
from trilogue.log.segments.segment_info import SegmentInfo, without
from trilogue.log.steps import to_the_end

# ── what a byte costs, and how many segments there are ────────────────────────────────────────

FLUSHES = 600  # 40 GB of full files
LOADS: dict[str, Callable[[Random], dict[int, int]]] = {
    "one partition": lambda _: {1: 62 * MIB},
    "one partition in a hurry: four files a flush": lambda _: {1: 250 * MIB},
    "even": lambda _: dict.fromkeys(range(1, 201), 62 * MIB // 200),
    "small entries: a file is full at 100,000": lambda _: dict.fromkeys(range(1, 201), 40_000),
    "smallest entries": lambda _: dict.fromkeys(range(1, 101), 71_000),
    "few large, many small": lambda _: {
        **dict.fromkeys(range(1, 4), 17 * MIB),
        **dict.fromkeys(range(4, 204), 50_000),
    },
    "large by turns": lambda random: {
        random.randint(1, 4): random.randint(20, 60) * MIB,
        **dict.fromkeys(range(5, 155), random.randint(1_000, 50_000)),
    },
}


@pytest.mark.parametrize("load", LOADS)
def test_under_load_a_byte_is_written_little_more_than_twice(load: str):
    """Once by the flush, once by the merge of the first level; a third of it is kept."""
    world, random = World(), Random(1)
    for number in range(FLUSHES):
        world.flush(LOADS[load](random))
        world.now_ms += 1_000
        if number % 20 == 0:
            world.retain(lambda each: world.ends[each] // 3 + 1)

    assert world.amplification <= 2.3
    assert world.most_first <= FIRST_LEVEL_DUE < FIRST_LEVEL_MAX
    assert world.most <= FIRST_LEVEL_DUE + 3 * SMALL_MIN + 2 * world.live // SMALL_BYTES


def test_large_flushes_of_few_partitions_are_merged_once():
    """Forty minutes at 12 MB a second: ten minutes of it wait, the rest is in large segments."""
    world = World()
    for _ in range(480):
        world.flush(dict.fromkeys(range(1, 5), 15 * MIB))
        world.now_ms += 5_000

    assert world.amplification <= 2.0
    merges = world.acked // GIB
    assert world.most <= REST_MS // 5_000 + INPUTS_MAX + 5 * merges
    late = [each for each in world.segments.values() if world.now_ms - each.created_ms > REST_MS]
    assert all(data_bytes(each) >= SMALL_BYTES for each in late if each.level)
    assert sum(not each.level for each in late) <= GIB // (60 * MIB)


@pytest.mark.long
def test_ten_thousand_partitions_under_load_are_written_little_more_than_twice():
    world = World()
    while world.acked < 6 * GIB:
        world.flush(dict.fromkeys(range(1, 10_001), 6_200))

    assert world.amplification <= 2.3


def test_a_trickle_is_written_a_few_times_and_never_leaves_many_segments():
    """10 KB a minute: it is merged by eights until it is large, so 1 + log8(64 MiB / 120 KB)."""
    world = World()
    for _ in range(10_000):
        world.flush({1: 6_000, 2: 4_000})

    assert world.amplification <= 6.5
    assert world.most <= FIRST_LEVEL_DUE + 5 * SMALL_MIN + world.acked // SMALL_BYTES


def test_a_trickle_over_months_leaves_a_few_segments_a_day():
    """What is merged over more than a day could not go by retention for as long."""
    world, days = World(), 20
    for _ in range(days * 24 * 6):
        world.flush({1: 6_000, 2: 4_000})
        world.now_ms += 600_000

    assert len(world.segments) <= 3 * days
    for each in world.segments.values():
        assert data_bytes(each) <= 10_000 * 24 * 6 * 1.2


def test_mixed_retention_costs_its_rewrites_and_no_more():
    """Half of what comes goes after a gigabyte, the rest stays: segments die by halves."""
    world = World()
    while world.acked < 30 * GIB:
        world.flush(
            {**dict.fromkeys(range(1, 100), 330_000), **dict.fromkeys(range(100, 200), 320_000)}
        )
        world.retain(lambda each: GIB // 200 if each < 100 else 20 * GIB)

    assert world.amplification <= 2.7
    held = sum(data_bytes(each) for each in world.segments.values())
    assert held - world.live <= world.live


# ── which segments ────────────────────────────────────────────────────────────────────────────


def ids(plan: Plan | None) -> list[int]:
    return [] if plan is None else [each.segment_id for each in plan.inputs]


def flushes(count: int, size: int, *, first: int = 1, partition_id: int = 1) -> list[SegmentInfo]:
    return [
        segment(at, [extent(partition_id, at * size, (at + 1) * size, size)])
        for at in range(first, first + count)
    ]


def wide(count: int, size: int, *, first: int = 1) -> list[SegmentInfo]:
    """Flushes with so little of each of their partitions that they are to be merged soon."""
    share = MIB // 2
    return [
        segment(at, [extent(each, at, at + 1, share) for each in range(1, 1 + size // share)])
        for at in range(first, first + count)
    ]


@pytest.mark.parametrize(
    ("count", "size", "due"),
    [
        (7, 64 * MIB, False),
        (8, 64 * MIB, True),
        (8, MIB, False),
        (12, MIB, True),
        (2, 512 * MIB, True),
        (1, 2 * GIB, False),
    ],
)
def test_the_first_level_is_merged_all_together_when_it_is_worth_it(
    count: int, size: int, due: bool
):
    segments = wide(count, size)

    plan = to_the_end(plan_merge(segments, dict.fromkeys(range(1, 5_000), 0)))

    assert ids(plan) == (list(range(1, count + 1)) if due else [])
    assert plan is None or plan.level == 1


def at(moment_ms: int, some: Iterable[SegmentInfo]) -> list[SegmentInfo]:
    return [replace(each, created_ms=moment_ms) for each in some]


def test_a_flush_of_few_large_partitions_rests_before_it_is_merged():
    segments = at(5_000, flushes(20, 64 * MIB))

    before = to_the_end(plan_merge(segments, {1: 0}, (), 5_000 + REST_MS - 1))
    after = to_the_end(plan_merge(segments, {1: 0}, (), 5_000 + REST_MS))

    assert before is None
    assert ids(after) == list(range(1, 21))
    assert after is not None
    assert after.level == 1
    assert may_be_due(segments, (), 5_000 + REST_MS - 1) == frozenset()
    assert may_be_due(segments, (), 5_000 + REST_MS) == frozenset(range(1, 21))


@pytest.mark.parametrize(
    ("size", "partitions", "is_large"),
    [
        (LARGE_BYTES, 1, True),
        (LARGE_BYTES - HEADER - 1, 1, False),
        (16 * LARGE_EXTENT, 16, True),
        (17 * LARGE_EXTENT, 18, False),
    ],
)
def test_a_flush_is_large_when_it_has_much_of_each_partition(
    size: int, partitions: int, is_large: bool
):
    some = segment(1, [extent(each, 0, 1, size // partitions) for each in range(partitions)])

    assert is_large_flush(some) is is_large
    assert not is_large_flush(replace(some, level=1))
    assert first_level([some]) == ([] if is_large else [some])


def test_less_than_a_gigabyte_of_large_flushes_stays_as_it_is():
    segments = flushes(GIB // (64 * MIB) - 1, 64 * MIB)

    assert to_the_end(plan_merge(segments, {1: 0}, (), 2 * REST_MS)) is None
    assert may_be_due(segments, (), 2 * REST_MS) == frozenset()


def test_small_segment_between_large_flushes_is_merged_with_them():
    segments = flushes(30, 64 * MIB)
    base = 10 * 64 * MIB
    segments[9] = segment(10, [extent(1, base, base + 5, 5)])

    plan = to_the_end(plan_merge(segments, {1: 0}, (), REST_MS))

    assert ids(plan) == list(range(1, 31))


def test_large_flushes_in_object_storage_are_left_there():
    stored = [replace(each, store="s3://bucket") for each in flushes(20, 64 * MIB)]

    assert to_the_end(plan_merge(stored, {1: 0}, (), REST_MS)) is None


def test_large_partitions_get_their_own_segments_only_where_the_rest_is_a_small_share():
    starts = dict.fromkeys(range(1, 200), 0)
    large = to_the_end(plan_merge(wide(8, 64 * MIB), starts))
    small = to_the_end(plan_merge(wide(8, 20 * MIB), starts))

    assert large is not None
    assert small is not None
    assert large.own_bytes == OWN_BYTES
    assert small.own_bytes > TARGET_BYTES
    assert OWN_FROM_BYTES < 8 * 64 * MIB


def test_dead_segments_and_those_to_leave_alone_are_not_merged():
    size = 31 * MIB
    segments = [*flushes(9, size), *flushes(1, size, first=10, partition_id=2)]

    plan = to_the_end(plan_merge(segments, {1: 4 * size}, skip={9}))
    rest = to_the_end(plan_merge(segments, {1: 0, 2: 0}, skip={9, 10}))

    assert plan is None  # 1 to 3 and 10 are dead, 9 is damaged: six are left
    assert ids(rest) == [1, 2, 3, 4, 5, 6, 7, 8]


def merged(segment_id: int, *extents: Extent, level: int = 1) -> SegmentInfo:
    return segment(segment_id, extents, level=level, sequences=(segment_id, segment_id))


def test_small_segments_of_a_level_are_merged_when_eight_of_it_wait():
    older = [merged(at, extent(1, at, at + 1, 9 * MIB), level=2) for at in range(1, 8)]
    newer = [merged(at, extent(1, at, at + 1, MIB)) for at in range(8, 15)]
    one_more = merged(15, extent(1, 15, 16, MIB))

    assert to_the_end(plan_merge([*older, *newer], {1: 0})) is None
    plan = to_the_end(plan_merge([*older, *newer, one_more], {1: 0}))

    assert plan is not None
    assert ids(plan) == list(range(8, 16))
    assert plan.level == 2


def test_segment_of_the_same_partition_between_two_prevents_their_merge():
    """Partition 1 was large once and has a segment of its own between 4 and 6."""
    small = [
        merged(at, extent(1, at, at + 1, MIB), extent(2, at, at + 1, MIB)) for at in range(1, 5)
    ]
    own = merged(5, extent(1, 5, 6, GIB))
    more = [
        merged(at, extent(1, at, at + 1, MIB), extent(2, at, at + 1, MIB)) for at in range(6, 10)
    ]

    plan = to_the_end(plan_merge([*small, own, *more], {1: 0, 2: 0}))

    assert ids(plan) == [1, 2, 3, 4]  # they get no more company


def test_segment_of_another_journal_between_two_prevents_their_merge():
    """After a slot has moved: its frames have numbers that say nothing of those of the others."""
    some = flushes(20, 31 * MIB)
    far = replace(some[9], first_sequence=10_000, last_sequence=10_001)
    segments = [*some[:9], far, *some[10:]]
    skip = {far.segment_id}  # other nodes read it, too

    wrong = to_the_end(plan_merge(segments, {1: 0}, skip))
    plan = to_the_end(plan_merge(segments, {1: 0}, skip, is_one_journal=False))

    assert plan is not None
    assert wrong is not None
    assert lies_apart(wrong.inputs, segments)
    assert not lies_apart(plan.inputs, segments)


def test_segment_of_another_partition_between_two_allows_their_merge():
    small = [merged(at, extent(2, at, at + 1, MIB)) for at in range(1, 10) if at != 5]
    own = merged(5, extent(1, 5, 6, GIB))

    assert ids(to_the_end(plan_merge([*small, own], {1: 0, 2: 0}))) == [1, 2, 3, 4, 6, 7, 8, 9]


def test_small_segments_are_not_merged_over_more_than_a_day():
    hour_ms = SPAN_MS_MAX // 24
    small = [merged(at, extent(1, at, at + 1, MIB, at_ms=3 * at * hour_ms)) for at in range(1, 14)]

    assert ids(to_the_end(plan_merge(small, {1: 0}))) == list(range(1, 10))


def test_a_segment_is_rewritten_when_more_than_half_of_it_is_dead():
    half = merged(1, extent(1, 0, 10, 10 * MIB), extent(2, 0, 10, 10 * MIB))
    more = merged(2, extent(1, 10, 20, 11 * MIB), extent(2, 10, 20, 10 * MIB))
    gone = merged(3, extent(1, 20, 30, MIB))

    found = to_the_end(plan_rewrite([half, more, gone], {2: 0}))

    assert found.bytes == 22 * MIB
    assert ids(found.plan) == [2]
    assert to_the_end(plan_rewrite([half, more, gone], {2: 0}, skip={2})).plan is None


def test_hidden_partitions_of_a_segment_count_as_dead_bytes():
    held = merged(1, extent(1, 0, 10, 11 * MIB), extent(2, 0, 10, 10 * MIB))

    found = to_the_end(plan_rewrite([without(held, [1])], {1: 0, 2: 0}))

    assert ids(found.plan) == [1]


def test_segment_of_one_partition_near_its_retention_is_not_rewritten():
    own = merged(1, extent(1, 0, 1_000, GIB))

    assert to_the_end(plan_rewrite([own], {1: 999})).plan is None


# ── the rule, by brute force ──────────────────────────────────────────────────────────────────


def lies_apart(inputs: Sequence[SegmentInfo], known: Iterable[SegmentInfo]) -> bool:
    """The rule as it is spelt in MergeJob."""
    mine = {each.segment_id for each in inputs}
    for partition_id in {each for info in inputs for each in info.partitions}:
        held = [e.partitions[partition_id] for e in inputs if partition_id in e.partitions]
        for other in known:
            found = other.partitions.find_extent(partition_id)
            if other.segment_id not in mine and found is not None:
                before = any(each.end_offset <= found.base_offset for each in held)
                if before and any(each.base_offset >= found.end_offset for each in held):
                    return True
    return False


@settings(deadline=None)
@given(data=st.data())
def test_no_plan_takes_what_lies_apart(data: st.DataObject):
    """Whatever was flushed and merged before, in whichever order segments became large."""
    world, random = World(), Random(data.draw(st.integers(0, 1 << 30)))
    for _ in range(data.draw(st.integers(10, 80))):
        sizes = {
            each: random.choice([1_000, MIB, 3 * MIB, random.choice([MIB, 70 * MIB])])
            for each in random.sample(range(1, 7), random.randint(1, 6))
        }
        world.flush(sizes)
        known = list(world.segments.values())
        some = random.sample(known, min(len(known), random.randint(2, 6)))
        assert to_the_end(is_apart(some, KnownSegments(known))) == lies_apart(some, known)
        skip = {each.segment_id for each in known if random.random() < 0.1}
        plan = to_the_end(plan_merge(known, world.starts, skip))
        if plan is not None:
            assert not lies_apart(plan.inputs, known)
            assert not skip & set(ids(plan))
            world.carry_out(plan)


def test_a_plan_of_many_partitions_is_made_in_many_steps():
    """Ten thousand partitions in each segment, all of which lie between the others."""
    count = 10_000
    columns = [range(1, count + 1), *([each] * count for each in (0, 0, 0, 600, 1, 1, 0, 0, 0, 0))]
    segments = []
    for at in range(1, 25):
        columns[1], columns[2] = [at * 1_000] * count, [at * 1_000 + 500] * count
        packed = Extents(b"".join(array("q", column).tobytes() for column in columns))
        made = segment(at, [], level=int(at < 13), sequences=(1, 100))
        segments.append(replace(made, partitions=packed, footer_position=64 + 600 * count))
    starts = dict.fromkeys(columns[0], 0)

    assert sum(1 for _ in plan_merge(segments, starts)) > 100
    assert sum(1 for _ in plan_rewrite(segments, starts)) >= len(segments)


def test_thousands_of_small_segments_are_planned_a_few_at_a_time():
    """As compaction leaves them: one partition each, all of one time."""
    small = [
        segment(at, [extent(at, 0, 9, MIB)], level=1, sequences=(1, 10_000))
        for at in range(1, 5_001)
    ]
    starts = dict.fromkeys(range(1, 5_001), 0)

    began = time.process_time()
    plan = to_the_end(plan_merge(small, starts))

    assert ids(plan) == list(range(1, 33))
    assert time.process_time() - began < 30  # 0.1 s on the machine of the benchmarks
