"""Single messages over HTTP: peek, by id, by position, the last one.

Entries are read as for any Pulsar client (gateway/pulsar/entry_reader.py), Kafka's messages
included. The reply is the payload of an entry, decompressed, with its metadata in headers. A batch
is returned whole, as by a real broker.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from struct import Struct
from typing import Any

import msgspec

from trilogue.broker.topics.partition import Partition
from trilogue.entry.entry import EntryError
from trilogue.entry.pulsar.compression import decompress
from trilogue.entry.pulsar.layout import SECTION_METADATA_AT
from trilogue.gateway.http.pulsar.admin_request import AdminRequest, Reply
from trilogue.gateway.http.pulsar.topic_clients import format_time
from trilogue.gateway.http.request_limits import HttpError, reserve_memory
from trilogue.gateway.partition_reader import ExecutorRead
from trilogue.gateway.pulsar.entry_reader import (
    READ_BYTES,
    DispatchEntry,
    EntryRange,
    read_entries,
)
from trilogue.gateway.pulsar.entry_search import offset_for_publish_time
from trilogue.log.errors import OffsetOutOfRange
from trilogue.wire.pulsar.pulsar_pb2 import MessageMetadata

ENTRIES_MAX = 10_000  # that one request reads
EXAMINED_MAX = 1_000  # the largest distance from an end
PAYLOAD_MAX = 16 << 20
_SIZE = Struct(">I").unpack_from


async def read_range(
    request: AdminRequest, partition: Partition, offset: int, max_bytes: int = READ_BYTES
) -> EntryRange:
    """Return some entries from the one that contains an offset on."""
    gateway, log = request.gateway, partition.log
    found = read_entries(log, offset, gateway.frame_bytes_max, max_bytes)
    if isinstance(found, ExecutorRead):
        return await gateway.loop.run_in_executor(gateway.executor, found.run)
    await asyncio.sleep(0)
    return found


async def visible_entries(
    request: AdminRequest, partition: Partition, offset: int
) -> AsyncIterator[DispatchEntry]:
    """Yield the visible entries from an offset on, at most ENTRIES_MAX."""
    walked = 0
    while offset < partition.log.stable_end and walked < ENTRIES_MAX:
        found = await read_range(request, partition, offset)
        for entry in found.entries:
            if entry.end > offset and entry.section is not None:
                walked += 1
                yield entry
        if found.end <= offset:
            return
        offset = found.end


async def last_visible_entry(
    request: AdminRequest, partition: Partition, below: int | None = None
) -> DispatchEntry | None:
    """Return the last visible entry, of all or of those that begin below an offset."""
    log = partition.log
    offset = (log.stable_end if below is None else below) - 1
    for _ in range(ENTRIES_MAX):
        if offset < log.start_offset:
            return None
        found = await read_range(request, partition, offset, 1)  # one entry
        seen = [
            entry for entry in found.entries if entry.section is not None and entry.base <= offset
        ]
        if seen:
            return seen[-1]
        offset = min(offset, found.entries[0].base if found.entries else offset) - 1
    return None


async def last_message_id(
    request: AdminRequest, partition: Partition, index: int
) -> dict[str, int]:
    """Return the id of the last message, as JSON; entry -1 where there is none."""
    entry = await last_visible_entry(request, partition)
    return describe_message_id(partition, -1 if entry is None else entry.base, index)


def describe_message_id(partition: Partition, entry_id: int, index: int) -> dict[str, int]:
    """Return an entry's id as JSON."""
    return {
        "ledgerId": partition.partition_id,
        "entryId": entry_id,
        "partitionIndex": index,
        "batchIndex": -1,
        "batchSize": 0,
    }


class MessageId(msgspec.Struct, rename="camel"):
    """A message id in a body; Java sends `excluded`, its documentation has `isExcluded`."""

    ledger_id: int = -1
    entry_id: int = -1
    partition_index: int = -1
    batch_index: int = -1
    is_excluded: bool = False
    excluded: bool = False

    @property
    def after(self) -> bool:
        """Whether the position is after the message."""
        return self.is_excluded or self.excluded


async def get_by_id(request: AdminRequest) -> object:
    """GET …/ledger/{ledger}/entry/{entry}: exactly that entry."""
    _, partition = request.partition
    ledger, entry_id = request.number("ledger"), request.number("entry")
    if ledger != partition.partition_id or not 0 <= entry_id < partition.log.stable_end:
        raise HttpError(404, "Message id not found")
    await _reserve_memory(request)
    try:
        async for entry in visible_entries(request, partition, entry_id):
            if entry.base == entry_id:
                return await encode_message(request, partition, entry)
            break
    except OffsetOutOfRange as error:
        raise HttpError(404, "Message id not found") from error
    raise HttpError(404, "Message id not found")


NO_MESSAGE = "Could not examine messages due to the total message is zero"


async def examine_message(request: AdminRequest) -> object:
    """GET …/examinemessage: the n-th entry from the beginning or from the end."""
    _, partition = request.partition
    query = request.http.query_params
    text, begin = query.get("messagePosition", "1"), query.get("initialPosition", "latest")
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= EXAMINED_MAX:
        raise HttpError(412, "messagePosition is a number from 1 on")
    if begin not in {"earliest", "latest"}:
        raise HttpError(412, "initialPosition is earliest or latest")
    number = int(text)
    await _reserve_memory(request)
    if begin == "earliest":
        async for entry in visible_entries(request, partition, partition.log.start_offset):
            number -= 1
            if number == 0:
                return await encode_message(request, partition, entry)
        if number == int(text):
            raise HttpError(412, NO_MESSAGE)
        raise HttpError(404, "Message not found")
    last = await last_visible_entry(request, partition)
    if last is None:
        raise HttpError(412, NO_MESSAGE)
    while last is not None and number > 1:
        number -= 1
        last = await last_visible_entry(request, partition, last.base)
    if last is None:
        raise HttpError(404, "Message not found")
    return await encode_message(request, partition, last)


async def _reserve_memory(request: AdminRequest) -> None:
    """Wait until there is memory for a message, as it is stored and as it is sent."""
    await reserve_memory(request.http, 2 * request.gateway.settings.message_bytes_max)


async def get_id_by_time(request: AdminRequest) -> object:
    """GET …/messageid/{timestamp}: the first entry published at this time or later, or the next."""
    topic, partition = request.partition
    offset = await offset_for_publish_time(request.gateway, partition, request.number("timestamp"))
    index = topic.partitions.index(partition) if topic.partitioned else -1
    async for entry in visible_entries(request, partition, offset):
        return describe_message_id(partition, entry.base, index)
    return describe_message_id(partition, partition.log.high_watermark, index)


def parse_metadata(entry: DispatchEntry) -> MessageMetadata:
    """Return an entry's metadata."""
    view = memoryview(entry.section or b"")
    (size,) = _SIZE(view, SECTION_METADATA_AT - 4)
    return MessageMetadata.FromString(bytes(view[SECTION_METADATA_AT : SECTION_METADATA_AT + size]))


async def encode_message(
    request: AdminRequest, partition: Partition, entry: DispatchEntry
) -> Reply:
    """Return an entry as a reply; made in the executor, since decompression may expand it."""
    gateway = request.gateway
    return await gateway.loop.run_in_executor(gateway.executor, _encode_message, partition, entry)


def _encode_message(partition: Partition, entry: DispatchEntry) -> Reply:
    view = memoryview(entry.section or b"")
    (size,) = _SIZE(view, SECTION_METADATA_AT - 4)
    metadata = parse_metadata(entry)
    payload: Any = view[SECTION_METADATA_AT + size :]
    if metadata.compression and not metadata.encryption_keys:
        try:
            payload = decompress(
                metadata.compression, payload, metadata.uncompressed_size, PAYLOAD_MAX
            )
        except EntryError as error:
            raise HttpError(500, f"the entry cannot be decompressed: {error}") from error
    return Reply(
        200, bytes(payload), "application/octet-stream", _headers(partition, entry, metadata)
    )


def _headers(
    partition: Partition, entry: DispatchEntry, metadata: MessageMetadata
) -> dict[str, str]:
    properties = {each.key: each.value for each in metadata.properties}
    found = {
        "X-Pulsar-Message-ID": f"{partition.partition_id}:{entry.base}",
        "X-Pulsar-PROPERTY": json.dumps(properties, separators=(",", ":")),  # ASCII, one line
        "X-Pulsar-publish-time": format_time(metadata.publish_time),
        "X-Pulsar-producer-name": metadata.producer_name,
        "X-Pulsar-sequence-id": str(metadata.sequence_id),
        "X-Pulsar-Is-Encrypted": str(bool(metadata.encryption_keys)).lower(),
        "X-Pulsar-txn-uncommitted": "false",
    }
    if metadata.HasField("event_time") and metadata.event_time:
        found["X-Pulsar-event-time"] = format_time(metadata.event_time)
    if metadata.HasField("num_messages_in_batch"):
        found["X-Pulsar-num-batch-message"] = str(metadata.num_messages_in_batch)
    if metadata.HasField("partition_key"):
        found["X-Pulsar-partition-key"] = metadata.partition_key
    if metadata.HasField("null_value"):
        found["X-Pulsar-null-value"] = str(metadata.null_value).lower()
    return {name: _escape_header(value) for name, value in found.items()}


def _escape_header(value: str) -> str:
    """Return a header value with control and non-ASCII characters escaped."""
    if value.isascii() and value.isprintable():
        return value
    return value.encode("unicode_escape").decode("ascii")
