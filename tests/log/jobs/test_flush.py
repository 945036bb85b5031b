"""The flush: what it keeps, what it drops, when it refuses; and which segments may go."""

from __future__ import annotations

import errno
import os
import pickle
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.fakes import FakeFileSystem, PowerCut
from tests.log.samples import INCARNATION, Sample, logs, samples, sealed
from trilogue.log.errors import CorruptLog
from trilogue.log.files import File, OsFileSystem
from trilogue.log.jobs.flush import flush, run
from trilogue.log.jobs.pace import SYNC_SIZE
from trilogue.log.journal.frame import BLOCK
from trilogue.log.segments.extents import EMPTY
from trilogue.log.segments.segment import BLOCK_TARGET
from trilogue.log.segments.segment_info import FlushJob, FlushResult
from trilogue.log.segments.segment_reader import SegmentReader

FILES = OsFileSystem()


def contents(job: FlushJob, result: FlushResult) -> dict[int, bytes]:
    """Every byte of every partition, through the reader."""
    if result.segment is None:
        return {}
    reader = SegmentReader.open(FILES, Path(job.segment_path), result.segment)
    assert reader.extents == result.segment.partitions
    found = {each: bytes(reader.read(each, 0, 1 << 40)) for each in result.segment.partitions}
    reader.close()
    return found


def test_a_file_of_known_size_is_read_past_the_page_cache_with_the_same_result(tmp_path: Path):
    frames = [samples(each, 30) for each in (1, 2)]
    mapped = sealed(tmp_path, frames)
    name = mapped.journal_paths[0]
    wanted = contents(mapped, flush(mapped, FILES))
    opened: list[bool] = []

    class Watched(OsFileSystem):
        def open_read(self, path: Path, *, direct: bool = False) -> File:
            opened.append(direct)
            return super().open_read(path, direct=direct)

    job = replace(mapped, sizes=(Path(name).stat().st_size,), direct=True)

    assert contents(job, flush(job, Watched())) == wanted
    assert opened == [True]


@settings(deadline=None)
@given(arrived=logs(), cut=st.integers(1, 5), data=st.data())
def test_flush_keeps_exactly_the_live_entries(arrived: list[Sample], cut: int, data: st.DataObject):
    frames = [arrived[at : at + cut] for at in range(0, len(arrived), cut)]
    ids = sorted({entry.partition_id for entry in arrived})
    known = frozenset(data.draw(st.sets(st.sampled_from(ids))))
    through = data.draw(st.integers(0, len(frames)))
    offsets = st.integers(0, max(entry.end for entry in arrived) + 1)
    starts = {each: data.draw(offsets) for each in known}
    after = [entry for frame in frames[through:] for entry in frame if entry.partition_id in known]
    flushed = {}
    for each in known:  # a flushed end is always the end of an entry
        ends = [0, *(entry.end for entry in after if entry.partition_id == each)]
        flushed[each] = data.draw(st.sampled_from(ends))
    wanted: dict[int, bytes] = {}
    for entry in after:
        if entry.end > max(flushed[entry.partition_id], starts[entry.partition_id]):
            wanted.setdefault(entry.partition_id, b"")
            wanted[entry.partition_id] += entry.data

    with TemporaryDirectory() as name:
        job = sealed(
            Path(name),
            frames,
            flushed_through=through,
            flushed_ends=flushed,
            known=known,
            start_offsets=starts,
        )
        result = flush(job, FILES)

        assert contents(job, result) == wanted
        assert result.ends == {
            each: max(entry.end for entry in after if entry.partition_id == each)
            for each in {entry.partition_id for entry in after}
        }
        assert result.last_sequence == len(frames)
        assert Path(job.segment_path).exists() == bool(wanted)


def test_flush_result_describes_the_segment(tmp_path: Path):
    job = sealed(tmp_path, [samples(2, 3), samples(1, 2), samples(2, 1, base=3)], first_sequence=5)

    result = flush(job, FILES)

    segment = result.segment
    assert segment is not None
    assert (result.entries, result.last_sequence, result.ends) == (6, 7, {1: 2, 2: 4})
    assert (segment.first_sequence, segment.last_sequence) == (5, 7)
    assert (segment.node_id, segment.node_epoch, segment.created_ms) == (1, 7, 1234)
    assert result.bytes_written == segment.size == Path(job.segment_path).stat().st_size
    assert result.bytes_in == 3 * (64 + 8 + 4) + 6 * (168 + 16)
    assert segment.partitions[2].min_append_ms == 5000
    assert segment.partitions[2].max_append_ms == 5002


def test_an_entry_that_holds_the_start_offset_is_kept_whole(tmp_path: Path):
    job = sealed(tmp_path, [[Sample(1, 0, 10), Sample(1, 10, 10)]], start_offsets={1: 15})

    result = flush(job, FILES)

    assert contents(job, result) == {1: Sample(1, 10, 10).data}


def test_several_files_become_one_segment(tmp_path: Path):
    first = sealed(tmp_path, [samples(1, 2), samples(2, 1)])
    second = sealed(tmp_path, [samples(1, 2, base=2)], name="2", first_sequence=3)

    job = replace(
        first,
        journal_paths=first.journal_paths + second.journal_paths,
        incarnations=(),
        last_sequence=3,
    )

    assert contents(job, flush(job, FILES))[1] == b"".join(e.data for e in samples(1, 4))


def test_blocks_are_cut_at_their_target_and_a_larger_entry_has_its_own(tmp_path: Path):
    small = samples(1, 200, size=10_000)
    large = Sample(1, 200, 1, BLOCK_TARGET + 1)
    job = sealed(tmp_path, [small, [large], samples(1, 1, base=201, size=61)])

    result = flush(job, FILES)

    assert result.segment is not None
    reader = SegmentReader.open(FILES, Path(job.segment_path), result.segment)
    index = reader._footer.index(1)
    assert index is not None
    assert index.sizes == [260_000] * 7 + [180_000, BLOCK_TARGET + 1, 61]
    assert result.segment.partitions[1].entry_count == 202
    reader.close()


def test_a_change_of_owner_is_marked(tmp_path: Path):
    entries = [Sample(1, base, epoch=epoch) for base, epoch in enumerate([3, 3, 4, 9])]
    job = sealed(tmp_path, [entries])

    result = flush(job, FILES)

    assert result.segment is not None
    assert result.segment.partitions[1].owner_epoch == 9
    reader = SegmentReader.open(FILES, Path(job.segment_path))
    assert reader.epochs(1) == [(3, 0), (4, 2), (9, 3)]
    reader.close()


def test_frames_that_are_in_segments_already_are_not_read_again(tmp_path: Path):
    """As after a crash between the commit in meta and the recycling of the file."""
    job = sealed(tmp_path, [samples(1, 2)], flushed_through=9)

    result = flush(job, FILES)

    assert (result.segment, result.ends, result.last_sequence) == (None, {}, 9)


# ── never a shorter segment ───────────────────────────────────────────────────────────────────


def test_a_frame_that_is_missing_at_the_end_stops_the_flush(tmp_path: Path):
    job = sealed(tmp_path, [samples(1, 2)], last_sequence=2)

    with pytest.raises(CorruptLog, match="frame 1, 2 were sealed"):
        flush(job, FILES)


def test_a_frame_that_is_missing_at_the_beginning_stops_the_flush(tmp_path: Path):
    job = sealed(tmp_path, [samples(1, 2)], first_sequence=3, flushed_through=1)

    with pytest.raises(CorruptLog, match="frame 3 follows 1"):
        flush(job, FILES)


@pytest.mark.parametrize("at", [0, 70, 200])
def test_a_flipped_bit_in_the_journal_stops_the_flush(tmp_path: Path, at: int):
    job = sealed(tmp_path, [samples(1, 2), samples(1, 2, base=2)])
    path = Path(job.journal_paths[0])
    data = bytearray(path.read_bytes())
    data[BLOCK + at] ^= 1

    path.write_bytes(data)

    with pytest.raises(CorruptLog, match="were sealed"):
        flush(job, FILES)
    assert not Path(job.segment_path).exists()


def test_a_file_in_a_later_life_is_not_mistaken_for_the_sealed_one(tmp_path: Path):
    job = sealed(tmp_path, [samples(1, 2)], incarnations=(INCARNATION + 1,))

    with pytest.raises(CorruptLog, match="not the journal file"):
        flush(job, FILES)


@pytest.mark.parametrize(
    ("entries", "flushed_end"),
    [
        ([Sample(1, 0, 5), Sample(1, 4, 5)], 0),
        ([Sample(1, 5), Sample(1, 0)], 0),
        ([Sample(1, 0, 5)], 3),  # a flushed end inside an entry
    ],
)
def test_offsets_that_repeat_stop_the_flush(
    tmp_path: Path, entries: list[Sample], flushed_end: int
):
    job = sealed(tmp_path, [entries], flushed_ends={1: flushed_end})

    with pytest.raises(CorruptLog, match="overlap"):
        flush(job, FILES)


def test_a_file_of_an_earlier_try_is_replaced(tmp_path: Path):
    job = sealed(tmp_path, [samples(1, 2)])
    Path(job.segment_path).write_bytes(bytes(10_000))

    result = flush(job, FILES)

    assert contents(job, result) == {1: b"".join(e.data for e in samples(1, 2))}


# ── pace and process ──────────────────────────────────────────────────────────────────────────


class Clock:
    """Time that passes only in sleep."""

    def __init__(self) -> None:
        self.now = 100.0
        self.naps = 0

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds
        self.naps += 1


def test_a_paced_flush_takes_its_time(tmp_path: Path):
    clock = Clock()
    job = sealed(tmp_path, [samples(1, 100, size=100_000)], bytes_per_second=5_000_000)

    result = flush(job, FILES, monotonic=lambda: clock.now, sleep=clock.sleep)

    assert result.bytes_written > SYNC_SIZE
    assert clock.now - 100.0 == pytest.approx(result.bytes_written / 5_000_000)
    assert clock.naps >= 5


def test_a_flush_runs_in_another_process(tmp_path: Path):
    """Order and receipt are pickled; nothing of the broker is imported there."""
    job = sealed(tmp_path, [samples(1, 2)])
    script = (
        "import sys, pickle; from trilogue.log.jobs.flush import run;"
        "result = run(pickle.load(sys.stdin.buffer));"
        "assert not [m for m in sys.modules if m.startswith(('trilogue.broker', 'asyncio'))];"
        "sys.stdout.buffer.write(pickle.dumps(result))"
    )

    done = subprocess.run(
        [sys.executable, "-c", script], input=pickle.dumps(job), capture_output=True, check=True
    )

    result = pickle.loads(done.stdout)
    assert contents(job, result) == {1: b"".join(e.data for e in samples(1, 2))}
    assert replace(result.segment, partitions=EMPTY) == replace(run(job).segment, partitions=EMPTY)


# ── a disk that fails ─────────────────────────────────────────────────────────────────────────

DIRECTORY = Path("/data")


def on_a_fake_disk() -> tuple[FakeFileSystem, FlushJob]:
    files = FakeFileSystem()
    files.make_directory(DIRECTORY)
    frames = [samples(1, 3), samples(2, 2, size=BLOCK_TARGET), samples(1, 3, base=3)]
    job = sealed(DIRECTORY, frames, files=files)
    files.sync_directory(DIRECTORY)
    return files, job


def whole(files: FakeFileSystem, job: FlushJob, result: FlushResult) -> bool:
    """Whether every byte is there, through a reader that knows what was promised."""
    reader = SegmentReader.open(files, Path(job.segment_path), result.segment)
    first, second = (bytes(reader.read(each, 0, 1 << 30)) for each in (1, 2))
    return first == b"".join(e.data for e in samples(1, 6)) and second == b"".join(
        e.data for e in samples(2, 2, size=BLOCK_TARGET)
    )


@pytest.mark.parametrize("operation", ["create", "write", "sync", "sync_directory"])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_flush_on_a_failing_disk_promises_nothing_and_leaves_nothing(operation: str, number: int):
    files, job = on_a_fake_disk()
    files.fail(operation, number)

    with pytest.raises(OSError, match=os.strerror(number)):
        flush(job, files)

    assert not files.exists(Path(job.segment_path))
    assert whole(files, job, flush(job, files))


@pytest.mark.parametrize("seed", range(20))
def test_a_segment_that_was_promised_survives_a_power_cut(seed: int):
    files, job = on_a_fake_disk()

    result = flush(job, files)
    files.power_cut(Random(seed))

    assert whole(files, job, result)


@pytest.mark.parametrize("steps", range(8))
def test_a_power_cut_in_the_middle_costs_nothing_but_the_work(steps: int):
    files, job = on_a_fake_disk()
    files.cut_after(steps)

    with suppress(PowerCut):
        flush(job, files)
    files.power_cut(Random(steps))

    assert whole(files, job, flush(job, files))
