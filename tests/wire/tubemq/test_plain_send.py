"""`PlainSend` reads the sends of real clients, as the parsers of any form do."""

from __future__ import annotations

import pytest

from tests.pure import load_pure
from tests.wire.tubemq.captures import NAMES, recorded
from tests.wire.tubemq.test_vectors import body_of
from trilogue.wire.tubemq import plain_send
from trilogue.wire.tubemq.broker_pb2 import SendMessageRequestP2B
from trilogue.wire.tubemq.errors import UndecodableRequest
from trilogue.wire.tubemq.frame import encode_request
from trilogue.wire.tubemq.rpc_codec import parse_request, parse_send

SEND = 13
BOTH = [plain_send, load_pure("trilogue.wire.tubemq.plain_send")]
FIELDS = {"clientId": "c-1", "topicName": "demo", "partitionId": 2, "data": b"hello", "flag": 0,
          "checkSum": -1, "sentAddr": -1073741310}  # fmt: skip


def frame_of(**fields: object) -> memoryview:
    """Return a send as `BlockFrames` does."""
    message = SendMessageRequestP2B(**{**FIELDS, **fields}).SerializePartialToString()
    return request(SEND, message)


def request(method: int, message: bytes) -> memoryview:
    """Return a request of one block, without its head."""
    octets = bytes(encode_request(7, 4, method, message, timeout_ms=10_000))
    return memoryview(octets[4:8] + octets[16:])


def read_slowly(frame: memoryview) -> tuple[object, ...] | None:
    """Return what the parsers of any form find; None where they refuse the frame."""
    try:
        request = parse_request(frame)
        sent = parse_send(request.body, request.serial)
    except UndecodableRequest:
        return None
    assert request.method == SEND
    return (request.serial, request.service, sent.partition_id, bytes(sent.data), sent.flag,
            sent.checksum, sent.sent_addr, sent.message_type, sent.message_time)  # fmt: skip


def read_quickly(module, frame: memoryview) -> tuple[object, ...] | None:
    sent = module.PlainSend()
    if not sent.read(frame):
        return None
    assert sent.size == len(sent.data)
    return (sent.serial, sent.service, sent.partition_id, bytes(sent.data), sent.flag,
            sent.checksum, sent.address, sent.message_type, sent.message_time)  # fmt: skip


@pytest.mark.parametrize("module", BOTH, ids=["installed", "uncompiled"])
def test_sends_of_recorded_clients_are_plain(module) -> None:
    found = 0
    for name in NAMES:
        for each in recorded(name):
            if each.to != "broker" or not each.is_request:
                continue
            frame = body_of(each)
            if parse_request(frame).method != SEND:
                assert read_quickly(module, frame) is None
                continue
            quick = read_quickly(module, frame)
            if quick is not None:
                found += 1
                assert quick == read_slowly(frame)
    assert found


@pytest.mark.parametrize("module", BOTH, ids=["installed", "uncompiled"])
def test_a_changed_or_cut_send_is_read_alike_or_left(module) -> None:
    token = {"visitAuthorizedToken": 123_456_789}
    frames = [
        frame_of(),
        frame_of(msgType="kind", msgTime="202611290000"),
        frame_of(authInfo=token),
        frame_of(msgType="kind", msgTime="202611290000", authInfo=token),
    ]
    for frame in frames:
        assert read_quickly(module, frame) == read_slowly(frame)
        names = module.PlainSend()
        assert names.read(frame)
        assert names.names == b"\x0a\x03c-1\x12\x04demo"
        for at in range(4, len(frame)):
            assert read_quickly(module, frame[:at]) is None
            for change in (1, 0x80, 0xFF):
                octets = bytearray(frame)
                octets[at] ^= change
                quick = read_quickly(module, memoryview(octets))
                if quick is not None and octets.find(b"\x0a\x03c-1\x12\x04demo") >= 0:
                    assert quick == read_slowly(memoryview(octets)), (at, change)


@pytest.mark.parametrize("module", BOTH, ids=["installed", "uncompiled"])
def test_a_send_that_is_not_plain_is_left(module) -> None:
    """A login, a type without a time, a missing field, bytes behind the request."""
    login = {"visitAuthorizedToken": 1, "authAuthorizedToken": "token"}
    missing = SendMessageRequestP2B(**{k: v for k, v in FIELDS.items() if k != "flag"})
    frames = [
        frame_of(authInfo=login),
        frame_of(msgType="kind"),
        memoryview(bytes(frame_of()) + b"\0"),
        request(SEND, missing.SerializePartialToString()),
        request(14, SendMessageRequestP2B(**FIELDS).SerializeToString()),
    ]
    for frame in frames:
        assert read_quickly(module, frame) is None
