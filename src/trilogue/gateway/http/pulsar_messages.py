"""Single messages over HTTP, as somebody who looks into a topic sees them: peek, read, the last.

What is read is what any Pulsar client would be sent (gateway/pulsar/reading.py), Kafka's messages
included; the answer is the entry's payload, decompressed, with its metadata in headers. A batch
comes whole, as a real broker gives it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from struct import Struct
from typing import Any

import msgspec

from trilogue.broker.errors import UnknownTopic
from trilogue.broker.partition import Partition
from trilogue.entry.entry import EntryError
from trilogue.entry.pulsar_codecs import decompress
from trilogue.gateway.http.incoming import Problem
from trilogue.gateway.http.pulsar_asked import Asked, Reply
from trilogue.gateway.http.pulsar_live import iso
from trilogue.gateway.pulsar.reading import READ_BYTES, Later, Read, Row, read
from trilogue.gateway.pulsar.seek import offset_for_publish_time
from trilogue.log.errors import OffsetOutOfRange
from trilogue.wire.pulsar.pulsar_pb2 import MessageMetadata

METADATA_AT = 10  # in a section: behind 0e01, the checksum and the size
ENTRIES_MAX = 10_000  # that one request walks over
EXAMINED_MAX = 1_000  # how far from an end an entry may be asked for
PAYLOAD_MAX = 16 << 20
_SIZE = Struct(">I").unpack_from


async def read_at(
    asked: Asked, partition: Partition, offset: int, max_bytes: int = READ_BYTES
) -> Read:
    """Read some entries from the one that contains an offset on; others have a turn meanwhile."""
    door, log = asked.door, partition.log
    found = read(log, offset, door.frame_bytes_max, max_bytes)
    if isinstance(found, Later):
        return await door.loop.run_in_executor(door.executor, found.run)
    await asyncio.sleep(0)
    return found


async def rows_from(asked: Asked, partition: Partition, offset: int) -> AsyncIterator[Row]:
    """What can be seen from an offset on, entry by entry, up to ENTRIES_MAX of them."""
    walked = 0
    while offset < partition.log.stable_end and walked < ENTRIES_MAX:
        found = await read_at(asked, partition, offset)
        for row in found.rows:
            if row.end > offset and row.section is not None:
                walked += 1
                yield row
        if found.end <= offset:
            return
        offset = found.end


async def last_row(asked: Asked, partition: Partition, below: int | None = None) -> Row | None:
    """The last entry that can be seen, of all or of those that begin below an offset."""
    log = partition.log
    offset = (log.stable_end if below is None else below) - 1
    for _ in range(ENTRIES_MAX):
        if offset < log.start_offset:
            return None
        found = await read_at(asked, partition, offset, 1)  # one entry
        seen = [row for row in found.rows if row.section is not None and row.base <= offset]
        if seen:
            return seen[-1]
        offset = min(offset, found.rows[0].base if found.rows else offset) - 1
    return None


async def last_id(asked: Asked, partition: Partition, index: int) -> dict[str, int]:
    """The id of the last message, as JSON; entry -1 where there is none."""
    row = await last_row(asked, partition)
    return id_json(partition, -1 if row is None else row.base, index)


def id_json(partition: Partition, entry_id: int, index: int) -> dict[str, int]:
    """An entry's id as administration writes it."""
    return {
        "ledgerId": partition.partition_id,
        "entryId": entry_id,
        "partitionIndex": index,
        "batchIndex": -1,
        "batchSize": 0,
    }


class MessageId(msgspec.Struct, rename="camel"):
    """An id as administration sends it; Java says `excluded`, its documentation `isExcluded`."""

    ledger_id: int = -1
    entry_id: int = -1
    partition_index: int = -1
    batch_index: int = -1
    is_excluded: bool = False
    excluded: bool = False

    @property
    def behind(self) -> bool:
        """Whether what is meant begins behind the message."""
        return self.is_excluded or self.excluded


async def entry_of_id(asked: Asked) -> object:
    """GET …/ledger/{ledger}/entry/{entry}: exactly that entry."""
    _, partition = asked.partition
    ledger, entry = asked.number("ledger"), asked.number("entry")
    if ledger != partition.partition_id or not 0 <= entry < partition.log.stable_end:
        raise Problem(404, "Message id not found")
    try:
        async for row in rows_from(asked, partition, entry):
            if row.base == entry:
                return await message(asked, partition, row)
            break
    except OffsetOutOfRange as error:
        raise Problem(404, "Message id not found") from error
    raise Problem(404, "Message id not found")


async def examine(asked: Asked) -> object:
    """GET …/examinemessage: the n-th entry from the beginning or from the end."""
    _, partition = asked.partition
    query = asked.request.query_params
    text, begin = query.get("messagePosition", "1"), query.get("initialPosition", "latest")
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= EXAMINED_MAX:
        raise Problem(412, "messagePosition is a number from 1 on")
    if begin not in {"earliest", "latest"}:
        raise Problem(412, "initialPosition is earliest or latest")
    number = int(text)
    if begin == "earliest":
        async for row in rows_from(asked, partition, partition.log.start_offset):
            number -= 1
            if number == 0:
                return await message(asked, partition, row)
        raise Problem(404, "Message not found")
    last = await last_row(asked, partition)
    while last is not None and number > 1:
        number -= 1
        last = await last_row(asked, partition, last.base)
    if last is None:
        raise Problem(404, "Message not found")
    return await message(asked, partition, last)


async def id_of_time(asked: Asked) -> object:
    """GET …/messageid/{timestamp}: the first entry that came at this time or later."""
    topic, partition = asked.partition
    offset = await offset_for_publish_time(asked.door, partition, asked.number("timestamp"))
    async for row in rows_from(asked, partition, offset):
        return id_json(partition, row.base, asked.name.partition if topic.partitioned else -1)  # type: ignore[arg-type]
    raise UnknownTopic("there is no message of this time or later")


def metadata_of(row: Row) -> MessageMetadata:
    """Read an entry's metadata."""
    view = memoryview(row.section or b"")
    (size,) = _SIZE(view, METADATA_AT - 4)
    return MessageMetadata.FromString(bytes(view[METADATA_AT : METADATA_AT + size]))


async def message(asked: Asked, partition: Partition, row: Row) -> Reply:
    """An entry as an answer; made in the executor, for a few bytes may stand for many."""
    door = asked.door
    return await door.loop.run_in_executor(door.executor, _message, partition, row)


def _message(partition: Partition, row: Row) -> Reply:
    view = memoryview(row.section or b"")
    (size,) = _SIZE(view, METADATA_AT - 4)
    metadata = metadata_of(row)
    payload: Any = view[METADATA_AT + size :]
    if metadata.compression and not metadata.encryption_keys:
        try:
            payload = decompress(
                metadata.compression, payload, metadata.uncompressed_size, PAYLOAD_MAX
            )
        except EntryError as error:
            raise Problem(500, f"the entry cannot be decompressed: {error}") from error
    return Reply(
        200, bytes(payload), "application/octet-stream", _headers(partition, row, metadata)
    )


def _headers(partition: Partition, row: Row, metadata: MessageMetadata) -> dict[str, str]:
    properties = {each.key: each.value for each in metadata.properties}
    found = {
        "X-Pulsar-Message-ID": f"{partition.partition_id}:{row.base}",
        "X-Pulsar-PROPERTY": json.dumps(properties, separators=(",", ":")),  # ASCII, one line
        "X-Pulsar-publish-time": iso(metadata.publish_time),
        "X-Pulsar-producer-name": metadata.producer_name,
        "X-Pulsar-sequence-id": str(metadata.sequence_id),
        "X-Pulsar-Is-Encrypted": str(bool(metadata.encryption_keys)).lower(),
        "X-Pulsar-txn-uncommitted": "false",
    }
    if metadata.HasField("event_time") and metadata.event_time:
        found["X-Pulsar-event-time"] = iso(metadata.event_time)
    if metadata.HasField("num_messages_in_batch"):
        found["X-Pulsar-num-batch-message"] = str(metadata.num_messages_in_batch)
    if metadata.HasField("partition_key"):
        found["X-Pulsar-partition-key"] = metadata.partition_key
    if metadata.HasField("null_value"):
        found["X-Pulsar-null-value"] = str(metadata.null_value).lower()
    return {name: _plain(value) for name, value in found.items()}


def _plain(value: str) -> str:
    """A text as a header may have it: what would end it, or is not ASCII, is escaped."""
    if value.isascii() and value.isprintable():
        return value
    return value.encode("unicode_escape").decode("ascii")
