"""A node whose keeper of objects is driven step by step, and a store that goes and comes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.node.test_background import append, started
from tests.s3 import Hands
from trilogue.log.files import OsFileSystem
from trilogue.log.jobs import merge
from trilogue.log.objects import uploads
from trilogue.log.partition_log import SegmentSlice
from trilogue.log.segments.segment_info import MergeJob, Swap
from trilogue.node.background.maintenance import Maintenance
from trilogue.node.background.objects import ObjectMover
from trilogue.node.background.retired import EVERYTHING, RetiredFiles

GRACE_S = 60.0
MOVE_AFTER_S = 3_600.0  # made at 0 by the clock of these tests, which begins above that


class Inline:
    """Uploads here and now, and waits for nothing."""

    async def run(self, function, job):
        assert function is uploads.run
        return uploads.upload(job, job.reach.open(Hands().around()), OsFileSystem())

    async def close(self):
        pass


class World:
    """A node, its keeper driven step by step, and a clock of the keeper's own."""

    def __init__(self, node, helper, executor, *, keep_local_s=0.0):
        self.node = node
        self.seconds = 10_000.0
        self.published = EVERYTHING
        self.storage = node.storage
        self.hands = Hands()
        objects = self.storage.objects.objects
        objects._around = self.hands.around()
        objects.breaker._monotonic = self.hands.monotonic
        self.retired = RetiredFiles(self.storage, monotonic=lambda: self.seconds, grace_s=GRACE_S)
        self.maintenance = Maintenance(self.storage, self.retired, node._manifests)
        self.keeper = ObjectMover(
            self.storage,
            self.maintenance,
            reach=self.storage.reach,
            cache=self.storage.objects,
            helper=helper,
            executor=executor,
            now_ms=lambda: int(self.seconds * 1_000),
            monotonic=lambda: self.seconds,
            grace_s=GRACE_S,
            keep_local_s=keep_local_s,
            move_after_s=MOVE_AFTER_S,
            published=lambda: self.published,
        )
        self.retired.remove_object = self.keeper.remove_object

    async def flushed(self, topic, *values):
        """Bring messages into a segment and return it."""
        for value in values:
            await append(self.node, topic, value)
        known = set(self.storage.log.segments)
        await self.node.flusher.finish()
        (new,) = set(self.storage.log.segments) - known
        return self.storage.log.segments[new]

    async def merged(self, topic, *values):
        """Bring messages into a segment, merge it, and return the outcome."""
        segment = await self.flushed(topic, *values)
        made = self.merge(segment)
        await self.maintenance.swap(Swap(removed=(segment.segment_id,), added=(made,)))
        self.seconds += GRACE_S + 1
        await self.retired.remove_due()
        return made

    def merge(self, segment):
        """What a merge of one segment makes: files that meta does not know yet."""
        state = self.storage.meta.state
        job = MergeJob(
            inputs=(segment,),
            directory=str(self.storage.directory.segments),
            segment_ids=(self.storage.meta.allocate("segment"),),
            level=1,
            starts=dict.fromkeys(segment.partitions, 0),
            own_bytes=1 << 30,
            target_bytes=1 << 30,
            cluster_id=state.cluster_id,
            node_id=state.node_id,
            node_epoch=state.node_epoch,
            now_ms=0,
        )
        (made,) = merge.run(job, self.storage.reach).added
        return made

    async def move(self):
        """Upload the next segment and record that; whether there was one."""
        uploaded = await self.keeper.upload_next()
        if (job := await self.keeper.plan()) is not None:
            await job.run()
        return uploaded

    async def settle(self):
        """Let the grace period pass and remove what is due."""
        self.seconds += GRACE_S + 1
        await self.retired.remove_due()
        await self.keeper.remove_due()

    async def read(self, topic, offset=0):
        """Read as a gateway does: what is in a segment, in a thread."""
        found = topic.partitions[0].log.read(offset, 1 << 20)
        assert isinstance(found, SegmentSlice)
        return bytes(await asyncio.get_running_loop().run_in_executor(None, found.run))

    def info(self, segment):
        return self.storage.meta.state.segments[segment.segment_id]

    def files(self):
        listed = self.storage.fs.listdir(self.storage.directory.segments)
        return [each for each in listed if each.endswith(".segment")]

    def objects(self):
        return self.storage.objects.objects.names()


@contextlib.asynccontextmanager
async def world(tmp_path: Path, *, keep_local_s=0.0, helper=None) -> AsyncIterator[World]:
    (tmp_path / "store").mkdir(exist_ok=True)
    url = f"file://{tmp_path}/store"
    helper = helper or Inline()
    with ThreadPoolExecutor(1) as executor:
        settings = (f"objects.url={url}", "objects.move-after=100000d")  # only ours moves any
        async with started(tmp_path / "data", *settings) as node:
            try:
                yield World(node, helper, executor, keep_local_s=keep_local_s)
            finally:
                await helper.close()


def in_world(tmp_path, **how):
    """Run an async function with a world as a test."""

    def decorate(function):
        async def run():
            async with world(tmp_path, **how) as made:
                return await function(made)

        return asyncio.run(run())

    return decorate


def hide(tmp_path):
    (tmp_path / "store").rename(tmp_path / "unmounted")


def show(tmp_path):
    (tmp_path / "unmounted").rename(tmp_path / "store")
