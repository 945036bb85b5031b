"""Ends in the middle of a move, and what else lies in the store: nothing is lost, nothing stays."""

from __future__ import annotations

import asyncio

import pytest

from tests.node.objects_world import (
    hide,
    in_world,
    show,
)
from tests.node.test_background import append, make_topic, started
from trilogue.log.errors import DiskFull, StorageUnavailable
from trilogue.log.objects.objects import STORE
from trilogue.log.segments.sealed import SealedLog
from trilogue.log.segments.segment_info import Swap
from trilogue.node.background.objects import REST_S, leave_object

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
        await world.keeper.remove_due()
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
        await world.keeper.remove_due()
        await world.settle()
        assert world.objects() == [segment.name]

        assert await world.move()

        assert world.info(segment).store == STORE
        assert world.objects() == [segment.name]


def test_object_of_a_segment_removed_during_its_upload_is_deleted(tmp_path):
    @in_world(tmp_path)
    async def _(world):
        topic = await make_topic(world.node)
        made = await world.merged(topic, b"one")
        assert await world.keeper.upload_next()
        again = world.merge(made)
        await world.maintenance.swap(Swap(removed=(made.segment_id,), added=(again,)))
        assert world.objects() == [made.name]

        assert await world.keeper.plan() is None
        await world.keeper.remove_due()

        assert world.objects() == []
        assert b"one" in await world.read(topic)


def test_a_move_that_meta_refuses_is_tried_again(tmp_path):
    @in_world(tmp_path)
    async def _(world):
        topic = await make_topic(world.node)
        made = await world.merged(topic, b"one")
        assert await world.keeper.upload_next()
        commit = world.storage.meta.write

        async def full(*_):
            raise DiskFull("no room")

        world.storage.meta.write = full
        job = await world.keeper.plan()
        with pytest.raises(DiskFull):
            await job.run()
        assert world.storage.log.segments[made.segment_id].store == ""
        world.storage.meta.write = commit

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
        await world.keeper.remove_due()
        assert not world.keeper._is_listed
        show(tmp_path)
        world.seconds += REST_S[0]

        await world.keeper.remove_due()

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


# -- without a broker --------------------------------------------------------------------------


def test_sealed_messages_are_read_from_objects_without_a_broker(tmp_path):
    """Also while they move there, and are merged into others, under a reader that is slow."""

    @in_world(tmp_path)
    async def _(world):
        topic = await make_topic(world.node)
        (partition_id,) = (each.log.partition_id for each in topic.partitions)
        first = await world.merged(topic, b"one")
        second = await world.merged(topic, b"two")
        await manifest(world)
        data, reach = world.storage.directory.path, world.storage.reach
        sealed = SealedLog(data, objects=reach.cache())
        reading = sealed.read(partition_id)

        await world.move()
        await world.move()
        await manifest(world)
        await world.settle()
        assert world.files() == []
        assert b"one" in bytes(next(reading))
        third = world.merge(world.info(second))
        await world.maintenance.swap(Swap(removed=(second.segment_id,), added=(third,)))
        await world.move()
        await manifest(world)
        await world.settle()

        assert world.objects() == [first.name, third.name]
        assert b"two" in bytes(next(reading))
        assert list(reading) == []
        sealed.close()
        with pytest.raises(StorageUnavailable, match=r"objects\.url"):
            list(SealedLog(data).read(partition_id))


async def manifest(world):
    """Write the manifest."""
    world.node._manifests.changed()
    await world.node._manifests.write()
