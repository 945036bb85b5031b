"""Every recorded frame is parsed to its last byte and encoded to the same bytes."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.wire.tubemq.captures import NAMES, Recorded, recorded
from trilogue.wire.tubemq import rpc_codec as hot
from trilogue.wire.tubemq.frame import (
    BlockFrames,
    encode_failure,
    encode_request,
    parse_message,
    parse_request,
)
from trilogue.wire.tubemq.methods import METHODS, find_method

EVERY = [(name, frame) for name in NAMES for frame in recorded(name)]


def body_of(frame: Recorded) -> memoryview:
    """Cut the one frame out of its bytes."""
    frames = BlockFrames()
    left = memoryview(frame.octets)
    while left:  # the buffer grows as it fills
        room = frames.get_buffer()
        size = min(len(room), len(left))
        room[:size] = left[:size]
        left = left[size:]
        frames.received(size)
        cut = frames.next()
    assert cut is not None
    assert frames.pending == 0
    return cut


def left_behind(frame: Recorded) -> bytes:
    """Return the zeros behind a request: C++ clients reserve four bytes for three short lengths."""
    cut = body_of(frame)
    request = parse_request(cut)
    head = (request.serial, request.service, request.method, bytes(request.body))
    plain = encode_request(*head, version=request.version, timeout_ms=request.timeout_ms)
    return bytes(len(cut) - len(body_of(frame._replace(octets=bytes(plain)))))


def again(room, frame: Recorded) -> bytes:
    """Parse a frame and its message, and encode both again."""
    cut = body_of(frame)
    if frame.is_request:
        request = room.parse_request(cut)
        method = find_method(request.method)
        message = b""  # C++ producers close with a request that names no method
        if method is not None:
            message = parse_message(method.request, request.body).SerializeToString()
        assert message == request.body
        head = (request.serial, request.service, request.method, message, request.timeout_ms)
        written = room.encode_request(*head, request.version)
        written[18] = cut[6]  # the flag of the first header, which has no effect
        if left := left_behind(frame):
            whole = bytes(body_of(frame._replace(octets=bytes(written)))[4:])
            written = room.encode_frame(request.serial, whole + left)
        return bytes(written)
    answer = room.parse_response(cut)
    if answer.status:
        return bytes(encode_failure(answer.serial, answer.status, answer.exception, answer.text))
    method = find_method(answer.method)
    assert method is not None
    message = parse_message(method.response, answer.body).SerializeToString()
    assert message == answer.body
    return bytes(room.encode_response(answer.serial, answer.method, message))


@pytest.mark.parametrize("name", NAMES)
def test_every_recorded_frame_is_read_whole_and_written_again_the_same(room, name: str):
    for frame in recorded(name):
        assert frame.octets == again(room, frame)


def test_the_recordings_are_all_there():
    counts = {"balance": 56, "consumer": 36, "cpp-client": 114, "go-client": 86, "producer": 18}

    assert Counter(name for name, _ in EVERY) == {**counts, "rebalance-master": 58}


def test_only_the_cpp_client_leaves_room_behind_its_requests():
    left = {(name, len(left_behind(frame))) for name, frame in EVERY if frame.is_request}

    assert {size for name, size in left if name != "cpp-client"} == {0}
    assert {size for name, size in left if name == "cpp-client"} == {8, 9}


def test_frequent_responses_are_encoded_as_by_the_real_broker(room):
    sends = gets = 0
    for _, frame in EVERY:
        if frame.is_request:
            continue
        answer = room.parse_response(body_of(frame))
        if answer.status or answer.method not in {13, 17}:
            continue
        found = parse_message(find_method(answer.method).response, answer.body)
        if not found.success:
            continue
        if answer.method == 13:
            sends += 1
            numbers = (found.messageId, found.appendTime, found.appendOffset)
            assert frame.octets == room.encode_send_response(answer.serial, *numbers)
        else:
            gets += 1
            messages = [(m.messageId, m.checkSum, m.payLoadData, m.flag) for m in found.messages]
            numbers = (found.currOffset, found.currDataDlt, found.maxOffset, found.requireSlow)
            assert frame.octets == room.encode_get_response(answer.serial, messages, *numbers)

    assert (sends, gets) == (22, 33)


def test_recorded_sends_are_read_as_the_runtime_reads_them(room):
    for _, frame in EVERY:
        if not frame.is_request:
            continue
        request = room.parse_request(body_of(frame))
        if request.method != 13:
            continue
        send, found = (
            room.parse_send(request.body),
            parse_message(find_method(13).request, request.body),
        )
        assert send.data == found.data
        assert (send.client_id, send.topic, send.partition_id, send.flag, send.checksum) == (
            found.clientId, found.topicName, found.partitionId, found.flag, found.checkSum,
        )  # fmt: skip
        assert (send.message_type or "", send.message_time or "") == (found.msgType, found.msgTime)
        assert (send.visit_token or 0) == found.authInfo.visitAuthorizedToken


def test_the_recordings_use_every_method_that_clients_have():
    requests = (hot.parse_request(body_of(frame)) for _, frame in EVERY if frame.is_request)

    assert {7, 8, 9} == {method.number for method in METHODS} - {
        requested.method for requested in requests
    }
