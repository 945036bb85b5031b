"""Converts neutral messages to the items of Pulsar's batches.

    section   0e01 | crc32c u32 | metadata size u32 | MessageMetadata | payload
    payload   of a batch, before compression: (size u32 | SingleMessageMetadata | value)*

A batch has an item for every offset that it covers, so that the batch index of a message is its
offset minus the first; offsets without a message are items with `compacted_out`. Fields of the
batch's metadata (schema version, schema id, origin, delivery time) are set there when all messages
have the same values, and are properties of each message otherwise.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Final, NamedTuple

from trilogue.entry.conversion.reserved_names import (
    DELIVER_AT,
    KEY_FORM,
    KEY_IS_BASE64,
    KEY_IS_BROKEN,
    NULL_KEY,
    REPLICATED_FROM,
    RESERVED,
    SCHEMA_ID,
    SCHEMA_VERSION,
    TIMESTAMP,
    TYPE,
    Headers,
    decode_base64,
    parse_number,
    properties_of,
)
from trilogue.entry.entry import Format
from trilogue.entry.message import Message
from trilogue.entry.pulsar.pulsar_batch import PulsarMessage
from trilogue.wire.pulsar.pulsar_pb2 import KeyValue, SingleMessageMetadata

PRODUCER_NAMES: Final = {
    Format.KAFKA: "trilogue.kafka",
    Format.PULSAR: "trilogue.pulsar",
    Format.TUBEMQ: "trilogue.tubemq",
}
"""The producer name that Pulsar clients see on converted entries, which have none."""

HOLE: Final = b"\0\0\0\4\x18\0\x20\1"  # an item of 4 bytes: payload_size 0, compacted_out
_INT64_MAX: Final = 2**63 - 1


class SharedMetadata(NamedTuple):
    """The converted fields of Pulsar's `MessageMetadata`, shared by all messages of an entry."""

    schema_version: bytes | None = None
    schema_id: bytes | None = None
    replicated_from: str | None = None
    deliver_at: int | None = None


NOTHING_SHARED: Final = SharedMetadata()


def item_of(
    message: Message, offset: int, index: int, *, alone: bool = True
) -> tuple[PulsarMessage, SharedMetadata]:
    """Convert a message to an item; with `alone` shared fields are separated from it."""
    value, key, ordering_key, headers, kind, event_time, publish_time = message
    shared = NOTHING_SHARED
    form: bytes | None = None
    key_is_null = False
    if headers and any(name.startswith(RESERVED) for name, _ in headers):
        headers, form, key_is_null = _take_key_form(headers, key)
        if alone:
            headers, shared = take_shared(headers)
    properties = properties_of(headers) if headers else []
    if kind is not None:
        properties.append((TYPE, kind))
    if event_time is None and publish_time is None:
        event_time = -1
    if event_time is not None and event_time <= 0:
        properties.append((TIMESTAMP, str(event_time)))
        event_time = 0
    key_text: str | None = None
    key_is_base64 = False
    if key is not None:
        key_text, key_is_base64 = _spelled(key, form)
    item = PulsarMessage(
        index,
        value,
        key_text,
        key_is_base64,
        key_is_null,
        ordering_key,
        event_time or 0,
        offset,
        tuple(properties),
    )
    return item, shared


def _spelled(key: bytes, form: bytes | None) -> tuple[str, bool]:
    """Return a key as text, and whether the text is base64."""
    if form != KEY_IS_BASE64:
        try:
            return key.decode(), form == KEY_IS_BROKEN
        except UnicodeDecodeError:
            pass
    return b64encode(key).decode(), True


def _take_key_form(headers: Headers, key: bytes | None) -> tuple[Headers, bytes | None, bool]:
    """Return the headers without the reserved ones of the key, its form, whether it is null."""
    form: bytes | None = None
    is_null = False
    left = []
    for name, value in headers:
        if name == KEY_FORM and form is None and _can_be(value, key):
            form = value
        elif name == NULL_KEY and value == b"" and not is_null:
            is_null = True
        else:
            left.append((name, value))
    return tuple(left), form, is_null


def _can_be(form: bytes | None, key: bytes | None) -> bool:
    """Whether a key can have this form; otherwise the header remains a header."""
    text = None if key is None else _text(key)
    if text is None or form not in {KEY_IS_BASE64, KEY_IS_BROKEN}:
        return False
    return form == KEY_IS_BASE64 or decode_base64(text) is None


def take_shared(headers: Headers) -> tuple[Headers, SharedMetadata]:
    """Return the headers without the reserved ones of shared fields, and these fields."""
    found = NOTHING_SHARED
    left: list[tuple[str, bytes | None]] = []
    for name, value in headers:
        if value is None:
            left.append((name, value))
        elif name == SCHEMA_VERSION and found.schema_version is None:
            found = found._replace(schema_version=value)
        elif name == SCHEMA_ID and found.schema_id is None:
            found = found._replace(schema_id=value)
        elif name == REPLICATED_FROM and found.replicated_from is None and _text(value) is not None:
            found = found._replace(replicated_from=_text(value))
        elif name == DELIVER_AT and found.deliver_at is None and _number(value) is not None:
            found = found._replace(deliver_at=_number(value))
        else:
            left.append((name, value))
    return tuple(left), found


def headers_of(shared: SharedMetadata) -> Headers:
    """Return the headers that carry the shared fields of an entry."""
    found: list[tuple[str, bytes | None]] = []
    if shared.schema_version is not None:
        found.append((SCHEMA_VERSION, shared.schema_version))
    if shared.schema_id is not None:
        found.append((SCHEMA_ID, shared.schema_id))
    if shared.replicated_from is not None:
        found.append((REPLICATED_FROM, shared.replicated_from.encode()))
    if shared.deliver_at is not None:
        found.append((DELIVER_AT, str(shared.deliver_at).encode()))
    return tuple(found)


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _number(value: bytes) -> int | None:
    """Parse a delivery time in ms; None where there is none, which metadata has as -1."""
    text = _text(value)
    number = None if text is None else parse_number(text)
    return None if number == -1 else number


# ---- bytes


def item_bytes(item: PulsarMessage) -> bytes:
    """Write one item of a batch: its size, metadata, value."""
    value = item.value or b""
    described = SingleMessageMetadata(
        properties=[KeyValue(key=name, value=text) for name, text in item.properties],
        partition_key=item.partition_key,
        payload_size=len(value),
        event_time=item.event_time or None,
        ordering_key=item.ordering_key,
        sequence_id=item.sequence_id,
    )
    if item.key_is_b64:
        described.partition_key_b64_encoded = True
    if item.value is None:
        described.null_value = True
    if item.null_key:
        described.null_partition_key = True
    octets = described.SerializeToString()
    return b"".join((len(octets).to_bytes(4, "big"), octets, value))
