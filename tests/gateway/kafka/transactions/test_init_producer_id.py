"""InitProducerId: fresh ids of idempotent producers."""

from __future__ import annotations

import pytest

from tests.gateway.kafka.rig import Rig, versions
from tests.gateway.loop import on_loop
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.wire.kafka.transactions.init_producer_id import InitProducerIdRequest


@pytest.mark.parametrize("version", versions(22))
@on_loop
async def test_every_version_gives_a_fresh_id(version):
    async with Rig() as rig:
        peer = rig.peer()

        answers = [
            await peer.request(InitProducerIdRequest(transactional_id=None), version)
            for _ in range(3)
        ]

        assert [(each.error_code, each.producer_epoch) for each in answers] == [(0, 0)] * 3
        assert len({each.producer_id for each in answers}) == 3


@pytest.mark.parametrize(("producer_id", "epoch"), [(5, -1), (-1, 0)])
@on_loop
async def test_an_id_and_its_epoch_come_together(producer_id, epoch):
    async with Rig() as rig:
        requested = InitProducerIdRequest(producer_id=producer_id, producer_epoch=epoch)

        answer = await rig.peer().request(requested, 4)

        assert (answer.error_code, answer.producer_id) == (42, -1)


@on_loop
async def test_idempotent_writing_needs_its_own_right():
    """CVE-2018-17196."""
    async with Rig() as rig:
        rig.rules.deny(Operation.IDEMPOTENT_WRITE, ResourceKind.CLUSTER, "cluster")

        requested = InitProducerIdRequest(transactional_id=None)
        assert (await rig.peer().request(requested, 4)).error_code == 31
