"""Producers and consumers with their masters: which one, taken in again, tokens, signatures."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
from typing import Any
from urllib.parse import unquote_plus

import pytest

from tests.client.harness import run_on_idle_clock
from tests.client.tubemq.scripted import (
    HANG_UP,
    SILENCE,
    STANDBY,
    TOPIC,
    Peer,
    ScriptedTube,
    on_server,
)
from tests.waiting import wait_on_loop
from trilogue.client.errors import ClientError
from trilogue.client.tubemq import (
    Balance,
    ClosedError,
    Message,
    RemoteFailure,
    StandbyError,
    TubeClient,
    TubeError,
)
from trilogue.client.tubemq.auth import signature
from trilogue.client.tubemq.session import ipv4_as_int, local_address
from trilogue.wire.tubemq.errors import TubeCode
from trilogue.wire.tubemq.master_pb2 import EventProto, MasterAuthorizedInfo

STANDING = (
    "producerRegisterP2M",
    "producerHeartbeatP2M",
    "consumerRegisterC2M",
    "consumerHeartbeatC2M",
)
"""What a master does that is the active one."""


def test_client_fails_over_from_standby_and_unreachable_masters():
    """TubeMQ protocol, producer, first note: until the active master took the client in."""

    async def work() -> None:
        async with ScriptedTube() as passive, ScriptedTube() as active, ScriptedTube() as gone:
            await gone.shut()
            passive.always = dict.fromkeys(("producerRegisterP2M", "consumerRegisterC2M"), STANDBY)
            masters = f"{gone.address},{passive.address},{active.address}"
            async with TubeClient(masters) as client:
                producer = await client.producer(TOPIC)
                consumer = await client.consumer(TOPIC, group="g")
                await wait_on_loop(lambda: consumer.partitions)

                assert await producer.send(Message(TOPIC, b"x"))
                assert passive.all("producerRegisterP2M")
                assert not passive.all("producerHeartbeatP2M")
                assert active.all("producerHeartbeatP2M")

    run_on_idle_clock(asyncio.wait_for(work(), 20))


@on_server(register_timeout_s=0.05)
async def test_where_all_masters_stand_by_that_is_raised(server: ScriptedTube, client: TubeClient):
    server.always["producerRegisterP2M"] = STANDBY
    with pytest.raises(StandbyError):
        await client.producer(TOPIC)


@pytest.mark.parametrize("trouble", [STANDBY, HANG_UP, SILENCE], ids=str)
def test_a_master_that_steps_down_is_left_and_the_client_taken_in_elsewhere(trouble: Any):
    """TubeMQ protocol, producer, second note: connection lost or silent, then registered again."""

    async def work() -> None:
        async with ScriptedTube() as first, ScriptedTube() as second:
            second.brokers = first.brokers = [first.broker]
            options = {"heartbeat_s": 0.05, "request_timeout_s": 0.2}
            async with TubeClient(f"{first.address},{second.address}", **options) as client:
                producer = await client.producer(TOPIC)
                consumer = await client.consumer(TOPIC, group="g")
                first.always = dict.fromkeys(STANDING, trouble)
                await second.saw("producerHeartbeatP2M", 2)
                await second.saw("consumerHeartbeatC2M", 2)

                assert await producer.send(Message(TOPIC, b"x"))
                assert producer.registrations >= 2
                assert consumer.failure is None

    run_on_idle_clock(asyncio.wait_for(work(), 20))


@on_server(heartbeat_s=30)
async def test_a_lost_connection_to_the_master_is_noticed_without_a_heartbeat(
    server: ScriptedTube, client: TubeClient
):
    """TubeMQ protocol, producer, second note: passively closed."""
    producer = await client.producer(TOPIC)
    consumer = await client.consumer(TOPIC, group="g")
    await wait_on_loop(lambda: consumer.partitions)
    server.peers[0].hang_up()
    await server.saw("producerRegisterP2M", 2)
    _, again = await server.saw("consumerRegisterC2M", 2)

    assert len(again.subscribeInfo) == 3  # its partitions are reported at once
    await wait_on_loop(lambda: producer.registrations == 2)


@on_server(heartbeat_s=0.05)
async def test_client_registers_again_after_error_411(server: ScriptedTube, client: TubeClient):
    """RPC interaction: after "registration timed out" (411) comes a registration."""
    await client.producer(TOPIC)
    await client.consumer(TOPIC, group="g")
    server.next_up["producerHeartbeatP2M"].append(TubeCode.NO_NODE)
    server.next_up["consumerHeartbeatC2M"].append(TubeCode.NO_NODE)
    await server.saw("producerRegisterP2M", 2)
    await server.saw("consumerRegisterC2M", 2)
    before = len(server.all("producerHeartbeatP2M"))

    await server.saw("producerHeartbeatP2M", before + 2)


@on_server
async def test_permanent_error_of_the_master_is_raised(server: ScriptedTube, client: TubeClient):
    for code in (TubeCode.GROUP_FORBIDDEN, TubeCode.CONTENT_FORBIDDEN, TubeCode.OTHER_FILTERS):
        server.next_up["consumerRegisterC2M"].append(int(code))
        with pytest.raises(TubeError) as refused:
            await client.consumer(TOPIC, group="g")
        assert (refused.value.err_code, refused.value.err_msg) == (code, "scripted")
        assert refused.value.error is code

    assert len(server.all("consumerRegisterC2M")) == 3  # one request to each


@on_server(heartbeat_s=0.05)
async def test_refused_second_registration_ends_the_session(
    server: ScriptedTube, client: TubeClient
):
    consumer = await client.consumer(TOPIC, group="g")
    server.always["consumerRegisterC2M"] = int(TubeCode.GROUP_FORBIDDEN)
    server.next_up["consumerHeartbeatC2M"].append(TubeCode.NO_NODE)

    with pytest.raises(TubeError, match="GROUP_FORBIDDEN"):
        await consumer.get(10)
    with pytest.raises(TubeError, match="GROUP_FORBIDDEN"):
        await consumer.get(10)


@on_server(register_timeout_s=5)
async def test_retriable_master_errors_are_retried(server: ScriptedTube, client: TubeClient):
    server.next_up["producerRegisterP2M"] += [500, 503, HANG_UP]

    assert (await client.producer(TOPIC)).topics
    assert len(server.all("producerRegisterP2M")) == 4


@on_server(register_timeout_s=0.05)
async def test_an_answer_that_makes_no_sense_is_a_master_that_cannot_answer(
    server: ScriptedTube, client: TubeClient
):
    server.brokers = ["not a broker"]
    with pytest.raises(RemoteFailure, match="not a broker"):
        await client.producer(TOPIC)


# What is sent along.


@on_server(heartbeat_s=0.05)
async def test_the_last_checksum_of_the_brokers_is_in_every_request(
    server: ScriptedTube, client: TubeClient
):
    """brokerCheckSum is -1 at first, then the one of the last response."""
    await client.producer(TOPIC)
    await server.saw("producerHeartbeatP2M", 2)
    server.checksum = 101
    count = len(server.all("producerHeartbeatP2M"))
    beats = await server.saw("producerHeartbeatP2M", count + 3)
    server.next_up["producerHeartbeatP2M"].append(TubeCode.NO_NODE)
    registered = await server.saw("producerRegisterP2M", 2)

    assert [one.brokerCheckSum for one in registered] == [-1, 101]
    assert beats[0].brokerCheckSum == 100
    assert beats[-1].brokerCheckSum == 101


@on_server(heartbeat_s=0.05)
async def test_the_newest_brokers_and_partitions_replace_what_was_known(
    server: ScriptedTube, client: TubeClient
):
    """TubeMQ protocol, RPC interaction: metadata is kept, and replaced by the newest."""
    async with ScriptedTube() as other:
        producer = await client.producer(TOPIC)
        server.brokers, server.checksum = [f"1:{other.address}"], 101
        server.topics[TOPIC] = 5
        await wait_on_loop(lambda: len(producer.metadata.places(TOPIC)) == 5)
        await producer.send(Message(TOPIC, b"x"))

        assert len(other.all("sendMessageP2B")) == 1
        del server.topics[TOPIC]
        await wait_on_loop(lambda: not producer.metadata.places(TOPIC))


@on_server
async def test_client_id_contains_group_address_process_and_version(
    server: ScriptedTube, client: TubeClient
):
    """clientId: address, process, time, counter, kind, version; the group in front."""
    producer = await client.producer(TOPIC)
    other = await client.producer()
    consumer = await client.consumer(TOPIC, group="the.group")
    (request, _) = server.all("producerRegisterP2M")

    assert producer.client_id != other.client_id
    assert request.clientId == producer.client_id
    assert request.hostName == "127.0.0.1"
    assert producer.client_id.startswith("127.0.0.1-")
    assert consumer.client_id.startswith("the.group_127.0.0.1-")
    assert "-Pull-" in consumer.client_id


@pytest.mark.parametrize("group", ["with space", "a,b", "x" * 1100])
def test_a_group_that_no_server_takes_is_refused_at_once(group: str):
    @on_server
    async def work(server: ScriptedTube, client: TubeClient):
        with pytest.raises(Exception, match="not a name"):
            await client.consumer(TOPIC, group=group)
        assert not server.seen

    work()


def test_addresses_as_brokers_want_them():
    assert ipv4_as_int("192.0.2.2") == -1073741310
    assert ipv4_as_int("no address") == 0
    assert local_address(("127.0.0.1", 9)) == "127.0.0.1"


# Tokens and signatures.


@on_server(heartbeat_s=0.05)
async def test_tokens_are_kept_shown_and_replaced_by_those_of_heartbeats(
    server: ScriptedTube, client: TubeClient
):
    """TubeMQ protocol, visitAuthorizedToken and authAuthorizedToken."""
    server.auth_token = "first"
    producer = await client.producer(TOPIC)
    await producer.send(Message(TOPIC, b"x"))
    server.visit_token, server.auth_token = 8, "second"
    await server.saw("producerHeartbeatP2M", len(server.all("producerHeartbeatP2M")) + 2)
    await producer.send(Message(TOPIC, b"x"))

    shown = [one.authInfo for one in server.all("sendMessageP2B")]
    assert [one.visitAuthorizedToken for one in shown] == [7, 8]
    assert [one.authAuthorizedToken for one in shown] == ["first", "second"]


def test_a_signature_is_that_of_the_protocol():
    text = b"user" + b"1700000000000" + b"42"
    expected = base64.b64encode(hmac.new(b"pass", text, hashlib.sha1).digest()).decode()

    assert unquote_plus(signature("user", "pass", 1_700_000_000_000, 42)) == expected
    assert "%3D" in signature("user", "pass", 1_700_000_000_000, 42)


@on_server(user="user", password="pass", heartbeat_s=0.05)
async def test_the_first_registration_is_signed_then_the_token_is_shown(
    server: ScriptedTube, client: TubeClient
):
    """authInfo: signed at first and when required, else the token of the master."""
    server.auth_token = "given"
    await client.producer(TOPIC)
    (registered,) = server.all("producerRegisterP2M")
    beats = await server.saw("producerHeartbeatP2M", 2)

    signed = registered.authInfo.authInfo
    assert signed.userName == "user"
    assert signed.signature == signature("user", "pass", signed.timestamp, signed.nonce)
    assert beats[0].authInfo.authorizedToken == "given"
    assert not beats[0].authInfo.HasField("authInfo")


@on_server(user="user", password="pass", heartbeat_s=0.05)
async def test_a_master_that_requires_it_gets_a_new_signature(
    server: ScriptedTube, client: TubeClient
):
    """TubeMQ protocol, requireAuth: the next request is signed."""
    server.auth_token = "given"
    server.next_up["producerHeartbeatP2M"].append(
        lambda peer, serial, _: peer.send(
            serial, "producerHeartbeatP2M", brokerCheckSum=100, requireAuth=True
        )
    )
    await client.producer(TOPIC)
    beats = await server.saw("producerHeartbeatP2M", 3)

    assert [one.authInfo.HasField("authInfo") for one in beats[:3]] == [False, True, False]
    nonces = {beats[1].authInfo.authInfo.nonce}
    assert len(nonces) == 1


@on_server(user="user", password="pass", heartbeat_s=0.05)
async def test_a_refused_certificate_is_answered_with_a_signed_registration(
    server: ScriptedTube, client: TubeClient
):
    server.auth_token = "given"
    consumer = await client.consumer(TOPIC, group="g")
    server.next_up["consumerHeartbeatC2M"].append(int(TubeCode.CERTIFICATE_FAILURE))
    _, again = await server.saw("consumerRegisterC2M", 2)

    assert again.authInfo.HasField("authInfo")
    assert consumer.failure is None


@on_server(user="user", password="pass")
async def test_closing_is_authenticated_too(server: ScriptedTube, client: TubeClient):
    """The client closes its own session only."""
    server.auth_token = "given"
    await (await client.producer(TOPIC)).close()
    await (await client.consumer(TOPIC, group="g")).close()

    (producer,) = server.all("producerCloseClientP2M")
    (consumer,) = server.all("consumerCloseClientC2M")
    assert producer.authInfo.authorizedToken == consumer.authInfo.authorizedToken == "given"


@on_server(user="user", password="pass")
async def test_brokers_see_a_consumers_signature_when_it_registers(
    server: ScriptedTube, client: TubeClient
):
    """User, time, nonce and signature, with blanks between."""
    await client.consumer(TOPIC, group="g")
    registered = await server.saw("consumerRegisterC2B", 3)

    name, timestamp, nonce, signed = registered[0].authInfo.authAuthorizedToken.split(" ")
    assert name == "user"
    assert signed == signature("user", "pass", int(timestamp), int(nonce))
    assert registered[0].authInfo.visitAuthorizedToken == 7


@on_server
async def test_without_a_user_there_is_no_signature(server: ScriptedTube, client: TubeClient):
    await client.producer(TOPIC)
    (registered,) = server.all("producerRegisterP2M")

    assert not registered.HasField("authInfo")
    assert MasterAuthorizedInfo(visitAuthorizedToken=1).authAuthorizedToken == ""


@on_server(close_timeout_s=0.1)
async def test_an_end_that_no_client_answers_is_an_end_even_so(
    server: ScriptedTube, client: TubeClient
):
    producer = await client.producer(TOPIC)
    server.always["producerCloseClientP2M"] = SILENCE
    await producer.close()

    assert producer.closed


@on_server(close_timeout_s=2.0, heartbeat_s=0.02)
async def test_partitions_are_given_back_also_when_no_master_answers(
    server: ScriptedTube, client: TubeClient
):
    consumer = await client.consumer(TOPIC, group="g", balance=Balance.SERVER)
    await wait_on_loop(lambda: len(consumer.partitions) == 3)
    server.always = dict.fromkeys(STANDING, SILENCE)
    count = len(server.all("consumerHeartbeatC2M"))
    await server.saw("consumerHeartbeatC2M", count + 1)
    closing = asyncio.ensure_future(consumer.close())
    await server.saw("consumerRegisterC2B", 6)

    assert {one.opType for one in server.all("consumerRegisterC2B")[3:]} == {32}
    closing.cancel()


@on_server(heartbeat_s=1.0)
async def test_invalid_master_responses_back_off_exponentially(
    server: ScriptedTube, client: TubeClient
):
    await client.consumer(TOPIC, group="g")

    def nonsense(peer: Peer, serial: int, _request: Any) -> None:
        event = EventProto(rebalanceId=1, opType=10, subscribeInfo=["not a partition"])
        peer.send(serial, "consumerHeartbeatC2M", event=event)

    server.always["consumerHeartbeatC2M"] = nonsense
    loop = asyncio.get_running_loop()
    times: list[float] = []
    for count in range(5):
        await server.saw("consumerRegisterC2M", count + 1)
        times.append(loop.time())

    assert times[4] - times[3] > 1.5 * (times[2] - times[1]) > 0


@on_server
async def test_unexpected_exception_ends_the_session_and_is_logged(
    server: ScriptedTube, client: TubeClient, caplog: pytest.LogCaptureFixture
):
    consumer = await client.consumer(TOPIC, group="g")

    async def fails() -> None:
        raise ZeroDivisionError

    consumer.spawn(fails())
    with pytest.raises(ClientError, match="ZeroDivisionError"):
        await consumer.get(60)
    assert "tubemq.failed" in caplog.text


@on_server
async def test_close_of_the_client_during_a_registration_leaves_nothing_open(
    server: ScriptedTube, client: TubeClient
):
    held: list[tuple[Peer, int]] = []
    server.next_up["producerRegisterP2M"].append(
        lambda peer, serial, _: held.append((peer, serial))
    )
    making = asyncio.create_task(client.producer(TOPIC))
    await server.saw("producerRegisterP2M")
    await client.close()
    ((peer, serial),) = held
    peer.send(serial, "producerRegisterP2M", brokerCheckSum=1, brokerInfos=server.brokers)

    with pytest.raises(ClosedError):
        await making
    await server.saw("GONE")


@on_server
async def test_repeated_registration_at_the_master_is_delayed(
    server: ScriptedTube, client: TubeClient
):
    producer = await client.producer(TOPIC)
    server.always["producerHeartbeatP2M"] = 411
    began = asyncio.get_running_loop().time()
    producer.wake()
    await server.saw("producerRegisterP2M", 5)

    assert asyncio.get_running_loop().time() - began > 0.4
    server.always.clear()
    await producer.publish(TOPIC)


@on_server
async def test_repeated_registration_at_a_broker_is_delayed(
    server: ScriptedTube, client: TubeClient
):
    server.topics[TOPIC] = 1
    server.always["getMessagesC2B"] = 411
    consumer = await client.consumer(TOPIC, group="g")
    began = asyncio.get_running_loop().time()
    getting = asyncio.create_task(consumer.get())
    await server.saw("consumerRegisterC2B", 2)
    await consumer.close()

    assert asyncio.get_running_loop().time() - began > 0.9
    with pytest.raises(ClosedError):
        await getting
