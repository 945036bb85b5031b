"""consumerRegisterC2B, consumerHeartbeatC2B, consumerCommitC2B."""

from __future__ import annotations

from tests.gateway.loop import on_loop
from tests.gateway.tubemq.partition_consumer import ME, OTHER, PartitionConsumer, bodies
from tests.gateway.tubemq.rig import Rig
from tests.waiting import pass_time


@on_loop
async def test_a_partition_has_one_reader_for_each_group():
    async with Rig() as rig:
        rig.topic("demo", 3)
        mine, others = (
            PartitionConsumer(rig.broker_peer()),
            PartitionConsumer(rig.broker_peer(), OTHER),
        )
        another_group = PartitionConsumer(rig.broker_peer(), "b_1-1-Pull-1.13.0", "another")
        assert (await mine.register()).success
        assert (await mine.register()).success, "again is no other"

        refused = await others.register()
        assert (refused.success, refused.errCode, refused.currOffset) == (False, 410, -1)
        assert refused.errMsg == (
            f"[Duplicated Register] Partition 1#readers:demo:0 has been registered by {ME}"
        )
        assert (await others.get()).errCode == 412
        assert (await others.commit()).errCode == 401
        assert (await others.unregister()).errCode == 412
        beat = await others.heartbeat(0)
        assert (beat.success, beat.hasPartFailure) == (True, True)
        assert list(beat.failureInfo) == ["412:1:broker.example:8123#demo:0"]
        assert (await another_group.register()).success


@on_loop
async def test_unregistered_consumer_gets_the_errors_of_a_real_broker():
    async with Rig() as rig:
        rig.topic("demo", 1)
        mine = PartitionConsumer(rig.broker_peer())

        got = await mine.get()
        assert (got.success, got.errCode, got.currOffset, got.currDataDlt) == (False, 411, -1, -1)
        assert got.errMsg == f"UnRegistered Consumer:{ME}, you have to register firstly!"
        assert got.minLimitTime == 0
        assert got.HasField("escFlowCtrl")
        committed = await mine.commit()
        assert (committed.success, committed.errCode, committed.currOffset) == (False, 401, -1)
        assert (await mine.unregister()).errCode == 411
        assert list((await mine.heartbeat(0)).failureInfo) == ["411:1:broker.example:8123#demo:0"]


@on_loop
async def test_invalid_registration_gets_the_error_of_a_real_broker():
    async with Rig() as rig:
        rig.topic("demo", 3)
        mine = PartitionConsumer(rig.broker_peer())

        unknown = await PartitionConsumer(rig.broker_peer(), topic="nope").register()
        assert (unknown.errCode, unknown.currOffset) == (403, -1)
        assert unknown.errMsg == "topicName nope not existed, please check your configure"
        wrong = await mine.register(99)
        assert wrong.errCode == 500
        assert wrong.errMsg.endswith("Wrong partition value 99,valid partitions in (0,2)")
        kind = await mine.register(opType=33)
        assert (kind.errCode, kind.errMsg) == (400, "Invalid request:33")
        assert (await PartitionConsumer(rig.broker_peer(), " ").register()).errCode == 400
        assert (await PartitionConsumer(rig.broker_peer(), group="").register()).errCode == 400
        assert (await PartitionConsumer(rig.broker_peer(), "x" * 1_025).register()).errCode == 400
        assert not rig.broker.registrations.readers()


@on_loop
async def test_read_status_and_offset_select_the_start_position():
    """31: an offset is moved between the ends; 0 the first message, 1 the end, 2 always the end."""
    async with Rig() as rig:
        rig.topic("demo", 1)
        writer = rig.broker_peer()
        for number in range(4):
            assert (await writer.send(data=b"%d" % number)).success
        mine = PartitionConsumer(rig.broker_peer())

        async def position(**fields: int) -> tuple[int, int]:
            response = await mine.register(**fields)
            return response.currOffset, response.maxOffset

        assert await position() == (0, 4), "a new group begins at the first message"
        assert await position(currOffset=3) == (3, 4)
        assert await position() == (3, 4), "it is where it was put"
        assert await position(readStatus=1) == (3, 4), "only a new group begins at the end"
        assert await position(currOffset=99) == (4, 4)
        assert await position(currOffset=0) == (0, 4)
        assert await position(readStatus=2) == (4, 4)
        new = await PartitionConsumer(rig.broker_peer(), "n_1-1-Pull-1", "new").register(
            readStatus=1
        )
        assert new.currOffset == 4


@on_loop
async def test_unconfirmed_messages_are_read_again_and_confirmed_are_not():
    async with Rig() as rig:
        rig.topic("demo", 1)
        writer, mine = rig.broker_peer(), PartitionConsumer(rig.broker_peer())
        for number in range(3):
            await writer.send(data=b"%d" % number)
        await mine.register()

        assert bodies(await mine.get()) == [b"0", b"1", b"2"]
        refused = await mine.commit(consumed=False)
        assert (refused.success, refused.currOffset, refused.maxOffset) == (True, 0, 3)
        assert bodies(await mine.get()) == [b"0", b"1", b"2"]
        confirmed = await mine.commit()
        assert (confirmed.currOffset, confirmed.maxOffset) == (3, 3)
        await writer.send(data=b"3")
        assert bodies(await mine.get()) == [b"3"]
        assert (await mine.unregister(read_status=1)).currOffset == -1, "not consumed"
        assert (await mine.register()).currOffset == 3
        assert bodies(await mine.get()) == [b"3"]
        assert (await mine.unregister(read_status=0)).success, "consumed"
        assert (await mine.register()).currOffset == 4


@on_loop
async def test_a_get_confirms_what_the_one_before_brought():
    async with Rig() as rig:
        rig.topic("demo", 1)
        writer, mine = rig.broker_peer(), PartitionConsumer(rig.broker_peer())
        await writer.send(data=b"0")
        await mine.register()

        assert bodies(await mine.get()) == [b"0"]
        assert bodies(await mine.get()) == [b"0"], "nothing was confirmed"
        await writer.send(data=b"1")
        got = await mine.get(consumed=True)
        assert (bodies(got), got.currOffset, got.maxOffset) == ([b"1"], 1, 2)
        assert (await mine.commit(consumed=False)).currOffset == 1


@on_loop
async def test_manual_reading_goes_on_without_a_confirm():
    async with Rig() as rig:
        rig.topic("demo", 1)
        writer, mine = rig.broker_peer(), PartitionConsumer(rig.broker_peer())
        await mine.register()
        for number in range(3):
            await writer.send(data=b"%d" % number)
            got = await mine.get(consumed=True, manualCommitOffset=True)
            assert (bodies(got), got.currOffset) == ([b"%d" % number], number)

        assert (await mine.commit()).currOffset == 3, "all of it"
        await writer.send(data=b"3")
        await mine.get(manualCommitOffset=True)
        assert (await mine.commit(consumed=False)).currOffset == 3
        assert bodies(await mine.get(manualCommitOffset=True)) == [b"3"]


@on_loop
async def test_a_silent_reader_is_let_go_of_and_can_confirm_nothing():
    async with Rig() as rig:
        rig.topic("demo", 1)
        writer, mine = rig.broker_peer(), PartitionConsumer(rig.broker_peer())
        others = PartitionConsumer(rig.broker_peer(), OTHER)
        await writer.send(data=b"0")
        await mine.register()
        assert bodies(await mine.get()) == [b"0"]
        for _ in range(3):
            await pass_time(29)
            assert not (await mine.heartbeat(0)).hasPartFailure
        assert (await others.register()).errCode == 410

        await pass_time(32)

        assert (await mine.commit()).errCode == 401
        assert (await others.register()).currOffset == 0
        assert bodies(await others.get()) == [b"0"], "it was not confirmed"
        assert (await mine.get()).errCode == 412
        assert (await mine.commit()).errCode == 401


@on_loop
async def test_a_position_is_reported_when_it_is_durable():
    async with Rig() as rig:
        rig.topic("demo", 1)
        writer, mine = rig.broker_peer(), PartitionConsumer(rig.broker_peer())
        await writer.send(data=b"0")
        registered = mine.send_register()
        assert not mine.peer.is_answered(registered), "a new group's position is on its way"
        assert (await mine.peer.wait(registered)).currOffset == 0
        for end in (mine.send_commit, mine.send_unregister):
            await mine.get(consumed=True)

            response = end()

            assert not mine.peer.is_answered(response)
            assert (await mine.peer.wait(response)).success
            await writer.send(data=b"1")
        again = mine.send_register()
        assert mine.peer.response(again).currOffset == 2, "nothing new, nothing to wait for"
