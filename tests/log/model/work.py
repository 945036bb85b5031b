"""What a node does with segments in the background: flush, merge, retention."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.log.model.machine import BATCHES, SEEDS, TROUBLE, WHICH, Batch, Steps
from tests.log.model.model import base_of, end_of, split, time_of
from tests.log.model.node import CALM, GRACE_S, Trouble
from tests.log.model.reading import WHERE, ReadingMachine
from trilogue.broker.settings.topic_settings import TopicSettings
from trilogue.log.errors import CorruptLog
from trilogue.log.jobs import merge_plan
from trilogue.log.jobs.merge_plan import Plan, live_bytes
from trilogue.log.segments.segment_info import SegmentInfo
from trilogue.log.segments.segment_reader import SegmentReader
from trilogue.node.background import merge as merging

JOBS_MAX = 50
IN_HELPER = st.builds(Trouble, st.just("helper"), st.integers(0, 8))


class WorkingMachine(ReadingMachine):
    """Everything together."""

    @rule(trouble=TROUBLE | IN_HELPER, seed=SEEDS)
    def flush(self, trouble: Trouble, seed: int) -> None:
        self.attempt(self.node.loop.run)
        self.attempt(self.node.log.seal)
        if not self.node.log.sealed:
            return
        self.attempt(self.node.flush, trouble, seed)

    @precondition(lambda self: self.model.parts)
    @rule(batches=BATCHES, rounds=st.integers(2, 4))
    def grow(self, batches: list[Batch], rounds: int) -> None:
        """Some more segments."""
        for _ in range(rounds):
            if self.attempt(partial(self.append_all, batches)):
                self.flush(CALM, 0)

    @rule()
    def settle(self) -> None:
        """With everything in segments and no view of it left, the tails take no memory; with all
        merges done that are due, few segments are left unmerged."""
        node = self.node

        def action() -> None:
            node.loop.pass_time(1)
            node.loop.run()
            node.log.seal()
            while node.log.sealed:
                node.flush()
            node.loop.work()
            jobs = 0
            while node.maintain():
                jobs += 1
                assert jobs < JOBS_MAX, "it finds something to do for ever"

        if self.attempt(action):
            self.held.clear()
            self.notice()
            assert not self.model.hoped
            assert node.log.tail_bytes == 0
            assert node.log.tail_entries == 0
            assert not node.log.under_pressure
            starts = {each: part.start for each, part in self.model.parts.items()}
            waiting = merge_plan.first_level(node.state.segments.values())
            alive = [each for each in waiting if live_bytes(each, starts)]
            assert len(alive) <= merging.FIRST_LEVEL_LAST

    # -- merges ----------------------------------------------------------------------------

    @rule(hold=st.booleans(), trouble=TROUBLE | IN_HELPER, seed=SEEDS)
    def maintain(self, hold: bool, trouble: Trouble, seed: int) -> None:
        """Do what is due; with `hold` other things happen between a job and its result."""
        self.work_on(None, hold, trouble, seed)

    @precondition(lambda self: self.node.state.segments and not self.node.job)
    @rule(
        first=st.integers(0, 9),
        count=st.integers(1, 9),
        own_bytes=st.sampled_from([500, 20_000]),
        target_bytes=st.sampled_from([2_000, 50_000]),
        hold=st.booleans(),
        trouble=TROUBLE | IN_HELPER,
        seed=SEEDS,
    )
    def merge(
        self,
        *,
        first: int,
        count: int,
        own_bytes: int,
        target_bytes: int,
        hold: bool,
        trouble: Trouble,
        seed: int,
    ) -> None:
        """Merge any segments that may be merged (of one: rewrite it)."""
        inputs = self.neighbours(first, count)
        level = 1 + max(each.level for each in inputs)
        plan = Plan("merge", inputs, level, own_bytes, target_bytes)
        self.work_on(plan, hold, trouble, seed)

    def work_on(
        self, plan: Plan | None, hold: bool, trouble: Trouble, seed: int, *, compact: bool = False
    ) -> None:
        node, life = self.node, self.node.maintenance

        def action() -> None:
            failures = life.failures
            before = {kind: each.jobs for kind, each in life.counts.items()}
            node.maintain(plan, compact=compact, hold=hold)
            assert not node.merging.skip, "nothing is damaged"
            for kind, each in life.counts.items():
                Steps.events[f"{kind} done"] += each.jobs - before.get(kind, 0)
            if trouble == CALM:
                assert life.failures in {0, failures}, "a job failed, out of nothing"

        self.attempt(action, trouble, seed)

    def covered(self, partition_id: int, segments: Iterable[SegmentInfo]) -> int:
        """How many messages of a partition segments hold, from its start on."""
        start = self.model.parts[partition_id].start
        found = [each.partitions.find_extent(partition_id) for each in segments]
        return sum(max(0, each.end_offset - max(start, each.base_offset)) for each in found if each)

    def neighbours(self, first: int, count: int) -> tuple[SegmentInfo, ...]:
        """Some segments, and all that hold entries between those of two of them."""
        known = sorted(self.node.state.segments.values(), key=lambda each: each.segment_id)
        chosen = (known * 2)[first % len(known) :][: min(count, len(known))]
        while True:
            between = [
                each
                for each in known
                if each not in chosen
                and any(
                    self.is_between(each, partition_id, chosen) for partition_id in each.partitions
                )
            ]
            if not between:
                return tuple(chosen)
            chosen += between

    def is_between(
        self, segment: SegmentInfo, partition_id: int, chosen: list[SegmentInfo]
    ) -> bool:
        found = [each.partitions.find_extent(partition_id) for each in chosen]
        bases = [each.base_offset for each in found if each is not None]
        return bool(bases) and (
            min(bases) < segment.partitions[partition_id].base_offset < max(bases)
        )

    @precondition(lambda self: self.node.state.segments)
    @rule(which=st.integers(0, 9), where=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
    def merge_what_is_damaged(self, which: int, where: float, bit: int) -> None:
        """A merge never turns damage into bytes that look right."""
        node, known = self.node, self.node.state.segments
        inputs = self.neighbours(which, 2)
        path = node.directory.segments / inputs[0].name
        at = int(where * len(node.fs.names[path].data))
        node.fs.flip(path, at, bit)
        try:
            job, result = node.merge(inputs)
        except CorruptLog:
            return
        finally:
            node.fs.flip(path, at, bit)
        swap = result.swap(job)
        stay = [each for number, each in known.items() if number not in swap.removed]
        for each in self.model.parts.keys() - node.compacted:  # those have holes
            was = self.covered(each, known.values())
            changed = {info.segment_id: info for info in (*stay, *swap.changed, *swap.added)}
            assert self.covered(each, changed.values()) == was
        spoilt = []
        for info in result.added:
            reader = SegmentReader.open(node.fs, node.directory.segments / info.name, info)
            for each, part in self.model.parts.items():
                extent = info.partitions.find_extent(each)
                expected = part.since(extent.base_offset if extent else part.end)
                try:
                    entries = split(reader.read(each, 0, 1 << 40))
                except CorruptLog:
                    spoilt.append(each)
                else:
                    if each in node.compacted:
                        self.check_some(each, entries)
                        continue
                    kept = [entry for entry in entries if end_of(entry) > part.start]
                    assert kept == expected[: len(kept)]
                    assert not extent or len(entries) == extent.entry_count
            reader.close()
        left = {each for partition_ids in result.left.values() for each in partition_ids}
        assert len(set(spoilt) | left) <= 1, "one bit is about one partition"
        node.retired.discard(each.name for each in result.added)

    # -- starts ----------------------------------------------------------------------------

    @precondition(lambda self: self.model.parts)
    @rule(which=WHICH, where=WHERE, trouble=TROUBLE, seed=SEEDS)
    def delete_records(self, which: int, where: float, trouble: Trouble, seed: int) -> None:
        """The start moves to any offset below the end; meta knows it first."""
        partition_id = self.pick(which)
        part = self.model.parts[partition_id]
        start = part.start + round(where * where * (part.end - part.start) / 2)
        self.start_at({partition_id: start}, trouble, seed)

    def start_at(self, starts: dict[int, int], trouble: Trouble, seed: int) -> None:
        self.wanted_starts.update(starts)

        def action() -> None:
            self.node.delete_records(starts)
            self.follow_meta()

        self.attempt(action, trouble, seed)

    @rule(
        age_ms=st.sampled_from([-1, -1, 50, 100_000]),
        by_record=st.booleans(),
        most_bytes=st.sampled_from([-1, -1, 0, 20_000, 100_000]),
        trouble=TROUBLE,
        seed=SEEDS,
    )
    def retain(
        self, *, age_ms: int, by_record: bool, most_bytes: int, trouble: Trouble, seed: int
    ) -> None:
        """What goes is too old or too much; what stays in segments is not."""
        node = self.node
        if by_record and age_ms >= 0:
            age_ms += node.loop.time_ms - 30  # records have small times
        settings = TopicSettings(
            retention_ms=age_ms, retention_by_record_time=by_record, retention_bytes=most_bytes
        )
        before = {each: part.start for each, part in self.model.parts.items()}
        for each in self.model.parts:  # how far is what the log decides, and is compared below
            ends = [e.end_offset for e in node.log.partition(each).extents]
            self.wanted_starts[each] = before[each]
            self.may_start[each] = {*ends, before[each]}

        def action() -> None:
            oldest_ms = node.loop.time_ms - age_ms
            node.retain(settings)
            self.follow_meta()
            for each, start in before.items():
                if each in node.compacted:
                    assert self.model.parts[each].start == start
                    continue
                self.check_retention(each, start, oldest_ms, settings)

        self.attempt(action, trouble, seed)
        self.may_start.clear()

    def check_retention(
        self, partition_id: int, start: int, oldest_ms: int, settings: TopicSettings
    ) -> None:
        part = self.model.parts[partition_id]
        went = [each for each in part.entries if start < end_of(each) <= part.start]
        kept = sum(map(len, part.since(0))) + sum(
            len(data) for each, data in self.model.hoped if each == partition_id
        )
        is_too_much = kept >= settings.retention_bytes >= 0
        if settings.retention_ms < 0:
            assert is_too_much or not went
        elif not is_too_much:
            assert all(self.newest_ms(partition_id, each, settings) < oldest_ms for each in went)
        if settings.retention_bytes == 0:
            assert part.start >= self.node.state.partitions[partition_id].flushed_end

    def newest_ms(self, partition_id: int, entry: bytes, settings: TopicSettings) -> int:
        if settings.retention_by_record_time and time_of(entry) >= 0:
            return time_of(entry)
        return self.appended_ms[partition_id, base_of(entry)]

    @rule(trouble=TROUBLE, seed=SEEDS)
    def remove_retired_files(self, trouble: Trouble, seed: int) -> None:
        """The grace period is over: plans from before it are."""

        def action() -> None:
            self.node.loop.pass_time(GRACE_S + 1)
            self.node.loop.run()
            self.node.write_manifest()
            self.node.write_manifest()  # if it failed: there is a second for each try
            self.node.remove_retired()

        self.plans.clear()
        self.sealed = None
        self.attempt(action, trouble, seed)

    def teardown(self) -> None:
        self.node.fs.kill()
        self.open()
        self.inspect_segments()
