"""Converts neutral messages to TubeMQ's and back: a body, with attributes before it.

    data      attributes size i32 | `name=value,name=value` | body     (flag 1; else the body alone)

`$msgType$` is the type; `$msgTime$` the event time in whole minutes, yyyyMMddHHmm. The broker reads
and writes it as UTC, since the client formats it and the text has no time zone. Every other field
is an attribute under its own name or a reserved one (reserved_names.py). The format is described in
docs/reference/wire/tubemq.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

from trilogue.entry.compression import Buffer
from trilogue.entry.conversion.kafka import HEADERS_MAX, Placed
from trilogue.entry.conversion.reserved_names import (
    ATTRIBUTE,
    IN_BASE64,
    KEY,
    NULL,
    ORDERING_KEY,
    RESERVED,
    TIMESTAMP,
    TYPE,
    VALUE,
    decode_unpadded,
    encode_unpadded,
    parse_escaped,
    parse_number,
)
from trilogue.entry.conversion.result import Reason, SkippedRange, TubeMessage
from trilogue.entry.entry import NO_TIMESTAMP, EntryHeader, EntryTooLarge
from trilogue.entry.kafka.record_batch import DECOMPRESSED_LIMIT
from trilogue.entry.message import Message
from trilogue.entry.tubemq.tubemq_blob import (
    ATTRIBUTES_AT,
    MESSAGE_TIME,
    MESSAGE_TYPE,
    NO_TIME,
    join_data,
    read_stored,
    split_data,
)

_MINUTE_MS: Final = 60_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _END = (  # minutes of the years that four digits can hold
    (datetime(1, 1, 1, tzinfo=UTC) - _EPOCH) // timedelta(minutes=1),
    (datetime(9999, 12, 31, 23, 59, tzinfo=UTC) - _EPOCH) // timedelta(minutes=1) + 1,
)
_TAKEN: Final = {  # attributes that are not read as a header
    TIMESTAMP,
    VALUE,
    KEY,
    KEY + IN_BASE64,
    ORDERING_KEY,
    ORDERING_KEY + IN_BASE64,
    TYPE + IN_BASE64,
}
_QUOTED: Final = (("%", "%25"), (",", "%2C"), ("=", "%3D"), ("$", "%24"))
_DIGITS: Final = 12
WINDOW_BYTES_MAX: Final = 2 * DECOMPRESSED_LIMIT
"""Limit of bytes of one window: only headers that grow a lot as attributes exceed it."""
REPLACED: Final = "\ufffd"  # for bytes that are not UTF-8


def build_messages(
    messages: Iterable[Placed], start: int, end: int, *, limit: int
) -> Iterator[TubeMessage | SkippedRange]:
    """Yield results that cover the offsets [start, end) without a gap, holes as `SkippedRange`.

    `limit` is the maximum of bytes of one message's data. A larger message is skipped, and so is a
    message after `WINDOW_BYTES_MAX` bytes of the window.
    """
    next_offset = start
    left = WINDOW_BYTES_MAX
    for offset, message in messages:
        if offset < start:
            continue
        if offset >= end:
            break
        if offset > next_offset:
            yield SkippedRange(next_offset, offset - next_offset)
        next_offset = offset + 1
        made = tube_message(offset, message)
        size = len(made.data)
        if size <= limit and size <= left:
            left -= size
            yield made
        else:
            detail = f"{size} bytes where {min(limit, left)} are allowed"
            yield SkippedRange(offset, 1, Reason.TOO_LARGE, 1, detail)
    if next_offset < end:
        yield SkippedRange(next_offset, end - next_offset)


# ---- to TubeMQ


def tube_message(offset: int, message: Message) -> TubeMessage:
    """Convert a message for TubeMQ clients."""
    value, key, ordering_key, headers, kind, event_time, publish_time = message
    pieces: list[str] = []
    message_type: str | None = None
    message_time = NO_TIME
    if kind is not None:
        message_type = _put_type(kind, pieces)
    if event_time is not None:
        message_time = _put_time(event_time, pieces)
    elif publish_time is None:
        pieces.append(f"{TIMESTAMP}={NO_TIMESTAMP}")
    if key is not None:
        pieces.append(_spelled(KEY, key))
    if ordering_key is not None:
        pieces.append(_spelled(ORDERING_KEY, ordering_key))
    if value is None:
        pieces.append(f"{VALUE}={NULL}")
    if headers:
        pieces += _attributes_of(headers)
    data, flag = join_data(",".join(pieces), value or b"")
    return TubeMessage(offset, data, flag, message_type, message_time)


def _put_type(kind: str, pieces: list[str]) -> str | None:
    """Append the attribute of a type; return the type that filters see, or None."""
    if kind.strip() and _is_plain(kind):
        pieces.append(f"{MESSAGE_TYPE}={kind}")
        return kind
    pieces.append(f"{TYPE}{IN_BASE64}={encode_unpadded(kind.encode())}")
    return None


def _put_time(event_time: int, pieces: list[str]) -> int:
    """Append the attributes of a time; return its minute as TubeMQ's number, or `NO_TIME`."""
    minute, rest = divmod(event_time, _MINUTE_MS)
    message_time = NO_TIME
    if _FIRST <= minute < _END:
        message_time, digits = _digits(minute)
        pieces.append(digits)
    if rest or message_time == NO_TIME:
        pieces.append(f"{TIMESTAMP}={event_time}")
    return message_time


@lru_cache(maxsize=4096)
def _digits(minute: int) -> tuple[int, str]:
    """Return a minute since 1970 as the number yyyyMMddHHmm, and as an attribute."""
    moment = _EPOCH + timedelta(minutes=minute)
    text = f"{moment.year:04d}{moment:%m%d%H%M}"
    return int(text), f"{MESSAGE_TIME}={text}"


def _is_plain(text: str) -> bool:
    """Whether a text needs no escape in an attribute."""
    return not ("," in text or "=" in text or ("$" in text and _has_system(text)))


def _has_system(text: str) -> bool:
    return MESSAGE_TYPE in text or MESSAGE_TIME in text


def _plain(value: bytes) -> str | None:
    """Return bytes as text for an attribute, None where they need base64."""
    text = _as_text(value)
    return text if text is not None and _is_plain(text) else None


def _spelled(name: str, value: bytes) -> str:
    """Return the attribute that carries bytes under a reserved name."""
    text = _plain(value)
    return f"{name}{IN_BASE64}={encode_unpadded(value)}" if text is None else f"{name}={text}"


def _attributes_of(headers: Iterable[tuple[str, bytes | None]]) -> Iterator[str]:
    """Convert headers to attributes without loss."""
    seen: dict[str, int] = {}
    for name, value in headers:
        before = seen.get(name, 0)
        seen[name] = before + 1
        text = None if value is None else _plain(value)
        if text is not None and not before and _is_name(name):
            yield f"{name}={text}"
        elif value is not None and name == ATTRIBUTE and _is_odd(value):
            yield value.decode()
        elif value is None:
            yield f"trilogue.header.{before}.null.{_quote(name)}="
        elif text is not None:
            yield f"trilogue.header.{before}.text.{_quote(name)}={text}"
        else:
            encoded = encode_unpadded(value)
            yield f"trilogue.header.{before}.base64.{_quote(name)}={encoded}"


def _is_name(name: str) -> bool:
    """Whether an attribute of this name converts back to the same header."""
    if not name.strip() or not _is_plain(name):
        return False
    if not name.startswith(RESERVED):
        return True
    return name not in _TAKEN and name != ATTRIBUTE and parse_escaped(name) is None


def _is_odd(value: bytes) -> bool:
    """Whether a value is one attribute without a name and a value.

    False for a text that could be read as a message type or time.
    """
    piece = _as_text(value)
    if piece is None or not piece.strip() or "," in piece or _has_system(piece):
        return False
    return _pair(piece) is None


def _quote(name: str) -> str:
    for plain, quoted in _QUOTED:
        name = name.replace(plain, quoted)
    return name


def _unquote(name: str) -> str | None:
    """Return the name that `_quote` quoted, None where it would quote differently."""
    found = name
    for plain, quoted in reversed(_QUOTED):
        found = found.replace(quoted, plain)
    return found if _quote(found) == name else None


# ---- from TubeMQ


def read_messages(entry: Buffer, header: EntryHeader) -> Iterator[Placed]:
    """Yield the one message of an entry. Raises `EntryError` if the entry is damaged."""
    stored = read_stored(memoryview(entry)[: header.length])
    attributes, body = split_data(stored.data, stored.flag)
    if attributes.count(",") >= HEADERS_MAX:
        raise EntryTooLarge(f"{attributes.count(',') + 1} attributes")
    found = _AttributeParser()
    if REPLACED in attributes:
        found.read_octets(bytes(stored.data[ATTRIBUTES_AT : len(stored.data) - len(body)]))
    elif attributes:
        found.read(attributes.split(","))
    if found.type is None:  # attributes have priority: consumers see them
        found.type = stored.message_type
    if found.minute is None and stored.message_time != NO_TIME:
        found.minute = _minute_of(f"{stored.message_time:012d}")
    publish_time_ms = None if header.max_timestamp < 0 else header.max_timestamp
    yield header.base_offset, found.message(bytes(body), publish_time_ms)


def neutral_message(attributes: bytes, body: bytes, publish_time_ms: int | None) -> Message:
    """Return a message that a client has received; `attributes` as they came."""
    found = _AttributeParser()
    text = attributes.decode(errors="replace")
    if REPLACED in text:
        found.read_octets(attributes)
    else:
        found.read(text.split(","))
    return found.message(body, publish_time_ms)


class _AttributeParser:
    """Collects the fields of a message from its attributes."""

    __slots__ = ("exact", "headers", "is_null", "key", "minute", "ordering_key", "type")

    def __init__(self) -> None:
        self.headers: list[tuple[str, bytes | None]] = []
        self.key: bytes | None = None
        self.ordering_key: bytes | None = None
        self.type: str | None = None
        self.minute: int | None = None
        self.exact: int | None = None
        self.is_null = False

    def message(self, body: bytes, publish_time_ms: int | None) -> Message:
        """Return the neutral message."""
        event_time = self._time()
        if event_time == NO_TIMESTAMP:
            event_time = publish_time_ms = None
        value: bytes | None = body
        if self.is_null and body:
            self.headers.append((VALUE, NULL.encode()))
        elif self.is_null:
            value = None
        return Message(
            value,
            self.key,
            self.ordering_key,
            tuple(self.headers),
            self.type,
            event_time,
            publish_time_ms,
        )

    def _time(self) -> int | None:
        """Return the event time in ms: the exact time, if it is in the minute of `$msgTime$`."""
        minute, exact = self.minute, self.exact
        if minute is None:
            return exact
        if exact is not None:
            if exact // _MINUTE_MS == minute:
                return exact
            self.headers.append((TIMESTAMP, str(exact).encode()))
        return minute * _MINUTE_MS

    def read_octets(self, attributes: bytes) -> None:
        """Read attributes of which some are not UTF-8, which are kept as bytes."""
        for piece in attributes.split(b","):
            text = _as_text(piece)
            if text is None:
                self.headers.append((ATTRIBUTE, piece))
            else:
                self.read([text])

    def read(self, pieces: Iterable[str]) -> None:
        """Read attributes in order."""
        for piece in pieces:
            if not piece.strip():
                continue
            pair = _pair(piece)
            if pair is not None:
                if not (pair[0].startswith(RESERVED) and self._take(*pair)):
                    self.headers.append((pair[0], pair[1].encode()))
            elif not self._take_system(piece):
                self.headers.append((ATTRIBUTE, piece.encode()))

    def _take_system(self, piece: str) -> bool:
        """Read one of TubeMQ's own attributes; only the first of each counts."""
        name, _, text = piece.partition("=")
        if name == MESSAGE_TYPE and self.type is None and text.strip() and _is_plain(text):
            self.type = text
            return True
        if name == MESSAGE_TIME and self.minute is None:
            self.minute = _minute_of(text)
            return self.minute is not None
        return False

    def _take(self, name: str, text: str) -> bool:
        """Read an attribute with a reserved name; False where its value is not valid."""
        if name == TIMESTAMP and self.exact is None:
            self.exact = parse_number(text)
            return self.exact is not None
        if name == VALUE and text == NULL and not self.is_null:
            self.is_null = True
            return True
        if name in _TAKEN:
            return self._take_bytes(name, text)
        header = _header_of(name, text)
        if header is not None:
            self.headers.append(header)
        return header is not None

    def _take_bytes(self, name: str, text: str) -> bool:
        is_base64 = name.endswith(IN_BASE64)
        value = decode_unpadded(text) if is_base64 else text.encode()
        field = name.removesuffix(IN_BASE64)
        if value is None:
            return False
        if field == KEY and self.key is None:
            self.key = value
        elif field == ORDERING_KEY and self.ordering_key is None:
            self.ordering_key = value
        elif field == TYPE and self.type is None and (kind := _as_text(value)) is not None:
            self.type = kind
        else:
            return False
        return True


def _header_of(name: str, text: str) -> tuple[str, bytes | None] | None:
    """Convert an escaped header back; None for other attributes."""
    form, quoted = parse_escaped(name) or ("", "")
    original = _unquote(quoted)
    if not form or original is None:
        return None
    if form == NULL:
        return None if text else (original, None)
    value = decode_unpadded(text) if form == "base64" else text.encode()
    return None if value is None else (original, value)


def _pair(piece: str) -> tuple[str, str] | None:
    """Split `name=value`; None for other text, and for TubeMQ's own attributes."""
    name, equals, text = piece.partition("=")
    if not equals or "=" in text or not name.strip() or ("$" in piece and _has_system(piece)):
        return None
    return name, text


def _minute_of(digits: str) -> int | None:
    """Parse yyyyMMddHHmm as minutes since 1970; None for any other text."""
    if len(digits) != _DIGITS or not (digits.isascii() and digits.isdigit()):
        return None
    return _minute(digits)


@lru_cache(maxsize=4096)
def _minute(digits: str) -> int | None:
    month, day, hour, minute = (int(digits[at : at + 2]) for at in range(4, _DIGITS, 2))
    try:
        moment = datetime(int(digits[:4]), month, day, hour, minute, tzinfo=UTC)
    except ValueError:
        return None
    return (moment - _EPOCH) // timedelta(minutes=1)


def _as_text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None
