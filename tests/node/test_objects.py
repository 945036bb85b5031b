"""Merged segments go to object storage and stay readable; what goes wrong is made good later."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.node.test_background import append, make_topic, started
from tests.s3 import Hands

from trilogue.log import merge, uploads
from trilogue.log.errors import DiskFull, StorageUnavailable
from trilogue.log.files import OsFileSystem
from trilogue.log.objects import STORE
from trilogue.log.partition_log import Cold, Hot
from trilogue.log.segment_info import MergeJob, Swap
from trilogue.node.jobs import Helper
from trilogue.node.maintenance import Maintenance
from trilogue.node.objects import REST_S, ObjectKeeper, leave_object
from trilogue.node.retired import RetiredFiles

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
        self.storage = node.storage
        self.storage.objects.objects._around = Hands().around()
        self.retired = RetiredFiles(self.storage, monotonic=lambda: self.seconds, grace_s=GRACE_S)
        self.maintenance = Maintenance(self.storage, self.retired, node._manifests)
        self.keeper = ObjectKeeper(
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
        await self.keeper.look()

    async def read(self, topic, offset=0):
        """Read as a gateway does: what is in a segment, in a thread."""
        found = topic.partitions[0].log.read(offset, 1 << 20)
        assert isinstance(found, Cold)
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


# -- there -----------------------------------------------------------------------------------


def test_a_segment_is_moved_and_read_from_there(tmp_path):
    @in_world(tmp_path, helper=Helper())
    async def _(world):
        topic = await make_topic(world.node)
        segment = await world.merged(topic, b"one", b"two")
        before = await world.read(topic)

        assert await world.move()
        assert not await world.move()

        assert world.info(segment).store == STORE
        assert world.objects() == [segment.name]
        assert world.files() == [segment.name]  # for those who planned from an older manifest
        await world.settle()
        assert world.files() == []
        assert await world.read(topic) == before
        counts = world.keeper.counts
        assert (counts.uploads, counts.upload_bytes) == (1, segment.size)
        assert world.storage.objects.counts.misses > 0


def test_what_lies_in_objects_is_read_after_a_restart(tmp_path):
    @in_world(tmp_path)
    async def segment(world):
        topic = await make_topic(world.node)
        segment = await world.merged(topic, b"one")
        await world.move()
        await world.settle()
        assert world.files() == []
        return segment

    @in_world(tmp_path)
    async def _(world):
        (topic,) = world.storage.broker.cluster
        assert world.info(segment).store == STORE
        assert b"one" in await world.read(topic)


def test_small_segments_wait_since_they_are_merged_again(tmp_path):
    @in_world(tmp_path)
    async def _(world):
        topic = await make_topic(world.node)
        fresh = await world.flushed(topic, b"one")
        made = await world.merged(topic, b"two")
        world.seconds = MOVE_AFTER_S - 1

        assert not await world.move()
        assert world.keeper.waiting == [made]
        world.seconds += 1
        assert await world.move()
        assert not await world.move()

        assert world.info(made).store == STORE
        assert world.info(fresh).store == ""  # as flushed: it waits for its merge


def test_large_segments_do_not_wait(tmp_path, monkeypatch):
    @in_world(tmp_path)
    async def _(world):
        topic = await make_topic(world.node)
        made = await world.merged(topic, b"one")
        monkeypatch.setattr("trilogue.node.objects.SMALL_BYTES", made.size)
        world.seconds = 1.0

        assert await world.move()


def test_inputs_of_a_merge_may_lie_in_objects(tmp_path):
    @in_world(tmp_path)
    async def _(world):
        topic = await make_topic(world.node)
        segment = await world.merged(topic, b"one", b"two")
        before = await world.read(topic)
        await world.move()
        await world.settle()
        assert world.files() == []

        made = world.merge(world.info(segment))
        await world.maintenance.swap(Swap(removed=(segment.segment_id,), added=(made,)))

        assert await world.read(topic) == before
        await world.settle()
        assert world.objects() == []
        assert await world.move()
        assert world.objects() == [made.name]


def test_local_copies_stay_and_are_read_as_long_as_one_wants(tmp_path):
    @in_world(tmp_path, keep_local_s=3_600)
    async def _(world):
        topic = await make_topic(world.node)
        segment = await world.merged(topic, b"one")
        await world.move()
        world.seconds += 3_000
        await world.keeper.look()

        assert b"one" in await world.read(topic)

        assert world.storage.objects.counts.misses == 0
        assert world.files() == [segment.name]
        world.seconds += 601
        await world.keeper.look()
        assert world.files() == []


def test_copies_that_stay_for_ever_go_with_their_segment(tmp_path):
    @in_world(tmp_path, keep_local_s=None)
    async def _(world):
        topic = await make_topic(world.node)
        segment = await world.merged(topic, b"one")
        await world.move()
        world.seconds += 1_000_000
        await world.keeper.look()
        assert world.files() == [segment.name]

        await world.keeper.remove_object(world.info(segment))
        await world.keeper.look()

        assert world.files() == []
        assert world.objects() == []


def test_copies_that_an_end_left_behind_go_too(tmp_path):
    @in_world(tmp_path)
    async def _(world):
        topic = await make_topic(world.node)
        await world.merged(topic, b"one")
        await world.move()
        assert len(world.files()) == 1

    @in_world(tmp_path)
    async def _(world):
        assert len(world.files()) == 1
        await world.settle()
        assert world.files() == []


# -- a store that does not answer --------------------------------------------------------------


def test_what_cannot_be_uploaded_stays_a_file_and_is_moved_later(tmp_path):
    @in_world(tmp_path)
    async def _(world):
        topic = await make_topic(world.node)
        made = await world.merged(topic, b"one")
        hide(tmp_path)
        assert not await world.move()
        assert world.info(made).store == ""
        assert b"one" in await world.read(topic)
        assert world.keeper.counts.upload_failures == 1

        assert not await world.move()  # it rests
        assert world.keeper.counts.upload_failures == 1
        world.seconds += REST_S[0]
        assert not await world.move()
        assert world.keeper.counts.upload_failures == 2
        show(tmp_path)
        world.seconds += REST_S[1]
        assert await world.move()

        assert world.info(made).store == STORE
        assert world.objects() == [made.name]
        assert b"one" in await world.read(topic)


def test_while_the_store_is_down_all_but_reads_of_objects_goes_on(tmp_path):
    @in_world(tmp_path)
    async def _(world):
        topic = await make_topic(world.node)
        await world.merged(topic, b"cold")
        await world.move()
        await world.settle()
        hide(tmp_path)

        with pytest.raises(StorageUnavailable):
            await world.read(topic)
        await append(world.node, topic, b"hot")
        assert isinstance(topic.partitions[0].log.read(1, 100), Hot)
        await world.flushed(topic, b"lukewarm")
        assert b"lukewarm" in await world.read(topic, 1)
        with pytest.raises(StorageUnavailable):
            await world.read(topic)
        show(tmp_path)

        assert b"cold" in await world.read(topic)
        assert not world.node.failed.is_set()


def test_an_object_is_removed_when_the_store_lets_us(tmp_path):
    @in_world(tmp_path)
    async def _(world):
        topic = await make_topic(world.node)
        segment = await world.merged(topic, b"one")
        await world.move()
        await world.keeper.remove_object(world.info(segment))
        hide(tmp_path)
        deny(tmp_path)
        await world.keeper.look()
        assert world.keeper.counts.remove_failures == 1
        allow(tmp_path)
        show(tmp_path)
        await world.keeper.look()
        assert world.objects() == [segment.name]  # it rests

        world.seconds += REST_S[0]
        await world.keeper.look()

        assert world.objects() == []
        assert world.keeper.counts.removed == 1


def deny(tmp_path):
    """A file in the place of the directory: every request fails, whoever asks."""
    (tmp_path / "store").write_text("")


def allow(tmp_path):
    (tmp_path / "store").unlink()


# -- ends in the middle ------------------------------------------------------------------------


def test_an_object_that_no_meta_knows_goes_after_a_while(tmp_path):
    """The end came after an upload, and what was uploaded was merged before the next."""

    @in_world(tmp_path)
    async def _(world):
        topic = await make_topic(world.node)
        made = await world.merged(topic, b"one")
        await world.move()
        await world.settle()
        again = world.merge(world.info(made))
        await world.maintenance.swap(Swap(removed=(made.segment_id,), added=(again,)))
        assert world.objects() == [made.name]

    store = tmp_path / "store"
    (folder,) = store.glob("*/segments")
    (folder / "0000000000000099.segment.uploading").write_bytes(b"the end came earlier")
    (folder / "notes.txt").write_bytes(b"not ours")

    @in_world(tmp_path)
    async def _(world):
        await world.keeper.look()
        assert len(world.objects()) == 3
        await world.settle()
        assert world.objects() == ["notes.txt"]
        (topic,) = world.storage.broker.cluster
        assert b"one" in await world.read(topic)


def test_an_upload_that_meta_has_not_heard_of_is_taken_for_the_move(tmp_path):
    """The end came between the upload and the commit."""

    @in_world(tmp_path)
    async def _(world):
        topic = await make_topic(world.node)
        made = await world.merged(topic, b"one")
        assert await world.keeper.upload_next()
        assert world.info(made).store == ""

    @in_world(tmp_path)
    async def _(world):
        (segment,) = world.storage.meta.state.segments.values()
        await world.keeper.look()
        await world.settle()
        assert world.objects() == [segment.name]

        assert await world.move()

        assert world.info(segment).store == STORE
        assert world.objects() == [segment.name]


def test_what_went_while_it_was_uploaded_goes_there_too(tmp_path):
    @in_world(tmp_path)
    async def _(world):
        topic = await make_topic(world.node)
        made = await world.merged(topic, b"one")
        assert await world.keeper.upload_next()
        again = world.merge(made)
        await world.maintenance.swap(Swap(removed=(made.segment_id,), added=(again,)))
        assert world.objects() == [made.name]

        assert await world.keeper.plan() is None
        await world.keeper.look()

        assert world.objects() == []
        assert b"one" in await world.read(topic)


def test_a_move_that_meta_refuses_is_tried_again(tmp_path):
    @in_world(tmp_path)
    async def _(world):
        topic = await make_topic(world.node)
        made = await world.merged(topic, b"one")
        assert await world.keeper.upload_next()
        commit = world.storage.meta.commit

        async def full(*_):
            raise DiskFull("no room")

        world.storage.meta.commit = full
        job = await world.keeper.plan()
        with pytest.raises(DiskFull):
            await job.run()
        assert world.storage.log.segments[made.segment_id].store == ""
        world.storage.meta.commit = commit

        assert not await world.move()  # it is there already

        assert world.info(made).store == STORE
        assert world.keeper.counts.uploads == 1


def test_something_else_of_that_name_is_left_and_the_segment_stays_a_file(tmp_path):
    @in_world(tmp_path)
    async def _(world):
        topic = await make_topic(world.node)
        first = await world.merged(topic, b"one")
        second = await world.merged(topic, b"two")
        path = tmp_path / "store" / world.storage.objects.objects.key(first.name)
        path.parent.mkdir(parents=True)
        path.write_bytes(b"somebody else's")

        assert not await world.move()
        assert await world.move()
        assert not await world.move()

        assert path.read_bytes() == b"somebody else's"
        assert world.info(first).store == ""
        assert world.info(second).store == STORE
        assert b"one" in await world.read(topic)


def test_orphans_are_looked_for_until_the_store_answers(tmp_path):
    @in_world(tmp_path)
    async def _(world):
        hide(tmp_path)
        await world.keeper.look()
        assert not world.keeper._is_listed
        show(tmp_path)
        world.seconds += REST_S[0]

        await world.keeper.look()

        assert world.keeper._is_listed


def test_without_a_url_objects_are_unavailable_and_stay(tmp_path):
    @in_world(tmp_path)
    async def _(world):
        topic = await make_topic(world.node)
        await world.merged(topic, b"one")
        await world.move()
        await world.settle()

    async def without():
        async with started(tmp_path / "data") as node:
            (topic,) = node.storage.broker.cluster
            found = topic.partitions[0].log.read(0, 100)
            with pytest.raises(StorageUnavailable, match=r"objects\.url"):
                found.run()
            await append(node, topic, b"two")
            (segment,) = node.storage.meta.state.segments.values()
            await leave_object(segment)

    asyncio.run(without())
    assert len(list(tmp_path.glob("store/*/segments/*"))) == 1
