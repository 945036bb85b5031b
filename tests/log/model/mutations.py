"""Mistakes that the log could make, one function each: the model test has to find all of them.

A mutation changes one function of the product while it is installed. `MUTATIONS` is what
test_mutations.py goes through; adding one is adding a function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import pytest
from msgspec.structs import replace

from tests.fakes import FakeFile, FakeFileSystem
from tests.log.model import node as model_node
from tests.log.rig import DATA
from trilogue.entry.entry import EntryHeader
from trilogue.log import log, partition_log
from trilogue.log.jobs import compaction, merge
from trilogue.log.jobs import flush as jobs
from trilogue.log.journal import commit, frame, journal, recovery
from trilogue.log.journal.append_buffer import AppendBuffer
from trilogue.log.journal.commit_cycle import CommitCycle
from trilogue.log.journal.files import JournalFiles, SealedFile
from trilogue.log.log import Log
from trilogue.log.partition_appender import PartitionAppender
from trilogue.log.partition_log import PartitionLog
from trilogue.log.segments.extents import Extents
from trilogue.log.segments.segment_info import (
    FlushJob,
    FlushResult,
    MergeJob,
    MergeResult,
    SegmentInfo,
    Swap,
)
from trilogue.log.segments.segment_reader import SegmentReader
from trilogue.log.tail.tail import Tail
from trilogue.node.background.flush import Cut, Flusher
from trilogue.node.background.maintenance import Maintenance
from trilogue.node.background.retired import RetiredFiles

Mutation = Callable[[pytest.MonkeyPatch], None]
MUTATIONS: list[Mutation] = []


def mutation(function: Mutation) -> Mutation:
    MUTATIONS.append(function)
    return function


def around(patch: pytest.MonkeyPatch, owner: Any, name: str, mistake: Callable[..., Any]) -> None:
    """Put `mistake(original, *arguments)` in the place of a function."""
    original = getattr(owner, name)

    @wraps(original)
    def mistaken(*arguments: Any, **named: Any) -> Any:
        return mistake(original, *arguments, **named)

    patch.setattr(owner, name, mistaken)


def in_helper(patch: pytest.MonkeyPatch, run: Any, mistake: Callable[..., Any]) -> None:
    """The same for what the helper process runs."""
    original = model_node.IN_PLACE[run]
    patch.setitem(model_node.IN_PLACE, run, lambda job, fs: mistake(original, job, fs))


# -- what is not made durable --------------------------------------------------------------------


@mutation
def commits_are_not_synced(patch: pytest.MonkeyPatch) -> None:
    def written(_: Any, file: FakeFile, data: memoryview, offset: int) -> int:
        file.pwrite(data, offset)
        return 0

    around(patch, commit, "commit_now", written)


@mutation
def segments_are_not_synced(patch: pytest.MonkeyPatch) -> None:
    def some(sync: Any, file: FakeFile) -> None:
        if file.path.suffix != ".segment":
            sync(file)

    around(patch, FakeFile, "sync", some)


@mutation
def the_folder_of_segments_is_not_synced(patch: pytest.MonkeyPatch) -> None:
    forget_folder(patch, "segments")


@mutation
def the_folder_of_the_journal_is_not_synced(patch: pytest.MonkeyPatch) -> None:
    forget_folder(patch, "journal")


def forget_folder(patch: pytest.MonkeyPatch, name: str) -> None:
    def some(sync: Any, fs: FakeFileSystem, path: Any) -> None:
        if path != DATA / name:
            sync(fs, path)

    around(patch, FakeFileSystem, "sync_directory", some)


@mutation
def recovered_files_are_not_rewritten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recovery, "_rewrite_file", lambda _fs, _found: None)


# -- acknowledged too early ----------------------------------------------------------------------


@mutation
def waiters_are_called_before_the_write(patch: pytest.MonkeyPatch) -> None:
    class EarlyCycle(CommitCycle):
        def prepare(self, window: Any, flags: int) -> Any:
            callbacks, window.callbacks = window.callbacks, []
            for callback in callbacks:
                callback(None)
            return super().prepare(window, flags)

    patch.setattr(journal, "CommitCycle", EarlyCycle)


@mutation
def readers_see_what_was_only_appended(patch: pytest.MonkeyPatch) -> None:
    class EagerAppender(PartitionAppender):
        def append(self, entry: memoryview, header: EntryHeader) -> int:
            base = super().append(entry, header)
            self.high_watermark = self.end_offset
            return base

    patch.setattr(partition_log, "PartitionAppender", EagerAppender)


@mutation
def a_failed_commit_counts(patch: pytest.MonkeyPatch) -> None:
    class ForgivingCycle(CommitCycle):
        def finish(self, _result: int) -> None:
            super().finish(0)

    patch.setattr(journal, "CommitCycle", ForgivingCycle)


@mutation
def the_tail_goes_before_meta_knows(patch: pytest.MonkeyPatch) -> None:
    async def early(record: Any, flusher: Flusher, job: FlushJob, result: Any, cuts: Any) -> None:
        flusher._storage.log.apply_flush(result)
        await record(flusher, job, result, cuts)

    around(patch, Flusher, "_record", early)


@mutation
def segments_are_swapped_before_meta_knows(patch: pytest.MonkeyPatch) -> None:
    async def early(swap: Any, maintenance: Maintenance, change: Swap, ops: Any = ()) -> None:
        maintenance._storage.log.apply_swap(change)
        await swap(maintenance, change, ops)

    around(patch, Maintenance, "swap", early)


@mutation
def a_journal_file_is_used_again_before_it_is_flushed(patch: pytest.MonkeyPatch) -> None:
    def early(sealed: Any, engine: Log, file: SealedFile) -> None:
        sealed(engine, file)
        engine._files.recycle(file.path)

    def once(recycle: Any, files: JournalFiles, path: Any) -> None:
        if path not in files._raw:
            recycle(files, path)

    around(patch, JournalFiles, "recycle", once)
    around(patch, Log, "_file_sealed", early)


@mutation
def retired_files_go_at_once(patch: pytest.MonkeyPatch) -> None:
    def now(_: Any, retired: RetiredFiles, segment: SegmentInfo) -> None:
        retired._storage.fs.unlink(retired._path(segment.name))

    around(patch, RetiredFiles, "leave", now)


# -- what is counted wrong -----------------------------------------------------------------------


def ends_moved_by(step: int) -> Callable[..., FlushResult]:
    def moved(flush: Any, job: FlushJob, fs: Any) -> FlushResult:
        result: FlushResult = flush(job, fs)
        return replace(result, ends={each: end + step for each, end in result.ends.items()})

    return moved


@mutation
def flushed_ends_are_one_too_small(patch: pytest.MonkeyPatch) -> None:
    in_helper(patch, jobs.run, ends_moved_by(-1))


@mutation
def flushed_ends_are_one_too_large(patch: pytest.MonkeyPatch) -> None:
    in_helper(patch, jobs.run, ends_moved_by(1))


@mutation
def a_flush_takes_one_frame_less(patch: pytest.MonkeyPatch) -> None:
    """It flushes one frame less than it reports."""

    def less(iterate: Any, view: memoryview, header: Any) -> Iterator[Any]:
        frames = list(iterate(view, header))
        yield from [
            each._replace(entry_count=0, facts_at=frame.FRAME_HEADER)
            if each is frames[-1]
            else each
            for each in frames
        ]

    around(patch, jobs, "iter_frames", less)


@mutation
def extents_end_one_too_early(patch: pytest.MonkeyPatch) -> None:
    def less(of: Any, extents: Any) -> Extents:
        return of([replace(each, end_offset=each.end_offset - 1) for each in extents])  # type: ignore[no-any-return]

    around(patch, Extents, "of", less)


@mutation
def recovery_begins_one_frame_late(patch: pytest.MonkeyPatch) -> None:
    def late(recover: Any, fs: Any, directory: Any, **named: Any) -> Any:
        replay, through = named["replay"], named["flushed_through"] + 1

        def later(data: Any, found: Any, path: Any) -> None:
            if found.sequence != through:
                replay(data, found, path)

        return recover(fs, directory, **named | {"replay": later})

    around(patch, log, "recover", late)


@mutation
def starts_are_one_too_large(patch: pytest.MonkeyPatch) -> None:
    around(patch, PartitionLog, "retain_from", lambda retain, log, start: retain(log, start + 1))


# -- what is forgotten ---------------------------------------------------------------------------


@mutation
def a_merge_forgets_a_partition(patch: pytest.MonkeyPatch) -> None:
    def without_one(merged: Any, job: MergeJob, fs: Any) -> MergeResult:
        there = {each for info in job.inputs for each in info.partitions}
        starts = dict(job.starts)
        if len(there) > 1:
            starts.pop(max(there), None)
        return merged(replace(job, starts=starts), fs)  # type: ignore[no-any-return]

    in_helper(patch, merge.run, without_one)


@mutation
def a_merge_forgets_what_is_left_in_an_input(patch: pytest.MonkeyPatch) -> None:
    """Partitions whose index is damaged stay where they were."""
    around(
        patch,
        MergeResult,
        "swap",
        lambda swap, result, job: replace(
            swap(result, job), removed=tuple(each.segment_id for each in job.inputs), changed=()
        ),
    )


@mutation
def an_output_is_not_recorded(patch: pytest.MonkeyPatch) -> None:
    def less(swap: Any, result: MergeResult, job: MergeJob) -> Swap:
        made: Swap = swap(result, job)
        return replace(made, added=made.added[:1])

    around(patch, MergeResult, "swap", less)


@mutation
def compaction_keeps_what_it_should_drop(patch: pytest.MonkeyPatch) -> None:
    def inverted(flags: Any, rewrite: Any, found: Any, **named: Any) -> list[bool]:
        return [not each for each in flags(rewrite, found, **named)]

    around(patch, compaction._Rewrite, "_flags", inverted)


@mutation
def compaction_drops_tombstones_at_once(patch: pytest.MonkeyPatch) -> None:
    def without(flags: Any, rewrite: Any, found: Any, **_: Any) -> list[bool]:
        return flags(rewrite, found, without_tombstones=True)  # type: ignore[no-any-return]

    around(patch, compaction._Rewrite, "_flags", without)


@mutation
def compaction_says_that_it_came_further(patch: pytest.MonkeyPatch) -> None:
    def further(compact: Any, job: Any, fs: Any) -> Any:
        return replace(compact(job, fs), compacted_end=job.end_offset)

    def less(survey: Any, each: Any, source: Any) -> None:
        survey(each, source)
        each.end_offset = max(each._floor, each.end_offset - 1)

    in_helper(patch, compaction.run, further)
    around(patch, compaction._Survey, "read", less)


@mutation
def what_was_compacted_counts_twice(patch: pytest.MonkeyPatch) -> None:
    """The partition is not taken out of the segments that others share with it."""
    patch.setattr(compaction, "without", lambda segment, _ids: segment)


@mutation
def a_flush_forgets_the_snapshot(patch: pytest.MonkeyPatch) -> None:
    async def bare(record: Any, flusher: Flusher, job: Any, result: Any, cuts: list[Cut]) -> None:
        await record(flusher, job, result, [replace(cut, rows=[]) for cut in cuts])

    around(patch, Flusher, "_record", bare)


@mutation
def orphans_are_left_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RetiredFiles, "_find_orphans", lambda _self: None)


@mutation
def the_end_of_the_journal_is_taken_on_trust(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recovery, "_refuse_corruption", lambda _last, _others, _expected: None)


@mutation
def checksums_of_blocks_are_not_compared(patch: pytest.MonkeyPatch) -> None:
    def unseen(_: Any, reader: SegmentReader, _index: Any, start: int, stop: int) -> memoryview:
        return memoryview(reader._pread(stop - start, start))

    around(patch, SegmentReader, "_read_range", unseen)


@mutation
def memory_is_used_again_while_a_reader_has_it(patch: pytest.MonkeyPatch) -> None:
    class ScribblingTail(Tail):
        def _drop_all(self) -> None:
            for chunk in (*self._older.chunks, self._chunk):
                chunk[:] = bytes(len(chunk))
            super()._drop_all()

    patch.setattr(partition_log, "Tail", ScribblingTail)


@mutation
def an_entry_keeps_the_offset_it_came_with(patch: pytest.MonkeyPatch) -> None:
    """The journal has what the producer sent, the tail what readers see."""

    sent: list[memoryview] = []

    class ForgetfulAppender(PartitionAppender):
        def append(self, entry: memoryview, header: EntryHeader) -> int:
            sent[:] = [entry]
            return super().append(entry, header)

    class UnstampedBuffer(AppendBuffer):
        def add_entry(self, partition_id: int, epoch: int, _stored: Any, *rest: Any) -> Any:
            return super().add_entry(partition_id, epoch, sent[0], *rest)

    patch.setattr(partition_log, "PartitionAppender", ForgetfulAppender)
    patch.setattr(journal, "AppendBuffer", UnstampedBuffer)
