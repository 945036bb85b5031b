"""The rebalance of two real consumers with a real master, repeated here: the same steps, no later.

`rebalance-master` has a topic of four partitions: one consumer joins, then another one, which
closes, then the first closes. The real master sends its events by a timer, this one with the next
heartbeat; so the clients report the events of this master, and heartbeat when they did.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from tests.gateway.loop import on_loop
from tests.gateway.tubemq.rig import Peer, Rig
from tests.wire.tubemq.captures import Recorded, recorded
from trilogue.wire.tubemq.frame import BlockFrames, parse_request, parse_response
from trilogue.wire.tubemq.master_pb2 import EventProto, HeartRequestC2M, HeartResponseM2C
from trilogue.wire.tubemq.methods import find_method
from trilogue.wire.tubemq.text_fields import Subscription

HEARTBEAT, CONSUMERS = 5, {4, 5, 6}
CONNECT = 10


def frame_of(one: Recorded) -> memoryview:
    frames = BlockFrames(1 << 20)
    frames.get_buffer()[: len(one.octets)] = one.octets
    frames.received(len(one.octets))
    frame = frames.next()
    assert frame is not None
    return frame


def step(reply: Any) -> list[tuple[int, int]]:
    """Return the event of a heartbeat's response, if any."""
    event = reply.event
    return [(event.opType, len(event.subscribeInfo))] if reply.HasField("event") else []


class Client:
    """A recorded consumer that follows the test's events instead."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.result: EventProto | None = None
        self.has: dict[int, str] = {}

    async def send_request(self, one: Recorded) -> list[tuple[int, int]]:
        request = parse_request(frame_of(one))
        method = find_method(request.method)
        assert method is not None
        message = method.request.FromString(bytes(request.body))
        if isinstance(message, HeartRequestC2M):
            self.bring_back(message)
        fields = {field.name: value for field, value in message.ListFields()}
        reply = await self.peer.request(method.name, **fields)
        assert (reply.success, reply.errCode, reply.errMsg) == (True, 200, "OK!")
        return self.obey(reply) if isinstance(reply, HeartResponseM2C) else []

    def bring_back(self, message: HeartRequestC2M) -> None:
        for field in ("event", "subscribeInfo"):
            message.ClearField(field)
        message.reportSubscribeInfo = self.result is not None
        if self.result is not None:
            self.result.status = 2
            message.event.CopyFrom(self.result)
            message.subscribeInfo.extend(self.has.values())
        self.result = None

    def obey(self, reply: HeartResponseM2C) -> list[tuple[int, int]]:
        if reply.HasField("event"):
            self.result = reply.event
            parts = [Subscription.parse(text).partition for text in reply.event.subscribeInfo]
            texts = zip(parts, reply.event.subscribeInfo, strict=True)
            numbers = {part.partition_id: text for part, text in texts}
            if reply.event.opType == CONNECT:
                self.has |= numbers
            else:
                self.has = {each: self.has[each] for each in self.has.keys() - numbers}
        return step(reply)


@on_loop
async def test_two_recorded_consumers_receive_the_same_events():
    theirs: dict[int, list[tuple[int, int]]] = defaultdict(list)
    ours: dict[int, list[tuple[int, int]]] = defaultdict(list)
    async with Rig() as rig:
        rig.topic("func", 4)
        clients = {number: Client(rig.master()) for number in (1, 3)}
        for one in recorded("rebalance-master"):
            if one.is_request and parse_request(frame_of(one)).method in CONSUMERS:
                ours[one.connection] += await clients[one.connection].send_request(one)
            elif not one.is_request:
                answer = parse_response(frame_of(one))
                if answer.method == HEARTBEAT:
                    real = HeartResponseM2C.FromString(bytes(answer.body))
                    theirs[one.connection] += step(real)

    assert ours == theirs
    assert theirs == {1: [(CONNECT, 4), (20, 2), (CONNECT, 2)], 3: [(CONNECT, 2)]}
