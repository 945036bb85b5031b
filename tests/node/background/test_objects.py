"""Merged segments go to object storage and stay readable; what goes wrong is made good later."""

from __future__ import annotations

import pytest

from tests.node.objects_world import (
    GRACE_S,
    MOVE_AFTER_S,
    hide,
    in_world,
    show,
)
from tests.node.test_background import append, make_topic
from trilogue.log.errors import CorruptLog, ObjectDenied, StorageUnavailable
from trilogue.log.jobs.merge_plan import Plan
from trilogue.log.objects.objects import STORE
from trilogue.log.partition_log import TailSlice
from trilogue.log.segments.segment_info import Swap
from trilogue.node.background.helper import Helper
from trilogue.node.background.objects import REST_S

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


def test_segments_in_objects_are_read_after_a_restart(tmp_path):
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


def test_an_object_that_is_gone_at_the_start_is_named(tmp_path):
    @in_world(tmp_path)
    async def segment(world):
        topic = await make_topic(world.node)
        segment = await world.merged(topic, b"one")
        await world.move()
        await world.settle()
        world.storage.objects.objects.delete(segment.name)
        return segment

    @in_world(tmp_path)
    async def _(world):
        await world.settle()
        assert list(world.storage.log.missing_segments.values()) == [segment.name]


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
        monkeypatch.setattr("trilogue.node.background.objects.SMALL_BYTES", made.size)
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


def test_a_block_that_came_damaged_ends_a_merge(tmp_path):
    """What it copied would be damaged for good, and the object may be whole."""

    @in_world(tmp_path)
    async def _(world):
        topic = await make_topic(world.node)
        made = await world.merged(topic, b"one", b"two")
        await world.move()
        await world.settle()
        (path,) = tmp_path.glob("store/*/segments/*")
        right = path.read_bytes()
        path.write_bytes(right[:100] + bytes([right[100] ^ 1]) + right[101:])

        with pytest.raises(CorruptLog) as problem:
            world.merge(world.info(made))

        assert problem.value.path.name == made.name
        assert world.files() == []
        path.write_bytes(right)
        assert world.merge(world.info(made)).data_size == made.data_size


def test_merges_of_files_do_not_wait_for_a_store_that_is_down(tmp_path):
    @in_world(tmp_path)
    async def _(world):
        topic = await make_topic(world.node)
        there = world.info(await world.merged(topic, b"one"))
        await world.move()
        await world.settle()
        there = world.info(there)
        merging = world.node.merging
        hide(tmp_path)
        plan = Plan("merge", (there,), 2, 1 << 30, 1 << 30)

        with pytest.raises(StorageUnavailable):
            await merging._run(plan)

        requested = []
        may_be_due = "trilogue.node.background.merge.merge_plan.may_be_due"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                may_be_due, lambda _segments, skip, _now: requested.append(skip) or frozenset()
            )
            await merging.plan()
        assert requested == [{there.segment_id}]


def test_local_copies_stay_and_are_read_as_long_as_one_wants(tmp_path):
    @in_world(tmp_path, keep_local_s=3_600)
    async def _(world):
        topic = await make_topic(world.node)
        segment = await world.merged(topic, b"one")
        await world.move()
        world.seconds += 3_000
        await world.keeper.remove_due()

        assert b"one" in await world.read(topic)

        assert world.storage.objects.counts.misses == 0
        assert world.files() == [segment.name]
        world.seconds += 601
        await world.keeper.remove_due()
        assert world.files() == []


def test_local_copy_is_removed_when_the_manifest_names_its_store(tmp_path):
    @in_world(tmp_path)
    async def _(world):
        topic = await make_topic(world.node)
        made = await world.merged(topic, b"one")
        world.published = world.storage.meta.state.version
        await world.move()

        world.seconds += GRACE_S + 1
        await world.keeper.remove_due()
        assert world.files() == [made.name]
        world.published = world.storage.meta.state.version
        await world.keeper.remove_due()
        assert world.files() == []


def test_copies_that_stay_for_ever_go_with_their_segment(tmp_path):
    @in_world(tmp_path, keep_local_s=None)
    async def _(world):
        topic = await make_topic(world.node)
        segment = await world.merged(topic, b"one")
        await world.move()
        world.seconds += 1_000_000
        await world.keeper.remove_due()
        assert world.files() == [segment.name]

        await world.keeper.remove_object(world.info(segment))
        await world.keeper.remove_due()

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


def test_failed_upload_keeps_the_file_and_is_retried(tmp_path):
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
        assert isinstance(topic.partitions[0].log.read(1, 100), TailSlice)
        await world.flushed(topic, b"lukewarm")
        assert b"lukewarm" in await world.read(topic, 1)
        with pytest.raises(StorageUnavailable):
            await world.read(topic)
        show(tmp_path)
        world.hands.seconds += 10

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
        await world.keeper.remove_due()
        assert world.keeper.counts.remove_failures == 1
        allow(tmp_path)
        show(tmp_path)
        await world.keeper.remove_due()
        assert world.objects() == [segment.name]  # it rests

        world.seconds += REST_S[0]
        await world.keeper.remove_due()

        assert world.objects() == []
        assert world.keeper.counts.removed == 1


def test_an_object_that_cannot_be_removed_keeps_no_other_from_going(tmp_path):
    """One may be locked in the store, for years."""

    @in_world(tmp_path)
    async def _(world):
        objects = world.storage.objects.objects
        remove = objects.delete

        def delete(name, node_id):
            if name == "locked.segment":
                raise ObjectDenied("locked")
            remove(name, node_id)

        objects.delete = delete
        world.keeper._leaving = {"locked.segment": 0.0, "one.segment": 0.0, "two.segment": 0.0}
        await world.keeper.remove_due()
        world.seconds += REST_S[0]

        await world.keeper.remove_due()

        assert list(world.keeper._leaving) == ["locked.segment"]
        assert world.keeper.counts.removed == 2


def deny(tmp_path):
    """A file instead of the directory: every request fails."""
    (tmp_path / "store").write_text("")


def allow(tmp_path):
    (tmp_path / "store").unlink()
