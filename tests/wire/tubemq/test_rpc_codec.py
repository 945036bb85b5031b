"""The RPC codec agrees with the protobuf runtime; hostile bytes raise expected errors."""

from __future__ import annotations

from pathlib import Path
from struct import pack

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.wire.pulsar.messages import encoded, sized, varint
from tests.wire.tubemq.captures import recorded
from tests.wire.tubemq.conftest import BOTH
from tests.wire.tubemq.test_vectors import body_of
from trilogue.wire.errors import WireError
from trilogue.wire.tubemq import rpc_codec as hot
from trilogue.wire.tubemq.broker_pb2 import GetMessageResponseB2C, SendMessageResponseB2P
from trilogue.wire.tubemq.broker_pb2 import SendMessageRequestP2B as SendRequest
from trilogue.wire.tubemq.errors import UndecodableRequest
from trilogue.wire.tubemq.frame import encode_failure, encode_frame
from trilogue.wire.tubemq.rpc_pb2 import (
    RequestBody,
    RequestHeader,
    ResponseHeader,
    RpcConnHeader,
    RspExceptionBody,
    RspResponseBody,
)

ENVELOPE = (RpcConnHeader, RequestHeader, RequestBody)
SEND = SendRequest(
    clientId="c", topicName="t", partitionId=1, data=b"d", flag=0, checkSum=-1, sentAddr=1
)
INT64 = st.integers(0, 2**63 - 1)
INT31 = st.integers(0, 2**31 - 1)


def delimited(*parts: bytes) -> bytes:
    return b"".join(varint(len(part)) + part for part in parts)


def request_frame(body: bytes, serial: int = 1) -> memoryview:
    return memoryview(pack(">i", serial) + body)


def parse_by_runtime(kind, octets: bytes):
    """Return what the protobuf runtime parses, None where it raises."""
    try:
        found = kind.FromString(octets)
    except DecodeError:
        return None
    return found if found.IsInitialized() else None


@given(st.tuples(*(encoded(kind.DESCRIPTOR) for kind in ENVELOPE)), st.integers(-(2**31), -1))
def test_an_envelope_is_read_as_the_runtime_reads_it(parts, serial: int):
    for room in BOTH:
        found = room.parse_request(request_frame(delimited(*parts), serial))

        _, header, body = (
            kind.FromString(part) for kind, part in zip(ENVELOPE, parts, strict=True)
        )
        assert (serial, header.serviceType, header.protocolVer, body.method) == found[:4]
        assert found.timeout_ms == (body.timeout if body.HasField("timeout") else -1)
        assert found.body == body.request


@given(
    encoded(RpcConnHeader.DESCRIPTOR),
    encoded(ResponseHeader.DESCRIPTOR),
    encoded(RspExceptionBody.DESCRIPTOR),
    encoded(RspResponseBody.DESCRIPTOR),
)
def test_an_answer_is_read_as_the_runtime_reads_it(first, second, problem, message):
    status = ResponseHeader.FromString(second).status
    third = problem if status else message
    for room in BOTH:
        found = room.parse_response(request_frame(delimited(first, second, third), 3))

        assert (found.serial, found.status) == (3, status)
        if status:
            result = RspExceptionBody.FromString(third)
            assert (found.exception, found.text) == (result.exceptionName, result.stackTrace)
        else:
            response = RspResponseBody.FromString(third)
            assert (found.method, found.body) == (response.method, response.data)


@given(encoded(SendRequest.DESCRIPTOR))
def test_a_send_is_read_as_the_runtime_reads_it(octets: bytes):
    expected = parse_by_runtime(SendRequest, octets)
    for room in BOTH:
        try:
            send = room.parse_send(memoryview(octets), 4)
        except UndecodableRequest as problem:
            refused = problem
            assert refused.serial == 4
            assert expected is None or "twice" in refused.text
            continue
        assert expected is not None
        assert send[:7] == (
            expected.clientId, expected.topicName, expected.partitionId, expected.data,
            expected.flag, expected.checkSum, expected.sentAddr,
        )  # fmt: skip
        kind, time = expected.msgType, expected.msgTime
        assert send.message_type == (kind if expected.HasField("msgType") else None)
        assert send.message_time == (time if expected.HasField("msgTime") else None)
        token = expected.authInfo.visitAuthorizedToken if expected.HasField("authInfo") else None
        assert send.visit_token == token
        auth = expected.authInfo.authAuthorizedToken
        assert (send.auth_token or "") == auth


@pytest.mark.parametrize("name", [field.name for field in SendRequest.DESCRIPTOR.fields[:7]])
def test_a_send_without_what_it_must_have_is_refused(room, name: str):
    short = SendRequest.FromString(SEND.SerializeToString())
    short.ClearField(name)

    with pytest.raises(UndecodableRequest):
        room.parse_send(memoryview(short.SerializePartialToString()))


@given(INT31, INT64, INT64, INT64)
def test_the_answer_to_a_send_is_what_the_runtime_writes(serial, message_id, append_ms, offset):
    response = SendMessageResponseB2P(
        success=True, errCode=200, errMsg=str(message_id), requireAuth=False,
        messageId=message_id, appendTime=append_ms, appendOffset=offset,
    )  # fmt: skip
    for room in BOTH:
        assert enveloped(serial, 13, response) == room.encode_send_response(
            serial, message_id, append_ms, offset
        )


def enveloped(serial: int, method: int, message) -> bytearray:
    body = RspResponseBody(method=method, data=message.SerializeToString())
    parts = (RpcConnHeader(flag=1), ResponseHeader(status=0, protocolVer=3), body)
    return encode_frame(serial, delimited(*(part.SerializeToString() for part in parts)))


transfers = st.lists(
    st.tuples(INT64, INT31, st.binary(max_size=9000) | INT31.map(lambda n: bytes(n % 20_000)),
              st.integers(0, 1)),
    max_size=6,
)  # fmt: skip


@given(transfers, INT31, INT64, INT64, INT64, st.booleans(), st.booleans())
@settings(max_examples=60)
def test_messages_are_handed_out_as_the_runtime_writes_them(  # noqa: PLR0917
    messages, serial, offset, lag, end, slow, escape
):
    response = GetMessageResponseB2C(
        success=True, errCode=200, errMsg="OK!", currOffset=offset, minLimitTime=0,
        escFlowCtrl=escape, currDataDlt=lag, requireSlow=slow, maxOffset=end,
    )  # fmt: skip
    for message_id, checksum, data, flag in messages:
        response.messages.add(messageId=message_id, checkSum=checksum, payLoadData=data, flag=flag)
    for room in BOTH:
        written = room.encode_get_response(serial, messages, offset, lag, end, slow, escape)
        assert enveloped(serial, 17, response) == written
        views = [(a, b, memoryview(data), flag) for a, b, data, flag in messages]
        assert written == room.encode_get_response(serial, views, offset, lag, end, slow, escape)


@given(st.binary(max_size=20_000), INT31)
def test_a_body_is_split_into_blocks_of_8192_bytes(body: bytes, serial: int):
    blocks = [body[at : at + 8192] for at in range(0, len(body), 8192)]
    expected = pack(">IiI", 0xFF7FF4FE, serial, len(blocks))
    for block in blocks:
        expected += pack(">I", len(block)) + block

    for room in BOTH:
        assert expected == room.encode_frame(serial, body)


@given(st.lists(st.binary(max_size=300), max_size=4), INT31)
def test_parts_are_enclosed_with_their_lengths(parts: list[bytes], serial: int):
    for room in BOTH:
        assert encode_frame(serial, delimited(*parts)) == room.encode_messages_frame(serial, parts)


def test_a_message_may_be_empty(room):
    response = room.parse_response(request_frame(room.encode_response(1, 2, b"")[16:]))

    assert (response.method, bytes(response.body)) == (2, b"")
    assert room.parse_request(request_frame(room.encode_request(1, 1, 2, b"", 5)[16:])).body == b""


# ---- hostile


@given(st.binary(max_size=120))
@settings(max_examples=300)
def test_any_bytes_are_a_frame_or_a_wire_error(octets: bytes):
    for room in BOTH:
        for read in (room.parse_request, room.parse_response, room.parse_send):
            try:
                read(request_frame(octets))
            except WireError:
                continue


@pytest.fixture(scope="module")
def envelopes() -> list[bytes]:
    """Return frames of every kind, joined, for damage."""
    return [bytes(body_of(each)) for each in recorded("consumer") if len(each.octets) < 4000]


@given(data=st.data())
@settings(max_examples=300)
def test_a_damaged_frame_is_a_frame_or_a_wire_error(envelopes, data: st.DataObject):
    octets = bytearray(data.draw(st.sampled_from(envelopes)))
    for _ in range(data.draw(st.integers(1, 4))):
        octets[data.draw(st.integers(4, len(octets) - 1))] = data.draw(st.integers(0, 255))
    cut = memoryview(octets)[: data.draw(st.integers(4, len(octets)))]
    outcomes = set()
    for room in BOTH:
        for read in (room.parse_request, room.parse_response):
            try:
                outcomes.add((read.__name__, repr(read(cut)[:5])))
            except WireError as problem:
                outcomes.add((read.__name__, str(problem)))

    assert len(outcomes) == 2, "the twins agree"


def test_undecodable_request_error_has_serial_and_exception(room):
    with pytest.raises(UndecodableRequest) as caught:
        room.parse_request(request_frame(b"\xff\xff\xff\xff\xff garbage", 12))

    assert caught.value.serial == 12
    assert caught.value.exception == "java.io.EOFException"


@pytest.mark.parametrize(
    "extra", [b"\x01", b"\x00\x01", bytes(8) + b"x", bytes(10), delimited(b"x")]
)
def test_bytes_after_a_request_are_refused(room, extra: bytes):
    request = room.encode_request(1, 1, 1, b"x", 10)[16:]

    read = room.parse_request(request_frame(request))
    with pytest.raises(WireError, match="bytes after"):
        room.parse_request(request_frame(request + extra))

    assert (read.method, bytes(read.body)) == (1, b"x")


@pytest.mark.parametrize("size", range(10))
def test_the_room_that_cpp_clients_leave_behind_a_request_is_passed_over(room, size: int):
    """They reserve four bytes for the length of each of three messages, and use fewer."""
    request = room.encode_request(1, 1, 1, b"x", 10)[16:]

    assert room.parse_request(request_frame(request)) == room.parse_request(
        request_frame(request + bytes(size))
    )


@pytest.mark.parametrize("extra", [b"\x00", delimited(b"")])
def test_bytes_after_a_response_are_refused(room, extra: bytes):
    response = room.encode_response(1, 1, b"x")[16:]

    room.parse_response(request_frame(response))
    with pytest.raises(WireError, match="bytes after"):
        room.parse_response(request_frame(response + extra))


def test_an_exception_has_a_name(room):
    whole = bytes(encode_failure(1, 1, "java.lang.Exception", ""))[16:]
    nameless = delimited(b"\x08\x01", b"\x08\x01", sized(2, b"text"))

    assert room.parse_response(request_frame(whole)).text == ""
    for wrong in (nameless, delimited(b"\x08\x01", b"\x08\x03", b""), delimited(b"", b"", b"")):
        with pytest.raises(WireError):
            room.parse_response(request_frame(wrong))


@pytest.mark.parametrize("method", [0, 10, 11, 12, 14, 19, 23, 99, -1, 2**31 - 1])
def test_the_number_of_a_method_that_is_none_is_still_read(room, method: int):
    request = room.encode_request(1, 1, method, b"", 10)[16:]
    assert room.parse_request(request_frame(request)).method == method


def test_compiled_modules_are_those_of_the_present_source():
    built = Path(hot.__file__)
    sources = [built.parent / f"{built.name.split('.')[0]}{kind}" for kind in (".py", ".pxd")]
    newest = max(path.stat().st_mtime for path in sources)

    assert built.suffix == ".py" or built.stat().st_mtime >= newest, "run `make native`"
