"""The connection itself: serial numbers, answers, time-outs, bytes that are no frames, sharing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.client.harness import run_on_idle_clock
from tests.client.tubemq.scripted import (
    GARBAGE,
    HANG_UP,
    SILENCE,
    TOPIC,
    Peer,
    ScriptedTube,
    on_server,
)
from tests.waiting import run_ready_tasks, wait_on_loop
from trilogue.client.errors import ClientError, ConnectionLost, ServerUnreachable
from trilogue.client.tubemq import (
    BadFrame,
    BadFrames,
    ClosedError,
    Connections,
    Message,
    QueueFull,
    RemoteFailure,
    TimedOut,
    TubeClient,
)
from trilogue.client.tubemq import connection as connections
from trilogue.client.tubemq.client import PRUNE_AT, parse_masters
from trilogue.client.tubemq.options import (
    Balance,
    Bound,
    ClientOptions,
    ConsumerOptions,
    ProducerOptions,
)
from trilogue.wire.tubemq.broker_pb2 import SendMessageResponseB2P
from trilogue.wire.tubemq.frame import encode_failure, encode_response
from trilogue.wire.tubemq.methods import BY_NAME

SEND = BY_NAME["sendMessageP2B"]


@on_server
async def test_answers_find_their_requests_by_serial_number_in_any_order(
    server: ScriptedTube, client: TubeClient
):
    """TubeMQ protocol, RPC interaction: kept until the answer, tied to it by SerialNo."""
    kept: list[tuple[Peer, int, Any]] = []
    for _ in range(3):
        server.next_up["sendMessageP2B"].append(lambda *one: kept.append(one))
    producer = await client.producer(TOPIC)
    futures = [await producer.submit(Message(TOPIC, b"%d" % number)) for number in range(3)]
    await server.saw("sendMessageP2B", 3)
    for peer, serial, request in reversed(kept):
        server.on_send_message_p2b(peer, serial, request)

    sent = [await future for future in futures]

    assert len({serial for _, serial, _ in kept}) == 3
    assert [one.message_id for one in sent] == [serial for _, serial, _ in kept]


@on_server
async def test_serial_numbers_begin_again_and_pass_those_that_wait(
    server: ScriptedTube, client: TubeClient, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(connections, "LAST_SERIAL", 3)
    serials: list[int] = []
    producer = await client.producer(TOPIC)
    server.next_up["sendMessageP2B"].append(SILENCE)
    waiting = await producer.submit(Message(TOPIC, b"never answered"))
    server.always["sendMessageP2B"] = lambda peer, serial, request: (
        serials.append(serial), server.on_send_message_p2b(peer, serial, request),
    )  # fmt: skip
    for _ in range(4):
        await producer.send(Message(TOPIC, b"x"))

    assert len(set(serials)) == 2
    assert max(serials) <= 3
    waiting.cancel()


@on_server(request_timeout_s=0.05)
async def test_a_request_without_an_answer_is_given_up_and_a_late_answer_ignored(
    server: ScriptedTube, client: TubeClient
):
    """TubeMQ protocol, RPC interaction: kept until the RPC's time-out."""
    late: list[tuple[Peer, int, Any]] = []
    producer = await client.producer(TOPIC)
    server.next_up["sendMessageP2B"].append(lambda *one: late.append(one))
    slow = await producer.submit(Message(TOPIC, b"slow"))
    await server.saw("sendMessageP2B")
    await producer.send(Message(TOPIC, b"heard in between"))
    with pytest.raises(TimedOut, match="sendMessageP2B"):
        await slow
    server.on_send_message_p2b(*late[0])

    assert (await producer.send(Message(TOPIC, b"next"))).topic == TOPIC
    assert len(server.peers) == 1


@on_server(request_timeout_s=0.05)
async def test_silent_server_loses_the_connection(server: ScriptedTube, client: TubeClient):
    """TubeMQ protocol, producer, fourth note: faulty brokers are detected."""
    producer = await client.producer(TOPIC)
    server.next_up["sendMessageP2B"].append(SILENCE)
    with pytest.raises(TimedOut):
        await producer.send(Message(TOPIC, b"x"))

    await server.saw("GONE")
    await server.saw("producerRegisterP2M", 2)
    assert producer.servers.is_avoided(("127.0.0.1", server.port))


@on_server(max_pending=2)
async def test_so_many_requests_wait_for_answers_at_most(server: ScriptedTube, client: TubeClient):
    producer = await client.producer(TOPIC)
    server.always["sendMessageP2B"] = SILENCE
    futures = [await producer.submit(Message(TOPIC, b"x")) for _ in range(3)]
    with pytest.raises(QueueFull) as refused:
        await futures[2]

    assert refused.value.err_code == 421
    await run_ready_tasks()
    assert not futures[0].done()


@on_server
async def test_a_lost_connection_fails_what_waits_on_it(server: ScriptedTube, client: TubeClient):
    producer = await client.producer(TOPIC)
    server.next_up["sendMessageP2B"].append(HANG_UP)
    with pytest.raises(ConnectionLost):
        await producer.send(Message(TOPIC, b"x"))

    assert (await producer.send(Message(TOPIC, b"again"))).topic == TOPIC


@on_server
async def test_an_exception_of_the_server_is_raised_with_its_name_and_text(
    server: ScriptedTube, client: TubeClient
):
    producer = await client.producer(TOPIC)
    for status in (1, 2):
        server.next_up["sendMessageP2B"].append(
            lambda peer, serial, _, status=status: peer.raw(
                encode_failure(serial, status, "java.lang.Exception", "no")
            )
        )
        with pytest.raises(RemoteFailure) as failed:
            await producer.send(Message(TOPIC, b"x"))
        assert (failed.value.exception, failed.value.text) == ("java.lang.Exception", "no")
    assert await producer.send(Message(TOPIC, b"the connection lives"))
    assert len(server.peers) == 1


# Bytes that are no frames: the client closes, raises or reconnects (`BadFrames`).


@on_server(bad_frames=BadFrames.CLOSE)
async def test_a_bad_token_closes_the_connection_and_the_server_is_left_alone(
    server: ScriptedTube, client: TubeClient
):
    producer = await client.producer(TOPIC)
    server.next_up["sendMessageP2B"].append(GARBAGE)
    with pytest.raises(ConnectionLost, match="begins with 48545450"):
        await producer.send(Message(TOPIC, b"x"))

    assert producer.servers.is_avoided(("127.0.0.1", server.port))


@on_server(bad_frames=BadFrames.RAISE)
async def test_a_bad_token_is_raised_from_then_on(server: ScriptedTube, client: TubeClient):
    producer = await client.producer(TOPIC)
    consumer = await client.consumer(TOPIC, group="g")
    server.next_up["sendMessageP2B"].append(GARBAGE)
    for _ in range(3):
        with pytest.raises(BadFrame):
            await producer.send(Message(TOPIC, b"x"))
    with pytest.raises(BadFrame):
        await consumer.get(60)

    assert len(server.all("producerRegisterP2M")) == 1


@on_server(bad_frames=BadFrames.RECONNECT)
async def test_a_bad_token_makes_a_new_connection_at_once(server: ScriptedTube, client: TubeClient):
    async with ScriptedTube() as broker:
        server.brokers = [f"1:{broker.address}"]
        producer = await client.producer(TOPIC)
        broker.next_up["sendMessageP2B"].append(GARBAGE)
        with pytest.raises(ConnectionLost):
            await producer.send(Message(TOPIC, b"x"))
        await wait_on_loop(lambda: len(broker.peers) == 2)

        assert not producer.servers.is_avoided(("127.0.0.1", broker.port))
        assert await producer.send(Message(TOPIC, b"again"))


def _wrong_method(peer: Peer, serial: int, _request: Any) -> None:
    sent = SendMessageResponseB2P(success=True, errCode=200, errMsg="", messageId=1)
    peer.raw(encode_response(serial, 17, sent.SerializeToString()))


def _no_message(peer: Peer, serial: int, _request: Any) -> None:
    peer.raw(encode_response(serial, SEND.number, b"\xff\xff"))


def _missing_fields(peer: Peer, serial: int, _request: Any) -> None:
    peer.raw(encode_response(serial, SEND.number, b""))


@pytest.mark.parametrize("nonsense", [_wrong_method, _no_message, _missing_fields])
def test_an_answer_that_is_none_costs_the_connection(nonsense: Any):
    @on_server
    async def work(server: ScriptedTube, client: TubeClient):
        producer = await client.producer(TOPIC)
        server.next_up["sendMessageP2B"].append(nonsense)
        with pytest.raises(ConnectionLost):
            await producer.send(Message(TOPIC, b"x"))

    work()


@on_server
async def test_an_empty_frame_is_ignored(server: ScriptedTube, client: TubeClient):
    producer = await client.producer(TOPIC)
    server.peers[0].raw(bytes.fromhex("ff7ff4fe 00000001 00000000"))

    assert await producer.send(Message(TOPIC, b"x"))
    assert len(server.peers) == 1


# Who shares connections, and for how long they live.


@pytest.mark.parametrize(
    ("connections", "count"),
    [(Connections.OBJECT, 4), (Connections.CLIENT, 2), (Connections.PROCESS, 1)],
)
def test_connections_are_shared_by_process_by_client_or_not_at_all(
    connections: Connections, count: int
):
    """RPC interaction: connections by object or by process, as the application likes."""

    @on_server(connections=connections)
    async def work(server: ScriptedTube, client: TubeClient):
        options = {"connections": connections, "heartbeat_s": 30.0, "request_timeout_s": 5.0}
        async with TubeClient(server.address, **options) as other:
            for one in (client, other):
                await one.producer(TOPIC)
                await one.producer(TOPIC)
            assert len(server.peers) == count
            await other.close()
            assert (await client.producer(TOPIC)).topics

    work()


@on_server(idle_s=0.05, heartbeat_s=30)
async def test_idle_connections_are_reclaimed_and_made_again(
    server: ScriptedTube, client: TubeClient
):
    """TubeMQ protocol, producer, fourth note: connections without messages are given back."""
    async with ScriptedTube() as broker:
        server.brokers = [f"1:{broker.address}"]
        producer = await client.producer(TOPIC)
        await broker.saw("GONE")

        assert await producer.send(Message(TOPIC, b"x"))


@on_server
async def test_brokers_are_connected_to_when_their_topics_are_known(
    server: ScriptedTube, client: TubeClient
):
    """TubeMQ protocol, producer, third note: before a burst of messages needs the connections."""
    async with ScriptedTube() as one, ScriptedTube() as two:
        server.brokers = [f"1:{one.address}", f"2:{two.address}"]
        await client.producer(TOPIC)
        await wait_on_loop(lambda: one.peers and two.peers)

        assert not one.all("sendMessageP2B")


@on_server
async def test_closed_producers_are_pruned(server: ScriptedTube, client: TubeClient):
    for _ in range(PRUNE_AT + 2):
        await (await client.producer()).close()

    assert len(client._made) <= 2


@on_server
async def test_a_closed_client_makes_nothing(server: ScriptedTube, client: TubeClient):
    producer = await client.producer(TOPIC)
    await client.close()
    await client.close()

    with pytest.raises(ClosedError) as closed:
        await client.producer(TOPIC)
    assert closed.value.err_code == 420
    with pytest.raises(ClosedError):
        await producer.send(Message(TOPIC, b"x"))


def test_unreachable_master_raises_connection_lost_after_the_timeout():
    async def work() -> None:
        async with ScriptedTube() as server:
            address = server.address
        async with TubeClient(address, register_timeout_s=0.05) as client:
            with pytest.raises(ConnectionLost):
                await client.producer(TOPIC)

    run_on_idle_clock(work())


def test_masters_that_were_never_reached_are_not_waited_for():
    async def work() -> None:
        async with ScriptedTube() as server:
            address = server.address
        async with TubeClient(address, register_timeout_s=600) as client, asyncio.timeout(60):
            with pytest.raises(ServerUnreachable, match="check that the server is running"):
                await client.producer(TOPIC)

    run_on_idle_clock(work())


@pytest.mark.parametrize("text", ["", " ", "host:port", "host:0", "host:70000", "a:1,"])
def test_an_address_that_is_none_is_refused(text: str):
    with pytest.raises(ClientError):
        parse_masters(text)


def test_masters_have_a_port_of_their_own():
    assert parse_masters("a, b:1,[::1]:2") == [("a", 8715), ("b", 1), ("::1", 2)]


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (ClientOptions, {"user": "only"}),
        (ClientOptions, {"max_pending": 0}),
        (ClientOptions, {"idle_s": 0}),
        (ProducerOptions, {"max_pending": 0}),
        (ProducerOptions, {"tries": 0}),
        (ConsumerOptions, {"node_id": 1}),
        (ConsumerOptions, {"node_id": 2, "source_count": 2, "balance": Balance.CLIENT}),
        (ConsumerOptions, {"fetch_at_once": 0}),
        (ConsumerOptions, {"not_found_wait_s": -1}),
        (
            ConsumerOptions,
            {"bound": Bound(session_key="k", consumers=1), "balance": Balance.CLIENT},
        ),
        (Bound, {"session_key": "", "consumers": 1}),
    ],
)
def test_options_that_make_no_sense_are_refused(kind: Any, options: dict[str, Any]):
    with pytest.raises(ClientError):
        kind(**options)


def test_a_password_is_not_shown():
    assert "secret" not in repr(ClientOptions(user="u", password="secret"))
