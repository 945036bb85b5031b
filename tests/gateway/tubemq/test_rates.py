"""Rates of topics at TubeMQ's broker: sends are not read, gets are answered with 452."""

from __future__ import annotations

from tests.gateway.loop import on_loop
from tests.gateway.tubemq.partition_consumer import GROUP, PartitionConsumer, bodies
from tests.gateway.tubemq.rig import Rig, settle
from tests.waiting import pass_time
from trilogue.broker.quotas.topic_rates import Rate
from trilogue.broker.topics.policies import Policies
from trilogue.gateway.stream import STOP_QUOTA
from trilogue.gateway.tubemq.held_gets import get_state


@on_loop
async def test_a_producer_over_the_rate_of_a_topic_is_not_read():
    async with Rig() as rig:
        rig.topic("demo", 1).partitions[0].policies = Policies(publish_rate=Rate(messages=1))
        peer = rig.broker_peer()

        assert (await peer.send("demo", 0, b"x")).success
        assert not peer.stream.stops & STOP_QUOTA
        assert (await peer.send("demo", 0, b"x")).success
        assert peer.stream.stops & STOP_QUOTA
        await pass_time(1.1)
        assert not peer.stream.stops & STOP_QUOTA


@on_loop
async def test_a_consumer_over_the_rate_of_a_topic_is_given_the_time_to_wait():
    async with Rig() as rig:
        partition = rig.topic("demo", 1).partitions[0]
        writer, mine = rig.broker_peer(), PartitionConsumer(rig.broker_peer())
        for body in (b"1", b"2", b"3"):
            await writer.send("demo", 0, body)
        await mine.register()
        partition.policies = Policies(dispatch_rate=Rate(messages=1))

        assert bodies(await mine.get()) == [b"1"]
        assert bodies(await mine.get(consumed=True)) == [b"2"]
        refused = await mine.get(consumed=True)

        assert (refused.success, refused.errCode) == (False, 452)
        assert 0 < refused.minLimitTime <= 500  # the rate may change
        await pass_time(1.1)
        assert bodies(await mine.get(consumed=True)) == [b"3"]


@on_loop
async def test_a_held_get_is_answered_with_the_time_to_wait_when_the_rate_is_used_up():
    async with Rig() as rig:
        partition = rig.topic("demo", 1).partitions[0]
        writer, mine = rig.broker_peer(), PartitionConsumer(rig.broker_peer())
        await mine.register()
        partition.policies = Policies(subscription_dispatch_rate=Rate(messages=1))
        for _ in range(2):
            held = mine.send_get(consumed=True)
            await writer.send("demo", 0, b"x")
            assert bodies(await mine.peer.wait(held)) == [b"x"]

        partition.policies = Policies()
        held = mine.send_get(consumed=True)
        await settle()
        partition.policies = Policies(subscription_dispatch_rate=Rate(messages=1))
        registrations = rig.broker.registrations
        registration = registrations.find_registration(partition.partition_id, GROUP)
        get_state(registration).limiter.count(partition.rates, 5, 0, rig.loop.time())
        await writer.send("demo", 0, b"late")

        assert (await mine.peer.wait(held)).errCode == 452
