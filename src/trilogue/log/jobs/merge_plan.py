"""Decides which segments are merged, and when, as a pure function of their metadata.

```
 flush ──► level 0, at most 16 ──► merged all together ──► large: done
                                       (8, or 1 GiB)   └──► small: merged again when 8 of a level
                                                            wait, until they are large
 few large partitions ──► rests ten minutes, then merged by the GiB
 mostly dead ──► rewritten without its dead entries
```

Every byte is written once by a flush and once by the merge of the first level; only what stays
small is written a third time: the rest beside the segments of large partitions, and partitions with
little traffic. The numbers below keep that share small (docs/decisions/0020). A flush with few
partitions and much of each need not be merged soon: it reads well as it is, and the disk is needed
for the traffic that fills the journal so fast (docs/decisions/0057).

Inputs of a merge must be adjacent: where a segment that is not an input has messages between those
of two inputs, the output would lie on both sides of it. A check of all segments takes a while, so
plans are generators: each step is about a millisecond for ten thousand partitions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import compress
from operator import attrgetter, lt
from typing import Final, NamedTuple

import msgspec

from trilogue.log.segments.segment import HEADER
from trilogue.log.segments.segment_info import SegmentInfo
from trilogue.log.steps import Steps

FIRST_LEVEL_MIN: Final = 8  # so many are merged if the output is large enough to be final
FIRST_LEVEL_DUE: Final = 12  # so many are merged in any case; the merge of more is not paced
FIRST_LEVEL_MAX: Final = 16  # a flush waits for a merge then
FIRST_LEVEL_LAST: Final = 64  # and for any other background job
FIRST_LEVEL_BYTES: Final = 1 << 30  # so many bytes are merged, however few segments they are
LARGE_BYTES: Final = 32 << 20  # a flush of this size rests,
LARGE_EXTENT: Final = 2 << 20  # if its extents have this size on average,
REST_MS: Final = 600_000  # for this long
SMALL_BYTES: Final = 64 << 20  # a merged segment with less is merged again
SMALL_MIN: Final = 8  # of one level
OWN_BYTES: Final = 128 << 20  # a partition of this size gets segments of its own
OWN_FROM_BYTES: Final = (
    6 * SMALL_BYTES
)  # in merges from here on, so that a small rest is a small share
TARGET_BYTES: Final = 1 << 30  # of a segment
INPUTS_MAX: Final = 32
SPAN_MS_MAX: Final = (
    24 * 3_600_000
)  # small segments are not merged over more: retention is by extent
DEAD_SHARE: Final = 0.5
_NEVER: Final = 1 << 62
_STEP: Final = 5_000  # extents checked in one step

_age = attrgetter("first_sequence", "last_sequence", "segment_id")


class Plan(msgspec.Struct, frozen=True):
    """What to merge, and how; see MergeJob."""

    kind: str  # "merge" or "rewrite"
    inputs: tuple[SegmentInfo, ...]
    level: int
    own_bytes: int
    target_bytes: int

    @property
    def size(self) -> int:
        """Bytes to read at most, and to write at most."""
        return sum(each.size for each in self.inputs)

    @property
    def outputs_max(self) -> int:
        """The largest possible number of outputs."""
        size = self.size
        return 2 + 2 * (size // self.target_bytes) + size // self.own_bytes


def data_bytes(segment: SegmentInfo) -> int:
    """Bytes of entries in the file, including dead ones."""
    return segment.footer_position - HEADER.size


def live_bytes(segment: SegmentInfo, starts: Mapping[int, int]) -> int:
    """Bytes of entries in extents that are readable at least in part."""
    column = segment.partitions.column
    ends = column("end_offset")
    firsts = map(starts.get, segment.partitions.ids, ends)  # of an unknown partition: its end
    return sum(compress(column("size"), map(lt, firsts, ends)))


def first_level(segments: Iterable[SegmentInfo], skip: Collection[int] = ()) -> list[SegmentInfo]:
    """Return the segments that wait for their first merge, oldest first, except those at rest."""
    found = [
        each
        for each in segments
        if not each.level and each.segment_id not in skip and not is_large_flush(each)
    ]
    return sorted(found, key=_age)


def is_large_flush(segment: SegmentInfo) -> bool:
    """Whether it is unmerged, and has much of each of few partitions."""
    if segment.level:
        return False
    size = data_bytes(segment)
    return size >= LARGE_BYTES and size >= LARGE_EXTENT * len(segment.partitions)


# ── merges ────────────────────────────────────────────────────────────────────────────────────


def plan_merge(
    segments: Collection[SegmentInfo],
    starts: Mapping[int, int],
    skip: Collection[int] = (),
    now_ms: int = 0,
    *,
    is_one_journal: bool = True,
) -> Steps[Plan | None]:
    """Return the merge that is due; `starts` of known partitions, `skip`: excluded segments.

    `segments` are all that have messages of these partitions: none may lie between the inputs.
    `is_one_journal`: all are of one, so that numbers of frames say which can.
    """
    known = KnownSegments(segments, is_one_journal=is_one_journal)
    waiting = first_level(segments, skip)
    plan = yield from _plan_first_level(known, starts, waiting)
    plan = plan or (yield from _plan_small(known, starts, small_ones(segments, skip)))
    if plan is None and (rested := _rested(segments, skip, now_ms)):
        plan = yield from _plan_rested(known, starts, sorted([*waiting, *rested], key=_age))
    return plan


def may_be_due(
    segments: Iterable[SegmentInfo], skip: Collection[int], now_ms: int = 0
) -> frozenset[int]:
    """Return the segments that a plan could contain; empty where no plan is possible.

    If they had no plan once, they have none later, as long as they are the same.
    """
    segments = list(segments)
    waiting, small = first_level(segments, skip), small_ones(segments, skip)
    rested = _rested(segments, skip, now_ms)
    found = list(rested)
    if rested or _is_due(waiting):
        found += waiting
    if found or len(small) >= SMALL_MIN:
        found += small
    return frozenset(each.segment_id for each in found)


def small_ones(segments: Iterable[SegmentInfo], skip: Collection[int] = ()) -> list[SegmentInfo]:
    """Return the segments that were merged and stayed small, oldest first."""
    found = [
        each
        for each in segments
        if each.level and data_bytes(each) < SMALL_BYTES and each.segment_id not in skip
    ]
    return sorted(found, key=_age)


def _plan_first_level(
    known: KnownSegments, starts: Mapping[int, int], waiting: Sequence[SegmentInfo]
) -> Steps[Plan | None]:
    if not _is_due(waiting):
        return None
    alive = yield from _alive(waiting, starts)
    runs = yield from _runs(alive, known, _NEVER)
    for run in runs:
        if _is_due(run) or (run is not runs[-1] and len(run) > 1):
            return _plan(run, 1)
    return None


def _plan_rested(
    known: KnownSegments, starts: Mapping[int, int], waiting: Sequence[SegmentInfo]
) -> Steps[Plan | None]:
    """Plan the merge of rested flushes, with the waiting segments between them."""
    alive = yield from _alive(waiting, starts)
    runs = yield from _runs(alive, known, _NEVER)
    for run in runs:
        is_cut_off = run is not runs[-1] and len(run) > 1
        if is_cut_off or sum(map(data_bytes, run)) >= FIRST_LEVEL_BYTES:
            return _plan(run, 1)
    return None


def _rested(
    segments: Iterable[SegmentInfo], skip: Collection[int], now_ms: int
) -> list[SegmentInfo]:
    """Return the large flushes that have rested long enough, if they are worth a merge.

    Those in object storage stay as they are.
    """
    found = [
        each
        for each in segments
        if is_large_flush(each)
        and not each.store
        and each.segment_id not in skip
        and now_ms - each.created_ms >= REST_MS
    ]
    return found if sum(map(data_bytes, found)) >= FIRST_LEVEL_BYTES else []


def _plan_small(
    known: KnownSegments, starts: Mapping[int, int], small: Sequence[SegmentInfo]
) -> Steps[Plan | None]:
    if len(small) < SMALL_MIN:
        return None
    alive = yield from _alive(small, starts)
    runs = yield from _runs(alive, known, SPAN_MS_MAX)
    return (yield from _tier(runs, known))


def _is_due(waiting: Sequence[SegmentInfo]) -> bool:
    """Whether segments of the first level are many or large enough."""
    count, size = len(waiting), sum(map(data_bytes, waiting))
    if count >= FIRST_LEVEL_DUE or (count > 1 and size >= FIRST_LEVEL_BYTES):
        return True
    return count >= FIRST_LEVEL_MIN and size >= SMALL_BYTES


def _tier(runs: Sequence[Sequence[SegmentInfo]], known: KnownSegments) -> Steps[Plan | None]:
    """Plan a merge of small segments: many of one level, or a run that cannot grow any more."""
    for run in runs:
        if run is not runs[-1] and len(run) > 1:  # something lies between this run and the next
            return _plan(run, 1 + max(each.level for each in run))
    for level in sorted({each.level for run in runs for each in run}):
        for run in runs:
            places = [at for at, each in enumerate(run) if each.level == level]
            if len(places) >= SMALL_MIN:
                some = run[places[0] : places[-1] + 1]
                if (yield from is_apart(some, known)):  # by an older one of the same run
                    some = run[: places[-1] + 1]
                return _plan(some, level + 1)
    return None


def _plan(run: Sequence[SegmentInfo], level: int) -> Plan:
    inputs = tuple(run[:INPUTS_MAX])
    is_large = sum(map(data_bytes, inputs)) >= OWN_FROM_BYTES
    return Plan("merge", inputs, level, OWN_BYTES if is_large else _NEVER, TARGET_BYTES)


def _alive(segments: Iterable[SegmentInfo], starts: Mapping[int, int]) -> Steps[list[SegmentInfo]]:
    """Leave out segments without live entries, which retention deletes."""
    found = []
    for segment in segments:
        if live_bytes(segment, starts):
            found.append(segment)
        yield
    return found


# ── which segments may be merged together ─────────────────────────────────────────────────────


def _runs(
    segments: Sequence[SegmentInfo], known: KnownSegments, span_ms: int
) -> Steps[list[list[SegmentInfo]]]:
    """Split segments, oldest first, wherever another one lies between them, or too much time.

    It stops at the first split after a run of more than one: that run is merged first.
    """
    runs: list[list[SegmentInfo]] = [[]]
    span = _Span()
    for segment in segments:
        yield from span.add(segment)
        is_full = len(runs[-1]) == INPUTS_MAX or span.ms > span_ms
        if runs[-1] and (is_full or (yield from span.has_others_within(known))):
            runs.append([])
            if len(runs[-2]) > 1:
                runs[-1].append(segment)
                break
            span = _Span()
            yield from span.add(segment)
        runs[-1].append(segment)
    return runs


class KnownSegments(NamedTuple):
    """The segments that may lie between inputs."""

    segments: Collection[SegmentInfo]
    is_one_journal: bool = True


def is_apart(inputs: Iterable[SegmentInfo], known: KnownSegments) -> Steps[bool]:
    """Return whether another segment has messages between those of two inputs, in any partition."""
    span = _Span()
    for segment in inputs:
        yield from span.add(segment)
    return (yield from span.has_others_within(known))


class _Span:
    """The range that segments cover: in frames, in offsets, in time."""

    def __init__(self) -> None:
        self._ids: set[int] = set()
        self._sequences = (_NEVER, -1)
        self._times = (_NEVER, -1)
        self._ends: dict[int, int] = {}  # partition id -> the first of the extents' ends
        self._bases: dict[int, int] = {}  # partition id -> the last of the extents' bases

    @property
    def ms(self) -> int:
        """The time between the first and the last append, in ms."""
        return max(0, self._times[1] - self._times[0])

    def add(self, segment: SegmentInfo) -> Steps[None]:
        """Add one more segment."""
        column = segment.partitions.column
        self._ids.add(segment.segment_id)
        first, last = self._sequences
        self._sequences = min(first, segment.first_sequence), max(last, segment.last_sequence)
        first, last = self._times
        self._times = (
            min(first, min(column("min_append_ms"), default=first)),
            max(last, max(column("max_append_ms"), default=last)),
        )
        ends, bases = self._ends, self._bases
        for some in _portions(segment):
            columns = (column(each)[some] for each in ("partition_id", "base_offset", "end_offset"))
            for partition_id, base, end in zip(*columns, strict=True):
                if end < ends.get(partition_id, _NEVER):
                    ends[partition_id] = end
                if base > bases.get(partition_id, -1):
                    bases[partition_id] = base
            yield

    def has_others_within(self, known: KnownSegments) -> Steps[bool]:
        """Return whether a segment that was not added has messages between those of two others.

        Offsets grow with the frames of the journal, so it must have been made from frames between
        theirs. Mostly there is no such segment, and the check ends there. Frames of several
        journals cannot be compared.
        """
        first, last = self._sequences
        ends, bases, looked_at = self._ends, self._bases, 0
        for other in known.segments:
            if other.segment_id in self._ids:
                continue
            is_elsewhere = other.first_sequence > last or other.last_sequence < first
            if known.is_one_journal and other.last_sequence and is_elsewhere:
                continue
            column = other.partitions.column
            for some in _portions(other):
                columns = (column(each)[some] for each in ("partition_id", "base_offset"))
                for partition_id, base in zip(*columns, strict=True):
                    if ends.get(partition_id, _NEVER) <= base < bases.get(partition_id, -1):
                        return True
                looked_at += some.stop - some.start + 10
                if looked_at > _STEP:
                    looked_at = 0
                    yield
        return False


def _portions(segment: SegmentInfo) -> list[slice]:
    """Split the indexes of extents into steps."""
    count = len(segment.partitions)
    return [slice(at, min(count, at + _STEP)) for at in range(0, count, _STEP)]


# ── rewrites ──────────────────────────────────────────────────────────────────────────────────


class Dead(msgspec.Struct, frozen=True):
    """The dead bytes in segments, and the rewrite that frees most of them."""

    bytes: int
    plan: Plan | None


def plan_rewrite(
    segments: Iterable[SegmentInfo], starts: Mapping[int, int], skip: Collection[int] = ()
) -> Steps[Dead]:
    """Find the segment that is most worth a rewrite: more than half of it is dead.

    An extent counts as live as long as any of it is: data that expires in order is deleted in
    order, without being copied. Wholly dead segments are left to retention.
    """
    dead_bytes, most, found = 0, 0, None
    for segment in segments:
        size, live = data_bytes(segment), live_bytes(segment, starts)
        dead_bytes += size - live
        is_worth_it = live and size - live > DEAD_SHARE * size and size - live > most
        if is_worth_it and segment.segment_id not in skip:
            most, found = size - live, segment
        yield
    if found is None:
        return Dead(dead_bytes, None)
    plan = Plan("rewrite", (found,), max(1, found.level), _NEVER, TARGET_BYTES)
    return Dead(dead_bytes, plan)
