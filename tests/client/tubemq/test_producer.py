"""What a producer does: publishing, sending, refusing, round robin, faulty brokers."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import datetime
from typing import Any

import pytest

from tests.client.harness import run_on_idle_clock
from tests.client.tubemq.scripted import (
    HANG_UP,
    SILENCE,
    TOPIC,
    Peer,
    ScriptedTube,
    on_server,
)
from tests.waiting import run_ready_tasks, wait_on_loop
from trilogue.client.errors import ClientError, ConnectionLost
from trilogue.client.tubemq import ClosedError, Message, TimedOut, TubeClient, TubeError
from trilogue.client.tubemq.message import decode_message, encode_message
from trilogue.entry.tubemq.tubemq_blob import checksum_of
from trilogue.wire.errors import WireError
from trilogue.wire.tubemq.errors import TubeCode
from trilogue.wire.tubemq.master_pb2 import ApprovedClientConfig


def partitions_of(server: ScriptedTube) -> list[int]:
    return [one.partitionId for one in server.all("sendMessageP2B")]


@on_server
async def test_topics_are_published_and_given_up_at_run_time(
    server: ScriptedTube, client: TubeClient
):
    """TubeMQ protocol, topicList: given at the beginning, more and fewer later."""
    server.topics["other"] = 1
    producer = await client.producer()
    assert await producer.publish(TOPIC, "other", "unknown") == {TOPIC, "other"}
    assert (await producer.send(Message("other", b"x"))).partition == "1:other:0"
    await producer.unpublish("other")

    with pytest.raises(TubeError) as refused:
        await producer.send(Message("other", b"x"))
    assert refused.value.err_code == TubeCode.TOPIC_NOT_PUBLISHED
    reported = [list(one.topicList) for one in server.all("producerHeartbeatP2M")]
    assert reported == [[TOPIC, "other", "unknown"], [TOPIC, "unknown"]]


@on_server(first_heartbeats_s=0.01)
async def test_a_topic_that_comes_to_be_can_be_sent_to(server: ScriptedTube, client: TubeClient):
    producer = await client.producer("later")
    with pytest.raises(TubeError) as refused:
        await producer.send(Message("later", b"x"))
    assert refused.value.err_code == TubeCode.TOPIC_WITHOUT_PARTITION
    server.topics["later"] = 1
    await wait_on_loop(lambda: producer.metadata.places("later"))

    assert (await producer.send(Message("later", b"x"))).topic == "later"


@on_server
async def test_send_request_has_the_fields_of_the_protocol(
    server: ScriptedTube, client: TubeClient
):
    """Send: data, msgType, msgTime, sentAddr; the checksum is of all the data."""
    producer = await client.producer(TOPIC)
    message = Message(TOPIC, b"body", {"k": "v"})
    message.put_system_header("typeA", "202611211200")
    sent = await producer.send(message)
    (request,) = server.all("sendMessageP2B")

    text = b"$msgType$=typeA,$msgTime$=202611211200,k=v"
    assert request.data == len(text).to_bytes(4, "big") + text + b"body"
    assert request.flag == 1
    assert request.checkSum == checksum_of(request.data)
    assert (request.msgType, request.msgTime) == ("typeA", "202611211200")
    assert request.sentAddr == 0x7F000001
    assert request.clientId == producer.client_id
    assert request.authInfo.visitAuthorizedToken == 7
    assert sent.partition == f"1:{TOPIC}:{request.partitionId}"
    assert (sent.offset, sent.append_time_ms, sent.message_id) == (0, 5, 3)


@on_server
async def test_a_message_without_attributes_is_its_body(server: ScriptedTube, client: TubeClient):
    await (await client.producer(TOPIC)).send(Message(TOPIC, b"body"))
    (request,) = server.all("sendMessageP2B")

    assert (request.data, request.flag) == (b"body", 0)
    assert not request.HasField("msgType")


@on_server
async def test_the_message_id_of_an_old_broker_is_in_its_text(
    server: ScriptedTube, client: TubeClient
):
    def old(peer: Peer, serial: int, _request: Any) -> None:
        peer.send(serial, "sendMessageP2B", errMsg="-42")

    server.next_up["sendMessageP2B"].append(old)
    sent = await (await client.producer(TOPIC)).send(Message(TOPIC, b"x"))

    assert (sent.message_id, sent.offset) == (-42, -1)


@on_server
async def test_partitions_get_messages_in_turn(server: ScriptedTube, client: TubeClient):
    """TubeMQ protocol, producing: the client chooses the partition."""
    producer = await client.producer(TOPIC)
    for _ in range(6):
        await producer.send(Message(TOPIC, b"x"))

    numbers = partitions_of(server)
    assert sorted(numbers[:3]) == sorted(numbers[3:]) == [0, 1, 2]
    assert numbers[:3] == numbers[3:]


# What the client refuses itself.


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (Message("", b"x"), 441),
        (Message(" ", b"x"), 441),
        (Message(TOPIC, b""), 442),
        (Message("other", b"x"), 443),
        (Message("unknown", b"x"), 444),
        (Message(TOPIC, b"x" * 101), 445),
        (Message(TOPIC, b"x" * 90, {"long": "attribute"}), 445),
    ],
    ids=repr,
)
def test_invalid_message_is_refused_before_it_is_sent(message: Message, code: int):
    """Error codes 440 to 445; each has its number and a text."""

    @on_server
    async def work(server: ScriptedTube, client: TubeClient):
        server.size_max = 100
        producer = await client.producer(TOPIC, "unknown")
        with pytest.raises(TubeError) as refused:
            await producer.submit(message)

        assert refused.value.err_code == code
        assert refused.value.err_msg
        assert not server.all("sendMessageP2B")

    work()


@on_server(heartbeat_s=0.02)
async def test_message_size_limit_comes_from_topic_or_master(
    server: ScriptedTube, client: TubeClient
):
    """TopicInfos' third part, else appdConfig.maxMsgSize, else 1 MiB."""
    producer = await client.producer(TOPIC)
    assert producer.message_size_max(TOPIC) == 1 << 20
    approved = ApprovedClientConfig(configId=3, maxMsgSize=2000)
    server.next_up["producerHeartbeatP2M"].append(
        lambda peer, serial, _: peer.send(
            serial, "producerHeartbeatP2M", brokerCheckSum=100, topicInfos=[f"{TOPIC}#1:3:1#"],
            appdConfig=approved,
        )
    )  # fmt: skip
    await wait_on_loop(lambda: producer.message_size_max(TOPIC) == 2000)
    server.size_max = 100
    await wait_on_loop(lambda: producer.message_size_max(TOPIC) == 100)

    assert server.all("producerHeartbeatP2M")[-1].appdConfig.configId == 3


@on_server
async def test_a_refusal_of_the_broker_is_raised(server: ScriptedTube, client: TubeClient):
    """TubeMQ protocol, errCode and errMsg."""
    producer = await client.producer(TOPIC)
    server.next_up["sendMessageP2B"].append(403)
    with pytest.raises(TubeError) as refused:
        await producer.send(Message(TOPIC, b"x"))

    assert (refused.value.err_code, refused.value.err_msg) == (403, "scripted")
    assert len(server.all("sendMessageP2B")) == 1
    assert producer.in_flight == 0


# Many at a time.


@on_server
async def test_no_more_messages_are_under_way_than_allowed(
    server: ScriptedTube, client: TubeClient
):
    kept: list[tuple[Peer, int, Any]] = []
    server.always["sendMessageP2B"] = lambda *one: kept.append(one)
    producer = await client.producer(TOPIC, max_pending=2)
    futures = [await producer.submit(Message(TOPIC, b"x")) for _ in range(2)]
    third = asyncio.ensure_future(producer.submit(Message(TOPIC, b"x")))
    await server.saw("sendMessageP2B", 2)
    await run_ready_tasks()
    assert not third.done()
    server.on_send_message_p2b(*kept[0])
    await third

    assert futures[0].done() or await futures[0]
    await server.saw("sendMessageP2B", 3)
    assert producer.in_flight == 2
    for one in kept[1:]:
        server.on_send_message_p2b(*one)
    await producer.flush()
    assert producer.in_flight == 0


@on_server
async def test_no_more_bytes_are_under_way_than_allowed(server: ScriptedTube, client: TubeClient):
    kept: list[tuple[Peer, int, Any]] = []
    server.always["sendMessageP2B"] = lambda *one: kept.append(one)
    producer = await client.producer(TOPIC, max_memory_bytes=100)
    await producer.submit(Message(TOPIC, b"x" * 500))  # one goes in any case
    second = asyncio.ensure_future(producer.submit(Message(TOPIC, b"x" * 60)))
    third = asyncio.ensure_future(producer.submit(Message(TOPIC, b"x" * 60)))
    await server.saw("sendMessageP2B")
    assert not second.done()
    server.on_send_message_p2b(*kept[0])
    await second
    await server.saw("sendMessageP2B", 2)
    assert not third.done()
    server.on_send_message_p2b(*kept[1])
    await third
    await server.saw("sendMessageP2B", 3)
    server.on_send_message_p2b(*kept[2])
    await producer.flush()

    assert producer.bytes_in_flight == 0


@on_server
async def test_cancelled_wait_for_a_pending_slot_reserves_none(
    server: ScriptedTube, client: TubeClient
):
    kept: list[tuple[Peer, int, Any]] = []
    server.always["sendMessageP2B"] = lambda *one: kept.append(one)
    producer = await client.producer(TOPIC, max_pending=1)
    await producer.submit(Message(TOPIC, b"x"))
    waiting = [asyncio.ensure_future(producer.submit(Message(TOPIC, b"x"))) for _ in range(3)]
    await server.saw("sendMessageP2B")
    server.on_send_message_p2b(*kept[0])
    waiting[0].cancel()
    await server.saw("sendMessageP2B", 2)
    server.on_send_message_p2b(*kept[1])
    await server.saw("sendMessageP2B", 3)
    server.on_send_message_p2b(*kept[2])

    assert [isinstance(one, asyncio.Future) for one in await asyncio.gather(*waiting[1:])]
    await producer.flush()


@on_server
async def test_a_thousand_messages_at_once_all_arrive(server: ScriptedTube, client: TubeClient):
    producer = await client.producer(TOPIC)
    futures = [await producer.submit(Message(TOPIC, b"%d" % one)) for one in range(1000)]
    sent = [await future for future in futures]

    assert Counter(one.partition for one in sent).keys() == {f"1:{TOPIC}:{n}" for n in range(3)}
    assert {data for found in server.stored.values() for data, _ in found} == {
        b"%d" % one for one in range(1000)
    }
    for one in range(3):
        in_order = [int(data) for data, _ in server.stored[f"1:{TOPIC}:{one}"]]
        assert in_order == sorted(in_order)


@on_server(close_timeout_s=10.0)
async def test_close_waits_for_pending_sends_and_unregisters(
    server: ScriptedTube, client: TubeClient
):
    kept: list[tuple[Peer, int, Any]] = []
    server.next_up["sendMessageP2B"].append(lambda *one: kept.append(one))
    producer = await client.producer(TOPIC)
    future = await producer.submit(Message(TOPIC, b"x"))
    closing = asyncio.ensure_future(producer.close())
    await server.saw("sendMessageP2B")
    with pytest.raises(ClosedError) as closed:
        await producer.submit(Message(TOPIC, b"x"))
    assert not server.all("producerCloseClientP2M")
    server.on_send_message_p2b(*kept[0])
    await closing

    assert future.result().topic == TOPIC
    (request,) = server.all("producerCloseClientP2M")
    assert request.clientId == producer.client_id
    assert closed.value.err_code == 420


@on_server(close_timeout_s=0.05)
async def test_unanswered_send_fails_on_close(server: ScriptedTube, client: TubeClient):
    producer = await client.producer(TOPIC)
    server.always["sendMessageP2B"] = SILENCE
    future = await producer.submit(Message(TOPIC, b"x"))
    await client.close()

    with pytest.raises(ConnectionLost):
        await future


# Faulty brokers.


def two_brokers(test: Any) -> Any:
    """Run with a master and two brokers of one partition each."""

    async def work() -> None:
        async with ScriptedTube({TOPIC: 1}) as server, ScriptedTube() as one, ScriptedTube() as two:
            server.brokers = [f"1:{one.address}", f"2:{two.address}"]
            options = {"request_timeout_s": 0.2, "avoid_s": 30.0, "close_timeout_s": 0.5}
            async with TubeClient(server.address, **options) as client:
                producer = await client.producer(TOPIC)
                await asyncio.wait_for(test(producer, one, two), 20)

    def run() -> None:
        run_on_idle_clock(work())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


async def ten(producer: Any) -> None:
    for _ in range(10):
        await producer.send(Message(TOPIC, b"x"))


@two_brokers
async def test_both_brokers_get_messages_in_turn(
    producer: Any, one: ScriptedTube, two: ScriptedTube
):
    await ten(producer)

    assert len(one.all("sendMessageP2B")) == len(two.all("sendMessageP2B")) == 5


@two_brokers
async def test_a_broker_that_is_unavailable_is_avoided_and_its_message_sent_elsewhere(
    producer: Any, one: ScriptedTube, two: ScriptedTube
):
    """503 means that the broker is to be left alone for a while."""
    one.always["sendMessageP2B"] = 503
    await ten(producer)

    assert len(one.all("sendMessageP2B")) == 1
    assert len(two.all("sendMessageP2B")) == 10


@two_brokers
async def test_a_broker_that_cannot_be_reached_is_avoided_and_its_message_sent_elsewhere(
    producer: Any, one: ScriptedTube, two: ScriptedTube
):
    """TubeMQ protocol, producer, fourth note: nothing was sent there, so nothing can come twice."""
    await wait_on_loop(lambda: one.peers)
    await one.shut()
    await one.saw("GONE")
    await ten(producer)

    assert len(two.all("sendMessageP2B")) == 10


@pytest.mark.parametrize(
    ("trouble", "error"), [(HANG_UP, ConnectionLost), (SILENCE, TimedOut)], ids=str
)
def test_a_message_that_may_be_stored_is_not_sent_twice_but_its_broker_avoided(
    trouble: str, error: type[ClientError]
):
    @two_brokers
    async def work(producer: Any, one: ScriptedTube, two: ScriptedTube):
        one.always["sendMessageP2B"] = trouble
        failed = 0
        for _ in range(10):
            try:
                await producer.send(Message(TOPIC, b"x"))
            except error:
                failed += 1

        assert (failed, len(one.all("sendMessageP2B"))) == (1, 1)
        assert len(two.all("sendMessageP2B")) == 9

    work()


@two_brokers
async def test_where_all_brokers_are_faulty_they_are_tried_even_so(
    producer: Any, one: ScriptedTube, two: ScriptedTube
):
    one.next_up["sendMessageP2B"].append(503)
    two.next_up["sendMessageP2B"].append(503)
    await ten(producer)

    assert len(one.all("sendMessageP2B")) + len(two.all("sendMessageP2B")) == 12


@two_brokers
async def test_a_message_is_refused_when_no_broker_takes_it(
    producer: Any, one: ScriptedTube, two: ScriptedTube
):
    one.always["sendMessageP2B"] = two.always["sendMessageP2B"] = 503
    with pytest.raises(TubeError) as refused:
        await producer.send(Message(TOPIC, b"x"))

    assert refused.value.error is TubeCode.SERVICE_UNAVAILABLE
    assert len(one.all("sendMessageP2B")) + len(two.all("sendMessageP2B")) == 3


@on_server(avoid_s=0.0)
async def test_a_broker_is_tried_again_after_a_while(server: ScriptedTube, client: TubeClient):
    server.next_up["sendMessageP2B"].append(503)
    producer = await client.producer(TOPIC)
    await producer.send(Message(TOPIC, b"x"))

    assert not producer.servers.is_avoided(("127.0.0.1", server.port))


@on_server(heartbeat_s=0.02)
async def test_a_master_that_names_too_many_partitions_is_not_believed(
    server: ScriptedTube, client: TubeClient
):
    producer = await client.producer(TOPIC)
    with pytest.raises(WireError, match="more than"):
        producer.metadata.take_topics([f"{TOPIC}#1:99999999:99999999#"])


# Messages themselves.


def test_the_system_header_is_type_and_time():
    """TubeMQ protocol, msgTime: what put_system_header was given."""
    message = Message(TOPIC, b"x", {"a": "b"})
    message.put_system_header(" typeA ", datetime(2026, 11, 21, 12, 0))  # noqa: DTZ001

    assert (message.type, message.time) == ("typeA", "202611211200")
    assert message.attribute_text() == "$msgType$=typeA,$msgTime$=202611211200,a=b"
    message.put_system_header("b")
    assert message.time is not None
    assert len(message.time) == 12


@pytest.mark.parametrize(
    ("type_", "time"),
    [
        ("a,b", "202611211200"),
        ("a=b", "202611211200"),
        ("", "202611211200"),
        ("a", "20261121120"),
        ("a", "2026112112000"),
        ("a", "202613211200"),
        ("a", "not a time!!"),
        ("a", 202611211200),
    ],
)
def test_a_system_header_that_is_none_is_refused(type_: str, time: Any):
    with pytest.raises(ClientError):
        Message(TOPIC, b"x").put_system_header(type_, time)


@pytest.mark.parametrize("attributes", [{"a=": "b"}, {"a": "b,c"}, {"a": "b=c"}, {"": "b"}])
def test_attributes_that_could_not_be_read_back_are_refused(attributes: dict[str, str]):
    with pytest.raises(ClientError):
        encode_message(Message(TOPIC, b"x", attributes), 100)


def test_a_message_is_read_as_it_was_written():
    message = Message(TOPIC, b"\x00body", {"k": "ü", "l": ""})
    message.put_system_header("t", "202611211200")
    data, flag, checksum = encode_message(message, 1000)
    again = decode_message(TOPIC, 5, checksum, data, flag)

    assert again is not None
    assert (again.body, again.attributes, again.message_id) == (
        b"\x00body", {"$msgType$": "t", "$msgTime$": "202611211200", "k": "ü", "l": ""}, 5,
    )  # fmt: skip
    assert repr(again).startswith("Message(demo, 5 bytes")


@pytest.mark.parametrize(
    ("data", "flag", "checksum"),
    [
        (b"changed", 0, 1),
        (b"\x00\x00", 1, checksum_of(b"\x00\x00")),
        (b"\x7f\xff\xff\xffabc", 1, checksum_of(b"\x7f\xff\xff\xffabc")),
    ],
)
def test_invalid_message_decodes_to_none(data: bytes, flag: int, checksum: int):
    assert decode_message(TOPIC, 1, checksum, data, flag) is None
