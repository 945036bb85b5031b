"""The WebSockets of consumers and readers: messages out, acknowledgements and other commands in.

    sent and not answered   `receiverQueueSize` at most; each command about a message makes room
    pullMode                none are sent before the client permits them: {"type": "permit", ...}

The client inside has one permit at a time: what is not sent stays in the log, and another consumer
of a shared subscription gets it.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from starlette.websockets import WebSocket

from trilogue.client.errors import ClientError
from trilogue.client.pulsar.client import PulsarClient
from trilogue.client.pulsar.consumer.consumer import Consumer
from trilogue.client.pulsar.consumer.reader import Reader
from trilogue.client.pulsar.errors import ClosedError, EndOfTopic
from trilogue.client.pulsar.message import EARLIEST, LATEST, MessageId
from trilogue.client.pulsar.options import SubscriptionType
from trilogue.gateway.http.websocket.dead_letters import DeadLetters
from trilogue.gateway.http.websocket.session import (
    BAD_DATA,
    FAILED_TEXT,
    CloseSocket,
    InvalidQuery,
    SocketQuery,
    decode_id,
    decode_json,
    encode_message,
    receive_text,
    run_until_first,
)

QUEUE_MAX: Final = 1_000  # messages that are sent and not answered
PERMITS_MAX: Final = 1 << 31  # that a client in pull mode may have
ACK_TIMEOUT_LEAST_MS: Final = 1_000
TYPES: Final = {
    "Exclusive": SubscriptionType.EXCLUSIVE,
    "Shared": SubscriptionType.SHARED,
    "Failover": SubscriptionType.FAILOVER,
    "Key_Shared": SubscriptionType.KEY_SHARED,
}
SUBSCRIPTION_MODES: Final = {"Durable": True, "NonDurable": False}


class Command(msgspec.Struct, rename="camel"):
    """What a client sends: without a type it is an acknowledgement."""

    type: str | None = None
    message_id: str | None = None
    permit_messages: int | None = None


class MessagePermits:
    """How many messages may be sent: as many as are not answered, or as the client permits."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pending = 0
        self._changed = asyncio.Event()

    async def wait(self) -> None:
        """Return when one more may be sent."""
        while self._pending >= self._limit:
            self._changed.clear()
            await self._changed.wait()

    def use(self) -> None:
        """Count a message that is sent."""
        self._pending += 1

    def add(self, count: int) -> None:
        """Let so many more be sent."""
        self._pending = max(self._pending - count, -PERMITS_MAX)
        self._changed.set()


class AckTimeouts:
    """When messages that are not acknowledged are due again."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._due: dict[MessageId, float] = {}  # in their order
        self._changed = asyncio.Event()

    def add(self, message_id: MessageId) -> None:
        """Count a message that is sent."""
        if self._timeout_s:
            self._due.pop(message_id, None)
            self._due[message_id] = time.monotonic() + self._timeout_s
            self._changed.set()

    def remove(self, message_id: MessageId) -> None:
        """Forget a message that is acknowledged, or due again by itself."""
        self._due.pop(message_id, None)

    async def next(self) -> MessageId:
        """Return the next message whose time is over."""
        while True:
            message_id, due_s = next(iter(self._due.items()), (None, 0.0))
            left_s = due_s - time.monotonic()
            if message_id is None:
                self._changed.clear()
                await self._changed.wait()
            elif left_s > 0:
                await asyncio.sleep(left_s)
            else:
                del self._due[message_id]
                return message_id


async def open_consumer(
    client: PulsarClient, topic: str, params: Mapping[str, str], query: SocketQuery
) -> Callable[[WebSocket], ConsumerSession]:
    """Subscribe; raises InvalidQuery or ClientError."""
    query.refuse("cryptoFailureAction")
    timeout_ms = query.number("ackTimeoutMillis", 0)
    if 0 < timeout_ms < ACK_TIMEOUT_LEAST_MS:
        raise InvalidQuery(f"Ack timeout should be greater than {ACK_TIMEOUT_LEAST_MS} ms")
    letters = DeadLetters.of_query(client, topic, params["subscription"], query)
    consumer = await client.subscribe(
        topic,
        params["subscription"],
        type=query.choice("subscriptionType", TYPES, SubscriptionType.EXCLUSIVE),
        durable=query.choice("subscriptionMode", SUBSCRIPTION_MODES, default=True),
        name=query.text("consumerName") or None,
        priority=query.number("priorityLevel", 0),
        nack_delay_s=query.number("negativeAckRedeliveryDelay", 60_000) / 1_000,
        queue_size=1,
    )
    limit = 0 if query.flag("pullMode") else _queue_size(query)
    return lambda websocket: ConsumerSession(
        websocket, consumer, limit, AckTimeouts(timeout_ms / 1_000), letters
    )


async def open_reader(
    client: PulsarClient, topic: str, _params: Mapping[str, str], query: SocketQuery
) -> Callable[[WebSocket], ReaderSession]:
    """Make the reader; raises InvalidQuery or ClientError."""
    query.refuse("cryptoFailureAction")
    start, text = LATEST, query.text("messageId")
    if text == "earliest":
        start = EARLIEST
    elif text not in {"", "latest"}:
        try:
            start = decode_id(text)
        except ClientError as problem:
            raise InvalidQuery(str(problem)) from problem
    name = query.text("readerName")
    reader = await client.reader(topic, start, queue_size=1, name=name or None)
    return lambda websocket: ReaderSession(websocket, reader, _queue_size(query))


def _queue_size(query: SocketQuery) -> int:
    return max(1, min(query.number("receiverQueueSize", QUEUE_MAX), QUEUE_MAX))


class _ReceivingSession(ABC):
    """Sends what comes, while there are permits, and handles what the client sends."""

    def __init__(self, websocket: WebSocket, consumer: Consumer, limit: int) -> None:
        self._websocket = websocket
        self._consumer = consumer
        self._is_pulling = not limit
        self._permits = MessagePermits(limit)

    async def run(self) -> None:
        """Serve until the client or the consumer is gone."""
        await run_until_first(self._read(), self._send(), self._watch())

    async def _watch(self) -> None:
        """Do what is due without the client; never returns."""
        await asyncio.get_running_loop().create_future()

    async def _send(self) -> None:
        while True:
            await self._permits.wait()
            try:
                await self._send_next()
            except (EndOfTopic, ClosedError):  # the client requests it by isEndOfTopic
                await asyncio.get_running_loop().create_future()

    async def _send_next(self) -> None:
        text = await self._receive_text()
        self._permits.use()
        await self._websocket.send_text(text)
        self._consumer.release_taken()

    async def _receive_text(self) -> str:
        """Return the next message as JSON."""
        return encode_message(await self._consumer.receive())

    async def _read(self) -> None:
        while True:
            text = await receive_text(self._websocket)
            try:
                command = decode_json(text, Command)
            except ValueError as problem:
                raise CloseSocket(BAD_DATA, f"{FAILED_TEXT}: {problem}") from problem
            if command.type == "isEndOfTopic":
                ended = await self._has_ended()
                await self._websocket.send_text(f'{{"endOfTopic":{str(ended).lower()}}}')
            elif command.type == "permit":
                if command.permit_messages is None:
                    reason = "Missing required permitMessages field for 'permit' command"
                    raise CloseSocket(BAD_DATA, reason)
                if self._is_pulling:
                    self._permits.add(max(0, command.permit_messages))
            else:
                await self._handle(command)

    async def _has_ended(self) -> bool:
        return self._consumer.at_end

    @abstractmethod
    async def _handle(self, command: Command) -> None:
        """Handle a command of this kind of session."""


class ReaderSession(_ReceivingSession):
    """The WebSocket of a reader: any message of its client makes room for another one."""

    def __init__(self, websocket: WebSocket, reader: Reader, limit: int) -> None:
        super().__init__(websocket, reader, limit)

    async def _handle(self, _command: Command) -> None:
        self._permits.add(1)


class ConsumerSession(_ReceivingSession):
    """The WebSocket of a consumer."""

    def __init__(
        self,
        websocket: WebSocket,
        consumer: Consumer,
        limit: int,
        timeouts: AckTimeouts,
        letters: DeadLetters,
    ) -> None:
        super().__init__(websocket, consumer, limit)
        self._timeouts = timeouts
        self._letters = letters

    async def _receive_text(self) -> str:
        message = await self._consumer.receive()
        while await self._letters.add(message):
            await self._consumer.ack(message)
            message = await self._consumer.receive()
        self._timeouts.add(message.id)
        return encode_message(message)

    async def _watch(self) -> None:
        """Have messages sent again whose time is over."""
        while True:
            message_id = await self._timeouts.next()
            await self._return(message_id)
            self._make_room()

    async def _handle(self, command: Command) -> None:
        if command.type == "unsubscribe":
            await self._consumer.unsubscribe()
            return
        try:
            message_id = self._find_id(command)
        except ClientError as problem:
            raise CloseSocket(BAD_DATA, f"{FAILED_TEXT}: {problem}") from problem
        self._make_room()
        self._timeouts.remove(message_id)
        if command.type == "negativeAcknowledge":
            await self._return(message_id)
        else:
            self._letters.remove(message_id)
            await self._consumer.ack(message_id)

    def _find_id(self, command: Command) -> MessageId:
        """Return the id of a command as the consumer has it."""
        if command.message_id is None:
            raise ClientError("no messageId")
        message_id = decode_id(command.message_id)
        if message_id.partition >= 0:
            suffix = f"-partition-{message_id.partition}"
            topic = next((each for each in self._consumer.topics if each.endswith(suffix)), "")
        else:
            topic = self._consumer.topics[0]
        return message_id._replace(topic=topic)

    async def _return(self, message_id: MessageId) -> None:
        """Have a message sent again, or send it to the topic of dead letters."""
        if await self._letters.send(message_id):
            await self._consumer.ack(message_id)
        else:
            self._consumer.nack(message_id)

    def _make_room(self) -> None:
        if not self._is_pulling:
            self._permits.add(1)
