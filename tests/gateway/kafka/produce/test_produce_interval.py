"""Topics with `flush=interval`: acknowledged from memory, shown to readers when durable."""

from __future__ import annotations

import pytest

from tests.gateway.kafka.produce.test_produce import only, request, stored
from tests.gateway.kafka.rig import Rig, batch, settle, versions
from tests.gateway.loop import on_loop
from tests.waiting import pass_time
from trilogue.wire.kafka.fetch import FetchPartition, FetchRequest, FetchTopic
from trilogue.wire.kafka.produce import PartitionProduceData, ProduceRequest, TopicProduceData


async def pass_interval(rig: Rig) -> None:
    await pass_time(rig.log.journal.limits.interval_s)
    await settle()


@pytest.mark.parametrize("version", versions(0))
@on_loop
async def test_it_is_acknowledged_before_it_is_durable(version):
    async with Rig() as rig:
        topic = rig.topic("t", flush="interval")
        plog = topic.partitions[0].log
        peer = rig.peer()

        for number in range(3):  # the first by the codec, the others by its template
            peer.send(request("t", batch("a"), topic_id=topic.topic_id), version)
            assert peer.answered == 1, "it leaves with the turn"
            answer = only(peer.answer())
            assert (answer.error_code, answer.base_offset) == (0, number)
        await settle()
        assert (plog.high_watermark, plog.end_offset) == (0, 3)
        assert rig.log.journal.counts.commits == 0

        await pass_interval(rig)

        assert (plog.high_watermark, rig.log.journal.counts.commits) == (3, 1)
        assert stored(rig, topic) == [b"a"] * 3


@on_loop
async def test_readers_wait_until_it_is_durable():
    """Only synced records are readable."""
    async with Rig() as rig:
        topic = rig.topic("t", flush="interval")
        writer, reader = rig.peer(), rig.peer()
        await writer.request(request("t", batch("a")), 7)

        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        reader.send(
            FetchRequest(
                max_wait_ms=5_000,
                min_bytes=1,
                max_bytes=1 << 20,
                topics=[FetchTopic(topic="t", topic_id=topic.topic_id, partitions=[partition])],
            ),
            11,
        )
        await settle()
        assert reader.answered == 0
        await pass_interval(rig)

        (answered,) = reader.answer().responses
        assert answered.partitions[0].high_watermark == 1
        assert bytes(answered.partitions[0].records)


@on_loop
async def test_a_request_with_a_topic_that_wants_more_waits_for_all():
    async with Rig() as rig:
        rig.topic("fast", flush="interval")
        rig.topic("safe")
        peer = rig.peer()
        data = [PartitionProduceData(index=0, records=batch("a"))]
        requested = ProduceRequest(
            acks=-1,
            topic_data=[
                TopicProduceData(name=name, partition_data=data) for name in ("fast", "safe")
            ],
        )

        peer.send(requested, 7)
        assert peer.answered == 0
        await settle()

        assert [each.partition_responses[0].error_code for each in peer.answer().responses] == [
            0,
            0,
        ]
        assert rig.log.journal.counts.commits == 1


@on_loop
async def test_answers_keep_the_order_of_their_requests():
    async with Rig() as rig:
        rig.topic("fast", flush="interval")
        rig.topic("safe")
        peer = rig.peer()
        for name in ("fast", "safe"):
            await peer.request(request(name, batch("learned")), 7)

        for name in ("fast", "safe", "fast", "safe"):
            peer.send(request(name, batch("a")), 7)
        assert peer.answered == 1, "the third waits for the second"
        await settle()

        assert [only(peer.answer()).base_offset for _ in range(4)] == [1, 1, 2, 2]


@on_loop
async def test_one_that_waits_takes_the_others_with_it():
    async with Rig() as rig:
        fast = rig.topic("fast", flush="interval")
        rig.topic("safe")
        peer = rig.peer()
        await peer.request(request("fast", batch("a")), 7)

        await peer.request(request("safe", batch("b")), 7)

        assert fast.partitions[0].log.high_watermark == 1


@pytest.mark.parametrize("operation", ["write", "sync"])
@on_loop
async def test_after_a_failed_write_nothing_is_acknowledged_any_more(operation):
    """A batch acknowledged from memory may be lost; after the failure all produce requests fail."""
    async with Rig() as rig:
        rig.topic("t", flush="interval")
        peer = rig.peer()
        assert only(await peer.request(request("t", batch("lost")), 7)).error_code == 0
        rig.fail_disk(operation)
        await pass_interval(rig)

        for _ in range(2):
            assert only(await peer.request(request("t", batch("a")), 7)).error_code == 56


@on_loop
async def test_a_repeated_batch_is_acknowledged_and_stored_once():
    async with Rig() as rig:
        topic = rig.topic("t", flush="interval")
        peer = rig.peer()
        records = batch("a", producer_id=7, producer_epoch=0, base_sequence=0)

        for _ in range(3):
            answer = only(await peer.request(request("t", records), 7))
            assert (answer.error_code, answer.base_offset) == (0, 0)
        await pass_interval(rig)

        assert stored(rig, topic) == [b"a"]
