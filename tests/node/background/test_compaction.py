"""Compaction as the node does it: what is due, in a helper, recorded with how far it came."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.node.test_background import DEADLINE_S, started
from trilogue.broker.names import parse_kafka
from trilogue.entry.entry import Record
from trilogue.entry.kafka.record_batch import build_batch, iter_records
from trilogue.entry.walk import read_header, walk_headers
from trilogue.log.clock import wall_clock_ms
from trilogue.log.errors import CorruptLog
from trilogue.log.files import OsFileSystem
from trilogue.log.jobs.compaction_job import CompactResult
from trilogue.log.partition_log import SegmentSlice
from trilogue.meta.operations import PartitionState
from trilogue.node.background.compaction import CompactionPlanner
from trilogue.node.background.maintenance import Maintenance

QUIET = ("compaction.check-every=1h", "retention.check-every=1h")


class Inline:
    """Does jobs here and now; `before` is called with each."""

    def __init__(self):
        self.before = lambda _: None

    async def run(self, function, job, reach):
        self.before(job)
        return function(job, reach)


class World:
    """A node whose compaction is driven step by step."""

    def __init__(self, node):
        self.node = node
        self.storage = node.storage
        self.now_ms = wall_clock_ms()
        self.helper = Inline()
        self.maintenance = Maintenance(node.storage, node.retired, node._manifests)
        self.compacting = CompactionPlanner(
            node.storage,
            self.maintenance,
            self.helper,
            now_ms=lambda: self.now_ms,
            every_s=60.0,
            map_bytes=1,
            bytes_per_second=0,
        )

    async def topic(self, name="t", **settings):
        given = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
        given |= {key.replace("_", "."): value for key, value in settings.items()}
        cluster = self.storage.broker.cluster
        found = cluster.find_topic(parse_kafka(name))
        if found is not None:
            return found
        planned = cluster.plan_create(cluster.check_create(parse_kafka(name), settings=given))
        return await self.node.metadata_writer.write(planned)

    async def append(self, topic, *pairs, **fields):
        """Append one batch of (key, value) and return when it is durable."""
        records = [Record(at, self.now_ms, *pair) for at, pair in enumerate(pairs)]
        entry = build_batch(records, **fields)
        appended = topic.partitions[0].append(memoryview(entry), now_ms=self.now_ms)
        durable = asyncio.get_running_loop().create_future()
        self.storage.log.journal.on_commit(durable.set_result)
        assert await durable is None
        return appended

    async def flush(self):
        await self.node.flusher.finish()

    async def compact(self):
        """Look, and do what is due; how many jobs that were."""
        count = 0
        await self.compacting.look_around()
        while (job := await self.compacting.plan()) is not None:
            await job.run()
            count += 1
        return count

    def state(self, topic) -> PartitionState:
        return self.storage.meta.state.partitions[topic.partitions[0].partition_id]

    def entries(self, topic):
        log = topic.partitions[0].log
        found, offset = [], log.start_offset
        while offset < log.high_watermark:
            read = log.read(offset, 1 << 20)
            data = read.run() if isinstance(read, SegmentSlice) else b"".join(read.slices)
            walked = walk_headers(data)
            found += [bytes(data[at : at + length]) for at, length, *_ in walked]
            offset = walked[-1][2] + walked[-1][3] + 1
        return found

    def read(self, topic):
        return [
            (record.offset, record.key, record.value)
            for entry in self.entries(topic)
            if not read_header(entry).is_control
            for record in iter_records(entry)
        ]


@contextlib.asynccontextmanager
async def world(data: Path) -> AsyncIterator[World]:
    async with started(data, *QUIET) as node:
        yield World(node)


def scenario(data):
    """Run an async function with a world as a test."""

    def decorate(function):
        async def run():
            async with world(data) as made:
                return await function(made)

        return asyncio.run(run())

    return decorate


def test_a_compacted_topic_keeps_the_last_message_of_each_key(tmp_path):
    @scenario(tmp_path / "data")
    async def _(here):
        topic = await here.topic()
        await here.append(topic, (b"a", b"1"), (b"b", b"1"))
        await here.append(topic, (b"a", b"2"))
        await here.flush()
        await here.append(topic, (b"b", b"in the journal"))

        assert await here.compact() == 1

        assert here.read(topic) == [(1, b"b", b"1"), (2, b"a", b"2"), (3, b"b", b"in the journal")]
        assert here.state(topic).compacted_end == 3
        assert here.compacting.records_dropped == 1
        assert await here.compact() == 0, "nothing is new"


def test_journal_entries_older_than_max_compaction_lag_are_flushed_and_compacted(tmp_path):
    """KIP-354: no message is out of compaction's reach for longer than max.compaction.lag.ms."""

    @scenario(tmp_path / "data")
    async def _(here):
        acks_from_memory = await here.topic("acks_from_memory", max_compaction_lag_ms="60000")
        topic = await here.topic(max_compaction_lag_ms="100")
        for value in (b"1", b"2"):
            await here.append(topic, (b"a", value))
            await here.append(acks_from_memory, (b"a", value))

        assert await here.compacting.hurry() == 0, "nothing is old yet"
        here.now_ms += 1_000
        assert await here.compacting.hurry() == 1
        await here.flush()
        job = await here.compacting.plan()
        assert job is not None
        await job.run()

        assert here.read(topic) == [(1, b"a", b"2")]
        assert await here.compacting.plan() is None, "the other one has time"
        assert await here.compacting.hurry() == 0, "the journal is empty"


def test_it_goes_on_where_it_was_after_a_restart(tmp_path):
    async def begin():
        async with world(tmp_path / "data") as here:
            topic = await here.topic()
            await here.append(topic, (b"a", b"1"))
            await here.append(topic, (b"a", b"2"))
            await here.flush()
            assert await here.compact() == 1
            await here.append(topic, (b"a", b"3"))

    async def go_on():
        async with world(tmp_path / "data") as here:
            topic = await here.topic()
            assert here.read(topic) == [(1, b"a", b"2"), (2, b"a", b"3")]
            assert here.state(topic).compacted_end == 2
            await here.flush()
            assert await here.compact() == 1
            assert here.read(topic) == [(2, b"a", b"3")]

    asyncio.run(begin())
    asyncio.run(go_on())


def test_an_idempotent_producer_goes_on_after_compaction_and_a_restart(tmp_path):
    def signed(sequence):
        return {"producer_id": 77, "producer_epoch": 0, "base_sequence": sequence}

    async def begin():
        async with world(tmp_path / "data") as here:
            topic = await here.topic()
            for sequence in range(4):
                await here.append(topic, (b"a", b"%d" % sequence), **signed(sequence))
            await here.append(topic, (b"a", b"another's"))
            await here.flush()
            assert await here.compact() == 1
            kept = [read_header(entry) for entry in here.entries(topic)]
            assert [(each.base_offset, each.record_count) for each in kept] == [(3, 0), (4, 1)]
            assert (kept[0].producer_id, kept[0].base_sequence) == (77, 3)

    async def go_on():
        async with world(tmp_path / "data") as here:
            topic = await here.topic()
            repeated = await here.append(topic, (b"a", b"3"), **signed(3))
            assert (repeated.base_offset, repeated.duplicate) == (3, True)
            fresh = await here.append(topic, (b"b", b"4"), **signed(4))
            assert (fresh.base_offset, fresh.duplicate) == (5, False)

    asyncio.run(begin())
    asyncio.run(go_on())


def test_topics_that_are_not_compacted_are_left_alone(tmp_path):
    @scenario(tmp_path / "data")
    async def _(here):
        topic = await here.topic(cleanup_policy="delete")
        await here.append(topic, (b"a", b"1"))
        await here.append(topic, (b"a", b"2"))
        await here.flush()

        assert await here.compact() == 0

        altered = topic.settings | {"cleanup.policy": "compact,delete"}
        commit = here.storage.broker.cluster.plan_alter(topic.name, altered)
        await here.node.metadata_writer.write(commit)
        assert await here.compact() == 1
        assert here.read(topic) == [(1, b"a", b"2")]


def test_the_most_urgent_partition_comes_first(tmp_path):
    @scenario(tmp_path / "data")
    async def _(here):
        order = []
        here.helper.before = lambda job: order.append(job.partition_id)
        clean, dirty, forced = [
            await here.topic("clean"),
            await here.topic("dirty"),
            await here.topic("forced", max_compaction_lag_ms="1"),
        ]
        for topic in (clean, forced):
            await here.append(topic, *((b"%d" % key, bytes(100)) for key in range(100)))
        await here.flush()
        assert await here.compact() == 2
        for topic in (clean, dirty, forced):
            await here.append(topic, (b"a", b"1"))
        await here.flush()
        here.now_ms += 10**12
        order.clear()

        assert await here.compact() == 3

        assert order == [each.partitions[0].partition_id for each in (forced, dirty, clean)]


def test_large_compaction_takes_several_rounds(tmp_path):
    @scenario(tmp_path / "data")
    async def _(here):
        topic = await here.topic()
        for _ in range(3):
            await here.append(topic, *((b"%d" % key, b"v") for key in range(1_000)))
        await here.flush()

        assert await here.compact() == 3

        assert len(here.read(topic)) == 1_000


def test_a_damaged_partition_is_left_as_it_is(tmp_path):
    @scenario(tmp_path / "data")
    async def _(here):
        topic = await here.topic()
        await here.append(topic, (b"a", b"1"))
        await here.append(topic, (b"a", b"2"))
        await here.flush()
        (segment,) = here.storage.log.segments.values()
        path = here.storage.directory.segments / segment.name
        file = OsFileSystem().open(path)
        file.pwrite(b"?", 64 + 65)
        file.close()
        assert await here.compacting.look_around() == 1
        job = await here.compacting.plan()
        assert job is not None

        with pytest.raises(CorruptLog) as caught:
            await job.run()
        job.spoilt(caught.value)

        assert await here.compact() == 0
        assert list(here.storage.log.segments) == [segment.segment_id]
        assert [each.name for each in path.parent.glob("*.segment")] == [segment.name]


def test_it_ends_where_a_transaction_is_open(tmp_path):
    @scenario(tmp_path / "data")
    async def _(here):
        topic = await here.topic()
        await here.append(topic, (b"a", b"1"))
        await here.append(topic, (b"a", b"2"))
        signed = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}
        entry = build_batch([Record(0, 1, b"a", b"3")], transactional=True, **signed)
        topic.partitions[0].log.append(memoryview(entry), read_header(entry))
        await here.append(topic, (b"a", b"4"))
        await here.flush()

        assert await here.compact() == 1

        assert [offset for offset, *_ in here.read(topic)] == [1, 2, 3]
        assert here.state(topic).compacted_end == 2
        assert await here.compact() == 0


def test_where_nothing_came_of_it_it_waits_for_more(tmp_path):
    """A transaction may be decided in the journal and not yet in a segment."""

    class Helpless:
        async def run(self, function, job, reach):
            return CompactResult((), (), job.compacted_end, 0, 0, 0, 0, 0)

    @scenario(tmp_path / "data")
    async def _(here):
        topic = await here.topic()
        await here.append(topic, (b"a", b"1"))
        await here.flush()
        here.compacting._helper = Helpless()

        assert await here.compact() == 1
        assert await here.compact() == 0
        await here.append(topic, (b"a", b"2"))
        await here.flush()
        assert await here.compact() == 1


def test_a_topic_that_is_deleted_meanwhile_does_no_harm(tmp_path):
    @scenario(tmp_path / "data")
    async def _(here):
        topic = await here.topic()
        await here.append(topic, (b"a", b"1"))
        await here.append(topic, (b"a", b"2"))
        await here.flush()
        assert await here.compacting.look_around() == 1
        job = await here.compacting.plan()
        assert job is not None
        commit = here.storage.broker.cluster.plan_delete(topic.name)
        deleting = here.node.metadata_writer.write(commit)

        class Late(Inline):
            async def run(self, function, job, reach):
                await deleting
                return function(job, reach)

        here.compacting._helper = Late()
        await job.run()

        (segment,) = here.storage.log.segments.values()
        assert here.storage.log.dead_segments() == [segment.segment_id]


@pytest.mark.parametrize("at_first", ["100ms", "1h"])
def test_node_compacts_at_the_latest_interval(tmp_path, at_first):
    async def run():
        async with started(tmp_path / "data", f"compaction.check-every={at_first}") as node:
            here = World(node)
            topic = await here.topic()
            await here.append(topic, (b"a", b"1"))
            await here.append(topic, (b"a", b"2"))
            await here.flush()
            node.compacting.look_every(0.1)

            async with asyncio.timeout(DEADLINE_S):
                while here.state(topic).compacted_end < 2:
                    await node.maintenance.moved()

            assert here.read(topic) == [(1, b"a", b"2")]
            assert node.maintenance.counts["compaction"].jobs == 1

    asyncio.run(run())
