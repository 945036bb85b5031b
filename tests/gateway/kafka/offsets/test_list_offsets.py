"""ListOffsets: first, last, by time, in every version."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.gateway.kafka.produce.test_produce import request as produce
from tests.gateway.kafka.rig import Peer, Rig, batch, settle, versions
from tests.gateway.loop import on_loop
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.wire.kafka.offsets.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)


def build_request(
    topic: str, *timestamps: int, index: int = 0, epoch: int = -1
) -> ListOffsetsRequest:
    return ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsPartition(
                        partition_index=index,
                        timestamp=each,
                        current_leader_epoch=epoch,
                        max_num_offsets=5,
                    )
                    for each in timestamps
                ],
            )
        ],
    )


async def request_each(peer: Peer, request: ListOffsetsRequest, version: int):
    """Send one request per partition: a request may name a partition once."""
    (topic,) = request.topics
    answers = []
    for each in topic.partitions:
        one = [ListOffsetsTopic(name=topic.name, partitions=[each])]
        requested = replace(request, topics=one)
        answers += (await peer.request(requested, version)).topics[0].partitions
    reported = ListOffsetsTopicResponse(name=topic.name, partitions=answers)
    return ListOffsetsResponse(topics=[reported])


def found(response) -> list[tuple[int, int, int]]:
    (topic,) = response.topics
    return [(each.error_code, each.offset, each.timestamp) for each in topic.partitions]


async def fill(rig: Rig, *times: int, values=None, **how) -> None:
    peer = rig.peer()
    for time in times:
        await peer.request(produce("t", batch(*(values or ("v",)), timestamp=time, **how)), 7)


@pytest.mark.parametrize("version", [each for each in versions(2) if each > 0])
@on_loop
async def test_every_version_returns_earliest_latest_and_timestamp_offsets(version):
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, 1_000, 2_000, 3_000)

        answer = await request_each(rig.peer(), build_request("t", -2, -1, 1_500, 3_001), version)

        assert found(answer) == [(0, 0, -1), (0, 3, -1), (0, 1, 2_000), (0, -1, -1)]
        epochs = [each.leader_epoch for each in answer.topics[0].partitions]
        assert epochs == ([3, 3, 3, -1] if version >= 4 else [-1] * 4)


@on_loop
async def test_v0_answers_lists():
    """v0 answers a list of offsets."""
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, 1_000, 2_000)

        request = build_request("t", -2, -1, 1_500, 2_001, 500)
        (topic,) = (await rig.peer().request(request, 0)).topics

        offsets = [each.old_style_offsets for each in topic.partitions]
        assert offsets == [[0], [2, 0], [1, 0], [2, 0], [0]]


@pytest.mark.parametrize(("most", "expected"), [(0, []), (1, [1]), (2, [1, 0]), (9, [1, 0])])
@on_loop
async def test_v0_answers_as_many_offsets_as_requested(most, expected):
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, 1_000, 2_000)
        request = build_request("t", 1_500)
        request.topics[0].partitions[0].max_num_offsets = most

        (topic,) = (await rig.peer().request(request, 0)).topics

        assert topic.partitions[0].old_style_offsets == expected


@pytest.mark.parametrize(
    ("timestamp", "since", "expected"),
    [(-3, 7, (0, 1, 9_000)), (-4, 8, (0, 0, -1)), (-5, 9, (0, -1, -1)), (-6, 11, (0, -1, -1))],
)
@on_loop
async def test_special_times_are_served_from_the_version_that_defines_them(
    timestamp, since, expected
):
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, 1_000, 9_000, 3_000)

        for version in [each for each in versions(2) if each > 0]:
            (answer,) = found(await rig.peer().request(build_request("t", timestamp), version))

            assert answer == (expected if version >= since else (35, -1, -1))


@pytest.mark.parametrize("timestamp", [-7, -100, -(2**63)])
@on_loop
async def test_other_negative_times_are_refused(timestamp):
    async with Rig() as rig:
        rig.topic("t")

        assert found(await rig.peer().request(build_request("t", timestamp), 11)) == [(35, -1, -1)]


@on_loop
async def test_an_empty_partition_has_no_time():
    async with Rig() as rig:
        rig.topic("t")

        answer = await request_each(rig.peer(), build_request("t", -3, 0, -1, -2), 7)

        assert found(answer) == [(0, -1, -1), (0, -1, -1), (0, 0, -1), (0, 0, -1)]


@on_loop
async def test_the_latest_offset_is_the_durable_one():
    async with Rig() as rig:
        rig.topic("t")
        writer, reader = rig.peer(), rig.peer()
        writer.send(produce("t", batch("a")), 7)

        assert found(await reader.request(build_request("t", -1), 7)) == [(0, 0, -1)]
        await settle()
        assert found(await reader.request(build_request("t", -1), 7)) == [(0, 1, -1)]


@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("codec", [0, 4])
@on_loop
async def test_a_time_is_found_inside_an_entry_wherever_it_lies(flushed, codec):
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, 1_000, 5_000, 3_000, values=("a", "b"), codec=codec)
        if flushed:
            await rig.flush()

        answer = await request_each(
            rig.peer(), build_request("t", 900, 1_000, 1_001, 5_000, 5_001, -3), 7
        )

        assert found(answer) == [
            (0, 0, 1_000),
            (0, 0, 1_000),
            (0, 2, 5_000),
            (0, 2, 5_000),
            (0, -1, -1),
            (0, 2, 5_000),
        ]
        assert rig.executor.runs == (0 if not flushed else rig.executor.runs)


@pytest.mark.parametrize("flushed", [False, True])
@on_loop
async def test_deleted_records_of_an_entry_are_not_found_by_timestamp(flushed):
    """Its offset would be out of range for the next fetch."""
    async with Rig() as rig:
        topic = rig.topic("t")
        await fill(rig, 1_000, values=("a", "b", "c"))
        await fill(rig, 2_000)
        if flushed:
            await rig.flush()
        topic.partitions[0].log.retain_from(2)

        answer = await request_each(rig.peer(), build_request("t", 0, 1_000, 1_001), 7)

        assert found(answer) == [(0, 2, 1_000), (0, 2, 1_000), (0, 3, 2_000)]


@on_loop
async def test_a_large_entry_is_looked_into_elsewhere():
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, 1_000, values=("x" * 100_000,))

        assert found(await rig.peer().request(build_request("t", 500), 7)) == [(0, 0, 1_000)]
        assert rig.executor.runs == 1


@pytest.mark.parametrize(("epoch", "code"), [(3, 0), (2, 74), (4, 75), (-1, 0), (0, 0)])
@on_loop
async def test_the_leader_epoch_is_checked(epoch, code):
    async with Rig() as rig:
        rig.topic("t")

        assert found(await rig.peer().request(build_request("t", -1, epoch=epoch), 4))[0][0] == code


@on_loop
async def test_unknown_or_denied_partitions_return_their_errors():
    async with Rig() as rig:
        rig.topic("t")
        assert found(await rig.peer().request(build_request("u", -1), 4)) == [(3, -1, -1)]
        assert found(await rig.peer().request(build_request("t", -1, index=1), 4)) == [(3, -1, -1)]

        rig.rules.deny(Operation.DESCRIBE, ResourceKind.TOPIC, "public/default/t")

        assert found(await rig.peer().request(build_request("t", -1), 4)) == [(29, -1, -1)]


@pytest.mark.parametrize("version", [each for each in versions(2) if each > 0])
@on_loop
async def test_a_partition_that_is_named_twice_is_refused_each_time(version):
    """As a real Kafka 3.9.1 does; a request of version 0 may."""
    async with Rig() as rig:
        rig.topic("t", partitions=2)

        requested = build_request("t", -1, -2)
        requested.topics += build_request("t", -1, index=1).topics
        twice, once = (await rig.peer().request(requested, version)).topics

        assert [each.error_code for each in twice.partitions] == [42, 42]
        assert [each.error_code for each in once.partitions] == [0]
        requested.topics += build_request("t", -2, index=1).topics
        answer = await rig.peer().request(requested, version)
        assert {each.error_code for topic in answer.topics for each in topic.partitions} == {42}


@pytest.mark.parametrize("flushed", [False, True])
@on_loop
async def test_offsets_come_with_the_epoch_that_gave_them_out(flushed):
    """KIP-320: a consumer looks up the end of that epoch when it learns of another."""
    async with Rig() as rig:
        topic = rig.topic("t")
        plog = topic.partitions[0].log
        await fill(rig, 1_000)
        plog._appender.owner_epoch = 5  # as after a restart
        await fill(rig, 2_000)
        if flushed:
            await rig.flush()
        await fill(rig, 3_000)

        answer = await request_each(rig.peer(), build_request("t", 1_000, 2_000, 3_000, -1), 4)

        epochs = [each.leader_epoch for each in answer.topics[0].partitions]
        assert epochs == [3, 5, 5, 5]


@pytest.mark.parametrize(
    ("times", "index", "expected"),
    [((-2,), 0, [[0]]), ((-1,), 0, [[2, 0]]), ((-1, -1), 0, [[2, 0], [2, 0]]), ((-1,), 1, [[0]])],
)
@on_loop
async def test_v0_lists_what_there_is(times, index, expected):
    async with Rig() as rig:
        rig.topic("t", partitions=2)
        await fill(rig, 1_000, 2_000)

        (topic,) = (await rig.peer().request(build_request("t", *times, index=index), 0)).topics

        assert [each.old_style_offsets for each in topic.partitions] == expected
