"""Looking at the log in every way there is, and what must be true after each step."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from tests.log.model.machine import WHICH, Machine, Steps, bytes_of
from tests.log.model.model import Part, base_of, end_of, epoch_of, split, time_of
from tests.log.model.node import Trouble
from tests.log.rig import DATA
from trilogue.log.errors import CorruptLog, OffsetOutOfRange, UnknownPartition
from trilogue.log.files import FileSystem
from trilogue.log.journal.frame import decode_file_header, iter_frames
from trilogue.log.partition_log import SegmentSlice, TailSlice
from trilogue.log.segments.manifest import MANIFEST_NAME
from trilogue.log.segments.sealed import SealedLog
from trilogue.log.segments.segment_info import SegmentInfo
from trilogue.log.segments.segment_reader import SegmentReader

MOST = st.integers(1, 9999) | st.just(1 << 30)  # bytes requested
WHERE = st.floats(0, 1)
HELD_MAX = 20


class ReadingMachine(Machine):
    """Reads, and invariants."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[tuple[memoryview | bytes, bytes]] = []  # views of the tail, and their bytes
        self.sealed: SealedLog | None = None  # as a reader without a broker found it
        self.plans: list[
            tuple[SegmentSlice, int, int, int]
        ] = []  # not run yet: of which partition, what

    def let_go(self) -> None:
        self.held.clear()
        self.plans.clear()
        self.sealed = None

    # -- reads -----------------------------------------------------------------------------

    @precondition(lambda self: self.model.parts)
    @rule(which=WHICH, where=WHERE, most=MOST)
    def read(self, which: int, where: float, most: int) -> None:
        """Whole entries from the one with the offset on."""
        partition_id = self.pick(which)
        _, offset = self.part_and_offset(partition_id, where)
        found = self.node.log.partition(partition_id).read(offset, most)
        self.compare(partition_id, bytes_of(found), offset, most)

    def part_and_offset(self, partition_id: int, where: float) -> tuple[Part, int]:
        part = self.model.parts[partition_id]
        return part, part.start + round(where * (part.end - part.start))

    @rule(where=WHERE, most=MOST)
    def plan_reads(self, where: float, most: int) -> None:
        """Read somewhere in every partition, and keep what came of it for later."""
        if len(self.held) + len(self.plans) >= HELD_MAX:
            return
        for each in self.model.parts:
            _, offset = self.part_and_offset(each, where)
            found = self.node.log.partition(each).read(offset, most)
            if isinstance(found, SegmentSlice):
                self.plans.append((found, each, offset, most))
            else:
                self.compare(each, bytes_of(found), offset, most)
                self.held += [(view, bytes(view)) for view in found.slices]

    def compare(self, partition_id: int, data: bytes, offset: int, most: int) -> None:
        entries, part = split(data), self.model.parts[partition_id]
        assert len(data) <= most or len(entries) == 1
        if partition_id in self.node.compacted:
            self.check_some(partition_id, entries)
            return
        expected = [each for each in part.entries if end_of(each) > offset]
        assert entries == expected[: len(entries)]
        assert bool(entries) == bool(expected)

    def check_some(self, partition_id: int, entries: list[bytes]) -> None:
        """Of a compacted partition; more in compaction.py."""

    @rule(views=st.booleans())
    def use_what_is_held(self, views: bool) -> None:
        """What a plan reads is there as long as the grace period lasts, whatever happened."""
        plans, self.plans = self.plans, []
        for cold, partition_id, offset, most in plans:
            data = bytes(cold.run())
            if partition_id in self.model.parts:
                self.compare(partition_id, data, offset, most)
        Steps.events["old plans run"] += len(plans)
        if views:
            self.held.clear()

    @precondition(lambda self: self.model.parts)
    @rule(which=WHICH, beyond=st.integers(1, 3))
    def read_out_of_range(self, which: int, beyond: int) -> None:
        partition = self.node.log.partition(self.pick(which))
        for offset in (partition.start_offset - beyond, partition.end_offset + beyond):
            try:
                partition.read(offset, 1)
            except OffsetOutOfRange:
                continue
            raise AssertionError(f"{offset} is out of range")
        nothing = partition.read(partition.end_offset, 1)
        assert isinstance(nothing, TailSlice)
        assert not nothing.slices

    @precondition(lambda self: self.model.parts)
    @rule(which=WHICH, event_ms=st.integers(-1, 60), where=WHERE)
    def find_by_event_time(self, which: int, event_ms: int, where: float) -> None:
        partition_id = self.pick(which)
        if partition_id in self.node.compacted:
            return
        part, offset = self.part_and_offset(partition_id, where)
        partition = self.node.log.partition(partition_id)
        expected = next((each for each in part.since(offset) if time_of(each) >= event_ms), None)
        found, start = partition.offset_for_time(event_ms, offset), offset
        while isinstance(found, SegmentSlice):
            data = bytes(found.run())
            if data:
                break
            assert found.next_offset > start, "a search that does not end"
            start = found.next_offset
            found = partition.offset_for_time(event_ms, start)
        assert expected == (None if found is None else bytes_of(found))

    @rule()
    def read_all(self) -> None:
        for each, part in self.model.parts.items():
            assert self.entries_of(each) == part.since(0)
            kept = () if each in self.node.compacted else part.since(0)
            newest = max(map(time_of, kept), default=-1)
            assert self.node.log.partition(each).max_timestamp >= newest
        self.inspect_segments()

    def inspect_segments(self) -> None:
        """Meta, a segment's index and its bytes agree."""
        for info in self.node.state.segments.values():
            self.inspect(self.node.fs, info)

    def inspect(self, fs: FileSystem, info: SegmentInfo) -> None:
        reader = SegmentReader.open(fs, self.node.directory.segments / info.name, info)
        for partition_id, extent in info.partitions.items():
            if partition_id not in self.model.parts:
                continue
            entries = split(reader.read(partition_id, 0, 1 << 40))
            assert extent == reader.extents[partition_id]
            assert len(entries) == extent.entry_count
            assert sum(map(len, entries)) == extent.size
            if partition_id not in self.node.compacted:
                assert base_of(entries[0]) == extent.base_offset
                assert end_of(entries[-1]) == extent.end_offset
            assert epoch_of(entries[-1]) == extent.owner_epoch
            assert max(map(time_of, entries)) == extent.max_event_ms
            written_ms = [self.appended_ms[partition_id, base_of(entry)] for entry in entries]
            assert extent.min_append_ms <= extent.max_append_ms
            assert info.level or min(written_ms) <= extent.min_append_ms
            assert max(written_ms) <= extent.max_append_ms <= self.node.loop.time_ms
            starts = [(each.owner_epoch, each.start_offset) for each in reader.epochs(partition_id)]
            epochs = [(epoch_of(each), base_of(each)) for each in entries]
            changes = [b for a, b in pairwise(epochs) if a[0] != b[0]]
            if partition_id not in self.node.compacted:
                assert starts == [epochs[0], *changes]
            for epoch, offset in epochs:
                assert epoch == [each for each, start in starts if start <= offset][-1]
        reader.close()

    # -- readers without a broker ----------------------------------------------------------

    @rule(fresh=st.booleans())
    def open_without_a_broker(self, fresh: bool) -> None:
        """By a manifest that may be old, as Spark does."""
        node = self.node
        if fresh:
            node.write_manifest()
        if not node.fs.exists(node.directory.segments / MANIFEST_NAME):
            return
        self.sealed = SealedLog(DATA, files=node.fs)
        if fresh:
            for each, known in node.state.partitions.items():
                start = known.start_offset
                assert self.sealed.range_of(each) == (start, max(start, known.flushed_end))

    @precondition(lambda self: self.sealed is not None)
    @rule(most=MOST)
    def read_without_a_broker(self, most: int) -> None:
        """All that the manifest promises, unless its time is over; and no wrong bytes."""
        for each, known in list(self.sealed.manifest.partitions.items()):
            part = self.model.parts.get(each)
            start, end = known.start_offset, known.stable_end
            try:
                data = b"".join(self.sealed.read(each, max_bytes=most))
            except (OffsetOutOfRange, UnknownPartition):
                assert part is None or part.start > start
                continue
            if each in self.node.compacted:
                self.check_some(each, split(data))
            elif part is not None:
                entries = [entry for entry in split(data) if end_of(entry) > part.start]
                assert entries == [entry for entry in part.since(start) if end_of(entry) <= end]

    # -- damage ----------------------------------------------------------------------------

    @precondition(lambda self: self.node.state.segments)
    @rule(which=st.integers(0, 9), where=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
    def flip_in_a_segment(self, which: int, where: float, bit: int) -> None:
        """An error or the right bytes; and no partition suffers that the bit is not about."""
        node = self.node
        infos = sorted(node.state.segments.values(), key=lambda each: each.segment_id)
        info = infos[which % len(infos)]
        path = node.directory.segments / info.name
        at = int(where * len(node.fs.names[path].data))
        node.log.readers.forget(info.segment_id)
        node.fs.flip(path, at, bit)
        hurt = []
        for each, part in self.model.parts.items():
            try:
                assert self.entries_of(each) == part.since(0), "wrong bytes"
            except CorruptLog:
                hurt.append(each)
        assert set(hurt) <= set(info.partitions)
        extents = info.partitions.values()
        owner = [e.partition_id for e in extents if e.position <= at < e.position + e.size]
        if owner:
            assert hurt in (owner, [])  # no reader reads below the start offset
        node.log.readers.forget(info.segment_id)
        node.fs.flip(path, at, bit)

    def flip_in_the_journal(self, where: float, seed: int) -> None:
        """A flipped bit in a frame that a later one vouches for is noticed at the next start."""
        self.end_process(Trouble("power"), seed)
        self.open()
        self.node.fs.kill()
        proven = self.proven_frames()
        if proven:
            path, frame = proven[int(where * len(proven))]
            at = frame.position + seed % frame.length
            self.node.fs.flip(path, at, seed % 8)
            try:
                self.node.open()
            except CorruptLog:
                pass
            else:
                raise AssertionError("a flipped bit was passed over")
            self.node.fs.kill()
            self.node.fs.flip(path, at, seed % 8)
        self.open()

    def proven_frames(self):  # type: ignore[no-untyped-def]
        frames = self.frames()
        through = max((each.durable_through for _, each in frames), default=0)
        flushed = self.node.state.flushed_through
        return [pair for pair in frames if flushed < pair[1].sequence <= through]

    def frames(self):  # type: ignore[no-untyped-def]
        """All valid frames in the journal's files, with the paths."""
        found = []
        fs, folder = self.node.fs, self.node.directory.journal
        for name in fs.listdir(folder):
            data = memoryview(fs.names[folder / name].data)
            header = decode_file_header(data) if name.endswith(".journal") else None
            if header is not None:
                found += [(folder / name, frame) for frame in iter_frames(data, header)]
        return found

    # -- always ----------------------------------------------------------------------------

    @invariant()
    def always(self) -> None:
        Steps.count += 1
        assert not self.problems
        self.readers_see_what_is_acknowledged()
        self.views_stay_as_they_were()
        self.frames_follow_each_other()
        self.log_and_meta_know_the_same_segments()
        self.extents_follow_each_other()
        self.files_are_known_or_wait_to_go()

    def readers_see_what_is_acknowledged(self) -> None:
        self.notice()
        assert self.model.parts.keys() == self.node.state.partitions.keys()
        for each, part in self.model.parts.items():
            partition = self.node.log.partition(each)
            assert partition.high_watermark == part.end
            assert partition.start_offset == part.start
            hoped = [data for partition_id, data in self.model.hoped if partition_id == each]
            assert partition.end_offset == (end_of(hoped[-1]) if hoped else part.end)

    def views_stay_as_they_were(self) -> None:
        for view, data in self.held:
            assert view == data

    def frames_follow_each_other(self) -> None:
        expected = flushed = self.node.state.flushed_through
        for _, frame in self.frames():
            if frame.sequence > flushed:
                expected += 1
                assert frame.sequence == expected
                assert frame.durable_through < frame.sequence
        assert expected >= self.node.log.journal.durable_through

    def log_and_meta_know_the_same_segments(self) -> None:
        state, engine = self.node.state, self.node.log
        assert dict(engine.segments) == state.segments
        assert engine.flushed_through == state.flushed_through
        for each, known in state.partitions.items():
            assert engine.partition(each).flushed_end == max(known.start_offset, known.flushed_end)

    def extents_follow_each_other(self) -> None:
        state = self.node.state
        for each, known in state.partitions.items():
            extents = [info.partitions.find_extent(each) for info in state.segments.values()]
            there = sorted((e.base_offset, e.end_offset) for e in extents if e is not None)
            assert all(one[1] <= other[0] for one, other in pairwise(there))
            assert not there or there[-1][1] <= known.flushed_end

    def files_are_known_or_wait_to_go(self) -> None:
        node = self.node
        there = {each for each in node.fs.listdir(node.directory.segments) if "segment" in each}
        known = {info.name for info in node.state.segments.values() if not info.store}
        leaving = {each.name for each in node.retired._leaving}
        assert known <= there, "a segment is missing"
        assert not known & leaving, "a segment is about to go"
        if not self.hurt:  # what could not be removed waits for the next start
            assert there - known - leaving <= node.orphans(), "a file that nobody knows of"
