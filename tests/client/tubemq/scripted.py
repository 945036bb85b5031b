"""A TubeMQ master and broker in the test's own loop that do what a test wants: for what no real one
does on demand (standing by, silence, broken frames, wrong checksums, unknown events).

Served as plain ones would unless `next_up` holds something for the next requests of a method: a
code (refused with it), SILENCE, HANG_UP, GARBAGE, STANDBY, or a function that gets the peer, the
serial number and the message and answers itself.
"""

from __future__ import annotations

import asyncio
import functools
import re
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Any

from tests.client.harness import ScriptedServer, in_one_loop, on_its_own_loop
from tests.waiting import wait_on_loop
from trilogue.client.tubemq import Batch, Consumer, Message, TubeClient
from trilogue.client.tubemq.message import encode_message
from trilogue.entry.tubemq.tubemq_blob import checksum_of
from trilogue.wire.tubemq import broker_pb2, master_pb2
from trilogue.wire.tubemq import errors as wire_errors
from trilogue.wire.tubemq.errors import TubeCode
from trilogue.wire.tubemq.frame import (
    BlockFrames,
    encode_failure,
    encode_response,
    parse_message,
    parse_request,
)
from trilogue.wire.tubemq.methods import BY_NAME, find_method
from trilogue.wire.tubemq.text_fields import PartitionKey

SILENCE, HANG_UP, GARBAGE, STANDBY = "silence", "hang up", "garbage", "standby"
TOPIC, GROUP = "demo", "g"
REQUIRED = {"brokerCheckSum": -1, "currOffset": -1, "minLimitTime": -1, "currDataDlt": -1}
ASYNCIO_READ = 1 << 16


class Peer:
    """One connection, seen from the server."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writer = writer

    def send(self, serial: int, name: str, **fields: Any) -> None:
        """Answer a request of a method; by default with success."""
        method = BY_NAME[name]
        known = method.response.DESCRIPTOR.fields_by_name
        common = {"success": True, "errCode": 200, "errMsg": "OK!"} | fields
        message = method.response(**{key: value for key, value in common.items() if key in known})
        self.raw(encode_response(serial, method.number, message.SerializeToString()))

    def refuse(self, serial: int, name: str, code: int, text: str = "scripted") -> None:
        known = BY_NAME[name].response.DESCRIPTOR.fields_by_name
        more = {key: value for key, value in REQUIRED.items() if key in known}
        self.send(serial, name, success=False, errCode=code, errMsg=text, **more)

    def raw(self, octets: bytes | bytearray) -> None:
        self.writer.write(bytes(octets))

    def hang_up(self) -> None:
        self.writer.close()


class ScriptedTube(ScriptedServer[Peer]):
    """A master and broker; `stored` holds data, flag and type by partition."""

    def __init__(self, topics: dict[str, int] | None = None) -> None:
        super().__init__()
        self.topics = {TOPIC: 3} if topics is None else topics
        self.always: dict[str, Any] = {}
        self.brokers: list[str] = []
        self.size_max: int | None = None
        self.events: deque[dict[str, Any]] = deque()
        self.allocate = True
        self.visit_token = 7
        self.auth_token: str | None = None
        self.checksum, self.topics_id = 100, 200
        self.stored: dict[str, list[tuple[bytes, int]]] = defaultdict(list)
        self.at: dict[str, int] = defaultdict(int)
        self.read: dict[str, int] = defaultdict(int)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def broker(self) -> str:
        return f"1:{self.address}"

    def full(self, partition: int = 0, topic: str = TOPIC) -> str:
        """A partition and its broker, as events name them."""
        return f"{self.brokers[0]}#{topic}:{partition}"

    async def open(self) -> None:
        await super().open()
        self.brokers = self.brokers or [self.broker]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer, frames = Peer(writer), BlockFrames()
        self.peers.append(peer)
        try:
            while octets := await reader.read(ASYNCIO_READ):
                at = 0
                while at < len(octets):
                    room = frames.get_buffer()
                    size = min(len(room), len(octets) - at)
                    room[:size] = octets[at : at + size]
                    frames.received(size)
                    at += size
                    while (frame := frames.next()) is not None:
                        self.take(peer, frame)
        except ConnectionError:
            pass
        finally:
            self.note("GONE", peer)
            writer.close()

    def take(self, peer: Peer, frame: memoryview) -> None:
        request = parse_request(frame)
        method = find_method(request.method)
        assert method is not None
        message = parse_message(method.request, request.body)
        self.note(method.name, message)
        upset = self.upset(method.name)
        self.react(
            peer, request.serial, method.name, message, upset or self.always.get(method.name)
        )

    def react(self, peer: Peer, serial: int, name: str, message: Any, upset: Any) -> None:
        if upset is None:
            getattr(self, handler_of(name))(peer, serial, message)
        elif isinstance(upset, int):
            peer.refuse(serial, name, upset)
        elif upset is HANG_UP:
            peer.hang_up()
        elif upset is GARBAGE:
            peer.raw(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        elif upset is STANDBY:
            peer.raw(encode_failure(serial, 1, wire_errors.STANDBY, "standing by"))
        elif callable(upset):
            upset(peer, serial, message)

    # What a plain master answers.

    def _given(self) -> dict[str, Any]:
        tokens: dict[str, Any] = {"visitAuthorizedToken": self.visit_token}
        if self.auth_token is not None:
            tokens["authAuthorizedToken"] = self.auth_token
        return {"authorizedInfo": master_pb2.MasterAuthorizedInfo(**tokens)}

    def _brokers_for(self, checksum: int) -> dict[str, Any]:
        same = checksum == self.checksum
        return {
            "brokerCheckSum": self.checksum,
            "brokerInfos": [] if same else self.brokers,
            **self._given(),
        }

    def on_producer_register_p2m(self, peer: Peer, serial: int, request: Any) -> None:
        known = self._brokers_for(request.brokerCheckSum)
        peer.send(serial, "producerRegisterP2M", **known)

    def on_producer_heartbeat_p2m(self, peer: Peer, serial: int, request: Any) -> None:
        size = "" if self.size_max is None else self.size_max
        ids = [broker.split(":")[0] for broker in self.brokers]
        infos = [
            f"{topic}#{','.join(f'{one}:{self.topics[topic]}:1' for one in ids)}#{size}"
            for topic in request.topicList
            if topic in self.topics
        ]
        known = self._brokers_for(request.brokerCheckSum)
        peer.send(serial, "producerHeartbeatP2M", topicInfos=infos, **known)

    def on_producer_close_client_p2m(self, peer: Peer, serial: int, _request: Any) -> None:
        peer.send(serial, "producerCloseClientP2M")

    def on_consumer_register_c2m(self, peer: Peer, serial: int, _request: Any) -> None:
        peer.send(serial, "consumerRegisterC2M", notAllocated=True, **self._given())

    def on_consumer_heartbeat_c2m(self, peer: Peer, serial: int, request: Any) -> None:
        event = None
        if request.event.status == 0 and self.allocate:  # everything, at the first heartbeat
            self.allocate = False
            names = [self.full(number) for number in range(self.topics[TOPIC])]
            self.plan(request.clientId, 10, names)
        if self.events:
            event = master_pb2.EventProto(**self.events.popleft())
        more = {"event": event} if event is not None else {}
        peer.send(serial, "consumerHeartbeatC2M", notAllocated=False, **more, **self._given())

    def plan(self, client_id: str, op_type: int, partitions: list[str], status: int = 0) -> None:
        """Have an event in the next answer to a heartbeat."""
        self.events.append(
            {
                "rebalanceId": 1 + len(self.seen),
                "opType": op_type,
                "status": status,
                "subscribeInfo": [f"{client_id}@{GROUP}#{name}" for name in partitions],
            }
        )

    def on_consumer_close_client_c2m(self, peer: Peer, serial: int, _request: Any) -> None:
        peer.send(serial, "consumerCloseClientC2M")

    def on_consumer_register_c2mv2(self, peer: Peer, serial: int, _request: Any) -> None:
        peer.send(
            serial, "consumerRegisterC2MV2", brokerConfigId=self.checksum,
            brokerConfigList=self.brokers, **self._given(),
        )  # fmt: skip

    def on_consumer_heartbeat_c2mv2(self, peer: Peer, serial: int, _request: Any) -> None:
        known = {"brokerConfigId": self.checksum, **self._given()}
        peer.send(serial, "consumerHeartbeatC2MV2", **known)

    def on_consumer_get_part_meta_info_c2m(self, peer: Peer, serial: int, request: Any) -> None:
        same = request.topicMetaInfoId == self.topics_id
        infos = [f"{topic}#1:1:{count}:1" for topic, count in self.topics.items()]
        peer.send(
            serial, "consumerGetPartMetaInfoC2M", brokerConfigId=self.checksum,
            topicMetaInfoId=self.topics_id, topicMetaInfoList=[] if same else infos,
        )  # fmt: skip

    # What a plain broker answers.

    def on_send_message_p2b(self, peer: Peer, serial: int, request: Any) -> None:
        key = str(PartitionKey(1, request.topicName, request.partitionId))
        self.stored[key].append((request.data, request.flag))
        peer.send(
            serial, "sendMessageP2B", errMsg=str(serial), messageId=serial, appendTime=5,
            appendOffset=len(self.stored[key]) - 1,
        )  # fmt: skip

    def on_consumer_register_c2b(self, peer: Peer, serial: int, request: Any) -> None:
        key = str(PartitionKey(1, request.topicName, request.partitionId))
        if request.opType == 31:
            if request.HasField("currOffset"):
                self.at[key] = request.currOffset
            offsets = {"currOffset": self.at[key], "maxOffset": len(self.stored[key])}
            peer.send(serial, "consumerRegisterC2B", **offsets)
        else:
            if request.readStatus == 0:
                self.at[key] += self.read[key]
            self.read[key] = 0
            peer.send(serial, "consumerRegisterC2B", currOffset=-1)

    def on_consumer_heartbeat_c2b(self, peer: Peer, serial: int, _request: Any) -> None:
        peer.send(serial, "consumerHeartbeatC2B", hasPartFailure=False, requireAuth=False)

    def on_get_messages_c2b(self, peer: Peer, serial: int, request: Any) -> None:
        key = str(PartitionKey(1, request.topicName, request.partitionId))
        if request.lastPackConsumed:
            self.at[key] += self.read[key]
        found, self.read[key] = self.stored[key][self.at[key] :], 0
        if not found:
            peer.refuse(serial, "getMessagesC2B", TubeCode.NOT_FOUND)
            return
        self.read[key] = len(found)
        self.messages(peer, serial, [transfer(data, flag) for data, flag in found], self.at[key])

    def messages(self, peer: Peer, serial: int, found: list[Any], at: int = 0) -> None:
        peer.send(
            serial, "getMessagesC2B", messages=found, currOffset=at, minLimitTime=0,
            currDataDlt=0, maxOffset=at + len(found),
        )  # fmt: skip

    def on_consumer_commit_c2b(self, peer: Peer, serial: int, request: Any) -> None:
        key = str(PartitionKey(1, request.topicName, request.partitionId))
        if request.lastPackConsumed:
            self.at[key] += self.read[key]
        self.read[key] = 0
        offsets = {"currOffset": self.at[key], "maxOffset": len(self.stored[key])}
        peer.send(serial, "consumerCommitC2B", **offsets)


def handler_of(name: str) -> str:
    """Spell a method as one of ours: producerRegisterP2M is on_producer_register_p2m."""
    words, client = re.fullmatch(r"(.*?)([A-Z]2[A-Z]\w*)", name).groups()  # type: ignore[union-attr]
    return "on_" + re.sub("[A-Z]", lambda one: f"_{one[0].lower()}", words) + f"_{client.lower()}"


def transfer(data: bytes, flag: int = 0, checksum: int | None = None) -> Any:
    """A message of a pack."""
    return broker_pb2.TransferedMessage(
        messageId=1,
        checkSum=checksum_of(data) if checksum is None else checksum,
        payLoadData=data,
        flag=flag,
    )


Test = Callable[[ScriptedTube, TubeClient], Awaitable[None]]


def on_server(test: Test | None = None, **options: Any) -> Any:
    """Run a test with a server and a client of it, both in one loop."""
    if test is None:
        return functools.partial(on_server, **options)

    async def work(**arguments: Any) -> None:
        quick = {"heartbeat_s": 30.0, "request_timeout_s": 5.0, "close_timeout_s": 1.0} | options
        async with ScriptedTube() as server, TubeClient(server.address, **quick) as client:
            async with asyncio.timeout(120):
                await test(server, client, **arguments)

    return in_one_loop(test, work)


def in_thread() -> AbstractContextManager[ScriptedTube]:
    """A server on a loop of its own, so that a client that blocks can be tested."""
    return on_its_own_loop(ScriptedTube())


def put(server: ScriptedTube, *bodies: bytes, partition: int = 0, kind: str | None = None) -> None:
    """Have messages stored in a partition."""
    for body in bodies:
        message = Message(TOPIC, body)
        if kind is not None:
            message.put_system_header(kind, "202611211200")
        data, flag, _ = encode_message(message, 1 << 20)
        server.stored[f"1:{TOPIC}:{partition}"].append((data, flag))


def bodies(batch: Batch) -> list[bytes]:
    return [message.body for message in batch]


async def reader(client: TubeClient, **options: Any) -> Consumer:
    """A consumer that has its partitions."""
    consumer = await client.consumer(TOPIC, group=GROUP, **options)
    await wait_on_loop(lambda: len(consumer.partitions) == 3)
    return consumer
