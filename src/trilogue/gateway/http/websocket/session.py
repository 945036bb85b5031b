"""What the WebSockets of producers, consumers and readers share: query, errors, messages as JSON.

The parameters of the query, the fields of the messages and the statuses of refused connections are
those of Apache Pulsar 4.0 (docs/reference/pulsar-websocket.md).
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Coroutine, Mapping
from typing import Any, Final, TypeVar

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect

from trilogue.client.errors import ClientError, ServerRefused, TimedOut
from trilogue.client.pulsar.message import Message, MessageId
from trilogue.gateway.http.pulsar.topic_clients import format_time
from trilogue.wire.pulsar.errors import ServerError

JSON_FAILED: Final = 3
ENCODING_FAILED: Final = 7
UNKNOWN_FAILURE: Final = 8
FAILED_TEXT: Final = "Failed to de-serialize from JSON"

BAD_DATA: Final = 1003  # codes of RFC 6455 with which the server closes
INTERNAL_ERROR: Final = 1011
REASON_BYTES: Final = 120  # of the reason that a closing frame has at most

NUMBER_DIGITS: Final = 18

STATUSES: Final[Mapping[int, int]] = {
    ServerError.AuthenticationError: 401,
    ServerError.AuthorizationError: 403,
    ServerError.TopicNotFound: 404,
    ServerError.SubscriptionNotFound: 404,
    ServerError.ConsumerNotFound: 404,
    ServerError.ProducerBusy: 409,
    ServerError.ConsumerBusy: 409,
    ServerError.ProducerFenced: 409,
    ServerError.IncompatibleSchema: 409,
    ServerError.InvalidTopicName: 400,
    ServerError.TooManyRequests: 429,
    ServerError.ProducerBlockedQuotaExceededError: 503,
    ServerError.ProducerBlockedQuotaExceededException: 503,
    ServerError.TopicTerminatedError: 503,
    ServerError.ServiceNotReady: 503,
}
T = TypeVar("T")


class CloseSocket(Exception):
    """Raised by a session to close its WebSocket, with a code of RFC 6455 and a reason."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason.encode()[:REASON_BYTES].decode(errors="ignore")


class InvalidQuery(Exception):
    """A parameter of the query that has no such value."""


async def receive_text(websocket: WebSocket) -> str:
    """Return the next message of text; binary ones are passed over, as by Apache Pulsar.

    Raises WebSocketDisconnect.
    """
    while True:
        message = await websocket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message["code"], message.get("reason"))
        text = message.get("text")
        if text is not None:
            return str(text)


async def run_until_first(*work: Coroutine[Any, Any, None]) -> None:
    """Run coroutines until one ends, cancel the others, and raise what ended it."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    for problem in ended:
        if isinstance(problem, ClientError):
            raise CloseSocket(INTERNAL_ERROR, str(problem))
        if isinstance(problem, Exception):
            raise problem


def status_of(problem: Exception) -> int:
    """Return the status of a connection that is refused for an error of the client inside."""
    if isinstance(problem, ServerRefused):
        return STATUSES.get(problem.code, 500)
    return 504 if isinstance(problem, TimedOut) else 500


class SocketQuery:
    """The parameters of the query; raises InvalidQuery for values of a wrong type."""

    def __init__(self, websocket: WebSocket) -> None:
        self._params = websocket.query_params

    def text(self, name: str) -> str:
        """Return a text; "" without one."""
        return self._params.get(name, "")

    def number(self, name: str, default: int, least: int = 0) -> int:
        """Return a number."""
        text = self._params.get(name)
        if text is None:
            return default
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= NUMBER_DIGITS):
            raise InvalidQuery(f'{name}: For input string: "{text[:40]}"')
        if int(text) < least:
            raise InvalidQuery(f"{name} has to be at least {least}")
        return int(text)

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return a boolean."""
        text = self._params.get(name)
        return default if text is None else text.lower() == "true"

    def choice(self, name: str, choices: Mapping[str, T], default: T) -> T:
        """Return what one of several names stands for."""
        text = self._params.get(name)
        if text is None:
            return default
        if text not in choices:
            raise InvalidQuery(f"Invalid {name} {text[:40]}")
        return choices[text]

    def refuse(self, *names: str) -> None:
        """Refuse parameters that have no effect here."""
        for name in names:
            if name in self._params:
                raise InvalidQuery(f"{name} is not served")


class OutgoingMessage(msgspec.Struct, rename="camel", omit_defaults=True):
    """A message as consumers and readers get it."""

    message_id: str
    payload: bytes  # in base64
    properties: dict[str, str]
    publish_time: str
    redelivery_count: int = msgspec.field(default_factory=int)
    event_time: str | None = None
    key: str | None = None


def encode_message(message: Message) -> str:
    """Return a message as JSON."""
    outgoing = OutgoingMessage(
        message_id=encode_id(message.id),
        payload=message.value or b"",
        properties=message.properties,
        publish_time=format_time(message.publish_time_ms),
        redelivery_count=message.redelivery_count,
        event_time=format_time(message.event_time_ms) if message.event_time_ms else None,
        key=message.key,
    )
    return msgspec.json.encode(outgoing).decode()


def encode_id(message_id: MessageId) -> str:
    """Return an id as text."""
    return base64.b64encode(message_id.to_bytes()).decode()


def decode_id(text: str) -> MessageId:
    """Return the id of a text; raises ClientError."""
    try:
        return MessageId.from_bytes(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError) as problem:
        raise ClientError(f"no message id: {problem}") from problem


def decode_json(text: str, kind: type[T]) -> T:
    """Return JSON of a type; raises ValueError."""
    try:
        return msgspec.json.decode(text, type=kind, strict=False)
    except (msgspec.DecodeError, RecursionError) as problem:
        raise ValueError(str(problem)) from problem


def topic_of(params: Mapping[str, Any]) -> str:
    """Return the full name of the topic of a path."""
    return "{domain}://{tenant}/{namespace}/{topic}".format_map(params)
