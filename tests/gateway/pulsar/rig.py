"""A Pulsar gateway over a real broker and a real log, on a fake disk and a simulated loop."""

from __future__ import annotations

import itertools
import struct
from typing import Any, NamedTuple

import pytest

from tests.gateway.fakes import FakeTransport
from tests.gateway.kafka.rig import LIMITS, LOG_LIMITS, NOW_MS, settle
from tests.gateway.kafka.rig import Rig as KafkaRig
from tests.pure import load_pure
from tests.waiting import wait_on_loop
from trilogue.broker.names import TopicName, parse_namespace, parse_pulsar
from trilogue.broker.topics.namespaces import Namespace
from trilogue.broker.topics.topic import Topic
from trilogue.entry.pulsar.pulsar_batch import build_section
from trilogue.gateway.frame_dispatcher import IterationBudget
from trilogue.gateway.pulsar import connection
from trilogue.gateway.pulsar.connection import PulsarConnection
from trilogue.gateway.pulsar.gateway import PulsarGateway
from trilogue.gateway.pulsar.settings import PulsarSettings
from trilogue.gateway.stream import Stream
from trilogue.wire.pulsar.commands import BY_TYPE, COMMANDS
from trilogue.wire.pulsar.frame import encode_command
from trilogue.wire.pulsar.pulsar_pb2 import BaseCommand, MessageMetadata

__all__ = [
    "LIMITS",
    "LOG_LIMITS",
    "NOW_MS",
    "Answer",
    "Peer",
    "Rig",
    "frame_of",
    "section",
    "settle",
    "use_fast_path",
]

TYPES = {row.field: row.type for row in COMMANDS}


def use_fast_path(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let connections take frames by the installed module, or by its uncompiled twin."""
    if kind == "uncompiled":
        turn = load_pure("trilogue.gateway.pulsar.non_persistent.send_turn")
        beneath = {"trilogue__gateway__pulsar__non_persistent__send_turn": turn}
        twin = load_pure("trilogue.gateway.pulsar.send_fast_path", **beneath)
        monkeypatch.setattr(connection, "SendFastPath", twin.SendFastPath)


class Answer(NamedTuple):
    """One frame of the gateway: the field name of its command, the command, the section."""

    field: str
    command: Any
    section: bytes


class Rig(KafkaRig):
    """A node without sockets; `topic` makes a topic without numbered partitions by default."""

    def __init__(self, *, pulsar: PulsarSettings | None = None, **how: Any) -> None:
        super().__init__(**how)
        self._pulsar = pulsar or PulsarSettings()

    def make_gateway(self) -> PulsarGateway:
        return PulsarGateway(
            broker=self.broker,
            log=self.log,
            write_metadata=self.commit,
            advertised=lambda: ("broker.example", 6650),
            settings=self._pulsar,
            authorizer=self.rules,
            now_ms=lambda: self.now_ms,
            executor=self.executor,
            iterations=IterationBudget(lambda: 0.0),  # of any length, on a busy machine too
        )

    def topic(self, name: str, partitions: int = 0, **settings: str) -> Topic:
        """Make a topic without a client; values of policies go by `pulsar_<name>`."""
        cluster = self.broker.cluster
        given = {key.replace("_", ".", 1): value for key, value in settings.items()}
        own = {key: given.pop(key) for key in list(given) if key.startswith("pulsar.")}
        plan = cluster.plan_create(
            cluster.check_create(
                parse_pulsar(name).topic,
                partition_count=max(1, partitions),
                settings=given,
                partitioned=partitions > 0,
            )
        )
        self.meta.write_now(plan.ops(), plan.preconditions)
        topic = plan.apply()
        if own:
            plan = cluster.plan_alter(topic.name, {**topic.settings, **own})
            self.meta.write_now(plan.ops(), plan.preconditions)
            topic = plan.apply()
        return topic

    async def release(self) -> None:
        """Carry out what was held."""
        self.hold_commits = False
        for commit in self.commits:
            await super().commit(commit)

    def name(self, text: str) -> TopicName:
        """A topic's canonical name."""
        return parse_pulsar(text).topic

    async def policies(self, namespace: str, **policies: Any) -> None:
        """Set policies of a namespace."""
        plan = self.broker.namespaces.plan_alter(
            parse_namespace(namespace), Namespace(policies=policies)
        )
        await self.commit(plan)

    def peer(self) -> Peer:
        return Peer(self)

    async def connected(self, version: int = 21, **fields: Any) -> Peer:
        """A client that has sent CONNECT and read CONNECTED."""
        peer = Peer(self)
        await peer.connect(version, **fields)
        return peer


class Peer:
    """A scripted client: bytes in, frames out."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.connection: PulsarConnection = rig.gateway.make_connection()
        self.gone: list[Stream] = []
        self.stream = Stream(
            self.connection, rig.limits, call_soon=rig.loop.call_soon, on_gone=self.gone.append
        )
        self.transport = FakeTransport(self.stream)
        self.stream.connection_made(self.transport)
        self._numbers = itertools.count(1)
        self._read = 0

    # ---- what it sends

    def give(self, data: bytes, piece: int | None = None) -> None:
        self.transport.receive(data, piece)

    def send_command(self, field: str, **fields: Any) -> None:
        """Send a command by the name of its field."""
        self.give(frame_of(field, **fields))

    def number(self) -> int:
        """A request id that was not used yet."""
        return next(self._numbers)

    def send(
        self, producer_id: int, sequence_id: int, payload: bytes = b"hello", **fields: Any
    ) -> None:
        """SEND one message; fields of the command, or of its metadata (`metadata_...`)."""
        self.give(send_frame(producer_id, sequence_id, payload, **fields))

    # ---- what it gets

    @property
    def answered(self) -> int:
        """How many frames there are that were not looked at."""
        return len(self.transport.frames()) - self._read

    def next(self) -> Answer:
        """The next frame."""
        frame = self.transport.frames()[self._read]
        self._read += 1
        (size,) = struct.unpack_from(">I", frame)
        command = BaseCommand.FromString(frame[4 : 4 + size])
        field = BY_TYPE[command.type].field
        return Answer(field, getattr(command, field), frame[4 + size :])

    async def answer(self, field: str) -> Any:
        """The next frame, which must be of this kind; waits for it, a virtual minute at most."""
        await self.wait()
        found = self.next()
        assert found.field == field, found
        return found.command

    async def request(self, field: str, answer: str, **fields: Any) -> Any:
        """Send a command with a request id and read its answer."""
        number = self.number()
        self.send_command(field, request_id=number, **fields)
        command = await self.answer(answer)
        assert command.request_id == number
        return command

    async def connect(self, version: int = 21, **fields: Any) -> Any:
        words = {"client_version": "rig", "protocol_version": version, **fields}
        self.send_command("connect", **words)
        return await self.answer("connected")

    async def producer(self, topic: str, producer_id: int = 1, **fields: Any) -> Any:
        """Make a producer; gives PRODUCER_SUCCESS."""
        return await self.request(
            "producer", "producer_success", topic=topic, producer_id=producer_id, **fields
        )

    async def wait(self) -> None:
        await wait_on_loop(lambda: self.answered > 0 or self.transport.closed, "a response")
        assert self.answered > 0, "no answer, cut"

    @property
    def is_cut(self) -> bool:
        return self.transport.closed


def frame_of(field: str, **fields: Any) -> bytes:
    """A whole frame of a simple command."""
    made: dict[str, Any] = {"type": TYPES[field], field: fields}
    return encode_command(BaseCommand(**made))


def section(payload: bytes = b"hello", **metadata: Any) -> bytes:
    """What follows the command of SEND: magic, checksum, metadata, payload."""
    given = {"producer_name": "rig", "sequence_id": 0, "publish_time": NOW_MS, **metadata}
    return build_section(MessageMetadata(**given), payload)


def send_frame(
    producer_id: int,
    sequence_id: int,
    payload: bytes = b"hello",
    *,
    body: bytes | None = None,
    **fields: Any,
) -> bytes:
    """A whole SEND; `metadata_...` are fields of the message's metadata."""
    metadata = {
        key.removeprefix("metadata_"): fields.pop(key)
        for key in list(fields)
        if key.startswith("metadata_")
    }
    made: dict[str, Any] = {"producer_id": producer_id, "sequence_id": sequence_id, **fields}
    command = BaseCommand(type=BaseCommand.SEND, send=made).SerializeToString()
    if body is None:
        body = section(payload, **{"sequence_id": sequence_id, **metadata})
    return struct.pack(">II", 4 + len(command) + len(body), len(command)) + command + body
