"""How a consumer comes to its partitions: by the master's events, or by its own number."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.client.tubemq.scripted import (
    GROUP,
    TOPIC,
    Peer,
    ScriptedTube,
    bodies,
    on_server,
    put,
)
from tests.waiting import wait_on_loop
from trilogue.client.errors import ClientError
from trilogue.client.tubemq import (
    Balance,
    Bound,
    Consumer,
    NoMessage,
    TubeClient,
    TubeError,
    UnknownEvent,
)
from trilogue.client.tubemq.server_balance import REPORT_EVERY, RebalanceEvent
from trilogue.wire.tubemq.master_pb2 import OpsTaskInfo

CONNECT, DISCONNECT, REPORT, REFRESH, STOP = 1, 2, 3, 4, 5
ONLY_CONNECT, ONLY_DISCONNECT = 10, 20
DONE, FAILED = 2, -2


def key(number: int) -> str:
    return f"1:{TOPIC}:{number}"


async def idle(server: ScriptedTube, client: TubeClient) -> Consumer:
    """A consumer that was given nothing yet, and its first heartbeat."""
    server.allocate = False
    consumer = await client.consumer(TOPIC, group=GROUP)
    await server.saw("consumerHeartbeatC2M")
    return consumer


async def send_event(server: ScriptedTube, consumer: Consumer, op_type: int, *numbers: int) -> Any:
    """Have the master want something; the heartbeat that gives the result back."""
    server.plan(consumer.client_id, op_type, [server.full(number) for number in numbers])
    wanted = server.events[-1]["rebalanceId"]
    consumer.wake()
    results: list[Any] = []

    def given_back() -> bool:
        beats = server.all("consumerHeartbeatC2M")
        results[:] = [one for one in beats if one.event.rebalanceId == wanted]
        return bool(results)

    await wait_on_loop(given_back)
    return results[0]


@pytest.mark.parametrize("op_type", [CONNECT, ONLY_CONNECT])
def test_connect_event_registers_partitions_and_is_confirmed_at_once(op_type: int):
    """Server balance: the event comes back as DONE with all of subscribeInfo."""

    @on_server
    async def work(server: ScriptedTube, client: TubeClient):
        consumer = await idle(server, client)
        result = await send_event(server, consumer, op_type, 0, 2)

        assert sorted(consumer.partitions) == [key(0), key(2)]
        assert result.event.status == DONE
        assert result.event.opType == op_type
        assert len(result.event.subscribeInfo) == 2
        assert result.reportSubscribeInfo
        mine = f"{consumer.client_id}@{GROUP}#"
        assert sorted(result.subscribeInfo) == [mine + server.full(one) for one in (0, 2)]

    work()


@pytest.mark.parametrize("op_type", [DISCONNECT, ONLY_DISCONNECT])
def test_disconnect_event_unregisters_partitions(op_type: int):
    @on_server
    async def work(server: ScriptedTube, client: TubeClient):
        consumer = await idle(server, client)
        await send_event(server, consumer, ONLY_CONNECT, 0, 1, 2)
        result = await send_event(server, consumer, op_type, 1, 9)

        assert sorted(consumer.partitions) == [key(0), key(2)]
        assert len(result.subscribeInfo) == 2
        (left,) = [one for one in server.all("consumerRegisterC2B") if one.opType == 32]
        assert (left.partitionId, left.readStatus) == (1, 1)

    work()


@on_server
async def test_a_partition_is_given_back_when_its_pack_in_hand_is_confirmed(
    server: ScriptedTube, client: TubeClient
):
    server.stored[key(1)].append((b"x", 0))
    consumer = await idle(server, client)
    await send_event(server, consumer, ONLY_CONNECT, 1)
    batch = await consumer.get(60)
    giving = asyncio.ensure_future(send_event(server, consumer, ONLY_DISCONNECT, 1))
    await wait_on_loop(lambda: not server.events)
    for _ in range(3):
        await (
            consumer.reading.send_heartbeat()
        )  # there and back: it would have been given back by now
    assert not [one for one in server.all("consumerRegisterC2B") if one.opType == 32]
    await consumer.confirm(batch)
    await giving

    assert server.at[key(1)] == 1
    assert consumer.partitions == []


@on_server
async def test_a_pack_that_no_client_confirms_does_not_keep_a_partition_for_ever(
    server: ScriptedTube, client: TubeClient
):
    server.allocate = False
    server.stored[key(1)].append((b"x", 0))
    consumer = await client.consumer(TOPIC, group=GROUP, release_wait_s=0.05)
    await send_event(server, consumer, ONLY_CONNECT, 1)
    batch = await consumer.get(60)
    await send_event(server, consumer, ONLY_DISCONNECT, 1)

    with pytest.raises(TubeError):
        await consumer.confirm(batch)
    assert server.at[key(1)] == 0


@on_server
async def test_a_partition_that_is_still_read_is_dropped_until_the_next_round(
    server: ScriptedTube, client: TubeClient
):
    """TubeMQ protocol: PARTITION_OCCUPIED, then it is allocated again when its last reader left."""
    consumer = await idle(server, client)
    server.next_up["consumerRegisterC2B"].append(410)
    result = await send_event(server, consumer, ONLY_CONNECT, 0, 1)

    assert len(consumer.partitions) == 1
    assert (result.event.status, len(result.subscribeInfo)) == (DONE, 1)
    request = len(server.all("consumerRegisterC2B"))
    again = await send_event(server, consumer, ONLY_CONNECT, 0, 1)
    assert sorted(consumer.partitions) == [key(0), key(1)]
    assert len(again.subscribeInfo) == 2
    assert len(server.all("consumerRegisterC2B")) == request + 1


@on_server
async def test_a_report_is_given_when_it_is_wanted(server: ScriptedTube, client: TubeClient):
    consumer = await idle(server, client)
    await send_event(server, consumer, ONLY_CONNECT, 0)
    server.plan(consumer.client_id, REPORT, [])
    count = len(server.all("consumerHeartbeatC2M"))
    consumer.wake()
    beats = await server.saw("consumerHeartbeatC2M", count + 2)

    assert beats[count + 1].reportSubscribeInfo
    assert len(beats[count + 1].subscribeInfo) == 1
    assert not beats[count + 1].HasField("event")


@on_server(heartbeat_s=0.02)
async def test_a_stop_is_taken_note_of(server: ScriptedTube, client: TubeClient):
    consumer = await idle(server, client)
    server.plan(consumer.client_id, STOP, [])
    beats = await server.saw("consumerHeartbeatC2M", 4)

    assert not any(one.HasField("event") for one in beats)
    assert consumer.failure is None


@pytest.mark.parametrize("op_type", [REFRESH, 0, 77])
def test_an_event_that_is_unknown_is_raised_and_given_back_as_failed(op_type: int):
    """TubeMQ protocol, the switch over event types: the default throws."""

    @on_server
    async def work(server: ScriptedTube, client: TubeClient):
        consumer = await idle(server, client)
        result = await send_event(server, consumer, op_type, 0)
        with pytest.raises(UnknownEvent, match=str(op_type)):
            await consumer.get(60)

        assert result.event.status == FAILED
        with pytest.raises(NoMessage):  # once: the consumer goes on
            await consumer.get(0.01)

    work()


def test_the_events_are_those_of_the_seed():
    assert {one.value for one in RebalanceEvent} == {
        CONNECT, DISCONNECT, REPORT, STOP, ONLY_CONNECT, ONLY_DISCONNECT,
    }  # fmt: skip


@on_server(heartbeat_s=0.02)
async def test_every_sixth_heartbeat_reports_the_partitions(
    server: ScriptedTube, client: TubeClient
):
    """The report without an event; other reports only after one."""
    await client.consumer(TOPIC, group=GROUP)
    beats = await server.saw("consumerHeartbeatC2M", 4 * REPORT_EVERY)
    reports = [at for at, one in enumerate(beats, 1) if one.reportSubscribeInfo]
    plain = [one for one in beats if not one.reportSubscribeInfo]

    assert [at for at in reports if at % REPORT_EVERY == 0] == [6, 12, 18, 24]
    assert len(reports) == 5
    assert not any(one.subscribeInfo for one in plain)


@on_server
async def test_several_events_are_done_one_after_the_other(
    server: ScriptedTube, client: TubeClient
):
    consumer = await idle(server, client)
    for number in range(3):
        server.plan(consumer.client_id, ONLY_CONNECT, [server.full(number)])
    consumer.wake()
    await wait_on_loop(lambda: len(consumer.partitions) == 3)


@on_server
async def test_flow_control_ids_are_kept_and_sent_with_heartbeats(
    server: ScriptedTube, client: TubeClient
):
    """Flow control: the ids are compared, the rules come when they differ."""

    def ruled(peer: Peer, serial: int, _request: Any) -> None:
        peer.send(
            serial, "consumerRegisterC2M", notAllocated=True, defFlowCheckId=5, groupFlowCheckId=6,
            qryPriorityId=301, defFlowControlInfo=" ", groupFlowControlInfo="[]",
        )  # fmt: skip

    server.next_up["consumerRegisterC2M"].append(ruled)
    await client.consumer(TOPIC, group=GROUP)
    (beat, *_) = await server.saw("consumerHeartbeatC2M")

    assert (beat.defFlowCheckId, beat.groupFlowCheckId, beat.qryPriorityId) == (5, 6, 301)


@on_server
async def test_bound_registration_contains_session_key_and_offsets(
    server: ScriptedTube, client: TubeClient
):
    """Bound consume; the offsets are each partition's first registration's."""
    offsets = {key(0): 112, key(1): 56}
    bound = Bound(session_key="s", consumers=2, offsets=offsets, prefer_larger=False)
    await client.consumer(TOPIC, group=GROUP, bound=bound)
    (request,) = server.all("consumerRegisterC2M")
    taken = await server.saw("consumerRegisterC2B", 3)

    assert request.requireBound
    assert (request.sessionKey, request.totalCount, request.selectBig) == ("s", 2, False)
    assert request.notAllocated
    assert request.requiredPartition == f"{key(0)}=112,{key(1)}=56"
    assert {one.partitionId: one.currOffset for one in taken if one.HasField("currOffset")} == {
        0: 112, 1: 56,
    }  # fmt: skip


# Where clients balance themselves.


@on_server
async def test_a_consumer_takes_the_partitions_of_its_number(
    server: ScriptedTube, client: TubeClient
):
    """Client balance: register, metadata, then the brokers, without any event."""
    options: dict[str, Any] = {"balance": Balance.CLIENT, "source_count": 2}
    first = await client.consumer(TOPIC, group=GROUP, node_id=0, **options)
    second = await client.consumer({TOPIC: ["f"]}, group=GROUP, node_id=1, **options)
    (request, other) = server.all("consumerRegisterC2MV2")

    assert (first.partitions, second.partitions) == ([key(0), key(2)], [key(1)])
    assert first.available() == [key(0), key(1), key(2)]
    assert (request.sourceCount, request.nodeId, other.nodeId) == (2, 0, 1)
    assert (request.subRepInfo.brokerConfigId, request.subRepInfo.topicMetaInfoId) == (-2, -2)
    assert list(other.topicCondition) == [f"{TOPIC}#f"]
    assert "-Balance-" in first.client_id
    assert not server.all("consumerRegisterC2M")


@on_server
async def test_heartbeat_reports_known_ids_and_partitions(server: ScriptedTube, client: TubeClient):
    await client.consumer(TOPIC, group=GROUP, balance=Balance.CLIENT)
    (beat, *_) = await server.saw("consumerHeartbeatC2MV2")

    state = beat.subRepInfo
    assert (state.brokerConfigId, state.topicMetaInfoId) == (100, 200)
    assert state.reportSubInfo
    assert list(state.partSubInfo) == [f"{TOPIC}#1:0,1:1,1:2"]
    assert state.lstAssignedTime > 0


@on_server(heartbeat_s=0.02)
async def test_partitions_that_come_and_go_are_taken_and_given_back(
    server: ScriptedTube, client: TubeClient
):
    consumer = await client.consumer(TOPIC, group=GROUP, balance=Balance.CLIENT)
    server.topics[TOPIC], server.topics_id = 4, 201
    await wait_on_loop(lambda: len(consumer.partitions) == 4)
    server.topics[TOPIC], server.topics_id = 2, 202
    await wait_on_loop(lambda: consumer.partitions == [key(0), key(1)])

    request = server.all("consumerGetPartMetaInfoC2M")
    assert {one.topicMetaInfoId for one in request} >= {-2, 200, 201}


@on_server(heartbeat_s=0.02)
async def test_the_master_may_send_new_metadata_in_a_heartbeat(
    server: ScriptedTube, client: TubeClient
):
    def send_more(peer: Peer, serial: int, _request: Any) -> None:
        peer.send(
            serial, "consumerHeartbeatC2MV2", brokerConfigId=100, topicMetaInfoId=300,
            topicMetaInfoList=[f"{TOPIC}#1:1:5:1"],
            opsTaskInfo=OpsTaskInfo(groupFlowCheckId=9, groupFlowControlInfo="[]"),
        )  # fmt: skip

    consumer = await client.consumer(TOPIC, group=GROUP, balance=Balance.CLIENT)
    server.topics[TOPIC], server.topics_id = 5, 300
    server.next_up["consumerHeartbeatC2MV2"].append(send_more)
    await wait_on_loop(lambda: len(consumer.partitions) == 5)
    beats = await server.saw(
        "consumerHeartbeatC2MV2", len(server.all("consumerHeartbeatC2MV2")) + 2
    )

    assert beats[-1].opsTaskInfo.groupFlowCheckId == 9
    assert not beats[-1].opsTaskInfo.HasField("groupFlowControlInfo")


@on_server(heartbeat_s=0.02)
async def test_client_balance_consumer_registers_again_after_error_411(
    server: ScriptedTube, client: TubeClient
):
    consumer = await client.consumer(TOPIC, group=GROUP, balance=Balance.CLIENT)
    server.next_up["consumerHeartbeatC2MV2"].append(411)
    _, again = await server.saw("consumerRegisterC2MV2", 2)

    assert again.subRepInfo.topicMetaInfoId == 200
    assert len(consumer.partitions) == 3


@on_server
async def test_brokers_that_may_not_be_read_are_left_out(server: ScriptedTube, client: TubeClient):
    def closed(peer: Peer, serial: int, _request: Any) -> None:
        peer.send(
            serial, "consumerGetPartMetaInfoC2M", topicMetaInfoId=1,
            topicMetaInfoList=[f"{TOPIC}#1:1:3:0,2:1:3:1"],
        )  # fmt: skip

    server.next_up["consumerGetPartMetaInfoC2M"].append(closed)
    server.always["consumerGetPartMetaInfoC2M"] = closed
    consumer = await client.consumer(TOPIC, group=GROUP, balance=Balance.CLIENT)

    assert consumer.available() == consumer.partitions == []  # broker 2 has no known address


@on_server
async def test_an_application_may_choose_partitions_and_offsets(
    server: ScriptedTube, client: TubeClient
):
    server.stored[key(1)] += [(b"a", 0), (b"b", 0)]
    consumer = await client.consumer(TOPIC, group=GROUP, balance=Balance.MANUAL)
    assert consumer.partitions == []
    await consumer.connect(key(1), 1)
    assert [one.body for one in await consumer.get(60)] == [b"b"]
    await consumer.connect(key(2))
    server.next_up["consumerRegisterC2B"].append(410)
    with pytest.raises(TubeError) as refused:
        await consumer.connect(key(0))
    assert refused.value.err_code == 410
    await consumer.disconnect(key(1))
    await consumer.disconnect(key(1))

    assert consumer.partitions == [key(2)]
    with pytest.raises(TubeError) as unknown:
        await consumer.connect("1:other:0")
    assert unknown.value.err_code == 422


@on_server
async def test_where_the_server_balances_no_other_does(server: ScriptedTube, client: TubeClient):
    consumer = await idle(server, client)

    with pytest.raises(ClientError):
        await consumer.connect(key(0))
    with pytest.raises(ClientError):
        consumer.available()


@pytest.mark.parametrize("balance", [Balance.SERVER, Balance.CLIENT])
@on_server(heartbeat_s=0.05)
async def test_partitions_of_a_broker_that_has_moved_are_read_where_it_is(
    server: ScriptedTube, client: TubeClient, balance: Balance
):
    """No broker answers at the old address: the client gives it up."""
    async with ScriptedTube() as new:
        async with ScriptedTube() as old:
            server.brokers = [f"1:{old.address}"]
            consumer = await client.consumer(TOPIC, group=GROUP, balance=balance)
            await old.saw("consumerRegisterC2B", 3)
        server.brokers, server.checksum = [f"1:{new.address}"], server.checksum + 1
        put(new, b"a")
        if balance is Balance.SERVER:
            await wait_on_loop(lambda: not consumer.partitions)
            reported = len(server.all("consumerHeartbeatC2M"))
            beat = (await server.saw("consumerHeartbeatC2M", reported + 2))[-1]
            server.plan(consumer.client_id, 10, [server.full(number) for number in range(3)])
            assert not beat.subscribeInfo
        else:
            known = {"brokerConfigId": server.checksum, "brokerConfigList": server.brokers}
            server.always["consumerHeartbeatC2MV2"] = lambda peer, serial, _: peer.send(
                serial, "consumerHeartbeatC2MV2", **known
            )

        batch = await consumer.get(10)
        assert bodies(batch) == [b"a"]
        await consumer.confirm(batch)
