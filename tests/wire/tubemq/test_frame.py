"""Frames of blocks: any cutting of the stream and of the blocks; declared sizes are checked."""

from __future__ import annotations

import itertools
import time
import tracemalloc
from struct import pack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.pure import load_pure
from tests.wire.pulsar.messages import encoded
from tests.wire.test_frames import feed
from trilogue.wire.errors import WireError
from trilogue.wire.frames import INITIAL_CAPACITY, RETAINED_CAPACITY
from trilogue.wire.tubemq.errors import STANDBY, UndecodableRequest
from trilogue.wire.tubemq.frame import (
    BLOCK_SIZE,
    MAX_BLOCKS,
    MAX_FRAME_SIZE,
    BlockFrames,
    encode_failure,
    encode_frame,
    encode_request,
    encode_response,
    parse_message,
    parse_request,
    parse_response,
    unsupported_method,
)
from trilogue.wire.tubemq.master_pb2 import HeartRequestP2M, RegisterRequestP2M
from trilogue.wire.tubemq.methods import METHODS
from trilogue.wire.tubemq.rpc_pb2 import ResponseHeader, RpcConnHeader, RspExceptionBody

PURE = load_pure(
    "trilogue.wire.tubemq.block_frames", trilogue__wire__frames=load_pure("trilogue.wire.frames")
)
LIMIT = 1 << 20
TOKEN = 0xFF7FF4FE


def in_blocks(serial: int, blocks: list[bytes]) -> bytes:
    """Return a frame with other cuts."""
    parts = [pack(">IiI", TOKEN, serial, len(blocks))]
    for block in blocks:
        parts += (pack(">I", len(block)), block)
    return b"".join(parts)


def numbered(serial: int, body: bytes) -> bytes:
    return pack(">i", serial) + body


sizes = st.one_of(
    st.integers(0, 40),
    st.sampled_from([0, 0, 1, 8191, 8192, 8193, INITIAL_CAPACITY - 16, INITIAL_CAPACITY, 200_000]),
)


@pytest.mark.parametrize("framer", [BlockFrames, PURE.BlockFrames], ids=["installed", "pure"])
@given(
    wanted=st.lists(
        st.tuples(st.integers(-(2**31), 2**31 - 1), st.lists(sizes, max_size=6)), max_size=6
    ),
    cuts=st.lists(st.integers(1, 70_000), max_size=5),
)
def test_any_cutting_of_stream_and_blocks_gives_the_same_frames(framer, wanted, cuts: list[int]):
    frames, taken, sent, stream = framer(LIMIT), [], [], b""
    for number, (serial, blocks) in enumerate(wanted):
        pieces = [bytes([number * 7 + at & 255]) * size for at, size in enumerate(blocks)]
        if sum(blocks) <= LIMIT:
            stream += in_blocks(serial, pieces)
            sent.append(numbered(serial, b"".join(pieces)))

    for size in itertools.cycle([*cuts, 50_000]):
        taken += feed(frames, stream[:size])
        stream = stream[size:]
        if not stream:
            break

    assert taken == sent
    assert frames.pending == 0


def test_one_byte_at_a_time():
    sent = [[b""], [b"x"], [b"hello", b"", b" ", b"world"], [], [b"y" * 50] * 3]
    stream = b"".join(in_blocks(serial, blocks) for serial, blocks in enumerate(sent))
    frames = BlockFrames(LIMIT)

    taken = [found for byte in stream for found in feed(frames, bytes([byte]))]

    assert taken == [numbered(serial, b"".join(blocks)) for serial, blocks in enumerate(sent)]


@given(st.binary(max_size=30_000) | st.integers(0, 40_000).map(bytes), st.integers(0, 2**31 - 1))
def test_frame_round_trips(body: bytes, serial: int):
    written = encode_frame(serial, body)

    assert feed(BlockFrames(), bytes(written)) == [numbered(serial, body)]
    assert len(written) == 12 + 4 * -(-len(body) // BLOCK_SIZE) + len(body)


@pytest.mark.parametrize("token", [0, 0xFF7FF4FF, 0x47455420])
def test_a_wrong_token_is_refused_at_once_and_for_ever(token: int):
    frames = BlockFrames(LIMIT)

    for _ in range(2):
        with pytest.raises(WireError, match=f"begins with {token:08x}"):
            feed(frames, pack(">III", token, 1, 1))


@pytest.mark.parametrize("blocks", [-1, -(2**31), MAX_BLOCKS + 1, 100_000, 2**31 - 1])
def test_a_list_size_that_cannot_be_is_refused_at_once(blocks: int):
    for more in (b"", bytes(4)):
        with pytest.raises(WireError, match=f"{blocks} blocks"):
            feed(BlockFrames(LIMIT), pack(">Iii", TOKEN, 1, blocks) + more)


@pytest.mark.parametrize("length", [-1, -9, -(2**31), LIMIT + 1, 2**31 - 1])
@pytest.mark.parametrize("before", [[], [b"ab", b""]])
def test_a_block_length_that_cannot_be_is_refused_at_once(length: int, before: list[bytes]):
    head = bytearray(in_blocks(1, before))
    head[8:12] = pack(">I", len(before) + 2)
    frames = BlockFrames(LIMIT)

    for more in (pack(">i", length), b"x"):
        with pytest.raises(WireError, match="bytes and more"):
            feed(frames, head + more)
        head = bytearray()


def test_the_limit_is_of_all_blocks_together():
    frames = BlockFrames(100)

    assert feed(frames, in_blocks(1, [b"x" * 60, b"y" * 40])) == [
        numbered(1, b"x" * 60 + b"y" * 40)
    ]
    with pytest.raises(WireError, match="frame of 101 bytes"):
        feed(frames, in_blocks(1, [b"x" * 60, b"y" * 41]))
    assert BlockFrames().limit == MAX_FRAME_SIZE


def test_as_many_blocks_as_there_may_be():
    blocks = [b"z"] * MAX_BLOCKS

    assert feed(BlockFrames(), in_blocks(1, blocks)) == [numbered(1, b"z" * MAX_BLOCKS)]


@pytest.mark.parametrize("rest", range(1, 17))
def test_a_head_may_be_cut_where_the_buffer_ends(rest: int):
    first = in_blocks(1, [bytes(INITIAL_CAPACITY - 16 - rest)])
    second = in_blocks(2, [b"next"])
    frames = BlockFrames(LIMIT)

    taken = feed(frames, first + second[:rest]) + feed(frames, second[rest:])

    assert taken == [numbered(1, first[16:]), numbered(2, b"next")]
    assert frames.capacity == INITIAL_CAPACITY


def test_a_frame_without_blocks_is_its_serial_number_alone():
    assert feed(BlockFrames(), in_blocks(7, []) + in_blocks(8, [b"x"])) == [
        numbered(7, b""),
        numbered(8, b"x"),
    ]


def test_frames_of_one_turn_do_not_touch_each_other():
    frames, room = BlockFrames(), None
    stream = in_blocks(1, [b"a" * 9, b"b" * 9]) + in_blocks(2, [b"c"] * 30) + in_blocks(3, [b"d"])
    room = frames.get_buffer()
    room[: len(stream)] = stream
    frames.received(len(stream))

    taken = [frames.next() for _ in range(3)]

    assert [bytes(found or b"") for found in taken] == [
        numbered(1, b"a" * 9 + b"b" * 9), numbered(2, b"c" * 30), numbered(3, b"d"),
    ]  # fmt: skip
    assert frames.next() is None


# ---- what a peer costs


def test_memory_grows_with_received_bytes_and_not_with_the_declared_length():
    frames = BlockFrames(100 << 20)
    tracemalloc.start()

    feed(frames, pack(">IiII", TOKEN, 1, MAX_BLOCKS, 99 << 20) + bytes(100))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert frames.capacity == INITIAL_CAPACITY
    assert peak < 1 << 20


@pytest.mark.parametrize("block", [1 << 20, 8192, 600])
def test_capacity_stays_within_twice_what_was_received(block: int):
    frames = BlockFrames(100 << 20)
    stream = in_blocks(1, [bytes(block)] * min(MAX_BLOCKS, (2 << 20) // block))[:-1]

    for received in range(0, len(stream), 4096):
        feed(frames, stream[received : received + 4096])

        assert frames.capacity <= max(INITIAL_CAPACITY, 2 * received + 3 * 4096)


def test_an_empty_buffer_gives_back_what_a_big_frame_took_when_nothing_comes_any_more():
    frames = BlockFrames(LIMIT)
    feed(frames, bytes(encode_frame(1, bytes(LIMIT))))
    assert frames.capacity > RETAINED_CAPACITY

    frames.get_buffer()
    frames.rest()
    assert frames.capacity > RETAINED_CAPACITY, "the next one may come at once"
    frames.rest()

    assert frames.capacity == INITIAL_CAPACITY


def test_a_long_message_in_small_pieces_is_not_scanned_again():
    """Its blocks are scanned once: sixteen times the bytes take about sixteen times as long."""

    def cpu_s(blocks: int) -> float:
        stream, frames = in_blocks(1, [bytes(200)] * blocks), BlockFrames()
        begin = time.process_time()
        for at in range(0, len(stream), 50):
            piece = stream[at : at + 50]
            frames.get_buffer()[: len(piece)] = piece
            frames.received(len(piece))
            found = frames.next()
        assert found is not None
        return time.process_time() - begin

    short = min(cpu_s(MAX_BLOCKS // 16) for _ in range(3))
    long = min(cpu_s(MAX_BLOCKS) for _ in range(3))

    assert long < 16 * short * 4


# ---- what is in a frame


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
@given(data=st.data())
@settings(max_examples=10)
def test_every_request_and_answer_is_read_and_written_again(method, data: st.DataObject):
    request = parse_message(method.request, data.draw(encoded(method.request.DESCRIPTOR)))
    response = parse_message(method.response, data.draw(encoded(method.response.DESCRIPTOR)))
    octets = request.SerializeToString()
    wire = encode_request(5, method.service, method.number, octets, version=2, timeout_ms=9)

    (body,) = feed(BlockFrames(), bytes(wire))
    found = parse_request(memoryview(body))
    assert found[:5] == (5, method.service, 2, method.number, 9)
    assert parse_message(method.request, found.body) == request

    (body,) = feed(
        BlockFrames(), bytes(encode_response(-6, method.number, response.SerializeToString()))
    )
    back = parse_response(memoryview(body))
    assert (back.serial, back.status, back.method) == (-6, 0, method.number)
    assert parse_message(method.response, back.body) == response


def test_a_message_without_what_it_must_have_is_refused_in_the_real_servers_words():
    octets = HeartRequestP2M(clientId="c").SerializePartialToString()

    with pytest.raises(UndecodableRequest) as caught:
        parse_message(HeartRequestP2M, octets, 77)

    assert caught.value.serial == 77
    assert caught.value.exception == "com.google.protobuf.InvalidProtocolBufferException"
    assert caught.value.text.endswith("required fields: brokerCheckSum, hostName")


def test_a_message_inside_that_lacks_something_is_named():
    request = RegisterRequestP2M(clientId="c", brokerCheckSum=-1, hostName="h")
    request.appdConfig.maxMsgSize = 5

    with pytest.raises(UndecodableRequest, match="required fields: appdConfig"):
        parse_message(RegisterRequestP2M, request.SerializePartialToString())


def test_text_that_is_not_utf_8_is_refused():
    request = RegisterRequestP2M(clientId="c?", brokerCheckSum=-1, hostName="h")

    with pytest.raises(UndecodableRequest, match="clientId is not UTF-8"):
        parse_message(RegisterRequestP2M, request.SerializeToString().replace(b"c?", b"c\xff"))


def test_a_failure_names_the_class_as_the_client_knows_it():
    for version, package in ((1, "com.tencent"), (2, "org.apache"), (3, "org.apache.inlong")):
        (body,) = feed(BlockFrames(), bytes(encode_failure(9, 1, STANDBY, "not me", version)))
        found = parse_response(memoryview(body))
        assert found.exception == f"{package}.tubemq.corerpc.exception.StandbyException"
        assert (found.serial, found.status, found.text) == (9, 1, "not me")


@pytest.mark.parametrize("status", [1, 2])
def test_a_fatal_answer_has_no_version_and_an_error_does(status: int):
    """As with a real server (tests/vectors/tubemq)."""
    problem = unsupported_method(3, 99)

    (body,) = feed(BlockFrames(), bytes(encode_failure(3, status, problem.exception, problem.text)))

    parts, at = [], 4
    while at < len(body):
        parts.append(body[at + 1 : at + 1 + body[at]])
        at += 1 + body[at]
    header = ResponseHeader.FromString(parts[1])
    assert RpcConnHeader.FromString(parts[0]).flag == 1
    assert header.status == status
    assert header.HasField("protocolVer") == (status == 1)
    assert RspExceptionBody.FromString(parts[2]) == RspExceptionBody(
        exceptionName="java.lang.Exception",
        stackTrace="IPC server handle request error :Unsupported method ID :99",
    )
