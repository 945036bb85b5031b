"""A get at the end of the data waits for a message, so that no client has to sleep."""

from __future__ import annotations

import json

from tests.gateway.loop import on_loop
from tests.gateway.tubemq.partition_consumer import OTHER, PartitionConsumer, bodies
from tests.gateway.tubemq.rig import TIMEOUT_MS, Rig, settle
from tests.waiting import pass_time
from trilogue.broker.tubemq.group_rules import ClusterRecord, FlowControlText
from trilogue.gateway.tubemq.held_gets import PAUSE_S, TURN_S, consumer_get_state
from trilogue.gateway.tubemq.settings import TubeSettings
from trilogue.meta.operations import SlotRow


def now(rig: Rig) -> float:
    return rig.loop.time()


@on_loop
async def test_a_get_at_the_end_is_answered_when_a_message_comes():
    async with Rig() as rig:
        rig.topic("demo", 1)
        writer, mine = rig.broker_peer(), PartitionConsumer(rig.broker_peer())
        await mine.register()
        held = mine.send_get()
        await pass_time(2)
        assert not mine.peer.is_answered(held)

        await writer.send(data=b"0")

        await settle()
        assert bodies(mine.peer.response(held)) == [b"0"]
        assert (await mine.commit()).currOffset == 1


@on_loop
async def test_nothing_is_seen_before_it_is_durable():
    async with Rig() as rig:
        plog = rig.topic("demo", 1).partitions[0].log
        writer, mine = rig.broker_peer(), PartitionConsumer(rig.broker_peer())
        await mine.register()
        held = mine.send_get()
        await settle()

        writer.send_request("sendMessageP2B", **send(b"0"))

        assert (plog.high_watermark, plog.end_offset) == (0, 1), "it is on its way to the disk"
        assert not mine.peer.is_answered(held)
        await settle()
        assert bodies(mine.peer.response(held)) == [b"0"]


@on_loop
async def test_stuck_peer_gets_the_rest_of_its_messages_when_it_reads():
    """One connection with a get for each of many groups: one message answers all of them."""
    async with Rig() as rig:
        rig.topic("demo", 1)
        writer, peer = rig.broker_peer(), rig.broker_peer()
        groups = [f"group{number}" for number in range(20)]
        readers = [PartitionConsumer(peer, f"{group}_c", group) for group in groups]
        for reader in readers:
            await reader.register()
        held = [reader.send_get() for reader in readers]
        peer.transport.stuck = True
        data = bytes(300 << 10)

        await writer.send(data=data)
        await pass_time(0.1)

        written = len(peer.transport.written)
        assert written < 3 * len(data)
        while not all(peer.is_answered(each) for each in held):
            peer.transport.unstick()  # it reads what there is, and stops again
            peer.transport.stuck = True
            await pass_time(0.01)
            assert len(peer.transport.written) - written < 3 * len(data)
            written = len(peer.transport.written)
        assert all(bodies(peer.response(each)) == [data] for each in held)


@on_loop
async def test_a_get_that_waits_to_be_read_by_a_peer_that_goes_is_nothing_to_the_next_one():
    async with Rig() as rig:
        rig.topic("demo", 1)
        writer, peer = rig.broker_peer(), rig.broker_peer()
        for group in ("first", "second"):
            reader = PartitionConsumer(peer, f"{group}_c", group)
            await reader.register()
            reader.send_get()
        peer.transport.stuck = True
        await writer.send(data=bytes(300 << 10))
        await pass_time(0.1)

        peer.drop()
        await settle()

        for group in ("first", "second"):
            again = PartitionConsumer(rig.broker_peer(), f"{group}_c", group)
            await again.register()
            assert len(bodies(await again.get())) == 1


def send(data: bytes, partition: int = 0) -> dict[str, object]:
    return {
        "clientId": "p-1",
        "topicName": "demo",
        "partitionId": partition,
        "data": data,
        "flag": 0,
        "checkSum": -1,
        "sentAddr": 1,
    }


@on_loop
async def test_when_nothing_comes_the_answer_is_that_of_a_real_broker():
    async with Rig(tube=TubeSettings(hold_s=4)) as rig:
        rig.topic("demo", 1)
        mine = PartitionConsumer(rig.broker_peer())
        await mine.register()
        began = now(rig)

        response = await mine.get()

        assert (response.success, response.errCode, response.minLimitTime) == (False, 404, -1)
        assert 4 <= now(rig) - began < 4.1


@on_loop
async def test_a_get_is_never_held_as_long_as_its_client_waits():
    async with Rig(tube=TubeSettings(hold_s=8)) as rig:
        rig.topic("demo", 1)
        mine = PartitionConsumer(rig.broker_peer())
        await mine.register()
        began = now(rig)

        assert (await mine.get(timeout_ms=1_000)).errCode == 404

        assert now(rig) - began < 0.9
        assert TIMEOUT_MS == 10_000


@on_loop
async def test_held_get_is_answered_empty_if_another_partition_has_messages():
    """With success and no message: a client makes no pause after that."""
    async with Rig() as rig:
        rig.topic("demo", 3)
        writer, mine = rig.broker_peer(), PartitionConsumer(rig.broker_peer())
        for partition in range(3):
            await mine.register(partition)
        held = mine.send_get(0)
        await settle()

        await writer.send(partition=2, data=b"2")

        await settle()
        response = mine.peer.response(held)
        assert (bodies(response), response.currOffset, response.maxOffset) == ([], 0, 0)
        assert bodies(await mine.get(1)) == [], "this one too is answered at once"
        assert bodies(await mine.get(2)) == [b"2"]
        assert (await mine.commit(2)).success
        held = mine.send_get(0)
        await pass_time(1)
        assert not mine.peer.is_answered(held)


@on_loop
async def test_empty_responses_for_held_partitions_become_rarer():
    async with Rig() as rig:
        rig.topic("demo", 2)
        writer, mine = rig.broker_peer(), PartitionConsumer(rig.broker_peer())
        await mine.register(0)
        await mine.register(1)
        await writer.send(partition=1, data=b"1")
        began, empty = now(rig), 0

        while now(rig) - began < 20:
            response = await mine.get(0)
            empty += response.success

        assert 8 <= empty <= 40
        held = mine.send_get(0)
        await writer.send(partition=0, data=b"0")
        await settle()
        assert bodies(mine.peer.response(held)) in ([b"0"], [])


@on_loop
async def test_held_get_is_not_answered_during_the_pause_for_another_partition():
    async with Rig(tube=TubeSettings(hold_s=1)) as rig:
        rig.topic("demo", 2)
        writer, mine = rig.broker_peer(), PartitionConsumer(rig.broker_peer())
        await mine.register(0)
        await mine.register(1)
        assert (await mine.get(1)).errCode == 404, "a client makes a pause for this one now"
        held = mine.send_get(0)
        began = now(rig)

        await writer.send(partition=1, data=b"1")

        assert bodies(await mine.peer.wait(held)) == []
        assert PAUSE_S - 0.1 <= now(rig) - began <= PAUSE_S + 0.1


@on_loop
async def test_a_get_of_each_partition_is_answered_only_for_its_own():
    async with Rig() as rig:
        rig.topic("demo", 2)
        writer, mine = rig.broker_peer(), PartitionConsumer(rig.broker_peer())
        await mine.register(0)
        await mine.register(1)
        held = [mine.send_get(0), mine.send_get(1)]
        await settle()

        await writer.send(partition=1, data=b"1")

        await settle()
        assert bodies(mine.peer.response(held[1])) == [b"1"]
        assert not mine.peer.is_answered(held[0])


@on_loop
async def test_another_get_of_the_partition_ends_the_first():
    async with Rig() as rig:
        rig.topic("demo", 1)
        writer, mine = rig.broker_peer(), PartitionConsumer(rig.broker_peer())
        await mine.register()
        first, second = mine.send_get(), mine.send_get()
        await settle()

        await writer.send(data=b"0")

        await settle()
        assert mine.peer.response(first).errCode == 404
        assert bodies(mine.peer.response(second)) == [b"0"]


@on_loop
async def test_nothing_is_held_any_more_when_its_reader_is_gone():
    async with Rig() as rig:
        rig.topic("demo", 3)
        mine = PartitionConsumer(rig.broker_peer())
        for partition in range(3):
            await mine.register(partition)
        held = [mine.send_get(partition) for partition in range(3)]
        await settle()

        await mine.unregister(0)
        again = await mine.register(1)

        assert again.success
        assert mine.peer.response(held[0]).errCode == 404
        assert mine.peer.response(held[1]).errCode == 411, "that registration is over"
        rig.broker.registrations.expire(10**9)
        await settle()
        assert mine.peer.response(held[2]).errCode == 411
        assert not mine.peer.connection.held


@on_loop
async def test_a_connection_that_goes_leaves_nothing_held():
    async with Rig() as rig:
        rig.topic("demo", 1)
        writer, mine = rig.broker_peer(), PartitionConsumer(rig.broker_peer())
        await mine.register()
        mine.send_get()
        await settle()
        (reader,) = rig.broker.registrations.readers()

        mine.peer.drop()

        assert not consumer_get_state(reader.consumer).held
        await writer.send(data=b"0")
        again = PartitionConsumer(rig.broker_peer())
        assert bodies(await again.get()) == [b"0"], "it is registered, whatever its connection"


@on_loop
async def test_drain_answers_held_gets():
    async with Rig() as rig:
        rig.topic("demo", 1)
        mine = PartitionConsumer(rig.broker_peer())
        await mine.register()
        held = mine.send_get()
        await settle()

        mine.peer.connection.drain()

        await settle()
        assert mine.peer.response(held).errCode == 404
        assert mine.peer.is_cut


@on_loop
async def test_a_group_that_is_put_elsewhere_reads_there_at_once():
    async with Rig() as rig:
        topic = rig.topic("demo", 1)
        writer, mine = rig.broker_peer(), PartitionConsumer(rig.broker_peer())
        for number in range(3):
            await writer.send(data=b"%d" % number)
        await mine.register(readStatus=2)
        held = mine.send_get()
        await settle()

        rig.broker.registrations.reset(topic.partitions[0], "readers", 1)

        await settle()
        assert bodies(mine.peer.response(held)) == [b"1", b"2"]
        assert (await mine.commit()).currOffset == 3


@on_loop
async def test_held_gets_of_a_rebalanced_consumer_are_answered_at_once():
    async with Rig() as rig:
        rig.topic("demo", 2)
        mine, others = (
            PartitionConsumer(rig.broker_peer()),
            PartitionConsumer(rig.broker_peer(), OTHER),
        )
        await mine.register(0)
        await others.register(1)
        held, kept = mine.send_get(0), others.send_get(1)
        await settle()

        consumer = rig.broker.registrations.consumer("readers", mine.client_id)
        rig.gateway.held_gets.release(consumer, rig.loop.time() + 1.0)

        await settle()
        assert mine.peer.response(held).errCode == 404
        assert not others.peer.is_answered(kept)
        began = now(rig)
        assert (await mine.get(0)).errCode == 404
        assert now(rig) - began < 0.1


@on_loop
async def test_a_thousand_waiting_groups_cost_an_append_elsewhere_nothing():
    async with Rig() as rig:
        rig.topic("demo", 2)
        writer, peer = rig.broker_peer(), rig.broker_peer()
        groups = [
            PartitionConsumer(peer, f"g{number}_1-Pull-1", f"g{number}") for number in range(1_000)
        ]
        for each in groups:
            await each.register(0)
            each.send_get(0)
        await settle()
        plog = rig.broker.cluster.find_partition(2)
        assert plog is not None

        await writer.send(partition=1, data=b"x")

        assert not plog.log._appender.watchers
        peer.read_responses()
        assert len(peer.connection.held) == 1_000


@on_loop
async def test_a_push_consumer_is_never_made_to_pause():
    """It would wait for its gets when it shuts down; its application sees no empty responses."""
    async with Rig() as rig:
        rig.topic("demo", 1)
        mine = PartitionConsumer(rig.broker_peer(), "readers_192.0.2.2-1-1-1-Push-1.13.0")
        await mine.register()
        began = now(rig)

        assert bodies(await mine.get()) == []
        assert 1 <= now(rig) - began < 1.1

        text = json.dumps([{"type": 1, "rule": [{"zeroCnt": 9, "freqInMs": 900}]}])
        flow = FlowControlText(id=6, text=text, holds=True)
        await rig.commit(rig.broker.rules.plan_cluster(ClusterRecord(flow=flow)))
        assert (await mine.get()).errCode == 404, "there are rules for empty reads"


@on_loop
async def test_rolled_back_messages_answer_a_held_get_at_once():
    async with Rig() as rig:
        rig.topic("demo", 1)
        writer, mine = rig.broker_peer(), PartitionConsumer(rig.broker_peer())
        await writer.send(data=b"0")
        await mine.register()
        assert bodies(await mine.get(manualCommitOffset=True)) == [b"0"]
        held = mine.send_get(manualCommitOffset=True)
        await pass_time(0.1)
        assert not mine.peer.is_answered(held)

        await mine.commit(consumed=False)

        await settle()
        assert bodies(mine.peer.response(held)) == [b"0"]


def add_broker(rig: Rig) -> None:
    """Let another node own a slot, without partitions of the topics that there are."""
    rig.meta.state.slots = {**rig.meta.state.slots, 1: SlotRow(2, 1)}
    rig.broker.cluster.ownership.note_given([])


@on_loop
async def test_with_several_brokers_a_consumer_goes_round_its_partitions():
    """A held get would keep its client from messages at another broker."""
    async with Rig() as rig:
        rig.topic("demo", 2)
        mine = PartitionConsumer(rig.broker_peer())
        for partition in range(2):
            await mine.register(partition)
        add_broker(rig)
        began = now(rig)

        for partition in (0, 1, 0, 1):
            response = await mine.get(partition)
            assert (response.success, bodies(response)) == (True, [])

        assert 2 * TURN_S <= now(rig) - began < 3 * TURN_S, "two rounds of both together"


@on_loop
async def test_with_several_brokers_the_end_of_the_data_is_reported_as_often_as_with_one():
    async with Rig(tube=TubeSettings(hold_s=1)) as rig:
        rig.topic("demo", 1)
        writer, mine = rig.broker_peer(), PartitionConsumer(rig.broker_peer())
        await mine.register()
        add_broker(rig)
        began = now(rig)

        for after_s in (1, 2):
            while (await mine.get()).success:
                assert now(rig) - began < after_s
            assert after_s <= now(rig) - began < after_s + 2 * TURN_S

        held = mine.send_get()
        await writer.send(data=b"0")
        await settle()
        assert bodies(mine.peer.response(held)) == [b"0"]
        await mine.commit()
        began = now(rig)
        while (await mine.get()).success:
            assert now(rig) - began < 1
        assert 1 <= now(rig) - began < 1 + 2 * TURN_S, "counted from the last message"


@on_loop
async def test_with_several_brokers_rules_for_empty_reads_get_404():
    async with Rig() as rig:
        rig.topic("demo", 1)
        mine = PartitionConsumer(rig.broker_peer())
        await mine.register()
        add_broker(rig)
        text = json.dumps([{"type": 1, "rule": [{"zeroCnt": 9, "freqInMs": 900}]}])
        flow = FlowControlText(id=6, text=text, holds=True)
        await rig.commit(rig.broker.rules.plan_cluster(ClusterRecord(flow=flow)))

        assert (await mine.get()).errCode == 404
