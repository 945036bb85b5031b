"""Rates of topics at the Pulsar listener: connections are paused, entries wait."""

from __future__ import annotations

from tests.gateway.loop import on_loop
from tests.gateway.pulsar.readers import SHARED, fill, messages, subscribe
from tests.gateway.pulsar.rig import Peer, Rig
from tests.waiting import pass_time
from trilogue.broker.quotas.topic_rates import Rate
from trilogue.broker.topics.policies import Policies
from trilogue.gateway.stream import STOP_QUOTA


def is_unread(peer: Peer) -> bool:
    return bool(peer.stream.stops & STOP_QUOTA)


@on_loop
async def test_the_producers_of_a_topic_share_its_rate():
    async with Rig() as rig:
        limited, free = rig.topic("limited").partitions[0], rig.topic("free")
        limited.policies = Policies(publish_rate=Rate(messages=1))
        peers = [await rig.connected() for _ in range(3)]
        for number, peer in enumerate(peers):
            await peer.producer("limited" if number < 2 else "free", number)

        for number, peer in enumerate(peers):
            peer.send(number, 0, b"x")
            await peer.answer("send_receipt")
        peers[0].send(0, 1, b"x")
        await peers[0].answer("send_receipt")

        assert [is_unread(peer) for peer in peers] == [True, True, False]
        await pass_time(0.9)
        assert is_unread(peers[1])
        await pass_time(1.2)
        assert [is_unread(peer) for peer in peers] == [False, False, False]
        assert free.partitions[0].rates is None


@on_loop
async def test_a_producer_that_waits_goes_on_when_the_rate_is_removed():
    async with Rig() as rig:
        partition = rig.topic("t").partitions[0]
        partition.policies = Policies(publish_rate=Rate(size=100))
        peer = await rig.connected()
        await peer.producer("t")
        peer.send(1, 0, b"x" * 5_000)
        await peer.answer("send_receipt")
        await pass_time(2.0)
        assert is_unread(peer)

        partition.policies = Policies()

        await pass_time(1.0)
        assert not is_unread(peer)


@on_loop
async def test_entries_wait_for_the_dispatch_rate():
    async with Rig() as rig:
        partition = rig.topic("t").partitions[0]
        await fill(rig, *(b"x" for _ in range(6)))
        partition.policies = Policies(dispatch_rate=Rate(messages=1))
        peer = await rig.connected()
        await subscribe(peer, kind=SHARED)

        counts = []
        for _ in range(7):
            counts.append(len(await messages(peer)))
            await pass_time(1.0)

        assert counts[0] == 2  # the second one is the debt
        assert sum(counts) == 6
        assert max(counts[1:]) == 1
        assert not is_unread(peer)  # acks and permits are read


@on_loop
async def test_each_subscription_has_its_own_rate_and_all_share_the_dispatch_rate():
    async with Rig() as rig:
        partition = rig.topic("t").partitions[0]
        await fill(rig, *(b"x" for _ in range(4)))
        partition.policies = Policies(subscription_dispatch_rate=Rate(messages=2))
        first, second = await rig.connected(), await rig.connected()
        await subscribe(first, name="one", kind=SHARED)
        await subscribe(second, name="two", kind=SHARED)

        assert len(await messages(first)) == 3  # the third one is the debt
        assert len(await messages(second)) == 3

        partition.policies = Policies()
        await pass_time(1.0)
        assert len(await messages(first)) == 1
        assert len(await messages(second)) == 1


@on_loop
async def test_each_partition_has_the_whole_rate_of_the_namespace():
    async with Rig() as rig:
        rig.topic("p", 2)
        await rig.policies("public/default", publishRate={"publishThrottlingRateInByte": 100})
        peers = [await rig.connected() for _ in range(2)]
        for number, (peer, size) in enumerate(zip(peers, (500, 10), strict=True)):
            await peer.producer(f"p-partition-{number}")
            peer.send(1, 0, b"x" * size)
            await peer.answer("send_receipt")

        assert [is_unread(peer) for peer in peers] == [True, False]
