"""TubeMQ's entries: the data of a send, unchanged, after the broker's header (layout.py).

    data, if flag bit 0 is set; otherwise the body alone:
    +-----------------+------------------------------+--------+
    | size of text 4  | `name=value,name=value`      | body   |
    +-----------------+------------------------------+--------+

An entry is one message. Flags: 1 attributes, 2 a type. The hash is Java's of the type; the
checksum is the CRC-32 of the data without its highest bit; the time is yyyyMMddHHmm as a number,
-1 for none; "sent from" is an IPv4 address as int32. The header's timestamps are the broker's,
since TubeMQ's messages have none in ms. The protocol is in docs/reference/wire/tubemq.md, the full
layout in docs/reference/file-formats-tubemq.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

from trilogue.entry.compression import Buffer
from trilogue.entry.entry import CorruptEntry, EntryHeader, Format, InvalidEntry
from trilogue.entry.header import HEADER_SIZE
from trilogue.entry.tubemq.layout import ATTRIBUTES, BLOCK_VERSION, FIXED_BLOCK, TYPE_AT, TYPED
from trilogue.entry.tubemq.tubemq_entry import (
    TYPE_SIZE_MAX,
    PickedMessages,
    Transfer,
    WrongChecksum,
    build_entry,
    java_hash,
    message_id,
    pick,
)

__all__ = [
    "ATTRIBUTES",
    "ATTRIBUTES_AT",
    "COMPUTE",
    "MESSAGE_TIME",
    "MESSAGE_TYPE",
    "NO_TIME",
    "TYPED",
    "TYPE_SIZE_MAX",
    "PickedMessages",
    "StoredMessage",
    "Transfer",
    "WrongChecksum",
    "attributes_text",
    "build_entry",
    "checksum_of",
    "java_hash",
    "join_data",
    "message_id",
    "parse_attributes",
    "pick",
    "read_stored",
    "split_data",
    "verify_entry",
]

COMPUTE: Final = -1
"""The checksum field of a producer that does not compute one."""
NO_TIME: Final = -1
MESSAGE_TYPE: Final = "$msgType$"
"""The attribute of the message type; clients write it as the first one."""
MESSAGE_TIME: Final = "$msgTime$"

_SIZE: Final = Struct(">i")
ATTRIBUTES_AT: Final = _SIZE.size
"""Where the attributes begin, in data that has them."""


class StoredMessage(NamedTuple):
    """A stored message; `data` is a view of the entry."""

    flag: int
    message_type: str | None
    type_hash: int
    checksum: int
    sent_addr: int
    message_time: int
    broker_ms: int
    data: memoryview


def read_stored(entry: Buffer) -> StoredMessage:
    """Parse one complete entry. Raises `CorruptEntry` unless `build_entry` could have built it."""
    view = memoryview(entry)
    if len(view) < TYPE_AT:
        raise CorruptEntry(f"a TubeMQ entry of {len(view)} bytes")
    fields = FIXED_BLOCK.unpack_from(view, HEADER_SIZE)
    version, flags, type_size, type_hash, checksum, sent_addr, message_time, broker_ms = fields
    data_at = TYPE_AT + type_size
    if version != BLOCK_VERSION or flags & ~(ATTRIBUTES | TYPED):
        raise CorruptEntry(f"version {version}, flags {flags} of a TubeMQ entry")
    if data_at > len(view) or (type_size and not flags & TYPED):
        raise CorruptEntry(f"a type of {type_size} bytes in an entry of {len(view)}")
    try:
        message_type = str(view[TYPE_AT:data_at], "utf-8") if flags & TYPED else None
    except UnicodeDecodeError as error:
        raise CorruptEntry(f"a type that is not text: {error.reason}") from error
    return StoredMessage(
        flags & ATTRIBUTES,
        message_type,
        type_hash,
        checksum,
        sent_addr,
        message_time,
        broker_ms,
        view[data_at:],
    )


def verify_entry(entry: Buffer, header: EntryHeader) -> StoredMessage:
    """Parse one complete entry and check the fields that its checksum does not prove right.

    Raises `CorruptEntry` where hash, checksum or attributes do not match the data, or the header is
    not that of one message.
    """
    if header.format is not Format.TUBEMQ:
        raise InvalidEntry(f"{header.format.name} where a TubeMQ entry is expected")
    if header.record_count != 1 or header.last_offset_delta:
        raise CorruptEntry(f"{header.record_count} messages in a span of {header.span}")
    stored = read_stored(entry)
    if stored.checksum != checksum_of(stored.data):
        raise CorruptEntry(f"checksum {stored.checksum}, not {checksum_of(stored.data)}")
    if stored.type_hash != (java_hash(stored.message_type) if stored.message_type else 0):
        raise CorruptEntry(f"hash {stored.type_hash} of {stored.message_type!r}")
    try:
        split_data(stored.data, stored.flag)
    except InvalidEntry as error:
        raise CorruptEntry(f"{error}") from error
    return stored


def checksum_of(data: Buffer) -> int:
    """Return the CRC-32 of data without its highest bit, as TubeMQ computes it."""
    return crc32(data) & 0x7FFFFFFF


# ---- attributes


def split_data(data: Buffer, flag: int) -> tuple[str, memoryview]:
    """Split data into the text of its attributes ("" for none) and the body.

    Raises `InvalidEntry` where the text is longer than the data. Bytes that are not UTF-8 become
    replacement characters.
    """
    view = memoryview(data)
    if not flag & ATTRIBUTES:
        return "", view
    if len(view) < _SIZE.size:
        raise InvalidEntry(f"attributes in {len(view)} bytes")
    (size,) = _SIZE.unpack_from(view)
    if not 0 <= size <= len(view) - _SIZE.size:
        raise InvalidEntry(f"attributes of {size} bytes, {len(view) - _SIZE.size} are there")
    body_at = _SIZE.size + size
    return str(view[_SIZE.size : body_at], "utf-8", "replace"), view[body_at:]


def join_data(attributes: str, body: Buffer) -> tuple[bytes, int]:
    """Return the data of attributes and a body, as clients write it, and its flag."""
    if not attributes.strip():
        return bytes(body), 0
    octets = attributes.encode(errors="surrogatepass")
    return b"".join((_SIZE.pack(len(octets)), octets, body)), ATTRIBUTES


def parse_attributes(text: str) -> list[tuple[str, str]]:
    """Parse `name=value,name=value` in order, with repeated names; without `=` the value is "".

    As clients do: empty pieces are skipped, and a value may contain `=`.
    """
    found = []
    for piece in text.split(","):
        if piece:
            name, _, value = piece.partition("=")
            found.append((name, value))
    return found


def attributes_text(attributes: Iterable[tuple[str, str]]) -> str:
    """Format attributes. Raises `InvalidEntry` for a name or value with a separator."""
    pieces = []
    for name, value in attributes:
        if not name or "=" in name or "," in name or "," in value or "=" in value:
            raise InvalidEntry(f"attribute {name[:40]!r} cannot be written")
        pieces.append(f"{name}={value}")
    return ",".join(pieces)
