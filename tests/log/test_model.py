"""The log against a model of a few lines, on a disk that is cut, torn, reordered, flipped, failing.

The promises: what was acknowledged is there, at its offset, with its bytes; what was only appended
may be there, in order and without gaps; what a reader saw once is never gone; frames follow each
other; and after an error nothing is acknowledged.

TRILOGUE_MODEL_EXAMPLES sets how many histories, of up to 50 steps, are tried, new ones each time;
without it they are always the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.fakes import PowerCut
from tests.log.rig import CLUSTER, Rig, header_of, make_entry
from trilogue.log.errors import CorruptLog, DiskFull, OffsetOutOfRange, StorageFailed
from trilogue.log.frame import decode_file_header, iter_frames
from trilogue.log.jobs import flush
from trilogue.log.manifest import PartitionRange
from trilogue.log.partition_log import Cold
from trilogue.log.segment_info import FlushJob, FlushResult, segment_name

PARTITIONS = (1, 2, 3)
FACTS = 0  # kept in the model as if they were a partition
EXAMPLES = os.environ.get("TRILOGUE_MODEL_EXAMPLES")
SEEDS = st.integers(0, 2**32)
TURNS = st.integers(0, 3)  # of the loop, afterwards: commits overlap, or are done


class Model:
    """What was acknowledged has to be there; what was only hoped for may be, in order."""

    def __init__(self) -> None:
        self.acked: dict[int, list[bytes]] = {each: [] for each in (FACTS, *PARTITIONS)}
        self.hoped: list[tuple[int, bytes]] = []

    def ack(self, count: int) -> None:
        for partition_id, data in self.hoped[:count]:
            self.acked[partition_id].append(data)
        del self.hoped[:count]

    def recovered(self, found: dict[int, list[bytes]]) -> None:
        more = 0
        for partition_id, acked in self.acked.items():
            assert acked == found[partition_id][: len(acked)], "acknowledged and gone"
            more += len(found[partition_id]) - len(acked)
        self.ack(more)
        assert self.acked == found, "more than a part of what was hoped for, in order"
        self.hoped.clear()


class LogMachine(RuleBasedStateMachine):
    """Whatever happens, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.rig = Rig()
        self.starts = dict.fromkeys(PARTITIONS, 0)
        self.kept_facts: list[bytes] = []  # in snapshots
        self.cuts: dict[int, list[bytes]] = {}  # facts applied when a file was sealed
        self.seen: dict[tuple[int, int], bytes] = {}
        self.segment_id = 0
        self.fill = 0
        self.waiting: list[int] = []  # how many were added with each wish to be told
        self.failed = False
        self.open()

    # -- helpers ---------------------------------------------------------------------------

    def open(self) -> None:
        """Open the log, as often as the power fails meanwhile, and compare."""
        self.waiting.clear()
        self.failed = False
        while True:
            try:
                self.rig.open()
                break
            except PowerCut:
                self.rig.fs.power_cut(self.rig.random)
        self.rig.log.on_sealed = lambda file: self.cut_at(file.last_sequence)
        facts = self.kept_facts + [payload for _, payload in self.rig.facts]
        found = {each: self.entries_of(each) for each in PARTITIONS}
        gone = {each: self.starts[each] for each in PARTITIONS}
        for each in PARTITIONS:  # what retention took is no loss
            taken = sum(1 for data in self.model.acked[each] if end_of(data) <= gone[each])
            found[each] = self.model.acked[each][:taken] + found[each]
        self.model.recovered({FACTS: facts, **found})
        count = len(self.kept_facts)
        frames = {path: frames for path, _, frames in self.journal()}
        for file in self.rig.log.sealed:
            count += sum(frame.fact_count for frame in frames[file.path])
            self.cuts[file.last_sequence] = self.model.acked[FACTS][:count]

    def cut_at(self, sequence: int) -> None:
        self.cuts[sequence] = list(self.model.acked[FACTS])

    def attempt(self, action: Callable[[], object], seed: int = 0) -> None:
        """Do it; if the power fails meanwhile, that is it for this life."""
        try:
            action()
        except PowerCut:
            self.rig.fs.power_cut(Random(seed))
            self.open()
        except DiskFull:  # the tail or the queue of windows
            pass

    def told(self, outcome: BaseException | None) -> None:
        count = self.waiting.pop(0)
        if outcome is None:
            assert not self.failed, "acknowledged after an error"
            self.model.ack(count)
        else:
            assert isinstance(outcome, StorageFailed)

    def hope(self, partition_id: int, data: bytes) -> None:
        self.model.hoped.append((partition_id, data))
        self.waiting.append(1)
        self.rig.log.journal.on_commit(self.told)

    def entries_of(self, partition_id: int) -> list[bytes]:
        partition = self.rig.log.partition(partition_id)
        offset, data = partition.start_offset, b""
        while offset < partition.high_watermark:
            found = partition.read(offset, 1 << 30)
            part = bytes(found.run()) if isinstance(found, Cold) else b"".join(found.slices)
            assert part, "a read below the high watermark came back empty"
            data += part
            offset = end_of(split(part)[-1])
        return split(data)

    # -- rules -----------------------------------------------------------------------------

    @rule(
        partition_id=st.sampled_from(PARTITIONS),
        size=st.sampled_from([61, 100, 1000, 5000, 40_000]),
        span=st.integers(1, 5),
        copies=st.integers(1, 8),
        turns=TURNS,
    )
    def append(self, partition_id: int, size: int, span: int, copies: int, turns: int = 0) -> None:
        def action() -> None:
            for _ in range(copies):
                self.fill += 1
                entry = make_entry(size, span=span, fill=self.fill, time_ms=self.fill)
                partition = self.rig.log.partition(partition_id)
                expected = partition.end_offset
                epoch = partition.owner_epoch
                data = expected.to_bytes(8, "big") + entry[8:12] + epoch.to_bytes(4, "big")
                try:
                    assert partition.append(entry, header_of(entry)) == expected
                finally:  # a power cut inside may have written it
                    if partition.end_offset != expected:
                        self.hope(partition_id, data + bytes(entry[16:]))

        self.attempt(action)
        self.turn(turns)

    def turn(self, turns: int, seed: int = 0) -> None:
        for _ in range(turns):
            self.attempt(self.rig.loop.turn, seed)

    @rule(size=st.integers(0, 300), turns=TURNS)
    def add_fact(self, size: int, turns: int) -> None:
        def action() -> None:
            self.fill += 1
            payload = self.fill.to_bytes(4, "big") + bytes(size)
            self.rig.log.journal.add_fact(7, payload)
            self.hope(FACTS, payload)

        self.attempt(action)
        self.turn(turns)

    @rule(seed=SEEDS)
    def run(self, seed: int) -> None:
        self.attempt(self.rig.loop.run, seed)
        if not self.rig.loop.ready:
            assert not self.model.hoped, "nothing is left to do, and not all is acknowledged"

    @rule(seed=SEEDS)
    def work_in_background(self, seed: int) -> None:
        self.attempt(self.rig.loop.work, seed)

    @rule(turns=TURNS)
    def seal(self, turns: int) -> None:
        self.attempt(self.rig.log.seal)
        self.turn(turns)

    @rule(
        partition_id=st.sampled_from(PARTITIONS), where=st.floats(0, 1), most=st.integers(1, 9999)
    )
    def read(self, partition_id: int, where: float, most: int) -> None:
        partition = self.rig.log.partition(partition_id)
        start, end = partition.start_offset, partition.high_watermark
        offset = start + int(where * (end - start))
        found = partition.read(offset, most)
        data = bytes(found.run()) if isinstance(found, Cold) else b"".join(found.slices)
        entries = split(data)
        assert bool(entries) == (offset < end)
        assert len(data) <= most or len(entries) == 1
        if entries:
            assert int.from_bytes(entries[0][:8], "big") <= offset < end_of(entries[0])
        for entry in entries:
            self.seen[partition_id, int.from_bytes(entry[:8], "big")] = entry

    @precondition(lambda self: self.rig.log.sealed)
    @rule(apply=st.booleans())
    def flush(self, apply: bool) -> None:
        result = self.flush_oldest()
        if apply:
            self.record_and_apply(result)
        else:
            self.record(result)
            self.rig.fs.kill()
            self.open()

    def flush_oldest(self) -> FlushResult:
        file, rig = self.rig.log.sealed[0], self.rig
        self.segment_id += 1
        job = FlushJob(
            journal_paths=(str(file.path),),
            segment_path=str(rig.directory.segments / segment_name(self.segment_id)),
            segment_id=self.segment_id,
            last_sequence=file.last_sequence,
            flushed_through=rig.flushed_through,
            flushed_ends={each: known.flushed_end for each, known in rig.ranges.items()},
            known=frozenset(rig.ranges),
            start_offsets=self.starts,
            cluster_id=CLUSTER,
            node_id=1,
            node_epoch=rig.epoch,
            now_ms=0,
        )
        return flush(job, rig.fs)

    def record(self, result: FlushResult) -> None:
        """Do meta's part: all at once and durable."""
        rig = self.rig
        rig.flushed_through = result.last_sequence
        self.kept_facts = self.cuts[result.last_sequence]
        if result.segment is not None:
            rig.segments.append(result.segment)
        for each, end in result.ends.items():
            rig.ranges[each] = PartitionRange(self.starts[each], end, end)

    def record_and_apply(self, result: FlushResult) -> None:
        self.record(result)
        self.rig.log.apply_flush(result)
        for each in PARTITIONS:
            kept = [data for data in self.model.acked[each] if end_of(data) > self.starts[each]]
            assert kept == self.entries_of(each), "not the same after the flush"

    @rule(partition_id=st.sampled_from(PARTITIONS), where=st.floats(0, 1))
    def retain(self, partition_id: int, where: float) -> None:
        partition = self.rig.log.partition(partition_id)
        start, end = partition.start_offset, partition.high_watermark
        self.starts[partition_id] = start + int(where * (end - start) / 4)
        known = self.rig.ranges[partition_id].flushed_end
        self.rig.ranges[partition_id] = PartitionRange(self.starts[partition_id], known, known)
        self.rig.log.apply_retention({partition_id: self.starts[partition_id]})
        with pytest.raises(OffsetOutOfRange):
            partition.read(self.starts[partition_id] - 1, 1)

    @rule(copies=st.integers(1, 3), size=st.sampled_from([100, 3000, 9000]), seed=SEEDS)
    def power_fails_in_a_commit(self, copies: int, size: int, seed: int) -> None:
        self.append(1 + seed % 3, size, 1, copies)
        self.power_fails("run", seed % 3, seed)

    @rule(
        what=st.sampled_from(["work", "flush", "seal", "shut"]),
        steps=st.integers(0, 10),
        seed=SEEDS,
    )
    def power_fails(self, what: str, steps: int, seed: int) -> None:
        if what == "flush" and not self.rig.log.sealed:
            return
        actions: dict[str, Callable[[], object]] = {
            "run": self.rig.loop.run,
            "work": self.rig.loop.work,
            "flush": lambda: self.record_and_apply(self.flush_oldest()),
            "seal": self.rig.log.seal,
            "shut": self.shut,
        }
        self.rig.fs.cut_after(steps)
        self.attempt(actions[what], seed)
        self.rig.fs.cut_after(None)

    @rule(how=st.sampled_from(["kill", "power", "shut"]), seed=SEEDS)
    def end(self, how: str, seed: int) -> None:
        if how == "shut":
            self.shut()
            return
        if how == "power":
            self.rig.fs.power_cut(Random(seed))
        else:
            self.rig.fs.kill()
        self.open()

    def shut(self) -> None:
        self.rig.shut()
        assert not self.model.hoped
        self.open()

    @rule(
        operation=st.sampled_from(["write", "sync"]),
        how=st.sampled_from(["kill", "power"]),
        seed=SEEDS,
    )
    def disk_error(self, operation: str, how: str, seed: int) -> None:
        """A commit fails: nothing is acknowledged any more, the process ends, another goes on."""
        self.run(seed)
        self.append(1, 100, 1, 1)
        acked = {each: list(acked) for each, acked in self.model.acked.items()}
        self.rig.fs.fail(operation)
        self.failed = True
        self.rig.loop.run()
        assert acked == self.model.acked
        assert len(self.rig.failures) == 1
        with pytest.raises(StorageFailed):
            self.rig.append()
        with pytest.raises(StorageFailed):
            self.rig.log.journal.add_fact(7, b"")
        self.end(how, seed)

    @rule(seed=SEEDS, which=st.floats(0, 1, exclude_max=True))
    def flip_what_was_durable(self, seed: int, which: float) -> None:
        """A flipped bit in a frame that a later one vouches for is noticed at the next start."""
        self.rig.fs.power_cut(Random(seed))
        self.open()
        self.rig.fs.kill()
        proven = list(self.proven_frames())
        if proven:
            path, _, frame = proven[int(which * len(proven))]
            at = frame.position + Random(seed).randrange(frame.length)
            self.rig.fs.flip(path, at, seed % 8)
            with pytest.raises(CorruptLog):
                self.rig.open()
            self.rig.fs.kill()
            self.rig.fs.flip(path, at, seed % 8)
        self.open()

    def proven_frames(self):  # type: ignore[no-untyped-def]
        files = list(self.journal())
        through = max(
            (each.durable_through for _, _, frames in files for each in frames), default=0
        )
        for path, header, frames in files:
            for frame in frames:
                if self.rig.flushed_through < frame.sequence <= through:
                    yield path, header, frame

    def journal(self):  # type: ignore[no-untyped-def]
        for path in self.rig.journal_files():
            data = memoryview(self.rig.fs.read(path))
            header = decode_file_header(data) if path.suffix == ".journal" else None
            if header is not None:
                yield path, header, list(iter_frames(data, header))

    # -- always ----------------------------------------------------------------------------

    @invariant()
    def readers_see_what_is_acknowledged(self) -> None:
        for each in PARTITIONS:
            acked = self.model.acked[each]
            end = end_of(acked[-1]) if acked else 0
            assert self.rig.log.partition(each).high_watermark == max(end, self.starts[each])

    @invariant()
    def what_was_seen_stays(self) -> None:
        for (partition_id, offset), entry in self.seen.items():
            if offset >= self.starts[partition_id]:
                assert entry in self.model.acked[partition_id]

    @invariant()
    def frames_follow_each_other(self) -> None:
        expected = self.rig.flushed_through + 1
        for _, _, frames in self.journal():
            for frame in frames:
                if frame.sequence > self.rig.flushed_through:
                    assert frame.sequence == expected
                    assert frame.durable_through < frame.sequence
                    expected += 1
        assert expected - 1 >= self.rig.log.journal.durable_through

    def teardown(self) -> None:
        self.rig.fs.kill()
        self.open()


def split(data: bytes) -> list[bytes]:
    entries, at = [], 0
    while at < len(data):
        length = 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        entries.append(data[at : at + length])
        at += length
    assert at == len(data), "an entry was cut"
    return entries


def end_of(entry: bytes) -> int:
    return int.from_bytes(entry[:8], "big") + int.from_bytes(entry[23:27], "big") + 1


LogMachine.TestCase.settings = settings(
    max_examples=int(EXAMPLES or "80"),
    derandomize=EXAMPLES is None,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
test_log_keeps_its_promises = LogMachine.TestCase
