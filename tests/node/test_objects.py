"""Merged segments go to object storage and stay readable; what goes wrong is made good later."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from tests.node.test_background import append, make_topic, started

from trilogue.log import merge
from trilogue.log.errors import StorageUnavailable
from trilogue.log.objects import STORE
from trilogue.log.partition_log import Cold, Hot
from trilogue.log.segment_info import MergeJob, Swap
from trilogue.meta.errors import PreconditionFailed
from trilogue.node.jobs import Helper
from trilogue.node.maintenance import Maintenance
from trilogue.node.objects import REST_S, ObjectKeeper, leave_object
from trilogue.node.retired import RetiredFiles

GRACE_S = 60.0


class World:
    """A node, its keeper driven step by step, and a clock of the keeper's own."""

    def __init__(self, node, helper, executor, *, keep_local_s=0.0):
        self.node = node
        self.seconds = 1_000.0
        self.storage = node.storage
        self.retired = RetiredFiles(self.storage, monotonic=lambda: self.seconds, grace_s=GRACE_S)
        self.maintenance = Maintenance(self.storage, self.retired, node._manifests)
        self.keeper = ObjectKeeper(
            self.storage,
            self.maintenance,
            reach=self.storage.reach,
            cache=self.storage.objects,
            helper=helper,
            executor=executor,
            monotonic=lambda: self.seconds,
            grace_s=GRACE_S,
            keep_local_s=keep_local_s,
            level_min=0,
        )
        self.maintenance.place = self.keeper.place
        self.retired.remove_object = self.keeper.remove_object

    async def flushed(self, topic, *values):
        """Bring messages into a segment and return it."""
        for value in values:
            await append(self.node, topic, value)
        known = set(self.storage.log.segments)
        await self.node.flusher.finish()
        (new,) = set(self.storage.log.segments) - known
        return self.storage.log.segments[new]

    async def move(self):
        """Do the next job that the keeper plans; whether there was one."""
        job = await self.keeper.plan()
        if job is not None:
            await job.run()
        return job is not None

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
async def world(tmp_path: Path, *, keep_local_s=0.0, url=None) -> AsyncIterator[World]:
    (tmp_path / "store").mkdir(exist_ok=True)
    url = f"file://{tmp_path}/store" if url is None else url
    helper = Helper()
    with ThreadPoolExecutor(1) as executor:
        async with started(tmp_path / "data", f"objects.url={url}") as node:
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
    @in_world(tmp_path)
    async def _(world):
        topic = await make_topic(world.node)
        segment = await world.flushed(topic, b"one", b"two")
        before = await world.read(topic)

        assert await world.move()
        assert not await world.move()

        assert world.info(segment).store == STORE
        assert world.objects() == [segment.name]
        assert world.files() == [segment.name]  # for those who planned from an older manifest
        world.seconds += GRACE_S + 1
        await world.keeper.look()
        assert world.files() == []
        assert await world.read(topic) == before
        counts = world.keeper.counts
        assert (counts.uploads, counts.upload_bytes) == (1, segment.size)
        assert world.storage.objects.counts.misses > 0


def test_what_lies_in_objects_is_read_after_a_restart(tmp_path):
    @in_world(tmp_path)
    async def segment(world):
        topic = await make_topic(world.node)
        segment = await world.flushed(topic, b"one")
        await world.move()
        world.seconds += GRACE_S + 1
        await world.keeper.look()
        assert world.files() == []
        return segment

    @in_world(tmp_path)
    async def _(world):
        (topic,) = world.storage.broker.cluster
        assert world.info(segment).store == STORE
        assert b"one" in await world.read(topic)


def test_what_a_job_writes_is_there_before_meta_knows_it(tmp_path):
    @in_world(tmp_path)
    async def _(world):
        topic = await make_topic(world.node)
        segment = await world.flushed(topic, b"one")
        copy = as_merged(world, segment)

        await world.maintenance.swap(Swap(removed=(segment.segment_id,), added=(copy,)))

        assert world.info(copy).store == STORE
        assert world.objects() == [copy.name]
        assert b"one" in await world.read(topic)
        assert not await world.move()
        world.seconds += GRACE_S + 1
        await world.keeper.look()
        await world.retired.remove_due()
        assert world.files() == []
        assert b"one" in await world.read(topic)


def as_merged(world, segment):
    """What a merge of this one segment makes: files that meta does not know yet."""
    state = world.storage.meta.state
    job = MergeJob(
        inputs=(segment,),
        directory=str(world.storage.directory.segments),
        segment_ids=(world.storage.meta.allocate("segment"),),
        level=1,
        starts=dict.fromkeys(segment.partitions, 0),
        own_bytes=1 << 30,
        target_bytes=1 << 30,
        cluster_id=state.cluster_id,
        node_id=state.node_id,
        node_epoch=state.node_epoch,
        now_ms=0,
    )
    (made,) = merge.run(job, world.storage.reach).added
    return made


def test_inputs_of_a_merge_may_lie_in_objects(tmp_path):
    @in_world(tmp_path)
    async def _(world):
        topic = await make_topic(world.node)
        segment = await world.flushed(topic, b"one", b"two")
        before = await world.read(topic)
        await world.move()
        world.seconds += GRACE_S + 1
        await world.keeper.look()
        assert world.files() == []

        made = as_merged(world, world.info(segment))
        await world.maintenance.swap(Swap(removed=(segment.segment_id,), added=(made,)))

        assert await world.read(topic) == before
        world.seconds += GRACE_S + 1
        await world.retired.remove_due()
        await world.keeper.look()
        assert world.objects() == [made.name]


def test_local_copies_stay_and_are_read_as_long_as_one_wants(tmp_path):
    @in_world(tmp_path, keep_local_s=3_600)
    async def _(world):
        topic = await make_topic(world.node)
        segment = await world.flushed(topic, b"one")
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
        segment = await world.flushed(topic, b"one")
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
        await world.flushed(topic, b"one")
        await world.move()
        assert len(world.files()) == 1

    @in_world(tmp_path)
    async def _(world):
        assert len(world.files()) == 1
        world.seconds += GRACE_S + 1
        await world.keeper.look()
        assert world.files() == []


# -- a store that does not answer --------------------------------------------------------------


def test_what_cannot_be_uploaded_stays_a_file_and_is_moved_later(tmp_path):
    @in_world(tmp_path)
    async def _(world):
        topic = await make_topic(world.node)
        segment = await world.flushed(topic, b"one")
        hide(tmp_path)
        made = as_merged(world, segment)
        await world.maintenance.swap(Swap(removed=(segment.segment_id,), added=(made,)))
        assert world.info(made).store == ""
        assert b"one" in await world.read(topic)
        assert world.keeper.counts.upload_failures == 1

        assert not await world.move()  # it rests
        world.seconds += REST_S[0]
        assert await world.move()
        assert world.info(made).store == ""
        show(tmp_path)
        world.seconds += REST_S[1]
        assert await world.move()

        assert world.info(made).store == STORE
        assert world.objects() == [made.name]


def test_while_the_store_is_down_all_but_reads_of_objects_goes_on(tmp_path):
    @in_world(tmp_path)
    async def _(world):
        topic = await make_topic(world.node)
        await world.flushed(topic, b"cold")
        await world.move()
        world.seconds += GRACE_S + 1
        await world.keeper.look()
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
        segment = await world.flushed(topic, b"one")
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
    """The end came after the upload of what a merge wrote, and before the commit."""

    @in_world(tmp_path)
    async def _(world):
        topic = await make_topic(world.node)
        segment = await world.flushed(topic, b"one")
        await world.move()
        made = as_merged(world, segment)
        (placed,) = await world.keeper.place((made,))
        assert placed.store == STORE
        assert len(world.objects()) == 2

    store = tmp_path / "store"
    (folder,) = store.glob("*/segments")
    (folder / "0000000000000099.segment.uploading").write_bytes(b"the end came earlier")
    (folder / "notes.txt").write_bytes(b"not ours")

    @in_world(tmp_path)
    async def _(world):
        (segment,) = world.storage.meta.state.segments.values()
        await world.keeper.look()
        assert len(world.objects()) == 4
        world.seconds += GRACE_S + 1
        await world.keeper.look()
        assert world.objects() == [segment.name, "notes.txt"]
        (topic,) = world.storage.broker.cluster
        assert b"one" in await world.read(topic)


def test_an_upload_that_meta_has_not_heard_of_is_taken_for_the_move(tmp_path):
    """The end came after the upload of a segment that meta has as a file."""

    @in_world(tmp_path)
    async def _(world):
        topic = await make_topic(world.node)
        segment = await world.flushed(topic, b"one")
        assert await world.keeper._upload(segment)
        assert world.info(segment).store == ""

    @in_world(tmp_path)
    async def _(world):
        (segment,) = world.storage.meta.state.segments.values()
        await world.keeper.look()
        world.seconds += GRACE_S + 1
        await world.keeper.look()
        assert world.objects() == [segment.name]

        assert await world.move()

        assert world.info(segment).store == STORE
        assert world.objects() == [segment.name]


def test_what_a_job_uploaded_in_vain_goes_at_once(tmp_path):
    @in_world(tmp_path)
    async def _(world):
        topic = await make_topic(world.node)
        segment = await world.flushed(topic, b"one")
        made = as_merged(world, segment)
        gone = replace(segment, segment_id=10_000)
        with pytest.raises(PreconditionFailed):
            await world.maintenance.swap(Swap(removed=(gone.segment_id,), added=(made,)))
        assert world.objects() == [made.name]

        await world.keeper.plan()
        await world.keeper.look()

        assert world.objects() == []


def test_something_else_of_that_name_is_left_and_the_segment_stays_a_file(tmp_path):
    @in_world(tmp_path)
    async def _(world):
        topic = await make_topic(world.node)
        first = await world.flushed(topic, b"one")
        second = await world.flushed(topic, b"two")
        path = tmp_path / "store" / world.storage.objects.objects.key(first.name)
        path.parent.mkdir(parents=True)
        path.write_bytes(b"somebody else's")

        while await world.move():
            pass

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
        await world.flushed(topic, b"one")
        await world.move()
        world.seconds += GRACE_S + 1
        await world.keeper.look()

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
