"""Messages: attributes, payload, encoding."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final, NamedTuple

from trilogue.client.errors import ClientError
from trilogue.client.message_bytes import MessageBytes, check_texts, check_topic, message_bytes
from trilogue.client.tubemq.errors import TubeError
from trilogue.entry.entry import InvalidEntry
from trilogue.entry.tubemq.tubemq_blob import (
    ATTRIBUTES_AT,
    MESSAGE_TIME,
    MESSAGE_TYPE,
    attributes_text,
    checksum_of,
    join_data,
    parse_attributes,
    split_data,
)
from trilogue.wire.tubemq.errors import TubeCode

TIME_FORMAT: Final = "%Y%m%d%H%M"
TIME_DIGITS: Final = 12
RESERVED: Final = (MESSAGE_TYPE, MESSAGE_TIME)
"""The attributes that hold a message's type (stream) and time; they go first."""


class Message:
    """Bytes for a topic, with attributes: text by name, without `,` and `=`."""

    __slots__ = ("attribute_bytes", "attributes", "body", "message_id", "topic")

    def __init__(
        self,
        topic: str,
        body: MessageBytes,
        attributes: Mapping[str, str] | None = None,
        message_id: int | None = None,
    ) -> None:
        if type(topic) is not str:
            check_topic(topic)
        self.topic = topic
        self.body = body if type(body) is bytes else message_bytes("body", body)
        self.attributes = dict(attributes or {})
        self.message_id = message_id
        """What the broker calls it; None before it was sent."""
        self.attribute_bytes = b""
        """The attributes of a received message, as they came."""

    def __repr__(self) -> str:
        return f"Message({self.topic}, {len(self.body)} bytes, {self.attributes})"

    def put_system_header(self, type: str, time: str | datetime | None = None) -> None:  # noqa: A002
        """Set the type of the message, which consumers filter by, and its time.

        The time is `yyyyMMddHHmm`, that of a datetime, or now.
        """
        if not type.strip() or not isinstance(time, str | datetime | None):
            raise ClientError(f"not a type and a time: {type!r}, {time!r}")
        if time is None:
            time = datetime.now()  # noqa: DTZ005 - the application's own clock, as in other clients
        if "," in type or "=" in type:
            raise ClientError(f"a type holds neither ',' nor '=': {type!r}")
        self.attributes |= {MESSAGE_TYPE: type.strip(), MESSAGE_TIME: as_time(time)}

    @property
    def type(self) -> str | None:
        """The stream it belongs to."""
        return self.attributes.get(MESSAGE_TYPE)

    @property
    def time(self) -> str | None:
        """Its time as `yyyyMMddHHmm`."""
        return self.attributes.get(MESSAGE_TIME)

    def attribute_text(self) -> str:
        """All attributes as the wire has them; ClientError for those that it cannot have."""
        check_texts("attributes", self.attributes.items())
        first = [(name, self.attributes[name]) for name in RESERVED if name in self.attributes]
        own = [(name, value) for name, value in self.attributes.items() if name not in RESERVED]
        try:
            return attributes_text(first + own)
        except InvalidEntry as problem:
            raise ClientError(f"neither ',' nor '=' in an attribute: {problem}") from problem


def as_time(time: str | datetime) -> str:
    """A time as it stands in attributes; it must be one."""
    if isinstance(time, datetime):
        return time.strftime(TIME_FORMAT)
    try:
        if len(time) != TIME_DIGITS:
            raise ValueError(time)
        datetime.strptime(time, TIME_FORMAT)  # noqa: DTZ007 - no zone is meant
    except ValueError:
        raise ClientError(f"not a time like 202611211200: {time!r}") from None
    return time


class Payload(NamedTuple):
    """A message as it goes to a broker."""

    data: bytes
    flag: int
    checksum: int


def encode_message(message: Message, size_max: int) -> Payload:
    """Write a message; TubeError 445 where body and attributes are too long for the topic."""
    data, flag = join_data(message.attribute_text(), message.body)
    size = len(data)
    if size > size_max:
        raise TubeError(
            TubeCode.TOO_LONG, f"{size} bytes, at most {size_max}", f"message to {message.topic}"
        )
    return Payload(data, flag, checksum_of(data))


def decode_message(
    topic: str, message_id: int, checksum: int, data: bytes, flag: int
) -> Message | None:
    """Decode a received message; None where its checksum is wrong."""
    if checksum_of(data) != checksum:
        return None
    try:
        text, body = split_data(data, flag)
    except InvalidEntry:
        return None
    message = Message(topic, bytes(body), dict(parse_attributes(text)), message_id)
    if text:
        message.attribute_bytes = data[ATTRIBUTES_AT : len(data) - len(body)]
    return message
