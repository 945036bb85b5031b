"""A Pulsar connection: the handshake, requests and their answers, pings, and their receivers.

One connection carries the commands of many producers and consumers ("connection sharing"); frames
of the broker are delivered to them by the id that they chose. Nothing newer than the broker's
protocol version is sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from trilogue.client.connection import FrameConnection
from trilogue.client.errors import ClientError, ConnectionLost, ServerUnreachable, Unsupported
from trilogue.client.pulsar.answers import ANSWERS, check_answer
from trilogue.client.pulsar.errors import error_for_code
from trilogue.client.pulsar.options import ClientOptions
from trilogue.wire.errors import WireError
from trilogue.wire.pulsar.commands import BY_TYPE, LATEST_VERSION
from trilogue.wire.pulsar.frame import MAX_FRAME_SIZE, MAX_MESSAGE_SIZE, SLACK, parse_command
from trilogue.wire.pulsar.frame import encode_command as frame_of
from trilogue.wire.pulsar.message_codec import read_command_type, read_message, read_receipt
from trilogue.wire.pulsar.message_types import Delivery, Receipt
from trilogue.wire.pulsar.pulsar_pb2 import (
    AuthData,
    BaseCommand,
    CommandAuthResponse,
    CommandConnect,
    CommandPing,
    CommandPong,
    FeatureFlags,
)

CLIENT_VERSION: Final = "trilogue"
LARGEST_MESSAGE_SIZE: Final = 128 << 20
"""What a broker may raise the largest message to; beyond it we do not believe it."""
_MESSAGE, _RECEIPT = BaseCommand.MESSAGE, BaseCommand.SEND_RECEIPT
Buffers = Iterable[bytes | bytearray | memoryview]


class ConnectionEvents(Protocol):
    """Events of a connection for a producer or a consumer."""

    def on_lost(self, connection: PulsarConnection) -> None:
        """The connection is gone."""

    def on_closed(self, connection: PulsarConnection) -> None:
        """The broker closed this producer or consumer; the connection lives on."""


class ProducerEvents(ConnectionEvents, Protocol):
    """Events for a producer."""

    def on_receipt(self, receipt: Receipt) -> None:
        """A message was stored."""

    def on_send_error(self, sequence_id: int, code: int, message: str) -> None:
        """A message was not."""


class ConsumerEvents(ConnectionEvents, Protocol):
    """Events for a consumer."""

    def on_message(self, delivery: Delivery, section: memoryview) -> None:
        """An entry came; the view is valid only now."""

    def on_end(self) -> None:
        """The topic was terminated and everything was acknowledged."""

    def on_active(self, active: bool) -> None:
        """This consumer now gets the messages, or no longer."""


class PulsarConnection:
    """One connection to one broker, perhaps by way of a proxy."""

    def __init__(
        self, options: ClientOptions, proxied_to: str = "", *, is_secure: bool = False
    ) -> None:
        self._options = options
        self._security = options.security
        self._is_secure = is_secure
        self._proxied_to = proxied_to
        self._frames = FrameConnection(self._on_frame, self._on_lost, MAX_FRAME_SIZE)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._second: dict[int, asyncio.Future[Any]] = {}
        self._connected: asyncio.Future[Any] | None = None
        self._gathered: list[bytes | bytearray | memoryview] = []  # not written yet
        self._request_ids = itertools.count(1)
        self._has_received = True
        self._timer: asyncio.TimerHandle | None = None
        self.producers: dict[int, ProducerEvents] = {}
        self.consumers: dict[int, ConsumerEvents] = {}
        self.protocol_version = 0
        self.server_version = ""
        self.max_message_size = MAX_MESSAGE_SIZE
        self.address = ""

    @property
    def is_open(self) -> bool:
        """Whether commands may be sent."""
        return self._frames.is_open and self._connected is None

    async def open(self, host: str, port: int) -> None:
        """Connect and greet; ConnectionLost, TimedOut, or PulsarError when we are not wanted."""
        self.address = f"{host}:{port}"
        loop = asyncio.get_running_loop()
        tls = self._security.make_context() if self._is_secure else None
        await self._frames.open(
            host, port, self._options.connect_timeout_s, tls, self._options.dial
        )
        self._connected = loop.create_future()
        try:
            self._frames.send([frame_of(self._greeting())])
            async with asyncio.timeout(self._options.connect_timeout_s):
                connected = (await self._connected).connected
        except BaseException as problem:  # cancelled, too: nothing else would close the connection
            self._frames.abort()
            if isinstance(problem, TimeoutError) and not isinstance(problem, ClientError):
                raise ServerUnreachable(f"{self.address} did not answer CONNECT") from None
            raise
        finally:
            self._connected = None
        self.server_version = connected.server_version
        self.protocol_version = min(connected.protocol_version, LATEST_VERSION)
        if connected.HasField("max_message_size"):
            if not 0 < connected.max_message_size <= LARGEST_MESSAGE_SIZE:
                self._frames.close()
                raise ConnectionLost(f"messages of {connected.max_message_size} bytes announced")
            self.max_message_size = connected.max_message_size
            # Not below the usual: a list of topics may be longer than the largest message.
            self._frames.frame_limit = max(MAX_MESSAGE_SIZE, self.max_message_size) + SLACK
        self._timer = loop.call_later(self._options.keep_alive_s, self._tick)

    def _greeting(self) -> BaseCommand:
        command = CommandConnect(
            client_version=CLIENT_VERSION,
            protocol_version=LATEST_VERSION,
            auth_method_name=self._security.method,
            auth_data=self._security.make_credentials(),
            feature_flags=FeatureFlags(
                supports_broker_entry_metadata=True,
                supports_auth_refresh=self._security.method != "none",
            ),
        )
        if self._proxied_to:
            command.proxy_to_broker_url = self._proxied_to
        return BaseCommand(type=BaseCommand.CONNECT, connect=command)

    def supports(self, kind: int) -> bool:
        """Whether the broker's protocol has this command."""
        return self.protocol_version >= BY_TYPE[kind].since

    def new_request_id(self) -> int:
        """An id that no other request of this connection has."""
        return next(self._request_ids)

    def expect(self, request_id: int) -> asyncio.Future[Any]:
        """The future of the answer to a request that is about to be sent."""
        future = self._waiting[request_id] = asyncio.get_running_loop().create_future()
        future.add_done_callback(lambda _: self._forget(request_id, future))
        return future

    def _forget(self, request_id: int, future: asyncio.Future[Any]) -> None:
        if self._waiting.get(request_id) is future:
            del self._waiting[request_id]

    async def request(
        self,
        request_id: int,
        command: BaseCommand,
        about: str,
        answer: asyncio.Future[Any] | None = None,
    ) -> Any:
        """Send a command and wait for its answer: the message inside of it.

        `answer` is the future of `expect`, where the caller needs it, too.
        PulsarError when it is refused, TimedOut, ConnectionLost, Unsupported.
        """
        answer = answer or self.expect(request_id)
        try:
            self.send(command)
            async with asyncio.timeout(self._options.request_timeout_s):
                return check_answer(await answer, about)
        except ClientError:
            raise
        except TimeoutError:
            raise ServerUnreachable(
                f"{about}: {self.address} did not answer "
                f"within {self._options.request_timeout_s:g} s"
            ) from None
        finally:
            answer.cancel()

    async def call(self, field: str, command: Any, about: str) -> Any:
        """Send a command, by the name of its field, with a request id; raises as `request`."""
        command.request_id = self.new_request_id()
        number = BaseCommand.DESCRIPTOR.fields_by_name[field].number
        base = BaseCommand(type=number, **{field: command})  # type: ignore[arg-type]
        return await self.request(command.request_id, base, about)

    def send(self, command: BaseCommand) -> None:
        """Send a command that has no section; Unsupported when the broker is too old for it."""
        if not self.supports(command.type):
            row = BY_TYPE[command.type]
            raise Unsupported(
                f"{row.name} needs protocol {row.since}, the broker speaks {self.protocol_version}"
            )
        self._send_gathered()  # in the order of the calls
        self._frames.send([frame_of(command)])

    def send_buffers(self, buffers: Buffers) -> None:
        """Send whole frames that are ready, with those of the same iteration of the loop.

        A write to the socket costs as much as the rest of a small message.
        """
        if not self._gathered:
            asyncio.get_running_loop().call_soon(self._send_gathered)
        self._gathered += buffers

    def _send_gathered(self) -> None:
        gathered, self._gathered = self._gathered, []
        if gathered and self._frames.is_open:
            self._frames.send(gathered)

    def keep_frame(self, part: memoryview) -> memoryview:
        """Return a part of the frame of this callback that stays valid."""
        return self._frames.keep_frame(part)

    def close(self) -> None:
        """Close; pending requests fail with ConnectionLost."""
        self._send_gathered()
        self._frames.close()

    async def wait_closed(self) -> None:
        """Wait until the socket of a closed connection is closed."""
        await self._frames.wait_closed()

    def _tick(self) -> None:
        """Probe the broker; a probe that nothing came after ends the connection."""
        if not self._has_received:
            self._frames.abort()
            return
        self._has_received = False
        if self.supports(BaseCommand.PING):
            with contextlib.suppress(ConnectionLost):  # it closes; the next probe ends what is left
                self.send(BaseCommand(type=BaseCommand.PING, ping=CommandPing()))
        else:
            self._has_received = True
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._options.keep_alive_s, self._tick)

    def _on_frame(self, frame: memoryview) -> None:
        self._has_received = True
        kind = read_command_type(frame)
        if kind == _MESSAGE:
            delivery = read_message(frame)
            consumer = self.consumers.get(delivery.consumer_id)
            if consumer is not None:
                consumer.on_message(delivery, frame[delivery.section_at :])
        elif kind == _RECEIPT:
            receipt = read_receipt(frame)
            producer = self.producers.get(receipt.producer_id)
            if producer is not None:
                producer.on_receipt(receipt)
        else:
            self._on_command(parse_command(frame))

    def _on_command(self, command: BaseCommand) -> None:
        kind = command.type
        message = getattr(command, BY_TYPE[kind].field)
        if self._connected is not None:
            self._on_greeted(command)
        elif kind in ANSWERS:
            waiting = self._waiting.pop(message.request_id, None)
            if waiting is None or waiting.done():
                return
            if kind == BaseCommand.PRODUCER_SUCCESS and not message.producer_ready:
                # The second response may be in the same bytes as this one.
                self._second[message.request_id] = self.expect(message.request_id)
            waiting.set_result(command)
        elif kind in PUSHED:
            PUSHED[kind](self, message)
        else:
            raise WireError(f"{BY_TYPE[kind].name} is not for clients")

    def second_response(self, request_id: int) -> asyncio.Future[Any]:
        """The response after a PRODUCER_SUCCESS with producer_ready=false."""
        return self._second.pop(request_id)

    def _on_greeted(self, command: BaseCommand) -> None:
        assert self._connected is not None
        if self._connected.done():
            return
        if command.type == BaseCommand.CONNECTED:
            self._connected.set_result(command)
        elif command.type == BaseCommand.ERROR:
            refusal = error_for_code(command.error.error, self.address, command.error.message)
            self._connected.set_exception(refusal)
        elif command.type == BaseCommand.AUTH_CHALLENGE:
            self._on_challenge(command.authChallenge)
        else:
            raise WireError(f"{BY_TYPE[command.type].name} before CONNECTED")

    def _on_challenge(self, _challenge: Any) -> None:
        """Log in again: the broker requests it before the login expires."""
        if self._security.method == "none":
            raise WireError("the broker requires a login: give token, or username and password")
        response = CommandAuthResponse(
            client_version=CLIENT_VERSION,
            protocol_version=LATEST_VERSION,
            response=AuthData(
                auth_method_name=self._security.method,
                auth_data=self._security.make_credentials(),
            ),
        )
        command = BaseCommand(type=BaseCommand.AUTH_RESPONSE, authResponse=response)
        self._frames.send([frame_of(command)])

    def _on_ping(self, _ping: Any) -> None:
        if self._frames.is_open:  # frames that came with the last ones are still handed out
            self.send(BaseCommand(type=BaseCommand.PONG, pong=CommandPong()))

    def _on_pong(self, _pong: Any) -> None:
        pass

    def _on_close_producer(self, close: Any) -> None:
        producer = self.producers.get(close.producer_id)
        if producer is not None:
            producer.on_closed(self)

    def _on_close_consumer(self, close: Any) -> None:
        consumer = self.consumers.get(close.consumer_id)
        if consumer is not None:
            consumer.on_closed(self)

    def _on_send_error(self, problem: Any) -> None:
        producer = self.producers.get(problem.producer_id)
        if producer is not None:
            producer.on_send_error(problem.sequence_id, problem.error, problem.message)

    def _on_end(self, end: Any) -> None:
        consumer = self.consumers.get(end.consumer_id)
        if consumer is not None:
            consumer.on_end()

    def _on_active(self, change: Any) -> None:
        consumer = self.consumers.get(change.consumer_id)
        if consumer is not None:
            consumer.on_active(change.is_active)

    def _on_migrated(self, moved: Any) -> None:
        """The topic moved to another cluster (PIP-188): the next lookup leads there."""
        owners: dict[int, Any] = self.consumers if moved.resource_type else self.producers
        owner = owners.get(moved.resource_id)
        if owner is not None:
            owner.on_closed(self)

    def _on_lost(self, problem: Exception) -> None:
        if self._timer is not None:
            self._timer.cancel()
        lost = problem if isinstance(problem, ClientError) else ConnectionLost(str(problem))
        waiting = [*self._waiting.values()]
        if self._connected is not None:
            waiting.append(self._connected)
        self._waiting.clear()
        for future in waiting:
            if not future.done():
                future.set_exception(lost)
                future.exception()  # the caller may be cancelled
        attached: list[ConnectionEvents] = [*self.producers.values(), *self.consumers.values()]
        self.producers.clear()
        self.consumers.clear()
        for one in attached:
            one.on_lost(self)


PUSHED: Final[dict[int, Callable[[PulsarConnection, Any], None]]] = {
    BaseCommand.PING: PulsarConnection._on_ping,  # noqa: SLF001 - the table of what is pushed
    BaseCommand.PONG: PulsarConnection._on_pong,  # noqa: SLF001
    BaseCommand.CLOSE_PRODUCER: PulsarConnection._on_close_producer,  # noqa: SLF001
    BaseCommand.CLOSE_CONSUMER: PulsarConnection._on_close_consumer,  # noqa: SLF001
    BaseCommand.SEND_ERROR: PulsarConnection._on_send_error,  # noqa: SLF001
    BaseCommand.REACHED_END_OF_TOPIC: PulsarConnection._on_end,  # noqa: SLF001
    BaseCommand.ACTIVE_CONSUMER_CHANGE: PulsarConnection._on_active,  # noqa: SLF001
    BaseCommand.AUTH_CHALLENGE: PulsarConnection._on_challenge,  # noqa: SLF001
    BaseCommand.TOPIC_MIGRATED: PulsarConnection._on_migrated,  # noqa: SLF001
}
