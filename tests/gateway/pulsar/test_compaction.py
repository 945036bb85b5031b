"""The compacted view over entries of transactions: what was aborted takes nobody's place."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.gateway.loop import on_loop
from tests.gateway.pulsar.readers import fill, offsets, subscribe
from tests.gateway.pulsar.rig import Rig, settle
from tests.log.ledger import marker
from tests.waiting import wait_on_loop
from trilogue.entry.control import Outcome
from trilogue.entry.entry import Record
from trilogue.entry.kafka.record_batch import build_batch
from trilogue.entry.walk import read_header
from trilogue.gateway.pulsar.compaction import CompactionRecord


def keyed(value: bytes) -> bytes:
    record = Record(0, 1000, b"k", value)
    return build_batch(
        [record], transactional=True, producer_id=7, producer_epoch=0, base_sequence=0
    )


@pytest.mark.parametrize("flushed", [False, True])
@on_loop
async def test_aborted_message_replaces_no_message_of_its_key(flushed):
    async with Rig() as rig:
        topic = rig.topic("t")
        plog = topic.partitions[0].log
        kept = (keyed(b"kept"), marker(7, Outcome.COMMIT))
        for entry in (*kept, keyed(b"never"), marker(7, Outcome.ABORT)):
            plog.append(memoryview(entry), read_header(entry))
        await settle()
        if flushed:
            await rig.flush()
        compacted = rig.gateway.compaction
        compacted.trigger(topic, 0)
        while compacted.status(topic, 0)[0] == "RUNNING":
            await settle()
        assert compacted.status(rig.broker.cluster.topic(topic.name), 0) == ("SUCCESS", "")
        peer = await rig.connected()

        await subscribe(peer, read_compacted=True)

        assert await offsets(peer) == [0]


@on_loop
async def test_a_topic_is_compacted_above_the_threshold():
    async with Rig() as rig:
        await rig.policies("public/default", compactionThreshold=2_000)
        topic = rig.topic("t")
        compaction = rig.gateway.compaction
        await fill(rig, b"x" * 100, partition_key="k")
        await rig.gateway.periodic.check_topics()
        assert compaction.status(topic, 0)[0] == "NOT_RUN"

        await fill(rig, *(b"x" * 500 for _ in range(5)), partition_key="k")
        await rig.gateway.periodic.check_topics()

        def is_compacted() -> bool:
            return compaction.status(rig.broker.cluster.topic(topic.name), 0)[0] == "SUCCESS"

        await wait_on_loop(is_compacted, "a compaction")


@on_loop
async def test_the_last_compactions_of_a_partition_are_counted():
    async with Rig() as rig:
        topic = rig.topic("t")
        compaction, partition_id = rig.gateway.compaction, topic.row.partitions[0]
        assert compaction.last_compaction(partition_id) == CompactionRecord()

        async def compact() -> CompactionRecord:
            compaction.trigger(rig.broker.cluster.topic(topic.name), 0)
            while compaction.status(topic, 0)[0] == "RUNNING":
                await settle()
            return replace(compaction.last_compaction(partition_id))

        await fill(rig, *(b"m" for _ in range(5)), partition_key="k")
        first = await compact()
        await fill(rig, *(b"m" for _ in range(3)), partition_key="k")
        rig.now_ms += 1_000
        second = await compact()

        assert (first.removed_count, second.removed_count) == (4, 3)
        assert second.succeeded_ms == first.succeeded_ms + 1_000
        assert (second.failed_ms, second.duration_ms) == (0, 0)
