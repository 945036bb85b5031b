"""What a consumer does with brokers: getting, confirming, positions, filters, what is refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.client.tubemq.scripted import (
    GROUP,
    HANG_UP,
    SILENCE,
    TOPIC,
    Peer,
    ScriptedTube,
    bodies,
    on_server,
    put,
    reader,
    transfer,
)
from tests.waiting import wait_on_loop
from trilogue.client.errors import ClientError
from trilogue.client.tubemq import (
    Balance,
    Confirm,
    NoMessage,
    Position,
    TubeClient,
    TubeError,
)
from trilogue.client.tubemq.consumer import parse_topics
from trilogue.wire.tubemq.errors import TubeCode


@on_server
async def test_a_pack_is_got_confirmed_and_not_got_again(server: ScriptedTube, client: TubeClient):
    """TubeMQ protocol, consumer: getting and confirming go in pairs."""
    put(server, b"a", b"b")
    consumer = await reader(client)
    batch = await consumer.get(60)
    assert (bodies(batch), batch.offset, batch.max_offset) == ([b"a", b"b"], 0, 2)
    assert (batch.topic, batch.partition, len(batch)) == (TOPIC, f"1:{TOPIC}:0", 2)
    await consumer.confirm(batch)
    (commit,) = server.all("consumerCommitC2B")
    put(server, b"c")

    assert commit.lastPackConsumed
    assert bodies(await consumer.get(60)) == [b"c"]
    assert consumer.offsets()[batch.partition].current == 2


@on_server
async def test_a_pack_that_is_rolled_back_comes_again(server: ScriptedTube, client: TubeClient):
    put(server, b"a", b"b")
    consumer = await reader(client)
    await consumer.rollback(await consumer.get(60))
    again = await consumer.get(60)

    assert bodies(again) == [b"a", b"b"]
    (commit,) = server.all("consumerCommitC2B")
    assert not commit.lastPackConsumed


@on_server
async def test_a_confirmation_can_go_with_the_next_get(server: ScriptedTube, client: TubeClient):
    put(server, b"a")
    consumer = await reader(client, confirm=Confirm.NEXT_GET)
    await consumer.rollback(await consumer.get(60))
    batch = await consumer.get(60)
    await consumer.confirm(batch)
    put(server, b"b")

    assert bodies(await consumer.get(60)) == [b"b"]
    assert not server.all("consumerCommitC2B")
    request = [one for one in server.all("getMessagesC2B") if one.partitionId == 0]
    assert request[-1].lastPackConsumed


@on_server
async def test_unregistration_commits_the_last_confirmed_batch(
    server: ScriptedTube, client: TubeClient
):
    """ReadStatus 0 of an unregistration commits, 1 does not."""
    put(server, b"a")
    put(server, b"b", partition=1)
    consumer = await reader(client, confirm=Confirm.NEXT_GET)
    first, second = await consumer.get(60), await consumer.get(60)
    consumer.pause(*consumer.partitions)
    await consumer.confirm(first)
    await consumer.close()

    left = {one.partitionId: one for one in server.all("consumerRegisterC2B") if one.opType == 32}
    numbers = [int(batch.partition[-1]) for batch in (first, second)]
    assert [left[number].readStatus for number in numbers] == [0, 1]
    assert len(left) == 3


@on_server
async def test_one_pack_of_a_partition_is_in_hand_at_a_time(
    server: ScriptedTube, client: TubeClient
):
    put(server, b"a")
    put(server, b"b", partition=1)
    consumer = await reader(client)
    first, second = await consumer.get(60), await consumer.get(60)
    put(server, b"c")
    assert {first.partition, second.partition} == {f"1:{TOPIC}:0", f"1:{TOPIC}:1"}
    with pytest.raises(NoMessage) as nothing:
        await consumer.get(0.05)

    assert nothing.value.err_code == 404


@on_server
async def test_no_message_error_code_names_the_cause(server: ScriptedTube, client: TubeClient):
    """404, and 405, 406 and 408 of the client itself."""
    server.allocate = False
    consumer = await client.consumer(TOPIC, group=GROUP)
    codes = []

    async def code() -> None:
        with pytest.raises(NoMessage) as nothing:
            await consumer.get(0.05)
        codes.append(nothing.value.err_code)

    await code()
    server.allocate = True
    await wait_on_loop(lambda: len(consumer.partitions) == 3)
    await code()
    consumer.pause(*consumer.partitions)
    await code()
    consumer.resume(*consumer.partitions, "1:not:0")
    for number in range(3):
        put(server, b"x", partition=number)
    for _ in range(3):
        await consumer.get(60)
    await code()

    assert codes == [406, 404, 405, 408]


@on_server
async def test_a_pack_that_is_not_confirmed_in_time_comes_again(
    server: ScriptedTube, client: TubeClient
):
    put(server, b"a")
    consumer = await reader(client, confirm_timeout_s=0.05)
    late = await consumer.get(60)
    again = await consumer.get(60)
    await consumer.confirm(again)

    assert bodies(late) == bodies(again) == [b"a"]
    for settle in (consumer.confirm, consumer.rollback):
        with pytest.raises(TubeError) as refused:
            await settle(late)
        assert refused.value.err_code == 400
    with pytest.raises(TubeError):
        await consumer.confirm(again)


@on_server
async def test_failed_confirm_registers_the_partition_again(
    server: ScriptedTube, client: TubeClient
):
    put(server, b"a")
    consumer = await reader(client)
    batch = await consumer.get(60)
    server.next_up["consumerCommitC2B"].append(401)
    with pytest.raises(TubeError) as refused:
        await consumer.confirm(batch)
    await server.saw("consumerRegisterC2B", 4)

    assert refused.value.err_code == 401
    assert bodies(await consumer.get(60)) == [b"a"]


@pytest.mark.parametrize("trouble", [500, HANG_UP, SILENCE], ids=str)
def test_a_confirmation_that_failed_is_not_made_up_for_by_the_next_get(trouble: Any):
    """The confirmation failed: the application gets the batch again."""

    @on_server(request_timeout_s=0.2)
    async def work(server: ScriptedTube, client: TubeClient):
        put(server, b"a")
        consumer = await reader(client)
        batch = await consumer.get(60)
        server.next_up["consumerCommitC2B"].append(trouble)
        with pytest.raises(ClientError):
            await consumer.confirm(batch)

        assert bodies(await consumer.get(60)) == [b"a"]

    work()


@on_server(request_timeout_s=0.2)
async def test_a_get_that_was_lost_confirms_nothing_when_it_is_repeated(
    server: ScriptedTube, client: TubeClient
):
    """Its flag may have arrived: then the one of the repeated get would be about the lost pack."""
    put(server, b"a")
    consumer = await reader(client, confirm=Confirm.NEXT_GET)
    await consumer.confirm(await consumer.get(60))
    put(server, b"b")

    def taken_and_lost(peer: Peer, serial: int, request: Any) -> None:
        server.at[f"1:{TOPIC}:0"] += 1
        server.read[f"1:{TOPIC}:0"] = 1

    consumer.pause(f"1:{TOPIC}:1", f"1:{TOPIC}:2")
    server.next_up["getMessagesC2B"].append(taken_and_lost)

    assert bodies(await consumer.get(60)) == [b"b"]


# Where the reading begins.


@pytest.mark.parametrize("position", list(Position))
def test_initial_position_is_sent_with_the_first_registration_only(position: Position):
    """ReadStatus 0 where it was, 1 a new group at the end, 2 always at the end."""

    @on_server
    async def work(server: ScriptedTube, client: TubeClient):
        consumer = await reader(client, initial_position=position)
        await consumer.set_offset(f"1:{TOPIC}:1", 5)
        taken = [one for one in server.all("consumerRegisterC2B") if one.opType == 31]

        assert [one.readStatus for one in taken] == [position] * 3 + [0]
        assert [one.HasField("currOffset") for one in taken] == [False] * 3 + [True]

    work()


@on_server
async def test_an_offset_can_be_set(server: ScriptedTube, client: TubeClient):
    put(server, b"a", b"b", b"c")
    consumer = await reader(client)
    batch = await consumer.get(60)
    await consumer.set_offset(batch.partition, 1)
    with pytest.raises(TubeError):
        await consumer.confirm(batch)

    again = await consumer.get(60)
    assert (bodies(again), again.offset) == ([b"b", b"c"], 1)
    with pytest.raises(TubeError) as refused:
        await consumer.set_offset("1:other:0", 1)
    assert refused.value.err_code == 406


@on_server
async def test_offsets_returns_the_latest_values_of_the_broker(
    server: ScriptedTube, client: TubeClient
):
    put(server, b"a", b"b")
    server.at[f"1:{TOPIC}:0"] = 1
    consumer = await reader(client)
    at = consumer.offsets()

    assert at[f"1:{TOPIC}:0"][:2] == (1, 2)
    assert at[f"1:{TOPIC}:1"][:2] == (0, 0)


# Which messages.


@on_server
async def test_filters_are_sent_to_master_and_broker(server: ScriptedTube, client: TubeClient):
    consumer = await client.consumer({TOPIC: ["b", "a"], "other": []}, group=GROUP)
    (request,) = server.all("consumerRegisterC2M")
    taken = await server.saw("consumerRegisterC2B", 3)

    assert list(request.topicCondition) == [f"{TOPIC}#a,b"]
    assert list(request.topicList) == [TOPIC, "other"]
    assert list(taken[0].filterCondStr) == ["a", "b"]
    assert consumer.topics["other"] == frozenset()


@on_server
async def test_types_are_compared_again_as_text(server: ScriptedTube, client: TubeClient):
    """Brokers filter by a hash, which AaAa and BBBB share."""
    put(server, b"wanted", kind="AaAa")
    put(server, b"not wanted", kind="BBBB")
    put(server, b"no type")
    consumer = await client.consumer({TOPIC: ["AaAa"]}, group=GROUP)

    assert bodies(await consumer.get(60)) == [b"wanted"]


@on_server
async def test_a_pack_of_which_nothing_is_wanted_is_passed(
    server: ScriptedTube, client: TubeClient
):
    put(server, b"not wanted", kind="BBBB")
    consumer = await client.consumer({TOPIC: ["AaAa"]}, group=GROUP)
    with pytest.raises(NoMessage):
        await consumer.get(0.3)
    put(server, b"wanted", kind="AaAa")

    assert bodies(await consumer.get(60)) == [b"wanted"]


@on_server
async def test_a_message_with_a_wrong_checksum_is_dropped(server: ScriptedTube, client: TubeClient):
    """A message with a wrong CRC is dropped."""

    def one_is_bad(peer: Peer, serial: int, request: Any) -> None:
        server.messages(peer, serial, [transfer(b"good"), transfer(b"bad", checksum=1)])

    consumer = await reader(client)
    server.next_up["getMessagesC2B"].append(one_is_bad)

    assert bodies(await consumer.get(60)) == [b"good"]
    assert consumer.reading.dropped == 1


@pytest.mark.parametrize("topics", [(), [""], "", {TOPIC: ["a,b"]}, {TOPIC: [" "]}], ids=repr)
def test_topics_and_filters_that_are_none_are_refused(topics: Any):
    with pytest.raises(ClientError):
        parse_topics(topics)


# What brokers refuse, and for how long.


@on_server
async def test_nothing_there_is_requested_again_after_a_pause(
    server: ScriptedTube, client: TubeClient
):
    consumer = await reader(client, not_found_wait_s=0.01)
    with pytest.raises(NoMessage):
        await consumer.get(0.2)

    assert 3 < len(server.all("getMessagesC2B")) <= 3 * 21


@on_server
async def test_idle_consumer_sends_no_gets(server: ScriptedTube, client: TubeClient):
    consumer = await reader(client, not_found_wait_s=0.0)
    before = len(server.all("getMessagesC2B"))
    await consumer.reading.send_heartbeat()

    assert len(server.all("getMessagesC2B")) == before == 0


@on_server
async def test_a_speed_limit_is_kept(server: ScriptedTube, client: TubeClient):
    """452 carries the ms to wait."""

    def limited(peer: Peer, serial: int, _request: Any) -> None:
        peer.send(serial, "getMessagesC2B", success=False, errCode=452, minLimitTime=150)

    server.topics[TOPIC] = 1
    put(server, b"a")
    server.next_up["getMessagesC2B"].append(limited)
    consumer = await client.consumer(TOPIC, group=GROUP, skip_flow_control=True)
    loop = asyncio.get_running_loop()
    await server.saw("getMessagesC2B", 0)
    getting = asyncio.ensure_future(consumer.get(60))
    await server.saw("getMessagesC2B", 1)
    began = loop.time()
    await getting

    assert loop.time() - began >= 0.1
    assert server.all("getMessagesC2B")[0].escFlowCtrl


@pytest.mark.parametrize("code", [301, 500, 503, 599])
def test_retriable_broker_errors_are_retried(code: int):
    @on_server
    async def work(server: ScriptedTube, client: TubeClient):
        put(server, b"a")
        server.next_up["getMessagesC2B"] += [code] * 3
        consumer = await reader(client)

        assert bodies(await consumer.get(60)) == [b"a"]
        assert len(consumer.partitions) == 3

    work()


@pytest.mark.parametrize("code", [500, 503])
def test_a_refusal_that_lasts_is_raised_and_not_hidden_as_404(code: int):
    @on_server
    async def work(server: ScriptedTube, client: TubeClient):
        server.always["getMessagesC2B"] = code
        consumer = await reader(client)
        with pytest.raises(TubeError) as refused:
            await consumer.get(1)
        del server.always["getMessagesC2B"]
        put(server, b"a")
        batch = await consumer.get(60)
        await consumer.confirm(batch)

        assert refused.value.err_code == code
        assert bodies(batch) == [b"a"]
        with pytest.raises(NoMessage):
            await consumer.get(1)

    work()


@pytest.mark.parametrize("method", ["consumerRegisterC2B", "getMessagesC2B"])
@pytest.mark.parametrize("balance", [Balance.SERVER, Balance.CLIENT])
@pytest.mark.parametrize("timeout_s", [None, 60.0])
def test_a_login_that_the_broker_refuses_is_raised(
    method: str, balance: Balance, timeout_s: float | None
):
    """The master has let the consumer in: it has a partition that it cannot read."""

    @on_server(request_timeout_s=0.5)
    async def work(server: ScriptedTube, client: TubeClient):
        server.topics[TOPIC] = 1
        server.always[method] = 415
        consumer = await client.consumer(TOPIC, group=GROUP, balance=balance)
        await server.saw("consumerRegisterC2B")
        with pytest.raises(TubeError) as refused:
            await consumer.get(timeout_s)

        assert refused.value.err_code == 415
        assert "trilogue users" in str(refused.value)

    work()


@on_server
async def test_a_login_that_one_broker_refuses_leaves_the_partitions_of_others(
    server: ScriptedTube, client: TubeClient
):
    server.next_up["consumerRegisterC2B"].append(415)
    consumer = await client.consumer(TOPIC, group=GROUP)
    await wait_on_loop(lambda: len(consumer.partitions) == 2)
    with pytest.raises(NoMessage):
        await consumer.get(0.3)
    put(server, b"a", partition=1)
    put(server, b"a", partition=2)

    assert bodies(await consumer.get(60)) == [b"a"]


@pytest.mark.parametrize("code", [411, 415])
def test_a_broker_that_forgot_us_is_registered_at_again(code: int):
    """Issue 6: re-registration on 411 from the broker."""

    @on_server(request_timeout_s=60.0)
    async def work(server: ScriptedTube, client: TubeClient):
        put(server, b"a")
        consumer = await reader(client)
        server.next_up["getMessagesC2B"] += [code] * 3
        batch = await consumer.get(60)

        assert bodies(batch) == [b"a"]
        assert len(consumer.partitions) == 3
        assert len(server.all("consumerRegisterC2B")) >= 4

    work()


@on_server
async def test_partition_assigned_to_another_consumer_is_dropped(
    server: ScriptedTube, client: TubeClient
):
    """412 on a get."""
    server.topics[TOPIC] = 1
    consumer = await client.consumer(TOPIC, group=GROUP)
    await wait_on_loop(lambda: consumer.partitions)
    server.next_up["getMessagesC2B"].append(412)
    with pytest.raises(NoMessage) as nothing:
        await consumer.get(0.2)

    assert nothing.value.error is TubeCode.NO_PARTITION_ASSIGNED
    assert consumer.partitions == []


# Heartbeats to brokers.


@on_server(heartbeat_s=0.05)
async def test_broker_heartbeat_lists_registered_partitions(
    server: ScriptedTube, client: TubeClient
):
    consumer = await reader(client)
    (beat, *_) = await server.saw("consumerHeartbeatC2B")

    assert sorted(beat.partitionInfo) == [server.full(number) for number in range(3)]
    assert (beat.clientId, beat.groupName, beat.readStatus) == (consumer.client_id, GROUP, 0)
    assert beat.authInfo.visitAuthorizedToken == 7


@on_server(heartbeat_s=0.05, user="u", password="p")
async def test_failures_that_a_broker_lists_are_acted_on(server: ScriptedTube, client: TubeClient):
    """411: the partition is registered again; 412: another consumer holds it."""
    failures = [f"411:{server.full(0)}", f"412:{server.full(1)}", f"411:{server.full(9)}"]
    server.next_up["consumerHeartbeatC2B"].append(
        lambda peer, serial, _: peer.send(
            serial, "consumerHeartbeatC2B", hasPartFailure=True, failureInfo=failures,
            requireAuth=True,
        )
    )  # fmt: skip
    consumer = await reader(client)
    beats = await server.saw("consumerHeartbeatC2B", 2)
    await server.saw("consumerRegisterC2B", 4)
    await wait_on_loop(lambda: len(consumer.partitions) == 2)

    assert sorted(consumer.partitions) == [f"1:{TOPIC}:0", f"1:{TOPIC}:2"]
    assert beats[1].authInfo.authAuthorizedToken.startswith("u ")


@on_server(heartbeat_s=0.05, request_timeout_s=0.1)
async def test_a_heartbeat_that_fails_is_not_the_end(server: ScriptedTube, client: TubeClient):
    put(server, b"a")
    server.next_up["consumerHeartbeatC2B"] += [500, 415, SILENCE, HANG_UP]
    consumer = await reader(client)
    await server.saw("consumerHeartbeatC2B", 6)

    assert bodies(await consumer.get(60)) == [b"a"]


@on_server
async def test_a_broken_connection_costs_no_partition_and_no_message(
    server: ScriptedTube, client: TubeClient
):
    async with ScriptedTube() as broker:
        server.brokers = [f"1:{broker.address}"]
        consumer = await reader(client)
        put(broker, b"a")
        broker.next_up["getMessagesC2B"].append(HANG_UP)

        assert bodies(await consumer.get(60)) == [b"a"]
        assert len(consumer.partitions) == 3
