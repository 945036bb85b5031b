"""Quotas of users at the Pulsar listener: sends are not read, consumers are sent nothing more."""

from __future__ import annotations

from tests.gateway.kafka.quotas.test_metering import RATE, limit
from tests.gateway.loop import on_loop
from tests.gateway.pulsar.readers import SHARED, fill, messages, subscribe
from tests.gateway.pulsar.rig import Peer, Rig
from tests.waiting import pass_time
from trilogue.broker.access.authorizer import ANONYMOUS
from trilogue.broker.quotas.quotas import QuotaEntity, QuotaKind
from trilogue.gateway.stream import STOP_QUOTA

USER = QuotaEntity(ANONYMOUS.name)


def is_unread(peer: Peer) -> bool:
    return bool(peer.stream.stops & STOP_QUOTA)


@on_loop
async def test_a_producer_over_its_quota_is_not_read_until_its_debt_is_paid():
    async with Rig() as rig:
        rig.topic("t")
        limit(rig, USER, produced=RATE)
        peer, other = await rig.connected(), await rig.connected()
        await peer.producer("t")

        peer.send(1, 0, b"x" * 3_000)
        await peer.answer("send_receipt")

        assert is_unread(peer)
        assert not is_unread(other)
        peer.send(1, 1, b"x")
        await pass_time(1.9)
        assert peer.answered == 0
        await pass_time(0.5)
        await peer.answer("send_receipt")
        assert not is_unread(peer)
        assert rig.broker.quotas.waits[QuotaKind.PRODUCED] >= 1


@on_loop
async def test_the_connections_of_a_user_share_its_quota():
    async with Rig() as rig:
        rig.topic("t")
        limit(rig, USER, produced=RATE)
        peers = [await rig.connected() for _ in range(3)]
        for number, peer in enumerate(peers):
            await peer.producer("t", number)
            peer.send(number, 0, b"x" * 900)
            await peer.answer("send_receipt")

        assert [is_unread(peer) for peer in peers] == [False, True, True]


@on_loop
async def test_a_consumer_over_its_quota_gets_the_rest_later():
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, *(b"x" * 900 for _ in range(6)))
        limit(rig, USER, fetched=RATE)
        peer = await rig.connected()
        await subscribe(peer, kind=SHARED)

        counts = []
        for _ in range(6):
            counts.append(len(await messages(peer)))
            await pass_time(1.0)

        assert counts[0] == 2  # the second one is the debt
        assert sum(counts) == 6
        assert max(counts[1:]) == 1
        assert not is_unread(peer)  # acks and permits are read
        assert rig.broker.quotas.waits[QuotaKind.FETCHED] >= 4
