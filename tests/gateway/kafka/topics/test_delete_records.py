"""DeleteRecords: results per partition, and what consumers see afterwards."""

from __future__ import annotations

import pytest

from tests.gateway.kafka.produce.test_produce import request as produce
from tests.gateway.kafka.rig import Rig, batch, settle, versions
from tests.gateway.loop import on_loop
from tests.waiting import run_ready_tasks
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.gateway.kafka.context import KafkaSettings
from trilogue.wire.kafka.fetch import FetchPartition, FetchRequest, FetchTopic
from trilogue.wire.kafka.offsets.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from trilogue.wire.kafka.topics.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)

EARLIEST = -2


def delete(topic: str, *pairs: tuple[int, int], timeout_ms: int = 1_000) -> DeleteRecordsRequest:
    partitions = [DeleteRecordsPartition(partition_index=at, offset=to) for at, to in pairs]
    requested = DeleteRecordsTopic(name=topic, partitions=partitions)
    return DeleteRecordsRequest(topics=[requested], timeout_ms=timeout_ms)


def outcomes(response) -> list[tuple[int, int, int]]:
    (topic,) = response.topics
    return [
        (each.partition_index, each.low_watermark, each.error_code) for each in topic.partitions
    ]


async def filled(rig: Rig, count: int = 5):
    topic = rig.topic("t", partitions=2)
    peer = rig.peer()
    for _ in range(count):
        await peer.request(produce("t", batch("a")), 7)
    return topic, peer


async def fetch(peer, offset: int):
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    requested = FetchTopic(topic="t", partitions=[partition])
    response = await peer.request(
        FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=[requested]), 11
    )
    return response.responses[0].partitions[0]


@pytest.mark.parametrize("version", versions(21))
@on_loop
async def test_every_version_deletes_records_and_returns_the_low_watermark(version):
    async with Rig() as rig:
        _, peer = await filled(rig)

        response = await peer.request(delete("t", (0, 3), (1, -1)), version)

        assert outcomes(response) == [(0, 3, 0), (1, 0, 0)]


@on_loop
async def test_readers_find_the_new_start():
    async with Rig() as rig:
        topic, peer = await filled(rig)
        await peer.request(delete("t", (0, 3)), 1)

        below, at = await fetch(peer, 2), await fetch(peer, 3)
        partition = ListOffsetsPartition(partition_index=0, timestamp=EARLIEST)
        requested = ListOffsetsTopic(name="t", partitions=[partition])
        listed = await peer.request(ListOffsetsRequest(topics=[requested]), 5)

        assert (below.error_code, below.log_start_offset) == (1, -1)
        assert (at.error_code, at.log_start_offset) == (0, 3)
        assert at.records
        assert listed.topics[0].partitions[0].offset == 3
        state = rig.meta.state.partitions[topic.partitions[0].partition_id]
        assert state.start_offset == 3, "meta knows it first"


@on_loop
async def test_minus_one_is_the_high_watermark():
    async with Rig() as rig:
        _, peer = await filled(rig)

        assert outcomes(await peer.request(delete("t", (0, -1)), 2)) == [(0, 5, 0)]
        assert outcomes(await peer.request(delete("t", (0, 1)), 2)) == [(0, 5, 0)]


@on_loop
async def test_of_two_offsets_for_one_partition_the_later_counts():
    async with Rig() as rig:
        _, peer = await filled(rig)

        assert outcomes(await peer.request(delete("t", (0, 4), (0, 2)), 2)) == [
            (0, 4, 0),
            (0, 4, 0),
        ]


@on_loop
async def test_one_bad_partition_does_not_spoil_the_others():
    async with Rig() as rig:
        _, peer = await filled(rig)

        response = await peer.request(delete("t", (0, 6), (9, 0), (0, -7), (1, 0), (0, 2)), 2)

        assert outcomes(response) == [(0, -1, 1), (9, -1, 3), (0, -1, 1), (1, 0, 0), (0, 2, 0)]


@pytest.mark.parametrize("name", ["missing", "no name!", ""])
@on_loop
async def test_a_topic_that_is_not_there_is_unknown(name):
    async with Rig() as rig:
        assert outcomes(await rig.peer().request(delete(name, (0, 0)), 1)) == [(0, -1, 3)]


@on_loop
async def test_delete_records_without_permission_is_denied():
    async with Rig() as rig:
        _, peer = await filled(rig)
        rig.rules.deny(Operation.DELETE, ResourceKind.TOPIC, "public/default/t")

        assert outcomes(await peer.request(delete("t", (0, 3)), 1)) == [(0, -1, 29)]
        assert (await fetch(peer, 0)).error_code == 0


@on_loop
async def test_a_topic_that_is_only_compacted_is_refused():
    async with Rig() as rig:
        topic, peer = await filled(rig)
        topic.settings["cleanup.policy"] = "compact"

        assert outcomes(await peer.request(delete("t", (0, 3)), 1)) == [(0, -1, 44)]


@on_loop
async def test_a_client_without_time_does_not_hear_that_it_is_over():
    """A single Kafka broker waits for no replicas (librdkafka's 0081_admin uses timeout 0)."""
    async with Rig() as rig:
        _, peer = await filled(rig)
        rig.hold_commits = True
        peer.send(delete("t", (0, 3), timeout_ms=0), 1)
        await settle()
        rig.hold_commits = False
        await rig.commit(rig.commits[0])
        await settle()

        assert outcomes(peer.answer()) == [(0, 3, 0)]


@on_loop
async def test_when_the_listeners_time_is_over_it_goes_on():
    async with Rig(settings=KafkaSettings(topics_timeout_max_ms=100)) as rig:
        _, peer = await filled(rig)
        rig.hold_commits = True

        answer = await peer.request(delete("t", (0, 3)), 1)
        assert outcomes(answer) == [(0, -1, 7)]
        rig.hold_commits = False
        await rig.commit(rig.commits[0])

        assert (await fetch(peer, 2)).error_code == 1


@on_loop
async def test_a_topic_deleted_meanwhile_is_unknown():
    async with Rig() as rig:
        topic, peer = await filled(rig)
        rig.hold_commits = True
        peer.send(delete("t", (0, 3)), 1)
        await settle()
        rig.hold_commits = False
        await rig.commit(rig.broker.cluster.plan_delete(topic.name))

        await rig.commit(rig.commits[0])
        await settle()

        assert outcomes(peer.answer()) == [(0, -1, 3)]


@on_loop
async def test_a_request_with_thousands_of_partitions_lets_others_work_between():
    async with Rig() as rig:
        await filled(rig)
        peer, turns = rig.peer(), 0

        peer.send(delete("t", *[(0, 1)] * 5_000), 1)
        while not peer.answered:
            turns += 1
            await run_ready_tasks()

        assert outcomes(peer.answer())[-1] == (0, 1, 0)
        assert turns > 5


@on_loop
async def test_a_subscription_of_another_listener_is_notified_that_its_messages_are_gone():
    async with Rig() as rig:
        topic, peer = await filled(rig)
        partition_id = topic.partitions[0].partition_id
        subscriptions = rig.broker.subscriptions
        coming = subscriptions.create(partition_id, "s", 0)
        while not coming.done:
            await settle()
        cursor = coming.result()
        reported: list[tuple[int, str]] = []
        subscriptions.listeners.append(lambda *moved: reported.append(moved))

        await peer.request(delete("t", (0, 3)), 2)

        assert cursor.mark == 3
        assert reported == [(partition_id, "s")]
