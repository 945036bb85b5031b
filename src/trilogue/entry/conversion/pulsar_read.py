"""Converts Pulsar entries to neutral messages.

Producer name and sequence id are not converted. The publish time is used only where a message has
no event time. Other fields without an equivalent in Kafka become headers with reserved names
(reserved_names.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from trilogue.entry.compression import Buffer
from trilogue.entry.conversion.kafka import Placed
from trilogue.entry.conversion.pulsar_write import SharedMetadata, headers_of
from trilogue.entry.conversion.reserved_names import (
    KEY_FORM,
    KEY_IS_BASE64,
    KEY_IS_BROKEN,
    NULL_KEY,
    TIMESTAMP,
    TYPE,
    Headers,
    decode_base64,
    header_of,
    parse_number,
)
from trilogue.entry.entry import (
    NO_TIMESTAMP,
    Codec,
    EntryError,
    EntryHeader,
    UnsupportedCompression,
)
from trilogue.entry.kafka.record_batch import DECOMPRESSED_LIMIT
from trilogue.entry.message import Message
from trilogue.entry.pulsar.compression import PulsarCodec
from trilogue.entry.pulsar.pulsar_batch import Metadata, PulsarMessage, read_metadata, walk_messages
from trilogue.entry.walk import read_header

CODECS: Final[dict[int, Codec]] = {
    PulsarCodec.NONE: Codec.NONE,
    PulsarCodec.LZ4: Codec.LZ4,
    PulsarCodec.ZLIB: Codec.GZIP,
    PulsarCodec.ZSTD: Codec.ZSTD,
    PulsarCodec.SNAPPY: Codec.SNAPPY,
}


def read_messages(
    entry: Buffer, header: EntryHeader, start: int = 0, *, limit: int = DECOMPRESSED_LIMIT
) -> tuple[Iterator[Placed], Codec]:
    """Return an iterator over the messages of an entry from an offset on, and its codec.

    Raises `EntryError`s for an entry that is encrypted, a chunk or damaged. Messages that
    compaction removed, and markers between brokers, are left out.
    """
    metadata = read_metadata(entry)
    if metadata.marker_type >= 0:
        return iter(()), Codec.NONE
    codec = CODECS.get(metadata.compression)
    if codec is None:
        raise UnsupportedCompression(f"compression type {metadata.compression} does not exist")
    shared = headers_of(_shared(metadata))
    publish_time = metadata.publish_time
    base_offset = header.base_offset
    found = (
        (base_offset + single[0], _message(single, shared, publish_time))
        for single in walk_messages(entry, header, limit)
        if base_offset + single.batch_index >= start
    )
    return found, codec


def neutral_message(single: PulsarMessage, metadata: Metadata) -> Message:
    """Return one message that a client has received, with what its entry's metadata say."""
    return _message(single, headers_of(_shared(metadata)), metadata.publish_time)


def holes_of(entry: Buffer) -> tuple[tuple[int, int], ...]:
    """List the ranges [start, end) of offsets that compaction removed; () for a damaged batch."""
    header = read_header(entry)
    found: list[tuple[int, int]] = []
    next_offset = header.base_offset
    try:
        for single in walk_messages(entry, header):
            offset = header.base_offset + single.batch_index
            if offset > next_offset:
                found.append((next_offset, offset))
            next_offset = offset + 1
    except EntryError:
        return ()
    if next_offset <= header.last_offset:
        found.append((next_offset, header.last_offset + 1))
    return tuple(found)


def _shared(metadata: Metadata) -> SharedMetadata:
    deliver_at = metadata.deliver_at_time
    return SharedMetadata(
        metadata.schema_version,
        metadata.schema_id,
        metadata.replicated_from,
        None if deliver_at == -1 else deliver_at,
    )


def _message(single: PulsarMessage, shared: Headers, publish_time: int) -> Message:
    _, value, key_text, is_base64, key_is_null, ordering_key, event_time, _, properties = single
    key = None if key_text is None else key_text.encode()
    kind: str | None = None
    if not (properties or shared or is_base64 or key_is_null):
        return Message(value, key, ordering_key, (), None, event_time or None, publish_time)
    headers: Headers = ()
    time: int | None = event_time or None
    if properties:
        headers, kind, named = _headers(properties)
        time = named if time is None else time
    if is_base64 and key_text is not None:
        key, form = _decoded(key_text)
        if form is not None:
            headers = (*headers, (KEY_FORM, form))
    if key_is_null:
        headers = (*headers, (NULL_KEY, b""))
    if time == NO_TIMESTAMP:
        return Message(value, key, ordering_key, (*headers, *shared), kind)
    return Message(value, key, ordering_key, (*headers, *shared), kind, time, publish_time)


def _headers(properties: tuple[tuple[str, str], ...]) -> tuple[Headers, str | None, int | None]:
    """Return headers, type and time: reserved properties have the last two."""
    found = []
    kind: str | None = None
    time: int | None = None
    for name, text in properties:
        if name == TYPE and kind is None:
            kind = text
        elif name == TIMESTAMP and time is None and _is_odd_time(text):
            time = int(text)
        else:
            found.append(header_of(name, text))
    return tuple(found), kind, time


def _is_odd_time(text: str) -> bool:
    """Whether a text is a timestamp of 0 or below, which an event time cannot hold."""
    number = parse_number(text)
    return number is not None and number <= 0


def _decoded(text: str) -> tuple[bytes, bytes | None]:
    """Return the bytes of a key marked as base64, and the `KEY_FORM` that restores the mark."""
    key = decode_base64(text)
    if key is None:
        return text.encode(), KEY_IS_BROKEN
    try:
        key.decode()
    except UnicodeDecodeError:
        return key, None
    return key, KEY_IS_BASE64
