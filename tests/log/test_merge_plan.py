"""When segments are merged, and which: never what lies apart, and never too much twice."""

from __future__ import annotations

import itertools
import time
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trilogue.log.extents import Extent, Extents
from trilogue.log.merge_plan import (
    FIRST_LEVEL_DUE,
    FIRST_LEVEL_MAX,
    OWN_BYTES,
    OWN_FROM_BYTES,
    SMALL_BYTES,
    SMALL_MIN,
    SPAN_MS_MAX,
    TARGET_BYTES,
    Plan,
    data_bytes,
    finish,
    first_level,
    is_apart,
    live_bytes,
    plan_merge,
    plan_rewrite,
)
from trilogue.log.segment_info import SegmentInfo, segment_name, without

MIB = 1 << 20
GIB = 1 << 30
HEADER, TRAILER, RECORD, BLOCK, EPOCH, BLOCK_BYTES = 64, 80, 120, 56, 16, 256 << 10


def extent(
    partition_id: int, base: int, end: int, size: int, *, at_ms: int = 0, until_ms: int = 0
) -> Extent:
    last_ms = max(at_ms, until_ms)
    return Extent(partition_id, base, end, 0, size, end - base, 1, -1, -1, at_ms, last_ms)


def segment(
    segment_id: int,
    extents: Iterable[Extent],
    *,
    level: int = 0,
    sequences: tuple[int, int] | None = None,
) -> SegmentInfo:
    packed = Extents.of(extents)
    sizes = packed.column("size")
    data = HEADER + sum(sizes)
    footer = sum(RECORD + EPOCH + BLOCK * -(-size // BLOCK_BYTES) for size in sizes)
    first, last = sequences or (segment_id, segment_id)
    return SegmentInfo(
        segment_id, level, segment_name(segment_id), data + footer + TRAILER, 1, 1, 0, first, last,
        data, footer, packed,
    )  # fmt: skip


def _extent(partition_id: int, base: int, end: int, size: int, times: tuple[int, int]) -> Extent:
    return extent(partition_id, base, end, size, at_ms=times[0], until_ms=times[1])


class World:
    """A log of segments on which plans are carried out by arithmetic alone."""

    def __init__(self) -> None:
        self.segments: dict[int, SegmentInfo] = {}
        self.ends: dict[int, int] = {}  # partition id -> its end; an offset is a byte here
        self.starts: dict[int, int] = {}
        self.acked = self.written = 0
        self.most = 0  # segments at a time
        self.most_first = 0  # of the first level
        self.now_ms = 0
        self._ids = itertools.count(1)

    def flush(self, sizes: dict[int, int]) -> None:
        extents = []
        for partition_id, size in sizes.items():
            base = self.ends.get(partition_id, 0)
            self.ends[partition_id] = base + size
            self.starts.setdefault(partition_id, 0)
            extents.append(extent(partition_id, base, base + size, size, at_ms=self.now_ms))
        made = segment(next(self._ids), extents)
        self.acked += sum(sizes.values())
        self._add([made])
        self.most_first = max(self.most_first, len(first_level(self.segments.values())))
        self.settle()

    def settle(self) -> None:
        """Merge whatever is due."""
        while plan := finish(plan_merge(list(self.segments.values()), self.starts)):
            assert not finish(is_apart(plan.inputs, self.segments.values()))
            self.carry_out(plan)
        self.most = max(self.most, len(self.segments))

    def retain(self, live: Callable[[int], int]) -> None:
        """Move starts; what is wholly dead goes, what is mostly dead is written again."""
        for partition_id, end in self.ends.items():
            self.starts[partition_id] = max(self.starts[partition_id], end - live(partition_id))
        for each in list(self.segments.values()):
            if not live_bytes(each, self.starts):
                del self.segments[each.segment_id]
        while plan := finish(plan_rewrite(self.segments.values(), self.starts)).plan:
            self.carry_out(plan)

    def carry_out(self, plan: Plan) -> None:
        """What log/merge.py does."""
        parts: dict[int, list[tuple[int, ...]]] = {}
        for each in plan.inputs:
            for row in each.partitions.rows():
                if row[2] > self.starts[row[0]]:
                    parts.setdefault(row[0], []).append(row)
            del self.segments[each.segment_id]
        outputs: list[list[Extent]] = []
        shared: list[Extent] = []
        for partition_id, rows in sorted(parts.items()):
            rows.sort(key=lambda row: row[1])
            size = sum(row[4] for row in rows)
            base, end, times = rows[0][1], rows[-1][2], (rows[0][-2], rows[-1][-1])
            if size < plan.own_bytes:
                shared.append(_extent(partition_id, base, end, size, times))
                if sum(each.size for each in shared) >= plan.target_bytes:
                    outputs.append(shared)
                    shared = []
                continue
            while size:  # an offset is a byte as long as nothing was dropped within
                some = min(size, plan.target_bytes)
                stop = end if some == size else base + some
                outputs.append([_extent(partition_id, base, stop, some, times)])
                base, size = stop, size - some
        assert len(outputs) < plan.outputs_max
        sequences = (
            min(each.first_sequence for each in plan.inputs),
            max(each.last_sequence for each in plan.inputs),
        )
        self._add(
            segment(next(self._ids), each, level=plan.level, sequences=sequences)
            for each in (*outputs, shared)
            if each
        )

    def _add(self, made: Iterable[SegmentInfo]) -> None:
        for each in made:
            self.written += each.size
            self.segments[each.segment_id] = each

    @property
    def amplification(self) -> float:
        return self.written / self.acked

    @property
    def live(self) -> int:
        return sum(live_bytes(each, self.starts) for each in self.segments.values())


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
    segments = flushes(count, size)

    plan = finish(plan_merge(segments, {1: 0}))

    assert ids(plan) == (list(range(1, count + 1)) if due else [])
    assert plan is None or plan.level == 1


def test_large_partitions_get_their_own_segments_only_where_the_rest_is_a_small_share():
    large = finish(plan_merge(flushes(8, 64 * MIB), {1: 0}))
    small = finish(plan_merge(flushes(8, 20 * MIB), {1: 0}))

    assert large is not None
    assert small is not None
    assert large.own_bytes == OWN_BYTES
    assert small.own_bytes > TARGET_BYTES
    assert OWN_FROM_BYTES < 8 * 64 * MIB


def test_dead_segments_and_those_to_leave_alone_are_not_merged():
    segments = [*flushes(9, 64 * MIB), *flushes(1, 64 * MIB, first=10, partition_id=2)]

    plan = finish(plan_merge(segments, {1: 4 * 64 * MIB}, skip={9}))
    rest = finish(plan_merge(segments, {1: 0, 2: 0}, skip={9, 10}))

    assert plan is None  # 1 to 3 and 10 are dead, 9 is damaged: six are left
    assert ids(rest) == [1, 2, 3, 4, 5, 6, 7, 8]


def merged(segment_id: int, *extents: Extent, level: int = 1) -> SegmentInfo:
    return segment(segment_id, extents, level=level, sequences=(segment_id, segment_id))


def test_small_segments_of_a_level_are_merged_when_eight_of_it_wait():
    older = [merged(at, extent(1, at, at + 1, 9 * MIB), level=2) for at in range(1, 8)]
    newer = [merged(at, extent(1, at, at + 1, MIB)) for at in range(8, 15)]
    one_more = merged(15, extent(1, 15, 16, MIB))

    assert finish(plan_merge([*older, *newer], {1: 0})) is None
    plan = finish(plan_merge([*older, *newer, one_more], {1: 0}))

    assert plan is not None
    assert ids(plan) == list(range(8, 16))
    assert plan.level == 2


def test_what_lies_between_keeps_segments_apart():
    """Partition 1 was large once and has a segment of its own between 4 and 6."""
    small = [
        merged(at, extent(1, at, at + 1, MIB), extent(2, at, at + 1, MIB)) for at in range(1, 5)
    ]
    own = merged(5, extent(1, 5, 6, GIB))
    more = [
        merged(at, extent(1, at, at + 1, MIB), extent(2, at, at + 1, MIB)) for at in range(6, 10)
    ]

    plan = finish(plan_merge([*small, own, *more], {1: 0, 2: 0}))

    assert ids(plan) == [1, 2, 3, 4]  # they get no more company


def test_what_others_have_of_the_same_time_keeps_nothing_apart():
    small = [merged(at, extent(2, at, at + 1, MIB)) for at in range(1, 10) if at != 5]
    own = merged(5, extent(1, 5, 6, GIB))

    assert ids(finish(plan_merge([*small, own], {1: 0, 2: 0}))) == [1, 2, 3, 4, 6, 7, 8, 9]


def test_small_segments_are_not_merged_over_more_than_a_day():
    hour_ms = SPAN_MS_MAX // 24
    small = [merged(at, extent(1, at, at + 1, MIB, at_ms=3 * at * hour_ms)) for at in range(1, 14)]

    assert ids(finish(plan_merge(small, {1: 0}))) == list(range(1, 10))


def test_a_segment_is_rewritten_when_more_than_half_of_it_is_dead():
    half = merged(1, extent(1, 0, 10, 10 * MIB), extent(2, 0, 10, 10 * MIB))
    more = merged(2, extent(1, 10, 20, 11 * MIB), extent(2, 10, 20, 10 * MIB))
    gone = merged(3, extent(1, 20, 30, MIB))

    found = finish(plan_rewrite([half, more, gone], {2: 0}))

    assert found.bytes == 22 * MIB
    assert ids(found.plan) == [2]
    assert finish(plan_rewrite([half, more, gone], {2: 0}, skip={2})).plan is None


def test_what_counts_no_more_in_a_segment_is_dead_in_it():
    held = merged(1, extent(1, 0, 10, 11 * MIB), extent(2, 0, 10, 10 * MIB))

    found = finish(plan_rewrite([without(held, [1])], {1: 0, 2: 0}))

    assert ids(found.plan) == [1]


def test_what_dies_in_order_is_not_copied_on_the_way():
    own = merged(1, extent(1, 0, 1_000, GIB))

    assert finish(plan_rewrite([own], {1: 999})).plan is None


# ── the rule, by brute force ──────────────────────────────────────────────────────────────────


def lies_apart(inputs: Sequence[SegmentInfo], known: Iterable[SegmentInfo]) -> bool:
    """The rule as it is spelt in MergeJob."""
    mine = {each.segment_id for each in inputs}
    for partition_id in {each for info in inputs for each in info.partitions}:
        held = [e.partitions[partition_id] for e in inputs if partition_id in e.partitions]
        for other in known:
            found = other.partitions.find(partition_id)
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
        assert finish(is_apart(some, known)) == lies_apart(some, known)
        skip = {each.segment_id for each in known if random.random() < 0.1}
        plan = finish(plan_merge(known, world.starts, skip))
        if plan is not None:
            assert not lies_apart(plan.inputs, known)
            assert not skip & set(ids(plan))
            world.carry_out(plan)


def test_a_plan_holds_the_loop_up_for_a_few_milliseconds_at_most():
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

    slowest = []
    for steps in (plan_merge(segments, starts), plan_rewrite(segments, starts)):
        took = []
        began = time.perf_counter()
        for _ in steps:
            took.append(time.perf_counter() - began)
            began = time.perf_counter()
        slowest.append(sorted(took)[len(took) * 9 // 10])

    assert max(slowest) < 0.02  # 1 to 3 ms here; other tests may be running


def test_thousands_of_small_segments_are_planned_a_few_at_a_time():
    """As compaction leaves them: one partition each, all of one time."""
    small = [
        segment(at, [extent(at, 0, 9, MIB)], level=1, sequences=(1, 10_000))
        for at in range(1, 5_001)
    ]
    starts = dict.fromkeys(range(1, 5_001), 0)

    began = time.process_time()
    plan = finish(plan_merge(small, starts))

    assert ids(plan) == list(range(1, 33))
    assert time.process_time() - began < 1  # 0.1 here
