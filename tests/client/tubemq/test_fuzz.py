"""Random bytes: they are answers, messages, or the end of one connection."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.client.harness import run_on_idle_clock
from tests.client.tubemq.scripted import TOPIC, ScriptedTube, transfer
from trilogue.client.errors import ClientError
from trilogue.client.tubemq import Message, TubeClient
from trilogue.client.tubemq.broker_metadata import BrokerMetadata
from trilogue.client.tubemq.connection import PendingRequest, TubeConnection
from trilogue.client.tubemq.message import decode_message, encode_message
from trilogue.client.tubemq.options import ClientOptions
from trilogue.entry.tubemq.tubemq_blob import checksum_of
from trilogue.wire.errors import WireError
from trilogue.wire.tubemq import broker_pb2, master_pb2
from trilogue.wire.tubemq.frame import encode_failure, encode_response
from trilogue.wire.tubemq.methods import BY_NAME, METHODS

QUICK = settings(max_examples=200, derandomize=True, deadline=None, database=None)
FEW = settings(max_examples=25, derandomize=True, deadline=None, database=None)
GET = BY_NAME["getMessagesC2B"]
BEAT = BY_NAME["producerHeartbeatP2M"]
ANSWERS = [
    encode_response(
        1, GET.number,
        broker_pb2.GetMessageResponseB2C(
            success=True, errCode=200, messages=[transfer(b"x" * 20)], currOffset=1
        ).SerializeToString(),
    ),
    encode_response(
        1, BEAT.number,
        master_pb2.HeartResponseM2P(
            success=True, errCode=200, errMsg="", brokerCheckSum=1, topicInfos=["demo#1:3:1#9"],
            brokerInfos=["1:127.0.0.1:8123"],
        ).SerializeToString(),
    ),
    encode_failure(1, 1, "java.lang.Exception", "text"),
    encode_failure(1, 2, "java.lang.Exception", "text"),
]  # fmt: skip
TEXTS = ["1:127.0.0.1:8123", "demo#1:3:1,2:3:1#1048576", "demo#1:3:1#", "demo#1:1:3:1"]


def changed(draw: st.DrawFn, octets: bytes | bytearray) -> bytearray:
    out = bytearray(octets)
    for _ in range(draw(st.integers(1, 4))):
        out[draw(st.integers(0, len(out) - 1))] = draw(st.integers(0, 255))
    return out[: draw(st.integers(1, len(out)))] + draw(st.binary(max_size=4))


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    """What BlockFrames hands out: a serial number, and something that was an answer once."""
    if draw(st.booleans()):
        whole = draw(st.sampled_from(ANSWERS))
        return (1).to_bytes(4, "big") + bytes(changed(draw, whole[16:]))
    number = draw(st.sampled_from([method.number for method in METHODS]))
    return (1).to_bytes(4, "big") + bytes(
        encode_response(1, number, draw(st.binary(max_size=30)))[16:]
    )


@QUICK
@given(frames(), st.sampled_from([GET, BEAT]))
def test_a_frame_is_taken_or_ends_the_connection(frame: bytes, method: Any):
    async def work() -> None:
        connection = TubeConnection(("h", 1), ClientOptions(), lambda *_: None)
        got: list[Any] = []
        connection._pending[1] = pending(method, got)
        with contextlib.suppress(WireError):
            connection._on_frame(memoryview(frame))
        assert len(got) <= 1
        assert bool(got) == (1 not in connection._pending)

    asyncio.run(work())


def pending(method: Any, got: list[Any]) -> Any:
    return PendingRequest(method, lambda *one: got.append(one), 0.0, 1.0)


@st.composite
def stored(draw: st.DrawFn) -> tuple[bytes, int, int]:
    message = Message(TOPIC, b"body" * 5, {"a": "b"})
    message.put_system_header("t", "202611211200")
    data, flag, checksum = encode_message(message, 1000)
    out = bytes(changed(draw, data))
    return (
        out,
        draw(st.sampled_from([flag, 0, 3, -1])),
        draw(st.sampled_from([checksum, checksum_of(out)])),
    )


@QUICK
@given(stored())
def test_a_damaged_message_is_one_or_none(one: tuple[bytes, int, int]):
    data, flag, checksum = one
    found = decode_message(TOPIC, 1, checksum, data, flag)

    assert found is None or len(found.body) <= len(data)


@QUICK
@given(st.lists(st.text(max_size=30) | st.sampled_from(TEXTS), max_size=3), st.booleans())
def test_metadata_is_sensible_or_refused(texts: list[str], topics: bool):
    known = BrokerMetadata()
    known.take_brokers(1, ["1:127.0.0.1:8123", "2:h:1"])
    with contextlib.suppress(WireError):
        if topics:
            known.take_topics(texts)
        else:
            known.take_brokers(2, texts)

    assert all(port < 1 << 16 for _, port in known.addresses())


@st.composite
def rubbish(draw: st.DrawFn) -> bytes:
    """Something on the wire where an answer to a send belongs."""
    if draw(st.booleans()):
        return draw(st.binary(min_size=1, max_size=60))
    return bytes(changed(draw, draw(st.sampled_from(ANSWERS))))


@FEW
@given(rubbish())
def test_whatever_a_server_sends_the_client_ends_in_order(octets: bytes):
    async def work() -> None:
        options = {"request_timeout_s": 0.05, "close_timeout_s": 0.2, "register_timeout_s": 1.0}
        async with ScriptedTube() as server, TubeClient(server.address, **options) as client:
            producer = await client.producer(TOPIC)
            server.next_up["sendMessageP2B"].append(lambda peer, *_: peer.raw(octets))
            with contextlib.suppress(ClientError):
                await producer.send(Message(TOPIC, b"x"))
            assert producer.in_flight == 0

    run_on_idle_clock(asyncio.wait_for(work(), 10))
