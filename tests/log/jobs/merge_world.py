"""Segments that are numbers alone, and a log of them on which plans of merges are carried out."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from trilogue.log.jobs.merge_plan import (
    KnownSegments,
    Plan,
    first_level,
    is_apart,
    live_bytes,
    plan_merge,
    plan_rewrite,
)
from trilogue.log.segments.extents import Extent, Extents
from trilogue.log.segments.segment_info import SegmentInfo, segment_name
from trilogue.log.steps import to_the_end

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
        made = replace(segment(next(self._ids), extents), created_ms=self.now_ms)
        self.acked += sum(sizes.values())
        self._add([made])
        self.most_first = max(self.most_first, len(first_level(self.segments.values())))
        self.settle()

    def settle(self) -> None:
        """Merge whatever is due."""
        while plan := to_the_end(
            plan_merge(list(self.segments.values()), self.starts, (), self.now_ms)
        ):
            assert not to_the_end(is_apart(plan.inputs, KnownSegments(self.segments.values())))
            self.carry_out(plan)
        self.most = max(self.most, len(self.segments))

    def retain(self, live: Callable[[int], int]) -> None:
        """Move starts; what is wholly dead goes, what is mostly dead is written again."""
        for partition_id, end in self.ends.items():
            self.starts[partition_id] = max(self.starts[partition_id], end - live(partition_id))
        for each in list(self.segments.values()):
            if not live_bytes(each, self.starts):
                del self.segments[each.segment_id]
        while plan := to_the_end(plan_rewrite(self.segments.values(), self.starts)).plan:
            self.carry_out(plan)

    def carry_out(self, plan: Plan) -> None:
        """What log/jobs/merge.py does."""
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
