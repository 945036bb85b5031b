"""Pulsar's entries to neutral messages: what was sent in them, less what only the sending had.

Who sent a message, under which number and when it was published belongs to the sending: Kafka's
readers do not get producer names and sequence ids, and a publish time only where a message has no
time of its own. What else Kafka cannot say becomes headers with reserved names (convert_names.py).
"""

from __future__ import annotations

from typing import Final

from trilogue.entry.compression import Buffer
from trilogue.entry.convert_kafka import Placed
from trilogue.entry.convert_names import (
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
from trilogue.entry.convert_pulsar import Shared, headers_of
from trilogue.entry.convert_result import CannotConvert, Reason
from trilogue.entry.entry import NO_TIMESTAMP, Codec, CorruptEntry, EntryHeader
from trilogue.entry.kafka_batch import DECOMPRESSED_LIMIT
from trilogue.entry.message import Message
from trilogue.entry.pulsar_codecs import PulsarCodec, decompress
from trilogue.wire.errors import WireError
from trilogue.wire.pulsar.hot import Metadata, read_metadata, read_properties
from trilogue.wire.pulsar.singles import Single, Singles

SECTION_AT: Final = 101
HEAD_SIZE: Final = 10  # magic, checksum, size of the metadata
_AT_ONCE: Final = 1000

CODECS: Final = {
    PulsarCodec.NONE: Codec.NONE,
    PulsarCodec.LZ4: Codec.LZ4,
    PulsarCodec.ZLIB: Codec.GZIP,
    PulsarCodec.ZSTD: Codec.ZSTD,
    PulsarCodec.SNAPPY: Codec.SNAPPY,
}


def read_messages(
    entry: Buffer, header: EntryHeader, *, limit: int = DECOMPRESSED_LIMIT
) -> tuple[list[Placed], Codec]:
    """Read all messages of an entry, and how they were compressed.

    Raises `CannotConvert` for what only its own clients can read, other `EntryError`s where it is
    not in order. What compaction took out, or only brokers are to see, is just not there.
    """
    section = memoryview(entry)[SECTION_AT : header.length]
    metadata_size = int.from_bytes(section[6:HEAD_SIZE], "big")
    described = section[HEAD_SIZE : HEAD_SIZE + metadata_size]
    try:
        metadata = read_metadata(described)
        if metadata.marker_type >= 0:
            return [], Codec.NONE
        _check(metadata)
        packed = section[HEAD_SIZE + metadata_size :]
        payload = decompress(metadata.compression, packed, metadata.uncompressed_size, limit)
        codec = CODECS[PulsarCodec(metadata.compression)]
        if metadata.is_batch:
            return _batch(payload, metadata, header), codec
        properties = read_properties(described) if metadata.has_properties else ()
        return [(header.base_offset, _alone(payload, metadata, properties))], codec
    except WireError as error:
        raise CorruptEntry(f"{error}") from error


def _check(metadata: Metadata) -> None:
    if metadata.has_encryption:
        raise CannotConvert(Reason.ENCRYPTED)
    if metadata.is_chunk:
        raise CannotConvert(
            Reason.CHUNKED, f"chunk {metadata.chunk_id + 1} of {metadata.num_chunks}"
        )
    if metadata.has_txn:
        raise CannotConvert(Reason.TRANSACTIONAL)


def _batch(payload: Buffer, metadata: Metadata, header: EntryHeader) -> list[Placed]:
    if metadata.num_messages != header.span:
        raise CorruptEntry(f"{metadata.num_messages} messages over {header.span} offsets")
    base_offset = header.base_offset
    publish_time = metadata.publish_time
    shared = headers_of(_shared(metadata))
    singles = Singles(payload, metadata.num_messages)
    found: list[Placed] = []
    while some := singles.read(_AT_ONCE):
        found += [(base_offset + one[0], _message(one, shared, publish_time)) for one in some]
    return found


def _alone(payload: Buffer, metadata: Metadata, properties: tuple[tuple[str, str], ...]) -> Message:
    """Read an entry that is one message, which the metadata describes itself."""
    single = Single(
        0,
        None if metadata.null_value else bytes(payload),
        metadata.partition_key,
        metadata.key_is_b64,
        metadata.null_key,
        metadata.ordering_key,
        metadata.event_time,
        metadata.sequence_id,
        properties,
    )
    return _message(single, headers_of(_shared(metadata)), metadata.publish_time)


def _shared(metadata: Metadata) -> Shared:
    deliver_at = metadata.deliver_at_time
    return Shared(
        metadata.schema_version,
        metadata.schema_id,
        metadata.replicated_from,
        None if deliver_at == -1 else deliver_at,
    )


def _message(single: Single, shared: Headers, publish_time: int) -> Message:
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
    if is_base64:
        key, form = _decoded(key_text or "")
        if form is not None:
            headers = (*headers, (KEY_FORM, form))
    if key_is_null:
        headers = (*headers, (NULL_KEY, b""))
    if time == NO_TIMESTAMP:
        return Message(value, key, ordering_key, (*headers, *shared), kind)
    return Message(value, key, ordering_key, (*headers, *shared), kind, time, publish_time)


def _headers(properties: tuple[tuple[str, str], ...]) -> tuple[Headers, str | None, int | None]:
    """Say properties as headers; and the type and the time that reserved ones say."""
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
    """Whether this is a timestamp that an event time cannot say, as we spell it."""
    number = parse_number(text)
    return number is not None and number <= 0


def _decoded(text: str) -> tuple[bytes, bytes | None]:
    """Return a key that was marked as base64, and what a reader must know to mark it again."""
    key = decode_base64(text)
    if key is None:
        return text.encode(), KEY_IS_BROKEN
    try:
        key.decode()
    except UnicodeDecodeError:
        return key, None
    return key, KEY_IS_BASE64
