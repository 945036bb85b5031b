"""Quotas of clients at TubeMQ's broker: sends are not read, gets are answered with 452."""

from __future__ import annotations

from tests.gateway.kafka.quotas.test_metering import RATE, limit
from tests.gateway.loop import on_loop
from tests.gateway.tubemq.partition_consumer import ME, PartitionConsumer, bodies
from tests.gateway.tubemq.rig import Rig
from tests.waiting import pass_time
from trilogue.broker.access.authorizer import ANONYMOUS
from trilogue.broker.quotas.quotas import QuotaEntity
from trilogue.gateway.stream import STOP_QUOTA


@on_loop
async def test_a_producer_over_its_quota_is_not_read_until_its_debt_is_paid():
    async with Rig() as rig:
        rig.topic("demo", 1)
        limit(rig, QuotaEntity(ANONYMOUS.name), produced=RATE)
        peer = rig.broker_peer()

        assert (await peer.send("demo", 0, b"x" * 3_000)).success

        assert peer.stream.stops & STOP_QUOTA
        await pass_time(1.9)
        assert peer.stream.stops & STOP_QUOTA
        await pass_time(0.2)
        assert not peer.stream.stops & STOP_QUOTA
        assert (await peer.send("demo", 0, b"x")).success


@on_loop
async def test_a_consumer_over_its_quota_is_given_the_time_to_wait():
    async with Rig() as rig:
        rig.topic("demo", 1)
        writer, mine = rig.broker_peer(), PartitionConsumer(rig.broker_peer())
        await writer.send("demo", 0, b"x" * 3_000)
        await mine.register()
        limit(rig, QuotaEntity(None, ME), fetched=RATE)
        assert bodies(await mine.get()) == [b"x" * 3_000]

        refused = await mine.get(consumed=True)

        assert (refused.success, refused.errCode) == (False, 452)
        assert 1_900 < refused.minLimitTime < 2_200
        await writer.send("demo", 0, b"next")
        await pass_time(2.2)
        assert bodies(await mine.get(consumed=True)) == [b"next"]
