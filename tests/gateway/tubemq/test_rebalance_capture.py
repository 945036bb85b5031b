"""What two real consumers said to a real master, said to ours: the same steps, no later.

`rebalance-master` is of a topic of four partitions: one consumer comes, then another, which closes,
then the first. The real master gives its events by a timer, ours with the next heartbeat; so what
clients bring back is what ours gave, and their heartbeats come as they did.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from tests.gateway.loop import on_loop
from tests.gateway.tubemq.rig import Peer, Rig
from tests.wire.tubemq.captures import Recorded, recorded
from trilogue.wire.tubemq.frame import BlockFrames, parse_answer, parse_request
from trilogue.wire.tubemq.master_pb2 import EventProto, HeartRequestC2M, HeartResponseM2C
from trilogue.wire.tubemq.messages import Subscription
from trilogue.wire.tubemq.methods import find

HEARTBEAT, CONSUMERS = 5, {4, 5, 6}
CONNECT = 10


def frame_of(one: Recorded) -> memoryview:
    frames = BlockFrames(1 << 20)
    frames.get_buffer()[: len(one.octets)] = one.octets
    frames.received(len(one.octets))
    frame = frames.next()
    assert frame is not None
    return frame


def step(said: Any) -> list[tuple[int, int]]:
    """What the answer to a heartbeat tells its client to do, if anything."""
    event = said.event
    return [(event.opType, len(event.subscribeInfo))] if said.HasField("event") else []


class Client:
    """A recorded consumer that does what we tell it instead."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.told: EventProto | None = None
        self.has: dict[int, str] = {}

    async def say(self, one: Recorded) -> list[tuple[int, int]]:
        request = parse_request(frame_of(one))
        method = find(request.method)
        assert method is not None
        message = method.request.FromString(bytes(request.body))
        if isinstance(message, HeartRequestC2M):
            self.bring_back(message)
        fields = {field.name: value for field, value in message.ListFields()}
        said = await self.peer.ask(method.name, **fields)
        assert (said.success, said.errCode, said.errMsg) == (True, 200, "OK!")
        return self.obey(said) if isinstance(said, HeartResponseM2C) else []

    def bring_back(self, message: HeartRequestC2M) -> None:
        for field in ("event", "subscribeInfo"):
            message.ClearField(field)
        message.reportSubscribeInfo = self.told is not None
        if self.told is not None:
            self.told.status = 2
            message.event.CopyFrom(self.told)
            message.subscribeInfo.extend(self.has.values())
        self.told = None

    def obey(self, said: HeartResponseM2C) -> list[tuple[int, int]]:
        if said.HasField("event"):
            self.told = said.event
            parts = [Subscription.parse(text).partition for text in said.event.subscribeInfo]
            texts = zip(parts, said.event.subscribeInfo, strict=True)
            numbers = {part.partition_id: text for part, text in texts}
            if said.event.opType == CONNECT:
                self.has |= numbers
            else:
                self.has = {each: self.has[each] for each in self.has.keys() - numbers}
        return step(said)


@on_loop
async def test_two_recorded_consumers_are_told_the_same_steps():
    theirs: dict[int, list[tuple[int, int]]] = defaultdict(list)
    ours: dict[int, list[tuple[int, int]]] = defaultdict(list)
    async with Rig() as rig:
        rig.topic("func", 4)
        clients = {number: Client(rig.master()) for number in (1, 3)}
        for one in recorded("rebalance-master"):
            if one.is_request and parse_request(frame_of(one)).method in CONSUMERS:
                ours[one.connection] += await clients[one.connection].say(one)
            elif not one.is_request:
                answer = parse_answer(frame_of(one))
                if answer.method == HEARTBEAT:
                    real = HeartResponseM2C.FromString(bytes(answer.body))
                    theirs[one.connection] += step(real)

    assert ours == theirs
    assert theirs == {1: [(CONNECT, 4), (20, 2), (CONNECT, 2)], 3: [(CONNECT, 2)]}
