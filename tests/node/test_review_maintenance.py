"""Work in the background that dies, has no room or takes long: what it leaves, who waits for it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from threading import current_thread, main_thread
from types import SimpleNamespace

import pytest

from tests.node.background.test_compaction import scenario as compacting
from tests.node.background.test_maintenance import Planner, maintenance_of
from tests.node.background.test_merge import files, flush_many, merges, messages, read
from tests.node.objects_world import in_world
from tests.node.test_background import append, make_topic, scenario
from tests.waiting import run_ready_tasks, wait_on_loop
from trilogue.log.jobs.merge_plan import FIRST_LEVEL_DUE, FIRST_LEVEL_MAX
from trilogue.log.objects.objects import STORE
from trilogue.log.segments.segment_info import segment_name
from trilogue.meta import queued_meta
from trilogue.node.background.helper import HelperDiedError
from trilogue.node.background.maintenance import Job
from trilogue.node.background.retired import RetiredFiles


class Dying:
    """A helper that is killed in the middle of its first job: what it wrote so far stays."""

    def __init__(self, inner):
        self.inner = inner
        self.left: list[Path] = []

    async def run(self, function, job, *arguments):
        if self.left:
            return await self.inner.run(function, job, *arguments)
        if hasattr(job, "segment_ids"):
            self.left = [Path(job.directory) / segment_name(each) for each in job.segment_ids[:1]]
        else:
            self.left = [Path(job.segment_path)]
        for path in self.left:
            path.write_bytes(b"half of it")
        raise HelperDiedError("killed")

    def __getattr__(self, name):
        return getattr(self.inner, name)


# -- what a helper leaves that was killed ------------------------------------------------------
# Each try has new names, so that half a segment would stay for each of them until the next start.


def test_a_flush_whose_helper_died_leaves_no_file(tmp_path):
    @scenario(tmp_path / "data")
    async def _(node):
        dying = node.flusher._helper = Dying(node.helper)
        topic = await make_topic(node)
        await append(node, topic, b"message 0;")
        node.storage.log.seal()
        await wait_on_loop(lambda: node.flusher.counts.failures)
        assert len(dying.left) == 1

        await wait_on_loop(lambda: node.flusher.counts.flushes)

        assert files(node) == [each.name for each in node.storage.log.segments.values()]


def test_a_merge_whose_helper_died_leaves_no_file(tmp_path):
    @scenario(tmp_path / "data")
    async def _(node):
        node.maintenance._retry_s = (0.02,)
        dying = node.merging._helper = Dying(node.slow_helper)
        topic = await make_topic(node)
        await flush_many(node, topic, FIRST_LEVEL_DUE)
        await wait_on_loop(lambda: merges(node).failures)
        assert len(dying.left) == 1

        await wait_on_loop(lambda: merges(node).jobs)

        assert dying.left[0].name not in files(node)
        assert messages(read(topic)) == list(range(FIRST_LEVEL_DUE))


def test_a_compaction_whose_helper_died_leaves_no_file(tmp_path):
    @compacting(tmp_path / "data")
    async def _(here):
        dying = here.compacting._helper = Dying(here.helper)
        topic = await here.topic()
        await here.append(topic, (b"a", b"1"), (b"a", b"2"))
        await here.flush()
        await here.compacting.look_around()
        job = await here.compacting.plan()

        with pytest.raises(HelperDiedError):
            await job.run()

        assert len(dying.left) == 1
        assert not dying.left[0].exists()


# -- a full disk -------------------------------------------------------------------------------


def test_segments_are_moved_to_objects_also_when_the_disk_is_full(tmp_path, monkeypatch):
    """That writes no segment, and it is what makes room."""

    @in_world(tmp_path)
    async def _(world):
        topic = await make_topic(world.node)
        made = await world.merged(topic, b"one")
        monkeypatch.setattr(type(world.storage.fs), "free_bytes", lambda *_: 1 << 20)
        assert await world.keeper.upload_next()

        assert await world.maintenance._do(await world.keeper.plan())

        assert world.info(made).store == STORE


# -- who waits ---------------------------------------------------------------------------------


def test_a_flush_that_waits_for_a_plan_goes_ahead_when_something_else_is_begun(tmp_path):
    @scenario(tmp_path / "data")
    async def _(node):
        topic = await make_topic(node)
        planning, begun = asyncio.Event(), asyncio.Event()

        class Slow:
            async def plan(self):
                await planning.wait()
                return Job("compaction", frozenset(), 0, self.run)

            async def run(self):
                begun.set()
                await asyncio.Event().wait()

        node.maintenance.planners[:] = [Slow()]
        await flush_many(node, topic, FIRST_LEVEL_MAX)
        await append(node, topic, b"message 16;")
        node.storage.log.seal()
        await wait_on_loop(lambda: node.flusher.waiting)
        await run_ready_tasks()
        assert node.flusher.waiting

        planning.set()
        await begun.wait()

        await wait_on_loop(lambda: not node.flusher.waiting)


def test_a_job_that_fails_again_and_again_keeps_no_other_work_waiting(tmp_path):
    """A merge may need more room than there is, and a compaction would make some."""

    @scenario(tmp_path / "data")
    async def _(node):
        done = []
        full = OSError(28, "no room")
        merge, compaction = Planner("merge", done, [full] * 99), Planner("compaction", done, [5, 6])
        maintenance = maintenance_of(node, merge, compaction)
        task = asyncio.create_task(maintenance.run())

        await wait_on_loop(lambda: len(done) > 4)

        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert done[:5] == ["merge", "compaction", "merge", "compaction", "merge"]


# -- meta that is busy -------------------------------------------------------------------------


def test_a_flood_of_commits_ends_neither_flushes_nor_retention(tmp_path, monkeypatch, caplog):
    """Clients make topics; on a slow disk their commits may fill the queue."""

    @scenario(tmp_path / "data", "retention.check-every=100ms")
    async def _(node):
        topic = await make_topic(node)
        await flush_many(node, topic, 1)
        settings = {"retention.ms": "1"}
        cluster = node.storage.broker.cluster
        await node.metadata_writer.write(cluster.plan_alter(topic.name, settings))
        with monkeypatch.context() as patch:
            patch.setattr(queued_meta, "WAITING_MAX", 0)
            await append(node, topic, b"message 1;")
            node.storage.log.seal()
            await wait_on_loop(lambda: node.flusher.counts.failures)
            await wait_on_loop(
                lambda: "retention.failed" in [each.message for each in caplog.records]
            )
            assert len(files(node)) == 1

        await wait_on_loop(lambda: node.flusher.counts.flushes == 2)
        await wait_on_loop(lambda: topic.partitions[0].log.start_offset == 2)
        assert not node.failed.is_set()


# -- files that go -----------------------------------------------------------------------------


def test_no_segment_is_removed_on_the_loop(tmp_path, monkeypatch):
    """ext4 takes a fifth of a second for a gibibyte, and many may go at once."""

    @in_world(tmp_path)
    async def _(world):
        topic = await make_topic(world.node)
        kept = type(world.storage.fs).unlink
        removed_by = []

        def unlink(self, path):
            removed_by.append((path.suffix, current_thread()))
            kept(self, path)

        monkeypatch.setattr(type(world.storage.fs), "unlink", unlink)
        await world.merged(topic, b"one")  # a file retires
        assert await world.move()
        await world.settle()  # and a copy of what lies in objects

        threads = [thread for suffix, thread in removed_by if suffix == ".segment"]
        assert len(threads) == 2
        assert main_thread() not in threads


# -- orphans -----------------------------------------------------------------------------------


def test_an_orphan_whose_name_a_segment_has_by_now_is_none(tmp_path):
    """A copy of a data directory may have files whose ids its meta never gave."""

    @scenario(tmp_path / "data")
    async def _(node):
        clock = SimpleNamespace(now=0.0)
        home = node.storage.directory.segments
        await node.storage.meta.reserve("segment", 1)
        name = segment_name(node.storage.meta._ids._ranges["segment"][0][0])
        (home / name).write_bytes(b"of a later life than its meta")
        retired = RetiredFiles(node.storage, monotonic=lambda: clock.now, grace_s=60)
        topic = await make_topic(node)
        await flush_many(node, topic, 1)
        assert [each.name for each in node.storage.log.segments.values()] == [name]

        clock.now = 61.0
        await retired.remove_due()

        assert messages(read(topic)) == [0]
