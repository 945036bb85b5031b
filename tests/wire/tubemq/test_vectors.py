"""Every recorded frame is read to its last byte and written again the same."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.wire.tubemq.captures import NAMES, Recorded, recorded
from trilogue.wire.tubemq import hot
from trilogue.wire.tubemq.frame import (
    BlockFrames,
    failure,
    parse_request,
    read_message,
    request,
)
from trilogue.wire.tubemq.methods import METHODS, find

EVERY = [(name, frame) for name in NAMES for frame in recorded(name)]


def body_of(frame: Recorded) -> memoryview:
    """Cut the one frame that the bytes are."""
    frames = BlockFrames()
    frames.get_buffer()[: len(frame.octets)] = frame.octets
    frames.received(len(frame.octets))
    cut = frames.next()
    assert cut is not None
    assert frames.pending == 0
    return cut


def left_behind(frame: Recorded) -> bytes:
    """The zeros behind a request: C++ clients count four bytes for each of three short lengths."""
    cut = body_of(frame)
    asked = parse_request(cut)
    head = (asked.serial, asked.service, asked.method, bytes(asked.body))
    plain = request(*head, version=asked.version, timeout_ms=asked.timeout_ms)
    return bytes(len(cut) - len(body_of(frame._replace(octets=bytes(plain)))))


def again(room, frame: Recorded) -> bytes:
    """Read a frame, its inner message included, and write what was read."""
    cut = body_of(frame)
    if frame.is_request:
        asked = room.parse_request(cut)
        method = find(asked.method)
        message = b""  # of the one that C++ producers close with, which names no method
        if method is not None:
            message = read_message(method.request, asked.body).SerializeToString()
        assert message == asked.body
        head = (asked.serial, asked.service, asked.version, asked.method)
        written = room.ask(*head, asked.timeout_ms, message)
        written[18] = cut[6]  # the flag of the first header, which nobody looks at
        if left := left_behind(frame):
            whole = bytes(body_of(frame._replace(octets=bytes(written)))[4:])
            written = room.split(asked.serial, whole + left)
        return bytes(written)
    answer = room.parse_answer(cut)
    if answer.status:
        return bytes(failure(answer.serial, answer.status, answer.exception, answer.text))
    method = find(answer.method)
    assert method is not None
    message = read_message(method.response, answer.body).SerializeToString()
    assert message == answer.body
    return bytes(room.answer(answer.serial, answer.method, message))


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


def test_what_passes_once_per_message_is_written_as_the_real_broker_does(room):
    sends = gets = 0
    for _, frame in EVERY:
        if frame.is_request:
            continue
        answer = room.parse_answer(body_of(frame))
        if answer.status or answer.method not in {13, 17}:
            continue
        found = read_message(find(answer.method).response, answer.body)
        if not found.success:
            continue
        if answer.method == 13:
            sends += 1
            numbers = (found.messageId, found.appendTime, found.appendOffset)
            assert frame.octets == room.send_answer(answer.serial, *numbers)
        else:
            gets += 1
            messages = [(m.messageId, m.checkSum, m.payLoadData, m.flag) for m in found.messages]
            numbers = (found.currOffset, found.currDataDlt, found.maxOffset, found.requireSlow)
            assert frame.octets == room.messages_answer(answer.serial, messages, *numbers)

    assert (sends, gets) == (22, 33)


def test_recorded_sends_are_read_as_the_runtime_reads_them(room):
    for _, frame in EVERY:
        if not frame.is_request:
            continue
        asked = room.parse_request(body_of(frame))
        if asked.method != 13:
            continue
        send, found = room.read_send(asked.body), read_message(find(13).request, asked.body)
        assert send.data == found.data
        assert (send.client_id, send.topic, send.partition_id, send.flag, send.checksum) == (
            found.clientId, found.topicName, found.partitionId, found.flag, found.checkSum,
        )  # fmt: skip
        assert (send.message_type or "", send.message_time or "") == (found.msgType, found.msgTime)
        assert (send.visit_token or 0) == found.authInfo.visitAuthorizedToken


def test_the_recordings_use_every_method_that_clients_have():
    requests = (hot.parse_request(body_of(frame)) for _, frame in EVERY if frame.is_request)

    assert {7, 8, 9} == {method.number for method in METHODS} - {asked.method for asked in requests}
