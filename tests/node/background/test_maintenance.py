"""One job at a time, in the order of the planners, and nothing that fails is worth the server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.node.test_background import DEADLINE_S, append, make_topic, scenario
from tests.waiting import run_ready_tasks, wait_on_loop
from trilogue.log.errors import CorruptLog, StorageFailed
from trilogue.log.segments.segment_info import Swap
from trilogue.meta.errors import PreconditionFailed
from trilogue.node.background.maintenance import Job, Maintenance
from trilogue.node.background.retired import RetiredFiles


class Planner:
    """Has jobs to give out, one after the other."""

    def __init__(self, name, done, outcomes):
        self.name = name
        self.done = done
        self.outcomes = list(outcomes)
        self.spoilt = []

    async def plan(self):
        if not self.outcomes:
            return None
        return Job(self.name, frozenset((7,)), 10, self.run, self.spoilt.append)

    async def run(self):
        outcome = self.outcomes.pop(0)
        self.done.append(self.name)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def maintenance_of(node, *planners):
    made = Maintenance(node.storage, node.retired, node._manifests, retry_s=(0.01, 0.02))
    made.planners.extend(planners)
    return made


async def run_until_idle(maintenance):
    task = asyncio.create_task(maintenance.run())
    maintenance.wake()
    while maintenance.is_hopeful or maintenance.failures:
        await maintenance.moved()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_planners_are_polled_in_order_and_jobs_are_counted(tmp_path):
    @scenario(tmp_path / "data")
    async def _(node):
        done = []
        first, second = Planner("merge", done, [100, 200]), Planner("compaction", done, [30])
        maintenance = maintenance_of(node, first, second)

        await run_until_idle(maintenance)

        assert done == ["merge", "merge", "compaction"]
        assert maintenance.counts["merge"].jobs == 2
        assert maintenance.counts["merge"].written_bytes == 300
        assert maintenance.counts["compaction"].written_bytes == 30


@pytest.mark.parametrize("error", [OSError(5, "broken"), PreconditionFailed("gone"), ValueError()])
def test_failed_job_is_retried_later(tmp_path, error):
    @scenario(tmp_path / "data")
    async def _(node):
        done = []
        maintenance = maintenance_of(node, Planner("merge", done, [error, error, error, 5]))

        await run_until_idle(maintenance)

        assert (maintenance.counts["merge"].jobs, maintenance.counts["merge"].failures) == (1, 3)
        assert not node.failed.is_set()


def test_damaged_input_is_reported_to_its_planner(tmp_path):
    @scenario(tmp_path / "data")
    async def _(node):
        error = CorruptLog("flipped", Path("7.segment"))
        planner = Planner("merge", [], [error, 5])
        maintenance = maintenance_of(node, planner)
        maintenance._retry_s = (3_600,)

        await run_until_idle(maintenance)

        assert planner.spoilt == [error]
        assert maintenance.counts["merge"].jobs == 1


def test_a_planner_that_fails_keeps_no_other_from_work(tmp_path, caplog):
    @scenario(tmp_path / "data")
    async def _(node):
        class Broken:
            async def plan(self):
                raise KeyError("a mistake")

        done = []
        maintenance = maintenance_of(node, Broken(), Planner("merge", done, [5]))

        await run_until_idle(maintenance)

        assert done == ["merge"]
        assert "maintenance.plan_failed" in [each.message for each in caplog.records]


def test_the_end_of_meta_is_the_end(tmp_path):
    @scenario(tmp_path / "data")
    async def _(node):
        maintenance = maintenance_of(node, Planner("merge", [], [StorageFailed("gone")]))

        with pytest.raises(StorageFailed):
            await maintenance.run()

        assert not maintenance.is_hopeful


def test_swap_refused_by_the_log_after_its_commit_ends_the_node(tmp_path):
    """Served would be something else than what the next start finds."""

    @scenario(tmp_path / "data")
    async def _(node):
        def refuse(_):
            raise AssertionError("does not fit")

        node.storage.log.apply_swap = refuse

        with pytest.raises(StorageFailed):
            await node.maintenance.swap(Swap())


def test_no_caller_waits_for_maintenance_that_was_ended(tmp_path):
    @scenario(tmp_path / "data")
    async def _(node):
        maintenance = maintenance_of(node)
        maintenance.wake()
        task = asyncio.create_task(maintenance.run())
        waiting = asyncio.create_task(maintenance.moved())
        await run_ready_tasks()
        task.cancel()

        async with asyncio.timeout(DEADLINE_S):
            await waiting
        maintenance.wake()  # as each flush does that comes after it

        assert not maintenance.is_hopeful


# -- files that leave ------------------------------------------------------------------------


def test_a_retired_file_stays_for_the_grace_period(tmp_path):
    @scenario(tmp_path / "data")
    async def _(node):
        clock = [100.0]
        topic = await make_topic(node)
        await append(node, topic, b"x")
        node.storage.log.seal()
        await wait_on_loop(lambda: node.flusher.counts.flushes)
        (segment,) = node.storage.log.segments.values()
        path = node.storage.directory.segments / segment.name
        retired = RetiredFiles(node.storage, monotonic=lambda: clock[0], grace_s=60)
        retired.leave(segment)

        clock[0] = 159.9
        await retired.remove_due()
        assert path.exists()
        assert len(retired) == 1

        clock[0] = 160.0
        await retired.remove_due()
        assert not path.exists()
        assert (len(retired), retired.removed_files) == (0, 1)


def test_retired_file_stays_until_a_manifest_is_published_or_a_timeout(tmp_path):
    """A reader that misses a file reads the manifest again: there must be a newer one by then."""

    @scenario(tmp_path / "data")
    async def _(node):
        clock, published = [0.0], [0]
        topic = await make_topic(node)
        await append(node, topic, b"x")
        node.storage.log.seal()
        await wait_on_loop(lambda: node.flusher.counts.flushes)
        (segment,) = node.storage.log.segments.values()
        path = node.storage.directory.segments / segment.name
        kept = path.read_bytes()
        retired = RetiredFiles(node.storage, monotonic=lambda: clock[0], grace_s=60)
        retired.published = lambda: published[0]

        retired.leave(segment)
        clock[0] = 89.9
        await retired.remove_due()
        assert path.exists()
        published[0] = node.storage.meta.state.version
        await retired.remove_due()
        assert not path.exists()

        path.write_bytes(kept)
        published[0] = 0
        retired.leave(segment)
        clock[0] += 90.0
        await retired.remove_due()
        assert not path.exists()


def test_files_that_are_unknown_go_after_the_grace_period_and_others_stay(tmp_path):
    @scenario(tmp_path / "data")
    async def _(node):
        clock = [0.0]
        topic = await make_topic(node)
        await append(node, topic, b"x")
        node.storage.log.seal()
        await wait_on_loop(lambda: node.flusher.counts.flushes)
        home = node.storage.directory.segments
        for name in ("0000000000000099.segment", "note.txt"):
            (home / name).write_bytes(b"?")
        before = {path.name for path in home.iterdir()}
        retired = RetiredFiles(node.storage, monotonic=lambda: clock[0], grace_s=60)

        await retired.remove_due()
        assert {path.name for path in home.iterdir()} == before
        clock[0] = 61.0
        await retired.remove_due()

        after = {path.name for path in home.iterdir()}
        assert before - after == {"0000000000000099.segment"}
