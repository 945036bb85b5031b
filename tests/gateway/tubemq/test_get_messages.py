"""getMessagesC2B: the responses to gets (docs/reference/wire/tubemq.md)."""

from __future__ import annotations

import json
import zlib

import pytest

from tests.gateway.kafka.rig import batch
from tests.gateway.loop import on_loop
from tests.gateway.tubemq.partition_consumer import GROUP, PartitionConsumer, bodies
from tests.gateway.tubemq.rig import Peer, Rig, settle
from tests.waiting import run_ready_tasks
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.tubemq.group_rules import (
    BrokerRecord,
    ClusterRecord,
    ConsumeRecord,
    FlowControlText,
    TubeGroupRecord,
)
from trilogue.gateway.tubemq import message_reader
from trilogue.gateway.tubemq.settings import TubeSettings

AT_ONCE = TubeSettings(hold_s=0)


async def written(peer: Peer, *messages: bytes, topic: str = "demo", **more: object) -> None:
    for data in messages:
        response = await peer.send(topic, 0, data, **more)
        assert response.success, response.errMsg


@on_loop
async def test_the_end_of_data_is_reported_in_the_words_of_a_real_broker():
    async with Rig(tube=AT_ONCE) as rig:
        rig.topic("demo", 1)
        mine = PartitionConsumer(rig.broker_peer())
        await mine.register()

        response = await mine.get()

        assert (response.success, response.errCode) == (False, 404)
        assert response.errMsg == "The request offset reached maxOffset!"
        assert (response.currOffset, response.minLimitTime, response.currDataDlt) == (-1, -1, -1)
        assert not response.escFlowCtrl
        assert response.HasField("escFlowCtrl")


@on_loop
async def test_messages_come_as_they_were_sent_with_their_checksum_and_place():
    async with Rig(tube=AT_ONCE) as rig:
        rig.topic("demo", 1)
        writer, mine = rig.broker_peer(), PartitionConsumer(rig.broker_peer())
        attributes = b"\0\0\0\x03a=b"
        ids = [
            (await writer.send(data=b"hello")).messageId,
            (await writer.send(data=attributes + b"body", flag=1)).messageId,
        ]
        await mine.register()

        response = await mine.get()

        assert bodies(response) == [b"hello", attributes + b"body"]
        assert [each.messageId for each in response.messages] == ids
        assert [each.flag for each in response.messages] == [0, 1]
        for each in response.messages:
            assert each.checkSum == zlib.crc32(each.payLoadData) & 0x7FFFFFFF
        assert (response.currOffset, response.maxOffset, response.currDataDlt) == (0, 2, 0)
        assert (response.minLimitTime, response.escFlowCtrl, response.requireSlow) == (
            0,
            False,
            False,
        )


@on_loop
async def test_an_answer_has_so_many_messages_and_so_many_bytes_and_no_more():
    async with Rig(tube=AT_ONCE) as rig:
        rig.topic("small", 1)
        rig.topic("large", 1)
        writer = rig.broker_peer()
        for number in range(1_001):
            writer.send_request("sendMessageP2B", **send("small", b"%d" % number))
        await written(writer, *[b"x" * 200_000] * 4, topic="large")
        await written(writer, b"y" * 900_000, topic="large")
        small = PartitionConsumer(rig.broker_peer(), topic="small")
        large = PartitionConsumer(rig.broker_peer(), topic="large")
        await small.register()
        await large.register()

        first = await small.get()
        assert len(first.messages) == message_reader.MESSAGES
        assert first.currDataDlt > 0
        assert bodies(await small.get(consumed=True)) == [b"1000"]
        sizes = []
        lags = []
        for _ in range(3):
            response = await large.get(consumed=True)
            sizes.append([len(each) for each in bodies(response)])
            lags.append(response.currDataDlt)
        assert sizes == [[200_000] * 2, [200_000] * 2, [900_000]], "the largest comes alone"
        assert lags == sorted(lags, reverse=True)
        assert lags[-1] == 0


def send(topic: str, data: bytes) -> dict[str, object]:
    return {
        "clientId": "p-1",
        "topicName": topic,
        "partitionId": 0,
        "data": data,
        "flag": 0,
        "checkSum": -1,
        "sentAddr": 1,
    }


@on_loop
async def test_a_consumer_with_filters_gets_what_it_requested_and_passes_over_the_rest():
    async with Rig(tube=AT_ONCE) as rig:
        rig.topic("demo", 1)
        writer, mine = rig.broker_peer(), PartitionConsumer(rig.broker_peer())
        await written(writer, b"1", msgType="Aa")
        await written(writer, b"2")
        await written(writer, b"3", msgType="other")
        await mine.register(filterCondStr=["Aa", "never"])

        response = await mine.get()
        assert (bodies(response), response.requireSlow) == ([b"1"], True)
        assert (await mine.commit()).currOffset == 3, "what was passed over is done with"
        await written(writer, b"4", msgType="other")
        response = await mine.get(consumed=True)
        assert (response.success, bodies(response), response.currOffset) == (True, [], 3)
        assert (await mine.commit(consumed=False)).currOffset == 4, "it is confirmed by itself"
        assert (await mine.get()).errCode == 404


@on_loop
async def test_two_types_with_one_hash_are_distinguished():
    async with Rig(tube=AT_ONCE) as rig:
        rig.topic("demo", 1)
        writer, mine = rig.broker_peer(), PartitionConsumer(rig.broker_peer())
        await written(writer, b"1", msgType="Aa")
        await written(writer, b"2", msgType="BB")
        await mine.register(filterCondStr=["BB"])

        assert bodies(await mine.get()) == [b"2"]


@on_loop
async def test_messages_of_other_protocols_are_converted_with_the_same_offsets():
    async with Rig(tube=AT_ONCE) as rig:
        topic = rig.topic("demo", 1)
        writer, mine = rig.broker_peer(), PartitionConsumer(rig.broker_peer())
        await written(writer, b"0")
        topic.partitions[0].append(memoryview(batch("a", "b", "c")), now_ms=rig.now_ms)
        await written(writer, b"4")
        await mine.register()

        response = await mine.get()
        found = bodies(response)

        assert found[0] == b"0"
        assert found[4] == b"4"
        assert [each[-1:] for each in found[1:4]] == [b"a", b"b", b"c"]
        for each in response.messages:
            assert each.checkSum == zlib.crc32(each.payLoadData) & 0x7FFFFFFF
        assert (await mine.commit()).currOffset == 5
        assert (await mine.register(currOffset=2)).currOffset == 2
        response = await mine.get()
        assert [each[-1:] for each in bodies(response)] == [b"b", b"c", b"4"], "inside an entry"


@on_loop
async def test_messages_in_segments_are_read():
    async with Rig(tube=AT_ONCE) as rig:
        topic = rig.topic("demo", 1)
        writer, mine = rig.broker_peer(), PartitionConsumer(rig.broker_peer())
        await written(writer, b"0", b"1")
        topic.partitions[0].append(memoryview(batch("k")), now_ms=rig.now_ms)
        await written(writer, b"3", msgType="t")
        await rig.flush()
        await written(writer, b"4")
        await mine.register()
        others = PartitionConsumer(rig.broker_peer(), "b_1-1-Pull-1", "filtered")
        await others.register(filterCondStr=["t"])

        got = bodies(await mine.get())
        while len(got) < 5:
            got += bodies(await mine.get(consumed=True))
        assert [each[-1:] for each in got] == [b"0", b"1", b"k", b"3", b"4"]
        assert bodies(await others.get()) == [b"3"]


@on_loop
async def test_a_position_below_the_first_message_that_is_left_begins_there():
    async with Rig(tube=AT_ONCE) as rig:
        topic = rig.topic("demo", 1)
        writer, mine = rig.broker_peer(), PartitionConsumer(rig.broker_peer())
        await written(writer, b"0", b"1", b"2")
        await mine.register()
        topic.partitions[0].log.retain_from(2)

        response = await mine.get()

        assert (bodies(response), response.currOffset) == ([b"2"], 2)
        assert (await mine.commit()).currOffset == 3


@on_loop
async def test_flow_control_delays_gets_unless_escaped():
    async with Rig(tube=AT_ONCE) as rig:
        rig.topic("demo", 1)
        writer, mine = rig.broker_peer(), PartitionConsumer(rig.broker_peer())
        text = json.dumps([{"type": 3, "rule": [{"normFreqInMs": 700}]}])
        rules = TubeGroupRecord(flow=FlowControlText(id=5, text=text, holds=True))
        await rig.commit(rig.broker.rules.plan_group("readers", rules))
        await written(writer, b"0", b"1")
        await mine.register()

        assert bodies(await mine.get()) == [b"0", b"1"], "the first one is free"
        response = await mine.get()
        assert (response.success, response.errCode, response.minLimitTime) == (False, 452, 700)
        assert (response.currOffset, response.currDataDlt) == (-1, -1)
        assert bodies(await mine.get(escFlowCtrl=True)) == [b"0", b"1"]
        rig.now_ms += 700
        assert bodies(await mine.get()) == [b"0", b"1"]
        assert rig.gateway.throttled_gets == 1


@on_loop
async def test_the_default_rules_hold_where_a_group_has_none_of_that_type():
    async with Rig(tube=AT_ONCE) as rig:
        rig.topic("demo", 1)
        mine = PartitionConsumer(rig.broker_peer())
        text = json.dumps([{"type": 1, "rule": [{"zeroCnt": 2, "freqInMs": 900}]}])
        flow = FlowControlText(id=6, text=text, holds=True)
        await rig.commit(rig.broker.rules.plan_cluster(ClusterRecord(flow=flow)))
        await mine.register()

        assert [(await mine.get()).errCode for _ in range(3)] == [404, 404, 452]
        rig.now_ms += 900
        assert (await mine.get()).errCode == 404


@on_loop
async def test_a_topic_that_is_deleted_has_no_readers():
    async with Rig() as rig:
        topic = rig.topic("demo", 1)
        mine = PartitionConsumer(rig.broker_peer())
        await mine.register()
        held = mine.send_get()

        await rig.commit(rig.broker.cluster.plan_delete(topic.name))

        assert (await mine.peer.wait(held)).errCode == 411
        assert (await mine.get()).errCode == 411
        assert (await mine.heartbeat(0)).hasPartFailure


@pytest.mark.parametrize(
    ("kind", "name"),
    [(ResourceKind.TOPIC, "public/default/demo"), (ResourceKind.GROUP, GROUP)],
)
@on_loop
async def test_get_without_topic_or_group_permission_is_denied(kind: ResourceKind, name: str):
    async with Rig(tube=AT_ONCE) as rig:
        rig.topic("demo", 1)
        mine = PartitionConsumer(rig.broker_peer())
        await mine.register()
        rig.rules.deny(Operation.READ, kind, name)

        assert (await mine.get()).errCode == 415
        assert (await mine.register()).errCode == 415


@on_loop
async def test_admin_rules_apply_to_registered_consumers():
    async with Rig(tube=AT_ONCE) as rig:
        topic = rig.topic("demo", 1)
        mine = PartitionConsumer(rig.broker_peer())
        await mine.register()

        await rig.commit(rig.broker.rules.plan_broker(BrokerRecord(subscribes=False)))
        closed = await mine.get()
        await rig.commit(rig.broker.rules.plan_broker(BrokerRecord()))
        response = ConsumeRecord(may=False, reason="too many")
        await rig.commit(rig.broker.rules.plan_consume("readers", topic.name, response))

        assert (closed.errCode, closed.errMsg[:18]) == (403, "[Partition Closed]")
        assert (await mine.get()).errCode == 450
        assert (await mine.register()).errCode == 450


@on_loop
async def test_read_for_a_lost_connection_is_not_consumed():
    async with Rig(tube=AT_ONCE) as rig:
        rig.topic("demo", 1)
        writer, mine = rig.broker_peer(), PartitionConsumer(rig.broker_peer())
        await writer.send(data=b"0")
        await rig.flush()
        await mine.register()
        mine.send_get(manualCommitOffset=True)
        await run_ready_tasks()  # it is being read
        mine.peer.drop()
        await settle()

        again = PartitionConsumer(rig.broker_peer())

        assert bodies(await again.get(manualCommitOffset=True)) == [b"0"]
