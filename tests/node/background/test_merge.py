"""A node merges its segments: what was written is read on, whatever happens on the way."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from types import SimpleNamespace
from typing import cast

import pytest

from tests.node.test_background import append, make_topic, scenario
from tests.waiting import wait_on_loop
from trilogue.gateway.http.metrics import Metric
from trilogue.log.errors import DiskFull
from trilogue.log.jobs.merge_plan import FIRST_LEVEL_DUE, FIRST_LEVEL_LAST, FIRST_LEVEL_MAX, Plan
from trilogue.log.partition_log import SegmentSlice
from trilogue.log.segments.segment_info import SegmentInfo
from trilogue.meta.errors import PreconditionFailed
from trilogue.node.background.merge import AHEAD, MergePlanner
from trilogue.node.metrics.node_metrics import NodeMetrics
from trilogue.node.storage import Storage

MIB = 1 << 20


async def flush(node, topic, *values):
    """Append messages and bring them to a segment of their own."""
    for value in values:
        await append(node, topic, value)
    flushes = node.flusher.counts.flushes
    node.storage.log.seal()
    await wait_on_loop(lambda: node.flusher.counts.flushes > flushes)


async def flush_many(node, topic, count, first=0):
    for number in range(first, first + count):
        await flush(node, topic, b"message %d;" % number)


async def sweep(node):
    """Retire dead segments, write the manifest, remove files that are due."""
    await node.retention.apply_retention()
    await node._manifests.write()
    await node.retention.apply_retention()


def read(topic, offset=0):
    """Everything of the first partition, from segments and memory."""
    found, log = b"", topic.partitions[0].log
    while offset < log.high_watermark:
        part = log.read(offset, 1 << 20)
        if isinstance(part, SegmentSlice):
            found += bytes(part.run())
            offset = part.next_offset
        else:
            return found + b"".join(map(bytes, part.slices))
    return found


def messages(data):
    return [int(part.split(b"message ")[1]) for part in data.split(b";")[:-1]]


def merges(node):
    return node.maintenance.counts["merge"]


def files(node):
    return sorted(path.name for path in node.storage.directory.segments.glob("*.segment"))


def test_first_level_segments_become_one_and_their_files_go_after_a_while(tmp_path):
    @scenario(tmp_path / "data", "segments.grace=0")
    async def _(node):
        topic = await make_topic(node)
        await flush_many(node, topic, FIRST_LEVEL_DUE)
        await wait_on_loop(lambda: merges(node).jobs)

        (made,) = node.storage.log.segments.values()
        assert made.level == 1
        assert set(node.storage.meta.state.segments) == {made.segment_id}
        assert messages(read(topic)) == list(range(FIRST_LEVEL_DUE))
        assert len(files(node)) == FIRST_LEVEL_DUE + 1

        await sweep(node)
        assert files(node) == [made.name]
        assert merges(node).written_bytes == made.size
        assert node.helper.starts == node.slow_helper.starts == 1

    @scenario(tmp_path / "data")
    async def _(node):
        (topic,) = node.storage.broker.cluster
        assert messages(read(topic)) == list(range(FIRST_LEVEL_DUE))


def test_read_planned_before_a_merge_works_after_it(tmp_path):
    @scenario(tmp_path / "data")
    async def _(node):
        topic = await make_topic(node)
        await flush_many(node, topic, FIRST_LEVEL_DUE - 1)
        planned = topic.partitions[0].log.read(3, 1)
        await flush(node, topic, b"message 11;")
        await wait_on_loop(lambda: merges(node).jobs)

        assert isinstance(planned, SegmentSlice)
        assert messages(bytes(planned.run())) == [3]


def test_reading_and_writing_go_on_while_segments_are_merged(tmp_path):
    """Offset by offset, across any number of swaps."""

    @scenario(tmp_path / "data", "segments.grace=0", "retention.check-every=100ms")
    async def _(node):
        topic = await make_topic(node)
        wrong = []

        async def read_on():
            while True:
                end = topic.partitions[0].log.high_watermark
                found = messages(read(topic))
                wrong.append(found[:end] != list(range(end)))
                await asyncio.sleep(0.002)  # by design: the pace of the reader

        reader = asyncio.create_task(read_on())
        await flush_many(node, topic, 2 * FIRST_LEVEL_DUE)
        await wait_on_loop(lambda: merges(node).jobs >= 2)
        reader.cancel()

        assert len(wrong) > 10
        assert not any(wrong)


class Gate:
    """Stands before the helper that merges."""

    def __init__(self, node):
        self.open = asyncio.Event()
        self.calls = 0
        self.error = None
        self._run = node.slow_helper.run
        node.slow_helper.run = self.run

    async def run(self, function, *arguments):
        self.calls += 1
        if self.error is not None:
            raise self.error
        await self.open.wait()
        return await self._run(function, *arguments)


def test_a_flush_waits_when_too_many_segments_are_not_merged(tmp_path):
    @scenario(tmp_path / "data")
    async def _(node):
        gate = Gate(node)
        topic = await make_topic(node)
        await flush_many(node, topic, FIRST_LEVEL_MAX)
        assert gate.calls == 1
        await append(node, topic, b"message 16;")
        node.storage.log.seal()
        await wait_on_loop(lambda: node.flusher.waiting)
        for _ in range(20):
            await asyncio.sleep(0.01)
        assert node.flusher.counts.flushes == FIRST_LEVEL_MAX
        assert node.merging.first_level == FIRST_LEVEL_MAX

        gate.open.set()
        await wait_on_loop(lambda: node.flusher.counts.flushes > FIRST_LEVEL_MAX)

        assert messages(read(topic)) == list(range(17))


def test_a_flush_waits_for_nothing_but_merges_unless_segments_become_very_many(tmp_path):
    """Another background job may take long, and is made to hurry."""

    @scenario(tmp_path / "data")
    async def _(node):
        hurried = []
        node.slow_helper.hurry = lambda: hurried.append(node.merging.first_level)
        node.maintenance.doing = "compaction"
        node.maintenance._is_idle = False
        levels = dict.fromkeys(range(FIRST_LEVEL_LAST), SimpleNamespace(level=0, segment_id=0,
            first_sequence=0, last_sequence=0, footer_position=0))  # fmt: skip
        node.merging._storage = SimpleNamespace(log=SimpleNamespace(segments=levels))
        waiting = asyncio.create_task(node.merging.room_for_flush())
        await asyncio.sleep(0.01)
        assert not waiting.done()

        del levels[0]
        node.maintenance._notify()
        await waiting

        assert hurried == [FIRST_LEVEL_LAST]


@pytest.mark.parametrize("error", [OSError(errno.EIO, "broken"), DiskFull("full"), RuntimeError()])
def test_merges_that_fail_hold_nothing_up_and_are_tried_again(tmp_path, error):
    @scenario(tmp_path / "data")
    async def _(node):
        node.maintenance._retry_s = (0.05,)
        gate = Gate(node)
        gate.error = error
        topic = await make_topic(node)
        await flush_many(node, topic, FIRST_LEVEL_MAX + 2)
        assert merges(node).failures
        assert not node.failed.is_set()

        gate.error = None
        gate.open.set()
        await wait_on_loop(lambda: merges(node).jobs)

        assert len(node.storage.log.segments) == 1
        assert messages(read(topic)) == list(range(FIRST_LEVEL_MAX + 2))


def test_a_drain_does_not_wait_for_a_merge(tmp_path):
    @scenario(tmp_path / "data")
    async def _(node):
        Gate(node)
        topic = await make_topic(node)
        await flush_many(node, topic, FIRST_LEVEL_MAX)
        await append(node, topic, b"message 16;")
        node.storage.log.seal()
        await wait_on_loop(lambda: node.flusher.waiting)

        await node.drain(asyncio.Event(), 20)

        assert node.flusher.waiting == 0
        assert topic.partitions[0].log.flushed_end == 17


def test_lack_of_disk_space_stops_merges_and_is_logged_once(tmp_path, caplog, monkeypatch):
    @scenario(tmp_path / "data")
    async def _(node):
        node.maintenance._retry_s = (0.02,)
        topic = await make_topic(node)
        await flush_many(node, topic, FIRST_LEVEL_DUE - 1)
        free = type(node.storage.fs).free_bytes
        monkeypatch.setattr(type(node.storage.fs), "free_bytes", lambda *_: (128 << 20) + 500)
        with caplog.at_level(logging.WARNING):
            await flush(node, topic, b"message 11;")
            await wait_on_loop(lambda: merges(node).failures > 3)
        assert [each.message for each in caplog.records].count("maintenance.no_room") == 1
        assert node.slow_helper.starts == 0

        monkeypatch.setattr(type(node.storage.fs), "free_bytes", free)
        await wait_on_loop(lambda: merges(node).jobs)


@pytest.mark.parametrize("error", [PreconditionFailed("gone"), DiskFull("full")])
def test_merge_refused_by_meta_leaves_no_file(tmp_path, error):
    @scenario(tmp_path / "data")
    async def _(node):
        node.maintenance._retry_s = (0.05,)
        topic = await make_topic(node)
        await flush_many(node, topic, FIRST_LEVEL_DUE - 1)
        left = []

        class Refusing:
            """Meta, but for commits that remove a segment."""

            def __getattr__(self, name):
                return getattr(node.storage.meta, name)

            async def write(self, ops, preconditions, fence):
                left.append(files(node))
                raise error

        storage = node.maintenance._storage
        node.maintenance._storage = SimpleNamespace(
            meta=Refusing(), fs=storage.fs, directory=storage.directory, log=storage.log,
            fence=storage.fence,
        )  # fmt: skip
        await flush(node, topic, b"message 11;")
        await wait_on_loop(lambda: merges(node).failures)
        assert len(left[0]) == FIRST_LEVEL_DUE + 1
        assert len(files(node)) == FIRST_LEVEL_DUE

        node.maintenance._storage = storage
        await wait_on_loop(lambda: merges(node).jobs)
        assert messages(read(topic)) == list(range(FIRST_LEVEL_DUE))


def test_output_of_an_uncommitted_merge_is_an_orphan_at_the_next_start(tmp_path):
    """The process dies between the files and the commit that speaks of them."""

    @scenario(tmp_path / "data")
    async def _(node):
        topic = await make_topic(node)
        reached = asyncio.Event()

        async def never(*_):
            reached.set()
            await asyncio.Event().wait()

        node.maintenance.swap = never
        await flush_many(node, topic, FIRST_LEVEL_DUE)
        await reached.wait()
        assert len(files(node)) == FIRST_LEVEL_DUE + 1

    @scenario(tmp_path / "data", "segments.grace=0")
    async def _(node):
        (topic,) = node.storage.broker.cluster
        assert messages(read(topic)) == list(range(FIRST_LEVEL_DUE))
        await wait_on_loop(lambda: merges(node).jobs)
        await sweep(node)

        (made,) = node.storage.log.segments.values()
        assert files(node) == [made.name]
        assert messages(read(topic)) == list(range(FIRST_LEVEL_DUE))


# ── damage ────────────────────────────────────────────────────────────────────────────────────


def damage(node, segment, position):
    path = node.storage.directory.segments / segment.name
    node.storage.log.readers.forget(segment.segment_id)
    with path.open("r+b") as file:
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes((byte ^ 4,)))
        os.fsync(file.fileno())


def test_a_damaged_segment_is_left_alone_and_the_others_are_merged_around_it(tmp_path, caplog):
    @scenario(tmp_path / "data")
    async def _(node):
        topic = await make_topic(node)
        await flush_many(node, topic, FIRST_LEVEL_DUE - 1)
        hurt = sorted(node.storage.log.segments.values(), key=lambda each: each.segment_id)[4]
        damage(node, hurt, 30)
        with caplog.at_level(logging.WARNING):
            await flush(node, topic, b"message 11;")
            await flush(node, topic, b"message 12;")
            await wait_on_loop(lambda: merges(node).jobs >= 1)
            await wait_on_loop(lambda: not node.maintenance.is_hopeful)

        assert node.merging.skip == {hurt.segment_id}
        assert merges(node).failures == 1
        assert [each.message for each in caplog.records].count("maintenance.damaged") == 1
        kept = sorted(node.storage.log.segments.values(), key=lambda each: each.first_sequence)
        assert [each.level for each in kept][:2] == [1, 0]
        assert messages(bytes(topic.partitions[0].log.read(0, 1 << 20).run())) == [0, 1, 2, 3]
        assert messages(read(topic, 5)) == list(range(5, 13))


def test_a_partition_whose_index_is_damaged_stays_and_the_rest_goes_on(tmp_path, caplog):
    @scenario(tmp_path / "data")
    async def _(node):
        hurt_topic, topic = await make_topic(node, "a"), await make_topic(node, "b")
        for number in range(FIRST_LEVEL_DUE - 1):
            await append(node, hurt_topic, b"message %d;" % number)
            await flush(node, topic, b"message %d;" % number)
        first = min(node.storage.log.segments.values(), key=lambda each: each.segment_id)
        damage(node, first, first.footer_position + 10)
        with caplog.at_level(logging.ERROR):
            await append(node, hurt_topic, b"message 11;")
            await flush(node, topic, b"message 11;")
            await wait_on_loop(lambda: merges(node).jobs)
            await wait_on_loop(lambda: not node.maintenance.is_hopeful)

        assert "merge.left" in [each.message for each in caplog.records]
        assert len(node.merging.skip) == FIRST_LEVEL_DUE
        assert messages(read(topic)) == list(range(FIRST_LEVEL_DUE))
        assert messages(read(hurt_topic, 1)) == list(range(1, FIRST_LEVEL_DUE))
        for each in node.storage.meta.state.segments.values():
            if not each.level:
                assert (len(each.partitions), len(each.hidden)) == (1, 1)


# ── rewrites and retention ────────────────────────────────────────────────────────────────────


def test_a_segment_that_is_mostly_dead_is_written_again(tmp_path):
    @scenario(tmp_path / "data")
    async def _(node):
        large, topic = await make_topic(node, "a"), await make_topic(node, "b")
        await append(node, large, bytes(5_000))
        await flush(node, topic, b"message 0;")
        (before,) = node.storage.log.segments.values()
        await node.metadata_writer.write(node.storage.broker.cluster.plan_delete(large.name))
        node.merging._next_rewrite = 0.0
        node.maintenance.wake()
        await wait_on_loop(lambda: node.maintenance.counts["rewrite"].jobs)

        (made,) = node.storage.log.segments.values()
        assert made.segment_id != before.segment_id
        assert made.size < before.size - 5_000
        assert messages(read(topic)) == [0]
        await wait_on_loop(lambda: not node.maintenance.is_hopeful)
        assert node.merging.dead_bytes == 0


def test_inputs_of_a_running_merge_are_not_removed(tmp_path):
    @scenario(tmp_path / "data", "segments.grace=0")
    async def _(node):
        gate = Gate(node)
        topic = await make_topic(node)
        await flush_many(node, topic, FIRST_LEVEL_DUE)
        await wait_on_loop(lambda: gate.calls)
        await node.metadata_writer.write(node.storage.broker.cluster.plan_delete(topic.name))

        await sweep(node)
        assert len(node.storage.log.segments) == len(files(node)) == FIRST_LEVEL_DUE

        gate.open.set()
        await wait_on_loop(lambda: merges(node).jobs)
        await sweep(node)
        assert not files(node)
        assert not node.storage.meta.state.segments


# ── pace and figures ──────────────────────────────────────────────────────────────────────────


def pace(plan: Plan, *, first_level: int, rate: int = 64 * MIB, now_ms: int = 10_000) -> int | None:
    waiting = {at: segment(at, size=MIB) for at in range(first_level)}
    storage = cast("Storage", SimpleNamespace(log=SimpleNamespace(segments=waiting)))
    merging = MergePlanner(
        storage,
        None,
        None,
        now_ms=lambda: now_ms,
        bytes_per_second=rate,  # type: ignore[arg-type]
    )
    return merging.pace(plan)


def segment(segment_id: int, *, size: int, level: int = 0, created_ms: int = 0) -> SegmentInfo:
    fields = (segment_id, level, "", size, 1, 1, created_ms, segment_id, segment_id, 0, 0)
    return SegmentInfo(*fields, partitions=None)  # type: ignore[arg-type]


def plan(*inputs: SegmentInfo) -> Plan:
    return Plan("merge", inputs, 1, MIB, MIB)


def test_a_merge_keeps_to_its_rate():
    assert pace(plan(segment(1, size=64 * MIB)), first_level=8) == 64 * MIB
    assert pace(plan(segment(1, size=9 << 30, level=1)), first_level=8) == 64 * MIB


def test_a_merge_stays_ahead_of_what_comes_in():
    filled = [segment(at, size=256 * MIB, created_ms=at * 1_000) for at in range(1, 9)]

    assert pace(plan(*filled), first_level=8, now_ms=9_000) == AHEAD * 256 * MIB


def test_a_merge_that_flushes_are_about_to_wait_for_takes_what_it_gets():
    some = plan(segment(1, size=MIB))

    assert pace(some, first_level=FIRST_LEVEL_DUE) == 64 * MIB
    assert pace(some, first_level=FIRST_LEVEL_DUE + 1) is None
    assert pace(some, first_level=1, rate=0) is None


def test_metrics_contain_the_write_amplification(tmp_path):
    @scenario(tmp_path / "data")
    async def _(node):
        topic = await make_topic(node)
        await flush_many(node, topic, FIRST_LEVEL_DUE)
        await wait_on_loop(lambda: merges(node).jobs)

        found = {
            (each.name, *labels.values()): value
            for each in NodeMetrics(node).gather()
            if isinstance(each, Metric)
            for labels, value in each.samples
        }

        written = node.flusher.counts.written_bytes + merges(node).written_bytes
        expected = written / node.flusher.counts.data_bytes
        assert found["trilogue_segment_write_amplification",] == expected
        assert found["trilogue_segments_of_level", "1"] == 1
        assert found["trilogue_segments_of_level", "0"] == 0
        assert found["trilogue_maintenance_jobs_total", "merge"] == 1
        assert found["trilogue_segment_dead_bytes",] == 0
