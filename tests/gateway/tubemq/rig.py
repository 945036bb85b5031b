"""Both TubeMQ endpoints over a real broker and a real log, on a fake disk and a virtual clock.

async with Rig() as rig:
    rig.topic("demo", 3)
    master, broker = rig.master(), rig.broker_peer()
    response = await master.request("producerHeartbeatP2M", clientId="p-1", ...)
    assert response.success
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, NamedTuple

from cryptography.fernet import Fernet
from google.protobuf.message import Message

from tests.gateway.fakes import FakeTransport
from tests.gateway.kafka.rig import LIMITS, LOG_LIMITS, NOW_MS, settle
from tests.gateway.kafka.rig import Rig as KafkaRig
from tests.waiting import wait_on_loop
from trilogue.broker.access.audit import AuditLog
from trilogue.broker.access.passwords import encrypt_password
from trilogue.broker.access.users import User, Users
from trilogue.broker.names import TopicName, parse_tubemq
from trilogue.gateway.authentication import Authenticator
from trilogue.gateway.stream import Stream
from trilogue.gateway.tubemq.auth.authentication import Authentication, AuthenticationSettings
from trilogue.gateway.tubemq.connection import TubeConnection, TubeEndpoint
from trilogue.gateway.tubemq.gateway import TubeGateway
from trilogue.gateway.tubemq.settings import TubeSettings
from trilogue.wire.tubemq.frame import BlockFrames, encode_request, parse_response
from trilogue.wire.tubemq.methods import BY_NAME

__all__ = [
    "LIMITS",
    "LOG_LIMITS",
    "NOW_MS",
    "Failure",
    "Peer",
    "Rig",
    "frame_of",
    "send_frame",
    "settle",
]

KEY = b"k" * 32
SIGNING_KEY = Fernet.generate_key()
ADDRESS = ("broker.example", 8123)
TIMEOUT_MS = 10_000
FULL = "1:broker.example:8123"  # the broker as responses name it


def put_users(users: Users, passwords: Mapping[str, bytes]) -> None:
    """Create or change users; they have a password for signatures and nothing else."""
    for name, password in passwords.items():
        user = User(name, 1, signing=encrypt_password(password, SIGNING_KEY))
        users.plan_put(user).apply()


class Failure(NamedTuple):
    """A response without a message: status 1 (ERROR) or 2 (FATAL), a class name and a text."""

    status: int
    exception: str
    text: str


class Rig(KafkaRig):
    """A node with both endpoints. `topic` creates numbered partitions, by default one."""

    gateway: TubeGateway

    def __init__(
        self,
        *,
        tube: TubeSettings | None = None,
        users: dict[str, bytes] | None = None,
        demands: AuthenticationSettings | None = None,
        **how: Any,
    ) -> None:
        super().__init__(**how)
        self.tube = tube or TubeSettings()
        self.passwords = users or {}
        self.audit_lines: list[dict[str, object]] = []
        self._demands = demands or AuthenticationSettings()

    def make_gateway(self) -> TubeGateway:
        authenticator = Authenticator(
            self.broker.users,
            audit=AuditLog(self.audit_lines.append, lambda: self.now_ms),
            now_ms=lambda: self.now_ms,
            signing_key=lambda: SIGNING_KEY,
        )
        put_users(self.broker.users, self.passwords)
        authentication = Authentication(self._demands, authenticator, key=KEY)
        return TubeGateway(
            broker=self.broker,
            log=self.log,
            write_metadata=self.commit,
            advertised=lambda: ADDRESS,
            settings=self.tube,
            authentication=authentication,
            authorizer=self.rules,
            authenticator=authenticator,
            now_ms=lambda: self.now_ms,
            executor=self.executor,
        )

    def name(self, text: str) -> TopicName:
        """Return a topic's canonical name."""
        return parse_tubemq(text)

    def master(self) -> Peer:
        """Return a connection to the master."""
        return Peer(self, self.gateway.master_endpoint)

    def broker_peer(self) -> Peer:
        """Return a connection to the broker."""
        return Peer(self, self.gateway.broker_endpoint)


class Peer:
    """A scripted client: requests in, responses out, in any order."""

    def __init__(self, rig: Rig, side: TubeEndpoint) -> None:
        self.rig = rig
        self.side = side
        self.connection: TubeConnection = side.make_connection()
        self.gone: list[Stream] = []
        self.stream = Stream(
            self.connection,
            rig.limits,
            call_soon=rig.loop.call_soon,
            on_gone=self.gone.append,
            framer=side.frames,
        )
        self.transport = FakeTransport(self.stream)
        self.stream.connection_made(self.transport)
        self._numbers = itertools.count(1)
        self._requests: dict[int, str] = {}  # by serial number: of which method
        self._answers: dict[int, Message | Failure] = {}
        self._frames = BlockFrames()
        self._read = 0
        self.order: list[int] = []  # serial numbers as they were answered

    # ---- what it sends

    def give(self, data: bytes, piece: int | None = None) -> None:
        """Send bytes as they are."""
        self.transport.receive(data, piece)

    def number(self) -> int:
        """Return an unused serial number."""
        return next(self._numbers)

    def send_request(self, name: str, *, piece: int | None = None, **fields: Any) -> int:
        """Send a request by the name of its method without waiting; return its serial number.

        `service`, `version` and `timeout_ms` are of the envelope, all others of the message.
        """
        serial = self.number()
        self._requests[serial] = name
        self.give(frame_of(serial, name, **fields), piece)
        return serial

    # ---- what it gets

    def read_responses(self) -> None:
        """Read the responses so far."""
        written = self.transport.written
        while self._read < len(written):
            room = self._frames.get_buffer()
            part = bytes(written[self._read : self._read + len(room)])
            room[: len(part)] = part
            self._frames.received(len(part))
            self._read += len(part)
            while (frame := self._frames.next()) is not None:
                self._keep(frame)
        assert not self._frames.pending, "half a frame was written"

    def _keep(self, frame: memoryview) -> None:
        found = parse_response(frame)
        assert found.serial not in self._answers, "answered twice"
        self.order.append(found.serial)
        if found.status:
            self._answers[found.serial] = Failure(found.status, found.exception, found.text)
            return
        method = BY_NAME[self._requests[found.serial]]
        assert found.method == method.number
        message = method.response.FromString(bytes(found.body))
        assert message.IsInitialized(), message
        self._answers[found.serial] = message

    def is_answered(self, serial: int) -> bool:
        """Return whether this request is answered."""
        self.read_responses()
        return serial in self._answers

    def response(self, serial: int) -> Any:
        """Return the response to a request, which must be there."""
        assert self.is_answered(serial), "no answer yet"
        return self._answers[serial]

    async def wait(self, serial: int) -> Any:
        """Return the response to a request, after at most a virtual minute."""
        await wait_on_loop(lambda: self.is_answered(serial) or self.is_cut, "a response")
        assert self.is_answered(serial), "cut"
        return self._answers[serial]

    async def request(self, name: str, **fields: Any) -> Any:
        """Send a request and return its response: a message of its class, or a Failure."""
        return await self.wait(self.send_request(name, **fields))

    async def send(
        self, topic: str = "demo", partition: int = 0, data: bytes = b"x", **more: Any
    ) -> Any:
        """Send sendMessageP2B as the Java client does."""
        return await self.request("sendMessageP2B", **send_fields(topic, partition, data, **more))

    def drop(self) -> None:
        """Close the connection."""
        self.transport.close()

    @property
    def is_cut(self) -> bool:
        return self.transport.closed


def send_fields(topic: str, partition: int, data: bytes, **more: Any) -> dict[str, Any]:
    """Return the fields of a send; with checkSum -1 the broker computes it."""
    return {
        "clientId": "192.0.2.2-1-1-1-1.13.0",
        "topicName": topic,
        "partitionId": partition,
        "data": data,
        "flag": 0,
        "checkSum": -1,
        "sentAddr": -1073741310,
        **more,
    }


def frame_of(
    serial: int,
    name: str,
    *,
    service: int | None = None,
    version: int = 3,
    timeout_ms: int = TIMEOUT_MS,
    **fields: Any,
) -> bytes:
    """Return a whole frame with a request."""
    method = BY_NAME[name]
    body = method.request(**fields).SerializePartialToString()
    number = method.service if service is None else service
    return encode_request(
        serial, number, method.number, body, version=version, timeout_ms=timeout_ms
    )


def send_frame(serial: int, topic: str, partition: int, data: bytes, **more: Any) -> bytes:
    """Return a whole frame with a send."""
    return frame_of(serial, "sendMessageP2B", **send_fields(topic, partition, data, **more))
