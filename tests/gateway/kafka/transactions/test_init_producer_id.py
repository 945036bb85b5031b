"""InitProducerId: fresh ids of idempotent producers."""

from __future__ import annotations

import pytest

from tests.gateway.kafka.rig import Rig, versions
from tests.gateway.loop import on_loop
from trilogue.broker.access.acls import ANY_NAME
from trilogue.broker.access.authorizer import USER, Operation, Principal, ResourceKind
from trilogue.broker.transactions.transaction import TransactionLimits
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


RIGHT = (Operation.IDEMPOTENT_WRITE, ResourceKind.CLUSTER, "cluster")
ANY_WRITE = (Operation.WRITE, ResourceKind.TOPIC, ANY_NAME)


@pytest.mark.parametrize(
    ("denied", "code"), [((RIGHT,), 0), ((ANY_WRITE,), 0), ((RIGHT, ANY_WRITE), 31)]
)
@on_loop
async def test_idempotent_writing_needs_its_right_or_write_on_any_topic(denied, code):
    """CVE-2018-17196, KIP-679."""
    async with Rig() as rig:
        for each in denied:
            rig.rules.deny(*each)

        requested = InitProducerIdRequest(transactional_id=None)
        assert (await rig.peer().request(requested, 4)).error_code == code


@on_loop
async def test_a_principal_leaves_room_for_transactional_ids_of_others():
    async with Rig() as rig:
        coordinator = rig.broker.transactions
        coordinator.limits = TransactionLimits(ids_max=8)

        async def init(user: str, number: int) -> int:
            peer = rig.peer()
            if user:
                peer.session.access.set_principal(Principal(USER, user))
            requested = InitProducerIdRequest(
                transactional_id=f"{user}-{number}", transaction_timeout_ms=1_000
            )
            return int((await peer.request(requested, 4)).error_code)

        assert [await init("alice", each) for each in range(6)] == [0] * 4 + [44] * 2
        assert await init("alice", 0) == 0, "she goes on with those that she has"
        assert [await init("bob", each) for each in range(4)] == [0] * 2 + [44] * 2

        coordinator.forget(coordinator.table.find_by_id("alice-0"))
        assert [await init("alice", each) for each in (6, 7)] == [44, 44], "3 of hers, 3 are free"
        assert [await init("bob", each) for each in (4, 5)] == [0, 44]

        coordinator.forget(coordinator.table.find_by_id("alice-1"))
        coordinator.forget(coordinator.table.find_by_id("alice-2"))
        assert [await init("alice", each) for each in (8, 9)] == [0, 0]
        assert [await init("", each) for each in range(4)] == [0] * 2 + [44] * 2, (
            "no name: to the end"
        )
