"""OffsetForLeaderEpoch: where epochs ended. Rules: tests/log/test_partition_lookups.py."""

from __future__ import annotations

import pytest

from tests.gateway.kafka.produce.test_produce import request as produce
from tests.gateway.kafka.rig import Rig, batch, versions
from tests.gateway.loop import on_loop
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.log.partition_lookups import SegmentLookup
from trilogue.wire.kafka.offsets.leader_epochs import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

OWNER = 3  # the epoch of the rig's node


def build_request(
    *epochs: int, topic: str = "t", index: int = 0, current: int = -1, replica_id: int = -1
) -> OffsetForLeaderEpochRequest:
    return OffsetForLeaderEpochRequest(
        replica_id=replica_id,
        topics=[
            OffsetForLeaderTopic(
                topic=topic,
                partitions=[
                    OffsetForLeaderPartition(
                        partition=index, current_leader_epoch=current, leader_epoch=each
                    )
                    for each in epochs
                ],
            )
        ],
    )


def found(response) -> list[tuple[int, int, int]]:
    (topic,) = response.topics
    return [(each.error_code, each.leader_epoch, each.end_offset) for each in topic.partitions]


async def fill(rig: Rig, count: int) -> None:
    for _ in range(count):
        await rig.peer().request(produce("t", batch("v")), 7)


@pytest.mark.parametrize("version", versions(23))
@on_loop
async def test_every_version_returns_end_offsets_of_epochs(version):
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, 2)

        answer = await rig.peer().request(build_request(OWNER - 1, OWNER, OWNER + 1), version)

        epochs = [each if version > 0 else -1 for each in (OWNER - 1, OWNER, -1)]
        assert found(answer) == list(zip([0, 0, 0], epochs, [0, 2, -1], strict=True))


@on_loop
async def test_epochs_in_segments_are_looked_up_in_the_executor():
    async with Rig() as rig:
        topic = rig.topic("t")
        await fill(rig, 2)
        await rig.flush()
        plog = topic.partitions[0].log
        plog._appender.owner_epoch = OWNER + 5  # another owner took over
        await fill(rig, 1)
        assert isinstance(plog.epoch_end(OWNER - 1), SegmentLookup)

        answer = await rig.peer().request(build_request(OWNER - 1, OWNER + 5), 4)

        assert found(answer) == [(0, OWNER - 1, 0), (0, OWNER + 5, 3)]


@on_loop
async def test_a_damaged_segment_is_an_error_of_its_partition():
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, 2)
        await rig.flush()
        (path,) = [each for each in rig.segments() if each.suffix == ".segment"]
        (segment,) = rig.log.segments.values()
        rig.fs.flip(path, segment.footer_position + 60, 1)

        answer = await rig.peer().request(build_request(OWNER - 1, OWNER), 4)

        assert found(answer) == [(2, -1, -1), (0, OWNER, 2)]


@pytest.mark.parametrize(
    ("current", "code"), [(OWNER - 1, 74), (0, 0), (OWNER, 0), (OWNER + 1, 75)]
)
@on_loop
async def test_wrong_current_leader_epoch_returns_its_error(current, code):
    async with Rig() as rig:
        rig.topic("t")

        ((error, _, _),) = found(await rig.peer().request(build_request(OWNER, current=current), 4))

        assert error == code


@on_loop
async def test_the_epoch_0_which_no_owner_has_is_taken_for_the_present_one():
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, 2)

        assert found(await rig.peer().request(build_request(0), 4)) == [(0, OWNER, 2)]


@on_loop
async def test_unknown_partitions_have_errors_per_partition():
    async with Rig() as rig:
        rig.topic("t")

        assert found(await rig.peer().request(build_request(1, topic="nobody"), 4)) == [(3, -1, -1)]
        assert found(await rig.peer().request(build_request(1, index=1), 4)) == [(3, -1, -1)]
        assert found(await rig.peer().request(build_request(1, index=-1), 4)) == [(3, -1, -1)]


@on_loop
async def test_offsets_for_leader_epoch_without_permission_are_denied():
    async with Rig() as rig:
        rig.topic("t")
        rig.rules.deny(Operation.DESCRIBE, ResourceKind.TOPIC, "public/default/t")

        assert found(await rig.peer().request(build_request(OWNER), 4)) == [(29, -1, -1)]


@on_loop
async def test_followers_are_refused():
    async with Rig() as rig:
        rig.topic("t")

        assert found(await rig.peer().request(build_request(OWNER, replica_id=1), 4)) == [
            (29, -1, -1)
        ]
        assert found(await rig.peer().request(build_request(OWNER, replica_id=-2), 4)) == [
            (0, OWNER, 0)
        ]
