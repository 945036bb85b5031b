"""One connection of a Pulsar client: frames to handlers, commands back, keep-alive.

A handler is a function `(connection, command, frame)`. `command` is the parsed sub-message that
the handler's row names (commands.py), or None where the row is `raw`: then the handler reads the
frame itself, with `wire/pulsar/message_codec.py`. A frame is a view that is valid only until the
handler returns. A handler returns None, or a coroutine that becomes a task of the gateway; other
commands of the connection go on meanwhile. That of SEND may return False: the frame is offered
again when the stream goes on. A handler answers with

    connection.send_command("success", request_id=...)    a command by the name of its field
    connection.send_error(request_id, problem, text)      ERROR
    connection.write(bytes)                               a frame that is encoded already

all of which leave together at the end of the loop iteration. A BrokerError that a handler or its
coroutine raises is answered with ERROR where the command has a request id.

A command that is answered has a request id, and may be answered before others that came first.
What must keep its order are the receipts of a producer (gateway/connection.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.access.client_access import ClientAccess
from trilogue.broker.errors import BrokerError, NotAllowed
from trilogue.broker.transactions.pulsar_transactions import TxnId
from trilogue.gateway.connection import MultiplexedConnection
from trilogue.gateway.listener_security import ListenerSecurity
from trilogue.gateway.pulsar.auth.login import NO_METHOD, ClientLogin, LoginExpiry
from trilogue.gateway.pulsar.compaction import CompactedTopics
from trilogue.gateway.pulsar.dispatcher import PulsarConsumer
from trilogue.gateway.pulsar.errors import EXPECTED, code_of, replace_receipts
from trilogue.gateway.pulsar.producer import Producer
from trilogue.gateway.pulsar.send_fast_path import SendFastPath
from trilogue.gateway.pulsar.services import MEMBERS_PER_BLOCK, PulsarServices
from trilogue.gateway.pulsar.settings import NO_REQUEST
from trilogue.gateway.pulsar.subscriptions import ConnectedSubscriptions
from trilogue.gateway.stream import Buffer, Close, Stream
from trilogue.wire.pulsar.commands import COMMANDS, Sender
from trilogue.wire.pulsar.errors import ServerError
from trilogue.wire.pulsar.frame import encode_command, parse_command
from trilogue.wire.pulsar.message_codec import read_command_type
from trilogue.wire.pulsar.pulsar_pb2 import BaseCommand, FeatureFlags

if TYPE_CHECKING:
    from trilogue.gateway.pulsar.non_persistent.dispatcher import NonPersistentConsumer
    from trilogue.gateway.pulsar.non_persistent.producer import NonPersistentProducer

log = logging.getLogger(__name__)

SEND = BaseCommand.SEND
CLOSED_IDS_MAX = 1_000
ENDED_MAX = 100  # transactions
GONE_AT_ONCE = 500  # producers and consumers of a connection that closes: more than clients have
GONE_PER_TURN = 20
SMALL_REQUEST = 1 << 10  # bytes: one of these waits for no other connection's requests
METADATA_FREE = 1_024  # of one producer or consumer: bounded by how many there may be

TYPES: dict[str, int] = {command.field: command.type for command in COMMANDS}

# The protocol version from which on a client may be sent a command. CLOSE_PRODUCER and
# CLOSE_CONSUMER go both ways, so the table of the wire does not have the version for brokers;
# clients before that version lose the connection instead.
SINCE: dict[int, int] = {
    command.type: command.since for command in COMMANDS if command.sender is not Sender.CLIENT
} | {BaseCommand.CLOSE_PRODUCER: 5, BaseCommand.CLOSE_CONSUMER: 5}


class TopicWatch(Protocol):
    """A watch of a topic list that a connection holds for its client."""

    def gone(self) -> None:
        """The connection is closed: release everything."""

    def writable(self) -> None:
        """The peer reads again: send what has changed."""


class CommandRow(NamedTuple):
    """One command: its number and field, its handler, and the access that it needs.

    `raw`: the handler reads the frame itself. `answers_error`: the command has a request id that
    ERROR can name; other commands report a failure inside their own answer, or by closing.
    """

    type: int
    field: str
    handler: Callable[[PulsarConnection, Any, memoryview], Any]
    resource: ResourceKind
    operation: Operation
    raw: bool = False
    answers_error: bool = False
    before_connect: bool = False


class PulsarConnection(MultiplexedConnection):
    """One client: its producers, consumers and watches, and how it is answered."""

    gateway: PulsarServices

    def __init__(
        self,
        gateway: PulsarServices,
        *,
        subscriptions: ConnectedSubscriptions,
        compaction: CompactedTopics,
        rows: Mapping[int, CommandRow],
        connections: dict[PulsarConnection, None],
        listener: ListenerSecurity | None = None,
    ) -> None:
        super().__init__(gateway, gateway.bounds)
        self.listener = listener
        self.subscriptions = subscriptions
        self.compaction = compaction
        self.connected = False
        self.expiry: LoginExpiry | None = None  # of the client's token
        self._proxy_access: ClientAccess | None = None  # of the proxy between
        self.protocol_version = 0
        self.features = FeatureFlags()  # that the client declared
        self.client_version = ""
        self.producers: dict[int, Producer] = {}
        self.consumers: dict[int, PulsarConsumer] = {}
        self.non_persistent_producers: dict[int, NonPersistentProducer] = {}
        self.non_persistent_consumers: dict[int, NonPersistentConsumer] = {}
        self.watches: dict[int, TopicWatch] = {}
        self.closing: dict[int, asyncio.Future[None]] = {}  # producers whose receipts are due
        self.closed_producers: dict[int, None] = {}  # recently
        self.ended_transactions: deque[TxnId] = deque(maxlen=ENDED_MAX)  # the client knows
        self.refused_join: tuple[TxnId, int, BrokerError] | None = None  # of a partition id
        self.on_close: list[Callable[[], None]] = []
        self._rows = rows
        self._blocks: list[tuple[PulsarConnection, int]] = []  # of the members of all
        self._handle_send = rows[SEND].handler
        self._connections = connections  # all that are open, of this gateway
        self._fast_path = SendFastPath(self, self.process_frame)
        self.has_received = True
        self._opened_s = self._received_s = self._pinged_s = 0.0

    # ---- what the stream calls

    def opened(self, stream: Stream) -> None:
        """Keep the stream, and take only small frames until CONNECT."""
        self.stream = stream  # before anything else uses it
        self._opened_s = self._received_s = self._pinged_s = self.gateway.loop.time()
        stream.expect_login()
        self._connections[self] = None
        self._fast_path.open(stream.writer)
        super().opened(stream)

    @property
    def frame(self) -> Callable[[memoryview], bool]:
        """What takes the frames of this connection, for its stream."""
        return self._fast_path.take_frame

    @property
    def end_iteration(self) -> Callable[[], None]:
        """What ends the steps of this connection, for its stream."""
        return self._fast_path.end_iteration

    def end_step(self) -> None:
        """End a step in which not all frames were taken by the fast path, or something waits."""
        super().end_iteration()

    def process_frame(self, frame: memoryview) -> bool:
        """Take one frame; False when the log has no room for the message in it."""
        kind = read_command_type(frame)
        if kind == SEND:
            # Checked once per loop iteration.
            if not self.receipts and self.gateway.log.under_pressure:
                self.wait_for_log_space()
                return False
            self.in_step = self.has_received = True
            return self._handle_send(self, None, frame) is not False
        self.in_step = self.has_received = True
        row = self._rows.get(kind)
        if row is None:
            raise Close("command.not_served", type=kind)
        if not self.connected and not row.before_connect:
            raise Close("command.before_connect", command=row.field)
        if len(frame) > SMALL_REQUEST and self.gateway.request_memory.is_full:
            self.wait_for_request_memory()
            return False
        self.gateway.commands[kind] += 1
        if row.raw:
            row.handler(self, None, frame)
            return True
        if len(frame) > self.gateway.settings.command_bytes_max:
            raise Close("command.too_large", command=row.field, size=len(frame))
        self._handle(row, parse_command(frame), frame)
        return True

    def _handle(self, row: CommandRow, command: BaseCommand, frame: memoryview) -> None:
        message = getattr(command, row.field)
        try:
            work = row.handler(self, message, frame)
        except EXPECTED as problem:
            self._send_problem(row, message, problem)
        else:
            if work is not None:
                self.spawn(self._run(row, message, work), len(frame))
        self.flush_if_large()

    async def _run(self, row: CommandRow, message: Any, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except EXPECTED as problem:
            if not self.is_gone:
                self._send_problem(row, message, problem)

    def _send_problem(self, row: CommandRow, message: Any, problem: Exception) -> None:
        if not row.answers_error:
            raise Close("command.failed", command=row.field, problem=str(problem)) from problem
        self.send_error(message.request_id, problem)

    def closed(self) -> None:
        """Close the producers, consumers and watches of the connection with it."""
        super().closed()
        self._fast_path.close()
        self._connections.pop(self, None)
        callbacks: deque[Callable[[], None]] = deque(self.on_close)
        callbacks += [each.gone for each in self.all_consumers()]
        callbacks += [each.gone for each in self.watches.values()]
        callbacks += [each.gone for each in self.all_producers()]
        self._release(callbacks, GONE_AT_ONCE)
        self.gateway.members.release(self._blocks)
        self._blocks = []
        self.producers.clear()
        self.consumers.clear()
        self.non_persistent_producers.clear()
        self.non_persistent_consumers.clear()
        self.watches.clear()
        for closed in self.closing.values():
            closed.set_result(None)
        self.closing.clear()
        self.on_close.clear()

    def _release(self, callbacks: deque[Callable[[], None]], most: int = GONE_PER_TURN) -> None:
        """Call so many; the rest in turn with the requests of all connections."""
        for _ in range(min(most, len(callbacks))):
            try:
                callbacks.popleft()()
            except Exception:  # a failure of one must not keep the others
                log.exception("connection.close_failed")
        if callbacks:
            self.gateway.iterations.defer(partial(self._release, callbacks))

    # ---- commands out

    def resume_sending(self) -> None:
        """Let consumers and watches go on."""
        for each in [*self.consumers.values(), *self.watches.values()]:
            if self.write_paused or self.is_gone:
                return
            self.guarded(each.writable)

    def send_command(self, field: str, **fields: Any) -> bool:
        """Send a command by the name of its field; return whether it was sent.

        A command that is newer than the client's protocol version is not: a client need not know
        it (docs/reference/wire/pulsar.md).
        """
        kind = TYPES[field]
        if self.protocol_version < SINCE.get(kind, 0):
            return False
        values: dict[str, Any] = {"type": kind, field: fields}
        self.write(encode_command(BaseCommand(**values)))
        return True

    def send_error(
        self, request_id: int, problem: BaseException | ServerError, text: str = ""
    ) -> None:
        """Send ERROR: the code of a problem, and its text."""
        code = problem if isinstance(problem, ServerError) else code_of(problem)
        self.send_command("error", request_id=request_id, error=code, message=text or str(problem))

    def has_producer(self, producer_id: int, producer: object) -> bool:
        """Whether this producer id still stands for this producer."""
        found = self.producers.get(producer_id) or self.non_persistent_producers.get(producer_id)
        return found is producer

    def close_producer(self, producer_id: int) -> None:
        """Send CLOSE_PRODUCER: the client looks the topic up and creates its producer again.

        The receipts of what it sent leave first, since it would send those messages again
        otherwise. Clients below protocol version 5 lose the connection instead.
        """
        self.forget_producer(producer_id)

        def send(_problem: BaseException | None) -> None:
            if not self.send_command(
                "close_producer", producer_id=producer_id, request_id=NO_REQUEST
            ):
                self.flush_and_close()

        if self.receipts or self.groups.in_flight:
            self.on_commit(send)
        else:
            send(None)

    def close_consumer(self, consumer_id: int) -> None:
        """Send CLOSE_CONSUMER for a consumer that has left its subscription."""
        self.forget_consumer(consumer_id)
        if not self.send_command("close_consumer", consumer_id=consumer_id, request_id=NO_REQUEST):
            self.flush_and_close()

    def forget_consumer(self, consumer_id: int) -> None:
        """Take nothing more of a consumer, whose client is told later."""
        self.consumers.pop(consumer_id, None)
        self.non_persistent_consumers.pop(consumer_id, None)

    def forget_producer(self, producer_id: int) -> None:
        """Remember an id as one whose messages may still be in flight."""
        self.producers.pop(producer_id, None)
        self.non_persistent_producers.pop(producer_id, None)
        closed = self.closed_producers
        closed.pop(producer_id, None)
        closed[producer_id] = None
        if len(closed) > CLOSED_IDS_MAX:
            del closed[next(iter(closed))]

    def replace_receipts(self, receipts: list[Buffer], problem: BaseException) -> list[Buffer]:
        """Return SEND_ERROR frames in place of receipts whose messages are not durable."""
        return replace_receipts(receipts, problem)

    # ---- help for handlers

    def all_producers(self) -> list[Producer]:
        """Return the producers, of persistent topics and of others."""
        return [*self.producers.values(), *self.non_persistent_producers.values()]

    def all_consumers(self) -> list[PulsarConsumer | NonPersistentConsumer]:
        """Return the consumers, of persistent topics and of others."""
        return [*self.consumers.values(), *self.non_persistent_consumers.values()]

    def check_member_count(self) -> None:
        """Refuse one more producer or consumer than all may have: NotAllowed."""
        present = len(self.producers) + len(self.non_persistent_producers)
        present += len(self.consumers) + len(self.non_persistent_consumers)
        while present >= MEMBERS_PER_BLOCK * len(self._blocks):
            login = None if self.expiry is None else self.expiry.login.client
            is_named = login is not None and login.method != NO_METHOD
            creator = self.principal.name if is_named else f"@{self.stream.peer[0]}"
            block = (self, len(self._blocks))
            if not self.gateway.members.reserve(block, creator):
                raise NotAllowed("clients have as many producers and consumers as they may")
            self._blocks.append(block)

    def check_metadata_size(self, size: int) -> None:
        """Refuse a producer or consumer whose metadata is too much, with that of all others.

        `size` is in bytes. Raises NotAllowed.
        """
        if size <= METADATA_FREE:
            return
        size += sum(each.metadata_size for each in self.all_producers())
        size += sum(each.metadata_size for each in self.all_consumers())
        if size > self.gateway.settings.metadata_bytes_max:
            raise NotAllowed("the metadata of the connection's producers and consumers is too long")

    def is_allowed(self, operation: Operation, kind: ResourceKind, name: object) -> bool:
        """Whether the client may do this, and the proxy between, if there is one."""
        proxy = self._proxy_access
        return super().is_allowed(operation, kind, name) and (
            proxy is None or proxy.is_allowed(operation, kind, str(name))
        )

    def can_see(self, operation: Operation, kind: ResourceKind, name: object) -> bool:
        """The same for lists."""
        proxy = self._proxy_access
        return super().can_see(operation, kind, name) and (
            proxy is None or proxy.can_see(operation, kind, str(name))
        )

    # ---- life

    def set_login(self, login: ClientLogin) -> None:
        """Act for this user from now on, until it changes or its token ends."""
        self.access.set_principal(login.client.principal)
        if login.proxy is not None:
            host = self.stream.peer[0]
            self._proxy_access = self.gateway.make_access(host, login.proxy.principal)
        self.expiry = LoginExpiry(self, login)
        authenticator = self.gateway.authenticator
        for each in login.logins:
            authenticator.add_session(each.principal, self)
            self.on_close.append(partial(authenticator.remove_session, each.principal, self))
        authenticator.set_signers(self, login.logins)
        self.on_close.append(partial(authenticator.set_signers, self, ()))

    def establish(self) -> None:
        """CONNECT was accepted: frames may be as large as messages are."""
        self.connected = True
        self.stream.limit_frames(self.gateway.frame_bytes_max)

    def tick(self, now_s: float, *, is_late: bool = False) -> None:
        """Send PING when it is due, and cut a client that is silent; called once a second.

        After a late call the client may have sent what the node has not read.
        """
        settings = self.gateway.settings
        stream = self.stream
        # A peer that is not read cannot be heard, nor one whose frames wait for their turn.
        if self.has_received or stream.stops or stream.has_rest or is_late:
            self.has_received = False
            self._received_s = now_s
        if not self.connected:
            if now_s - self._opened_s >= settings.connect_s:
                self.stream.abort("connection.no_connect")
            return
        if self.expiry is not None:
            self.expiry.tick(self.gateway.now_ms())
        if now_s - self._received_s >= 2 * settings.keep_alive_s and self.protocol_version > 0:
            self.stream.abort("connection.silent")
        elif now_s - self._pinged_s >= settings.keep_alive_s:
            self._pinged_s = now_s
            self.send_command("ping")

    def check_alive(self) -> None:
        """Send PING now, because another client wants what this connection holds.

        The connection is cut when no frame comes within `alive_s`.
        """
        settings, now_s = self.gateway.settings, self.gateway.loop.time()
        if now_s - self._pinged_s < settings.alive_s:
            return  # a PING is on its way already
        self.has_received, self._pinged_s = False, now_s
        self._received_s = min(
            self._received_s, now_s - 2 * settings.keep_alive_s + settings.alive_s
        )
        self.send_command("ping")

    def finish_draining(self) -> None:
        """Close every producer and consumer, so that the client looks its topics up, and end."""
        for producer_id in [*self.producers, *self.non_persistent_producers]:
            self.send_command("close_producer", producer_id=producer_id, request_id=NO_REQUEST)
        for consumer_id in [*self.consumers, *self.non_persistent_consumers]:
            self.send_command("close_consumer", consumer_id=consumer_id, request_id=NO_REQUEST)
        self.flush_and_close()
