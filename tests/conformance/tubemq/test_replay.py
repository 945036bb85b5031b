"""The client side of every TubeMQ recording, replayed to a real server of ours.

Each request goes out as it was recorded, in its order and on connections of its own, but for what
its client had from the server: checksums and ids of configurations, tokens, where the broker is,
and the events of a rebalance with the partitions they name. Each answer is compared with the
recorded one, field by field.

Allowed differences, and why:

- numbers that are the server's own (OWN): message ids, times, offsets (the real one counts 28 bytes
  an entry, over all partitions of a topic), lags in bytes;
- ours always sends the maximum message size (configId, maxMsgSize, the end of topicInfos), the real
  one where an administrator has set it;
- an event comes with an earlier heartbeat than the real one's, which waits for a timer; each client
  gets the same steps, and as many partitions in each;
- a get returns 404 where the real one returns success without messages: that one has read entries
  of other partitions, which lie in the same index, or of other types. Nor does it throttle such a
  reader. What a client gets of each partition by all its gets is the same, in the same order.
"""

from __future__ import annotations

import socket
from collections import defaultdict
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from google.protobuf.message import Message

from tests.server import Server, start_server
from tests.wire.tubemq.captures import Recorded, recorded
from tests.wire.tubemq.test_vectors import body_of, left_behind
from trilogue.wire.tubemq.frame import (
    BlockFrames,
    RpcResponse,
    encode_frame,
    encode_request,
    parse_message,
    parse_request,
    parse_response,
)
from trilogue.wire.tubemq.methods import find_method
from trilogue.wire.tubemq.text_fields import Subscription, TopicInfo

ONE_SERVER = ("producer", "consumer", "balance")  # one after the other, with one real server
PARTITIONS = {"demo": 3, "func": 4, "func2": 2}
TIMEOUT_S = 60

LEARNT = ("brokerCheckSum", "brokerConfigId", "topicMetaInfoId", "visitAuthorizedToken")
OWN = {
    *LEARNT, "messageId", "appendTime", "appendOffset", "currOffset", "maxOffset", "currDataDlt",
    "brokerInfos", "brokerConfigList", "event", "messages", "notAllocated", "requireSlow",
    "configId", "maxMsgSize",
}  # fmt: skip
SEND, GET, CONNECTS, DISCONNECTS, REPORTED = 13, 17, {1, 10}, {2, 20}, 2


class Line:
    """One connection to a listener of ours."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), TIMEOUT_S)
        self._frames = BlockFrames()
        self._answers: dict[int, RpcResponse] = {}

    def answer(self, serial: int) -> RpcResponse:
        """Wait for the answer to a request; others that come first are kept."""
        while serial not in self._answers:
            size = self.socket.recv_into(self._frames.get_buffer())
            assert size, "the server closed the connection"
            self._frames.received(size)
            while (frame := self._frames.next()) is not None:
                answer = parse_response(memoryview(bytes(frame)))
                self._answers[answer.serial] = answer
        return self._answers.pop(serial)


class Member:
    """The events of a recorded consumer: from the real server, and from ours."""

    def __init__(self) -> None:
        self.steps: dict[str, list[tuple[int, int]]] = {"real": [], "ours": []}
        self.unreported: list[Any] = []
        self.mine: list[str] = []
        self._known: set[tuple[int, int]] = set()

    def record_event(self, event: Any, *, ours: bool) -> None:
        key = (event.rebalanceId, event.opType)
        if not ours:
            self.steps["real"].append((event.opType, len(event.subscribeInfo)))
        elif key not in self._known:
            self._known.add(key)
            self.steps["ours"].append((event.opType, len(event.subscribeInfo)))
            self.unreported.append(event)
            places = list(event.subscribeInfo)
            if event.opType in CONNECTS:
                self.mine += places
            elif event.opType in DISCONNECTS:
                self.mine = [place for place in self.mine if place not in places]


class Replay:
    """One recording, replayed to one server."""

    def __init__(self, server: Server, name: str, sent: set[bytes]) -> None:
        self._server = server
        self._frames = recorded(name)
        self._lines: dict[int, Line] = {}
        self._requests: dict[tuple[int, int], Message] = {}
        self._ours: dict[int, int] = {}  # number of the real server -> ours
        self.members: dict[str, Member] = defaultdict(Member)
        self.sent = sent  # data of all messages since the topics were made
        self.got: dict[str, dict[tuple[str, int], list[bytes]]] = {"real": {}, "ours": {}}
        self.differences: list[str] = []

    def run(self) -> None:
        for number, frame in enumerate(self._frames, 1):
            if frame.connection not in self._lines:
                self._lines[frame.connection] = Line(self._server.doors[f"tubemq-{frame.to}"])
            if frame.is_request:
                self._make_topics(number)
                self._send_frame(frame)
            else:
                self._compare(number, frame)
        for line in self._lines.values():
            line.socket.close()

    def _make_topics(self, number: int) -> None:
        """Make a topic at the moment at which the real server is first heard to know it."""
        answer = self._frames[number].octets if number < len(self._frames) else b""
        wanted = [name for name in ("func", "func2") if b"%s#1:" % name.encode() in answer]
        make_topics(self._server, [name for name in wanted if b"@" not in answer])

    def _send_frame(self, frame: Recorded) -> None:
        request = parse_request(body_of(frame))
        method = find_method(request.method)
        if method is None:  # C++ producers close with a request of no method
            self._lines[frame.connection].socket.sendall(frame.octets)
            return
        message: Any = parse_message(method.request, request.body)
        self._requests[frame.connection, request.serial] = message
        self._relearn(message)
        if method.name == "consumerHeartbeatC2M":
            self._report(message)
        if request.method == SEND:
            self.sent.add(message.data)
        octets = encode_request(
            request.serial, request.service, request.method, message.SerializeToString(),
            version=request.version, timeout_ms=request.timeout_ms,
        )  # fmt: skip
        if left := left_behind(frame):
            body = bytes(body_of(frame._replace(octets=bytes(octets)))[4:])
            octets = encode_frame(request.serial, body + left)
        self._lines[frame.connection].socket.sendall(octets)

    def _relearn(self, message: Message) -> None:
        """Put in what the client would know from us."""
        for field, value in message.ListFields():
            if field.message_type is not None and not field.is_repeated:
                self._relearn(value)
            elif field.name in LEARNT and value in self._ours:
                setattr(message, field.name, self._ours[value])
            elif field.name == "partitionInfo":
                places = [f"{self._broker}#{place.partition('#')[2]}" for place in value]
                message.ClearField("partitionInfo")
                message.partitionInfo.extend(places)  # type: ignore[attr-defined]

    @property
    def _broker(self) -> str:
        return f"1:{self._server.doors['tubemq-broker']}"

    def _report(self, message: Any) -> None:
        """Fill in the partitions that our server assigned to the client."""
        member = self.members[message.clientId]
        if message.HasField("event"):
            status = message.event.status
            message.ClearField("event")
            if member.unreported:
                message.event.CopyFrom(member.unreported.pop(0))
                message.event.status = status
        if message.subscribeInfo:
            del message.subscribeInfo[:]
            message.subscribeInfo.extend(member.mine)

    def _compare(self, number: int, frame: Recorded) -> None:
        real = parse_response(body_of(frame))
        ours = self._lines[frame.connection].answer(real.serial)
        if real.status:
            assert ours == real
            return
        method = find_method(real.method)
        assert method is not None
        where = f"#{number} {method.name}"
        assert (ours.status, ours.method) == (0, real.method), f"{where}: {ours}"
        ours_message: Any = parse_message(method.response, ours.body)
        real_message: Any = parse_message(method.response, real.body)
        request: Any = self._requests[frame.connection, real.serial]
        for each, message in (("real", real_message), ("ours", ours_message)):
            if method.name == "consumerHeartbeatC2M" and message.HasField("event"):
                self.members[request.clientId].record_event(message.event, ours=each == "ours")
            if real.method == GET:
                key = (request.clientId, request.partitionId)
                data = [one.payLoadData for one in message.messages if one.payLoadData in self.sent]
                self.got[each].setdefault(key, []).extend(data)
        self._learn(real_message, ours_message)
        if real.method == GET and ours_message.errCode == 404:
            assert real_message.errCode in {200, 404}
            return
        self.differences += [
            f"{where}: {each}" for each in differences(real_message, ours_message, real.method)
        ]

    def _learn(self, real_message: Message, ours_message: Message) -> None:
        for field, value in real_message.ListFields():
            if field.message_type is not None and not field.is_repeated:
                self._learn(value, getattr(ours_message, field.name))
            elif field.name in LEARNT and ours_message.HasField(field.name):
                self._ours[value] = getattr(ours_message, field.name)


def differences(real: Message, ours: Message, method: int) -> list[str]:
    """Fields that only one has, or that have another value; numbers of the server's own may."""
    found = []
    for field in real.DESCRIPTOR.fields:
        name = field.name
        there = [_has(message, name, repeated=field.is_repeated) for message in (real, ours)]
        if there[0] != there[1] and name not in {"event", "messages", "maxMsgSize"}:
            found.append(f"{name} only {'there' if there[0] else 'here'}")
        elif name in OWN or not all(there):
            continue
        elif field.message_type is not None and not field.is_repeated:
            found += differences(getattr(real, name), getattr(ours, name), method)
        elif name != "errMsg" or method != SEND:
            values = [getattr(message, name) for message in (real, ours)]
            if name == "topicInfos":
                values = [[_sizeless(text) for text in value] for value in values]
            if values[0] != values[1]:
                found.append(f"{name} {values[0]!r} there, {values[1]!r} here")
    return found


def _sizeless(text: str) -> TopicInfo:
    return TopicInfo.parse(text)._replace(size_max=None)


def _has(message: Message, name: str, *, repeated: bool) -> bool:
    return bool(getattr(message, name)) if repeated else message.HasField(name)


def make_topics(server: Server, names: list[str]) -> None:
    """Make those of the topics that are not there."""
    admin = AdminClient({"bootstrap.servers": server.kafka})
    there = admin.list_topics(timeout=TIMEOUT_S).topics
    wanted = [NewTopic(name, PARTITIONS[name], 1) for name in names if name not in there]
    for made in admin.create_topics(wanted).values() if wanted else ():
        made.result(TIMEOUT_S)


@pytest.fixture
def server(tmp_path):
    """A server that answers a get at the end of data at once, as the real one."""
    with start_server(tmp_path / "data", settings={"tubemq.hold": "0"}) as running:
        make_topics(running, ["demo"])
        yield running


@pytest.mark.parametrize(
    "names",
    [ONE_SERVER, ("go-client",), ("cpp-client",), ("rebalance-master",)],
    ids=lambda names: names[-1],
)
def test_recorded_clients_are_answered_as_by_the_real_server(server: Server, names):
    sent: set[bytes] = set()
    for name in names:
        replay = Replay(server, name, sent)

        replay.run()

        assert not replay.differences, "\n".join(replay.differences)
        assert replay.got["ours"] == replay.got["real"], name
        for member in replay.members.values():
            assert member.steps["ours"] == member.steps["real"], name


def test_recorded_rebalance_contains_these_consumer_events():
    """The steps of the recording of a rebalance: this is what the test above compares."""
    steps = defaultdict(list)
    for frame in recorded("rebalance-master"):
        if not frame.is_request and b"@g_bal" in frame.octets:
            answer = parse_response(body_of(frame))
            event = parse_message(find_method(5).response, answer.body).event  # type: ignore[union-attr]
            consumer = Subscription.parse(event.subscribeInfo[0]).consumer_id
            steps[consumer].append((event.opType, len(event.subscribeInfo)))

    assert list(steps.values()) == [[(10, 4), (20, 2), (10, 2)], [(10, 2)]]
