"""A consumer closes at the master before it unregisters at the broker, as Go's client does."""

from __future__ import annotations

from tests.gateway.loop import on_loop
from tests.gateway.tubemq.partition_consumer import ME, OTHER, PartitionConsumer, bodies
from tests.gateway.tubemq.rig import FULL, Rig


async def leave(rig: Rig, mine: PartitionConsumer) -> None:
    """Join the group, and close at the master."""
    client = {"clientId": mine.client_id, "groupName": mine.group}
    master = rig.master()
    response = await master.request(
        "consumerRegisterC2M", **client, hostName="h", topicList=["demo"], requireBound=False
    )
    assert response.success
    assert (await master.request("consumerCloseClientC2M", **client)).success


@on_loop
async def test_unregistration_after_close_still_commits():
    """As recorded in go-client.jsonl, lines 77 to 84."""
    async with Rig() as rig:
        rig.topic("demo", 2)
        mine, next_one = (
            PartitionConsumer(rig.broker_peer()),
            PartitionConsumer(rig.broker_peer(), OTHER),
        )
        for partition in (0, 1):
            await mine.peer.send(partition=partition, data=b"%d" % partition)
            await mine.register(partition)
            assert bodies(await mine.get(partition)) == [b"%d" % partition]

        await leave(rig, mine)

        assert (await mine.unregister(0, read_status=0)).success, "consumed"
        assert (await mine.unregister(1, read_status=1)).success, "not consumed"
        assert (await next_one.register(0)).currOffset == 1
        assert (await next_one.register(1)).currOffset == 0


@on_loop
async def test_it_does_not_stand_in_the_way():
    async with Rig() as rig:
        rig.topic("demo", 1)
        mine, next_one = (
            PartitionConsumer(rig.broker_peer(), ME),
            PartitionConsumer(rig.broker_peer(), OTHER),
        )
        await mine.register()
        assert (await next_one.register()).errCode == 410

        await leave(rig, mine)

        assert (await next_one.register()).success
        assert (await mine.get()).errCode == 412
        assert (await mine.register()).errCode == 410, "and the next one stands in its way"


@on_loop
async def test_consumer_that_registers_with_its_partitions_keeps_them():
    """After a session timeout at the master it registers there again, and not at the broker."""
    async with Rig() as rig:
        rig.topic("demo", 1)
        mine, next_one = (
            PartitionConsumer(rig.broker_peer(), ME),
            PartitionConsumer(rig.broker_peer(), OTHER),
        )
        await mine.register()
        await leave(rig, mine)

        response = await rig.master().request(
            "consumerRegisterC2M",
            clientId=mine.client_id,
            groupName=mine.group,
            hostName="h",
            topicList=["demo"],
            subscribeInfo=[f"{mine.client_id}@{mine.group}#{FULL}#demo:0"],
        )

        assert response.success
        assert (await next_one.register()).errCode == 410
        assert (await mine.heartbeat(0)).failureInfo == []
