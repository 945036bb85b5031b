"""The WebSocket of a producer: messages in, an answer for each, in their order."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple

import msgspec
from starlette.websockets import WebSocket

from trilogue.client.errors import ClientError
from trilogue.client.pulsar.client import PulsarClient
from trilogue.client.pulsar.message import MessageId
from trilogue.client.pulsar.options import Batching, Compression, Hashing, Routing
from trilogue.client.pulsar.producer.producer import Producer
from trilogue.gateway.http.websocket.session import (
    ENCODING_FAILED,
    FAILED_TEXT,
    JSON_FAILED,
    UNKNOWN_FAILURE,
    SocketQuery,
    decode_json,
    encode_id,
    receive_text,
    run_until_first,
)

IN_FLIGHT_MAX: Final = 1_000  # messages of one WebSocket that are not stored yet
IN_FLIGHT_BYTES: Final = 8 << 20  # of their payloads
COMPRESSIONS: Final = {each.name: each for each in Compression}
HASHINGS: Final = {"JavaStringHash": Hashing.JAVA_STRING, "Murmur3_32Hash": Hashing.MURMUR3}
ROUTINGS: Final = {
    "RoundRobinPartition": Routing.ROUND_ROBIN,
    "SinglePartition": Routing.SINGLE,
    "CustomPartition": Routing.SINGLE,
}


class IncomingMessage(msgspec.Struct, rename="camel"):
    """A message as a producer sends it."""

    payload: str | None = None
    properties: Mapping[str, str] | None = None
    context: str | None = None
    key: str | None = None
    event_time: str | None = None
    sequence_id: int | None = None
    deliver_at: int = 0
    deliver_after_ms: int = 0
    encryption_param: str | None = None


class Receipt(msgspec.Struct, rename="camel", omit_defaults=True):
    """The answer to a message: its id, or what is wrong with it."""

    result: str
    message_id: str | None = None
    error_msg: str | None = None
    context: str | None = None
    schema_version: int | None = None


class _Sent(NamedTuple):
    context: str | None
    size: int
    stored: asyncio.Future[MessageId] | None
    refusal: Receipt | None = None


class MessageRefused(Exception):
    """A message that cannot be sent, and the code of the reason."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


async def open_producer(
    client: PulsarClient, topic: str, _params: Mapping[str, str], query: SocketQuery
) -> Callable[[WebSocket], ProducerSession]:
    """Make the producer; raises InvalidQuery or ClientError."""
    query.refuse("encryptionKeys")
    batching = None
    if query.flag("batchingEnabled"):
        batching = Batching(
            max_messages=query.number("batchingMaxMessages", 1_000, 1),
            max_delay_s=query.number("batchingMaxPublishDelay", 10) / 1_000,
        )
    in_flight = query.number("maxPendingMessages", IN_FLIGHT_MAX) or IN_FLIGHT_MAX
    sequence = query.number("initialSequenceId", -1, -1) + 1
    producer = await client.producer(
        topic,
        name=query.text("producerName") or None,
        first_sequence_id=sequence or None,
        batching=batching,
        compression=query.choice("compressionType", COMPRESSIONS, Compression.NONE),
        hashing=query.choice("hashingScheme", HASHINGS, Hashing.JAVA_STRING),
        routing=query.choice("messageRoutingMode", ROUTINGS, Routing.SINGLE),
        delivery_timeout_s=query.number("sendTimeoutMillis", 30_000) / 1_000,
        max_pending=min(in_flight, IN_FLIGHT_MAX),
    )
    return lambda websocket: ProducerSession(websocket, producer, min(in_flight, IN_FLIGHT_MAX))


class ProducerSession:
    """Reads messages, and answers them when they are stored."""

    def __init__(self, websocket: WebSocket, producer: Producer, in_flight_max: int) -> None:
        self._websocket = websocket
        self._producer = producer
        self._sent: asyncio.Queue[_Sent] = asyncio.Queue(in_flight_max)
        self._bytes = 0
        self._has_room = asyncio.Event()
        self._has_room.set()

    async def run(self) -> None:
        """Serve until the client or the topic is gone."""
        await run_until_first(self._read(), self._answer())

    async def _read(self) -> None:
        while True:
            await self._has_room.wait()
            text = await receive_text(self._websocket)
            context = None
            try:
                try:
                    message = decode_json(text, IncomingMessage)
                except ValueError as problem:
                    raise MessageRefused(JSON_FAILED, f"{FAILED_TEXT}: {problem}") from problem
                context = message.context
                sent = await self._submit(message)
            except MessageRefused as problem:
                refusal = Receipt(f"send-error:{problem.code}", None, str(problem), context)
                sent = _Sent(context, 0, None, refusal)
            except ClientError as problem:
                refusal = Receipt(f"send-error:{UNKNOWN_FAILURE}", None, str(problem), context)
                sent = _Sent(context, 0, None, refusal)
            del text
            self._bytes += sent.size
            if self._bytes >= IN_FLIGHT_BYTES:
                self._has_room.clear()
            await self._sent.put(sent)

    async def _submit(self, message: IncomingMessage) -> _Sent:
        if message.payload is None:
            raise MessageRefused(ENCODING_FAILED, "the message has no payload")
        if message.encryption_param is not None:
            raise MessageRefused(ENCODING_FAILED, "encrypted payloads are not served")
        payload = decode_payload(message.payload)
        stored = await self._producer.submit(
            payload,
            key=message.key,
            properties=message.properties or {},
            event_time_ms=_parse_time(message.event_time),
            sequence_id=message.sequence_id,
            deliver_at_ms=message.deliver_at,
            deliver_after_ms=message.deliver_after_ms,
        )
        return _Sent(message.context, len(payload), stored)

    async def _answer(self) -> None:
        while True:
            sent = await self._sent.get()
            receipt = sent.refusal or await self._await_receipt(sent)
            self._bytes -= sent.size
            if self._bytes < IN_FLIGHT_BYTES:
                self._has_room.set()
            await self._websocket.send_text(msgspec.json.encode(receipt).decode())

    async def _await_receipt(self, sent: _Sent) -> Receipt:
        assert sent.stored is not None
        try:
            message_id = await sent.stored
        except ClientError as problem:
            return Receipt(f"send-error:{UNKNOWN_FAILURE}", None, str(problem), sent.context)
        return Receipt("ok", encode_id(message_id), None, sent.context, -1)


def decode_payload(text: str) -> bytes:
    """Return the bytes of a text in base64; raises MessageRefused."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as problem:
        reason = f"Invalid Base64 message-payload error={problem}"
        raise MessageRefused(ENCODING_FAILED, reason) from problem


def _parse_time(text: str | None) -> int:
    """Return a time in ms; 0 without one. Raises MessageRefused."""
    if text is None:
        return 0
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as problem:
        raise MessageRefused(ENCODING_FAILED, f"eventTime: {problem}") from problem
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0, int(moment.timestamp() * 1_000))
