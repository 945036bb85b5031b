"""What a node does in the background, inside the test's own loop: commits, flush, reserve."""

from __future__ import annotations

import asyncio
import contextlib
import sys

import pytest

from tests.waiting import run_ready_tasks, wait_on_loop
from trilogue.broker.errors import TopicExists
from trilogue.broker.names import parse_kafka
from trilogue.entry.entry import Record
from trilogue.entry.kafka.record_batch import build_batch
from trilogue.log.clock import wall_clock_ms
from trilogue.log.files import OsFileSystem
from trilogue.log.partition_log import TailSlice
from trilogue.log.segments.manifest import read_manifest, seal_manifest
from trilogue.node.node import Node
from trilogue.node.settings.sources import load_settings
from trilogue.node.settings.table import LISTENERS
from trilogue.node.storage import new_topic_id

DEADLINE_S = 60


@contextlib.asynccontextmanager
async def started(data, *assignments):
    off = (f"listen.{door}=off" for door in LISTENERS if door != "kafka")
    listen = ("listen.kafka=127.0.0.1:0", *off)
    node = Node(load_settings(environment={}, assignments=[f"data={data}", *listen, *assignments]))
    await node.start()
    try:
        async with asyncio.timeout(DEADLINE_S):
            yield node
    finally:
        async with asyncio.timeout(DEADLINE_S):
            await node.close()


def scenario(data, *assignments):
    """Run an async function with a node as a test."""

    def decorate(function):
        async def run():
            async with started(data, *assignments) as node:
                return await function(node)

        return asyncio.run(run())

    return decorate


def planned(node, name="t"):
    cluster = node.storage.broker.cluster
    return cluster.plan_create(cluster.check_create(parse_kafka(name)))


async def make_topic(node, name="t"):
    return await node.metadata_writer.write(planned(node, name))


async def append(node, topic, value):
    """Append one message and return when it is durable."""
    batch = build_batch([Record(0, 1_000, None, value, (), 0)])
    topic.partitions[0].append(memoryview(batch), now_ms=wall_clock_ms())
    durable = asyncio.get_running_loop().create_future()
    node.storage.log.journal.on_commit(durable.set_result)
    assert await durable is None


# -- commits ---------------------------------------------------------------------------------


def test_a_decision_is_true_when_it_is_durable(tmp_path):
    @scenario(tmp_path / "data")
    async def _(node):
        topic = await make_topic(node)

        assert node.storage.broker.cluster.find_topic(topic.name) is topic
        assert topic.row.key in node.storage.meta.state.topics


def test_a_decision_goes_on_when_the_requester_goes_away(tmp_path):
    @scenario(tmp_path / "data")
    async def _(node):
        request = asyncio.ensure_future(make_topic(node))
        await run_ready_tasks()
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request

        await node.metadata_writer.finish()

        assert node.storage.broker.cluster.find_topic(parse_kafka("t")) is not None


def test_a_decision_that_meta_refuses_is_taken_back(tmp_path):
    @scenario(tmp_path / "data")
    async def _(node):
        commit = planned(node)
        row = commit.ops()[0].topic
        other = planned(node, "other")
        await node.storage.meta.write(commit.ops(), (), node.storage.fence)
        assert row.name == "t"

        with pytest.raises(TopicExists):
            await node.metadata_writer.write(commit)

        await node.metadata_writer.write(other)
        assert node.storage.broker.cluster.find_topic(parse_kafka("t")) is None


def test_topic_ids_never_look_like_an_option_of_a_command():
    for _ in range(1_000):
        topic_id = new_topic_id()
        assert topic_id[0] >> 2 != 62
        assert (topic_id[6] >> 4, topic_id[8] >> 6) == (4, 2)


# -- flush -----------------------------------------------------------------------------------


def test_a_flush_whose_helper_does_not_start_is_tried_again(tmp_path, monkeypatch):
    @scenario(tmp_path / "data")
    async def _(node):
        topic = await make_topic(node)
        await append(node, topic, b"kept")
        monkeypatch.setattr(sys, "executable", "/no/such/python")
        node.storage.log.seal()
        await wait_on_loop(lambda: node.flusher.counts.failures)
        assert isinstance(topic.partitions[0].log.read(0, 1_000), TailSlice)

        monkeypatch.undo()
        await wait_on_loop(lambda: node.flusher.counts.flushes)

        assert not node.failed.is_set()
        assert topic.partitions[0].log.flushed_end == 1


def test_a_flush_that_finds_its_journal_damaged_ends_the_node(tmp_path):
    @scenario(tmp_path / "data")
    async def _(node):
        topic = await make_topic(node)
        await append(node, topic, b"lost")
        (journal,) = [
            path
            for path in node.storage.directory.journal.iterdir()
            if b"lost" in path.read_bytes()
        ]
        content = bytearray(journal.read_bytes())
        content[content.index(b"lost")] ^= 1
        journal.write_bytes(content)

        node.storage.log.seal()
        await node.failed.wait()

        assert "frame" in str(node.failure)
        assert topic.partitions[0].log.flushed_end == 0


def test_the_manifest_follows_meta(tmp_path):
    @scenario(tmp_path / "data")
    async def _(node):
        topic = await make_topic(node)
        await append(node, topic, b"x")
        await node.drain(asyncio.Event(), DEADLINE_S)

        manifest = read_manifest(OsFileSystem(), node.storage.directory.segments)

        assert manifest == seal_manifest(node.storage.meta.manifest())
        assert [each.name for each in manifest.topics] == ["t"]
        assert len(manifest.segments) == 1


# -- the reserve -----------------------------------------------------------------------------


def test_the_reserve_is_given_up_once_and_made_again(tmp_path):
    @scenario(tmp_path / "data", "disk.reserve=1MiB")
    async def _(node):
        reserve = node.storage.directory.reserve
        await wait_on_loop(reserve.exists)
        assert reserve.stat().st_size == 1 << 20

        node.storage.give_up_reserve()
        node.storage.give_up_reserve()
        assert not reserve.exists()

        await node.retention.apply_retention()
        await wait_on_loop(reserve.exists)


def test_no_reserve_is_made_where_none_is_wanted(tmp_path):
    @scenario(tmp_path / "data", "disk.reserve=0")
    async def _(node):
        await node.retention.apply_retention()
        assert not node.storage.directory.reserve.exists()


# -- settings that reach the log -----------------------------------------------------------------


def test_node_acknowledges_from_memory_unless_a_topic_overrides_it(tmp_path):
    """On a real disk: unawaited entries are durable and readable after the interval."""

    @scenario(tmp_path, "topics.flush=interval", "journal.interval=20ms")
    async def run(node):
        topic = await make_topic(node)
        cluster = node.storage.broker.cluster
        plan = cluster.plan_create(
            cluster.check_create(parse_kafka("safe"), settings={"flush": "commit"})
        )
        safe = await node.metadata_writer.write(plan)
        shown = asyncio.Event()
        plog = topic.partitions[0].log
        plog.wait(shown.set)
        batch = build_batch([Record(0, 1_000, None, b"a", (), 0)])
        began = asyncio.get_running_loop().time()

        topic.partitions[0].append(memoryview(batch), now_ms=wall_clock_ms())
        await shown.wait()

        assert asyncio.get_running_loop().time() - began >= 0.019
        assert plog.high_watermark == 1
        assert (topic.partitions[0].acks_from_memory, safe.partitions[0].acks_from_memory) == (
            True,
            False,
        )
