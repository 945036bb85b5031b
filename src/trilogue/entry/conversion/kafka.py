"""Converts Kafka's record batches to neutral messages and back.

A record has a field for each part of a message except the ordering key and the type, which become
headers with reserved names (reserved_names.py). Offsets and the holes between them are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

from trilogue.entry.compression import Buffer
from trilogue.entry.conversion.reserved_names import ORDERING_KEY, TYPE, Headers
from trilogue.entry.entry import (
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    Codec,
    EntryHeader,
    Record,
)
from trilogue.entry.kafka.record_batch import DECOMPRESSED_LIMIT, seal, walk_records
from trilogue.entry.message import Message
from trilogue.entry.pack import RecordPacker

Placed: TypeAlias = tuple[int, Message]  # a message and its offset

HEADERS_MAX: Final = 100_000  # of one message: a header of two bytes becomes an object of hundreds
_AT_ONCE: Final = 1000
_INT64_MAX: Final = 2**63 - 1
_INT64_MIN: Final = -(2**63)


def read_messages(
    entry: Buffer, header: EntryHeader, start: int = 0, *, limit: int = DECOMPRESSED_LIMIT
) -> Iterator[Placed]:
    """Yield the messages of a batch from an offset on. Raises `EntryError` if it is damaged."""
    walker = walk_records(entry, limit=limit, header=header)
    walker.headers_max = HEADERS_MAX
    if header.record_count == header.span:  # without holes: skip records by count
        for _ in range(min(start, header.last_offset) - header.base_offset):
            walker.advance()
    while records := walker.read_records(_AT_ONCE):
        if records[-1].offset < start:
            continue
        for record in records:
            if record.offset >= start:
                yield record.offset, _message(record)


def _message(record: Record) -> Message:
    _, timestamp, key, value, headers, _ = record
    ordering_key = kind = None
    if headers and any(name in _TAKEN_OUT for name, _ in headers):
        headers, ordering_key, kind = _take_out(headers)
    event_time_ms = None if timestamp == NO_TIMESTAMP else timestamp
    return Message(value, key, ordering_key, headers, kind, event_time_ms)


def build_messages(
    messages: Iterable[Placed],
    header: EntryHeader,
    *,
    codec: Codec,
) -> bytes:
    """Build the batch that has these messages at their offsets and the offset span of `header`.

    If the entry has log append time, that is the timestamp of all messages.
    """
    packer = RecordPacker()
    base_offset = header.base_offset
    base_timestamp = latest = NO_TIMESTAMP
    count = 0
    for offset, message in messages:
        time_ms = message.time_ms
        timestamp = NO_TIMESTAMP if time_ms is None else min(time_ms, _INT64_MAX)
        if not count:
            base_timestamp = timestamp
        delta = timestamp - base_timestamp
        if not _INT64_MIN <= delta <= _INT64_MAX:  # a delta that 64 bits cannot hold
            timestamp, delta = base_timestamp, 0
        latest = max(latest, timestamp)
        headers = record_headers(message)
        encoded = [(name.encode(), value) for name, value in headers] if headers else ()
        packer.pack(offset - base_offset, delta, message.key, message.value, encoded)
        count += 1
    return seal(
        packer.packed(),
        record_count=count,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=latest if count and not header.log_append_time else header.max_timestamp,
        codec=codec if count else Codec.NONE,
        flags=header.attributes & (LOG_APPEND_TIME | TRANSACTIONAL),
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_offset=base_offset,
        leader_epoch=header.leader_epoch,
    )


def record_headers(message: Message) -> Headers:
    """Return the headers of the record of a message: its own, then ordering key and type."""
    headers = message.headers
    if message.ordering_key is not None:
        headers = (*headers, (ORDERING_KEY, message.ordering_key))
    if message.type is not None:
        headers = (*headers, (TYPE, message.type.encode()))
    return headers


def empty_batch(header: EntryHeader) -> bytes:
    """Build a batch without messages that covers an entry's offsets, so that readers advance."""
    return build_messages((), header, codec=Codec.NONE)


_TAKEN_OUT: Final = {ORDERING_KEY, TYPE}


def _take_out(headers: Headers) -> tuple[Headers, bytes | None, str | None]:
    """Return the headers that are no fields of a message, the ordering key and the type."""
    ordering_key: bytes | None = None
    kind: str | None = None
    left = []
    for name, value in headers:
        if name == ORDERING_KEY and ordering_key is None and value is not None:
            ordering_key = value
        elif name == TYPE and kind is None and value is not None and _is_text(value):
            kind = value.decode()
        else:
            left.append((name, value))
    return tuple(left), ordering_key, kind


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
