"""Recorded requests with other values in their fields, or damaged bytes, sent to a real server.

Each gets a response or a closed connection, and affects no other client: no request of a client may
lead to an internal error, which would be a line of its own in the log.
"""

from __future__ import annotations

import random

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from tests.conformance.tubemq.test_replay import Line, make_topics
from tests.server import Server, start_server
from tests.wire.tubemq.captures import NAMES, recorded
from tests.wire.tubemq.test_vectors import body_of
from trilogue.wire.tubemq.frame import encode_request, parse_message, parse_request
from trilogue.wire.tubemq.methods import BY_NAME, find_method

COUNT = 1_000
PATIENCE_S = 60  # each of these requests gets a response or a closed connection at once
INT32 = [0, 1, -1, 2, -2, 9, 10, 28, 31, 32, 33, 99, 112, 2**31 - 1, -(2**31)]
INT64 = [*INT32, 2**63 - 1, -(2**63)]
TEXTS = [
    "", " ", "x", "demo", "func", "#", "\0", "é" * 50, "a" * 2_000, "9" * 30, "%s%n", "../x",
    "demo#", "demo#typeA,typeB", "demo#1:0", "1:demo:0=5", "1:demo:0=-5", "202611211200",
    "1:127.0.0.1:1#demo:0", "1:127.0.0.1:1#demo:99999", "c@g#1:h:1#demo:0", "a/b/c/d",
    "public/default/demo", "demo-partition-1",
]  # fmt: skip
OCTETS = [b"", b"x", bytes(5), b"\x7f\xff\xff\xff", b"\0\0\0\3a=bbody", bytes(3_000)]
VALUES = {
    FieldDescriptor.TYPE_STRING: TEXTS,
    FieldDescriptor.TYPE_BYTES: OCTETS,
    FieldDescriptor.TYPE_INT32: INT32,
    FieldDescriptor.TYPE_INT64: INT64,
    FieldDescriptor.TYPE_BOOL: [False, True],
}
REQUESTS = [
    frame
    for name in NAMES
    for frame in recorded(name)
    if frame.is_request and frame.octets[8:12] == b"\0\0\0\1"
    if find_method(parse_request(body_of(frame)).method) is not None  # C++ names an unknown one
]


def change(message: Message, chance: random.Random) -> None:
    """Give some of the fields other values."""
    for field in message.DESCRIPTOR.fields:
        if chance.random() > 0.3:
            continue
        if field.message_type is not None:
            if not field.is_repeated:
                inner = getattr(message, field.name)
                inner.SetInParent()
                change(inner, chance)
        elif field.is_repeated:
            values = getattr(message, field.name)
            if chance.random() < 0.3:
                del values[:]
            values.extend(chance.choices(VALUES[field.type], k=chance.choice([1, 2, 5])))
        elif not field.is_required and chance.random() < 0.2:
            message.ClearField(field.name)
        else:
            setattr(message, field.name, chance.choice(VALUES[field.type]))


def changed(number: int, chance: random.Random, changes: float) -> tuple[str, bytes]:
    """One request, and whom it is for."""
    frame = REQUESTS[number % len(REQUESTS)]
    request = parse_request(body_of(frame))
    method = find_method(request.method)
    assert method is not None
    message = parse_message(method.request, request.body)
    if chance.random() < changes:
        change(message, chance)
    octets = encode_request(
        number, request.service, request.method, message.SerializePartialToString(),
        version=chance.choice([1, 2, 3]), timeout_ms=10_000,
    )  # fmt: skip
    if chance.random() < 0.05:
        octets[chance.randrange(16, len(octets))] = chance.randrange(256)
    return frame.to, bytes(octets)


@pytest.fixture
def server(tmp_path):
    with start_server(tmp_path / "data", settings={"tubemq.hold": "0"}) as running:
        make_topics(running, ["demo", "func", "func2"])
        yield running


@pytest.mark.parametrize(("seed", "changes"), [(1, 0.8), (2, 0.2)])
def test_damaged_frames_cause_no_server_error(server: Server, seed, changes: float):
    chance = random.Random(seed)
    lines: dict[tuple[str, int], Line] = {}
    answered = 0
    for number in range(COUNT):
        to, octets = changed(number, chance, changes)
        key = (to, chance.randrange(3))
        if key not in lines:
            lines[key] = Line(server.doors[f"tubemq-{to}"])
            lines[key].socket.settimeout(PATIENCE_S)
        try:
            lines[key].socket.sendall(octets)
            lines[key].answer(number)
        except (TimeoutError, ConnectionError, AssertionError):
            lines.pop(key).socket.close()  # a damaged number may close the connection
        else:
            answered += 1

    assert answered > 0.95 * COUNT
    assert "Traceback" not in server.output
    assert is_answered(server)


def is_answered(server: Server) -> bool:
    method = BY_NAME["producerRegisterP2M"]
    message = method.request(clientId="c-1-1-1-1.13.0", brokerCheckSum=-1, hostName="h")
    line = Line(server.tubemq)
    octets = encode_request(
        1, method.service, method.number, message.SerializeToString(), timeout_ms=9
    )
    line.socket.sendall(octets)
    answer: object = parse_message(method.response, line.answer(1).body)
    line.socket.close()
    return bool(getattr(answer, "success", False))
