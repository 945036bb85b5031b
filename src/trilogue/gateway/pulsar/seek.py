"""SEEK and GET_LAST_MESSAGE_ID, and how ids and times become offsets.

SEEK to an id puts a subscription *at* the entry that contains it; its consumers pass over what they
were told to, themselves. To a time: at the first entry published then or later. All consumers of
the subscription are sent off, then it is answered, as by a real broker; they come again.

The last message id is that of the last entry which a consumer could get: below the stable end, no
marker, nothing aborted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from trilogue.broker.errors import InvalidRequest
from trilogue.broker.partition import Partition
from trilogue.entry.walk import read_header
from trilogue.gateway.pulsar.errors import Refusal
from trilogue.gateway.pulsar.positions import (
    LATEST,
    acked_ranges,
    signed,
    unsigned,
)
from trilogue.gateway.pulsar.reading import READ_BYTES, Later, Read, Row, read
from trilogue.log.errors import OffsetOutOfRange
from trilogue.log.partition_log import Cold, PartitionLog
from trilogue.wire.pulsar.errors import ServerError
from trilogue.wire.pulsar.pulsar_pb2 import CommandGetLastMessageId, CommandSeek, MessageIdData

if TYPE_CHECKING:
    from trilogue.gateway.pulsar.connection import PulsarConnection
    from trilogue.gateway.pulsar.dispatch import Dispatcher
    from trilogue.gateway.pulsar.shared import Shared

FIRST_STEP: Final = 64  # offsets to look back at first for the last entry
SEARCHES_MAX: Final = 1_000


# ---- ids and times


async def read_at(door: Shared, plog: PartitionLog, offset: int, max_bytes: int = 1) -> Read:
    """Read what stands at an offset, wherever it lies; OffsetOutOfRange."""
    found = read(plog, offset, door.settings.message_bytes_max, max_bytes)
    if isinstance(found, Later):
        return await door.loop.run_in_executor(door.executor, found.run)
    return found


async def locate(door: Shared, plog: PartitionLog, offset: int) -> tuple[int, int]:
    """Return (base, end) of the entry, or of the hole, that contains an offset."""
    try:
        found = await read_at(door, plog, offset)
    except OffsetOutOfRange:
        if offset < plog.start_offset:
            return offset, plog.start_offset
        raise
    at = found.at(offset)
    if at == len(found.rows):
        return offset, max(found.end, offset + 1)
    row = found.rows[at]
    return (row.base, row.end) if row.base <= offset else (offset, row.base)


async def place_of(
    door: Shared, partition: Partition, message_id: MessageIdData
) -> tuple[int, int]:
    """Return (base, end) of the entry an id stands for; of an end both are the same offset."""
    plog = partition.log
    ledger_id, entry_id = signed(message_id.ledgerId), signed(message_id.entryId)
    if ledger_id < partition.partition_id or entry_id < plog.start_offset:
        return plog.start_offset, plog.start_offset
    if ledger_id > partition.partition_id or entry_id >= plog.high_watermark:
        return plog.high_watermark, plog.high_watermark
    if entry_id >= plog.stable_end:  # nobody can have seen it
        return plog.stable_end, plog.stable_end
    return await locate(door, plog, entry_id)


async def start_of(door: Shared, partition: Partition, message_id: MessageIdData) -> int:
    """Return where a reader begins that names a message: with its entry.

    A real broker does so too (seen with 4.0.7). Whether the message itself is wanted, and which
    ones of a batch, is known to the client alone, which passes over the others.
    """
    base, _ = await place_of(door, partition, message_id)
    return base


async def offset_for_publish_time(door: Shared, partition: Partition, time_ms: int) -> int:
    """Return where the first entry begins that was published at a time or later."""
    plog = partition.log
    offset = plog.start_offset
    for _ in range(SEARCHES_MAX):
        found = plog.offset_for_time(time_ms, offset)
        if found is None:
            break
        if isinstance(found, Cold):
            view = await door.loop.run_in_executor(door.executor, found.run)
            if not len(view):
                offset = found.next_offset
                continue
        else:
            view = memoryview(b"".join(found.slices))
        return max(read_header(view).base_offset, plog.start_offset)
    return plog.high_watermark


def _dispatcher(connection: PulsarConnection, consumer_id: int) -> Dispatcher:
    """What gives a consumer its messages; Refusal if there is no such consumer (any more)."""
    consumer = connection.consumers.get(consumer_id)
    if consumer is None or consumer.dispatcher is None:
        raise Refusal(ServerError.MetadataError, "no such consumer")
    dispatcher: Dispatcher = consumer.dispatcher
    return dispatcher


# ---- SEEK


async def seek(connection: PulsarConnection, command: CommandSeek, _frame: memoryview) -> None:
    """Put the subscription of a consumer elsewhere."""
    door, dispatcher = connection.door, _dispatcher(connection, command.consumer_id)
    partition, name = dispatcher.partition, dispatcher.name
    ranges: list[tuple[int, int]] = []
    if command.HasField("message_id"):
        message_id = command.message_id
        mark, end = await place_of(door, partition, message_id)
        if message_id.ack_set:
            ranges = acked_ranges(mark, end, message_id.ack_set)
    elif command.HasField("message_publish_time"):
        mark = await offset_for_publish_time(door, partition, command.message_publish_time)
    else:
        raise InvalidRequest("a seek names a message or a time")
    await door.readers.seek(partition, name, mark, ranges)
    door.readers.end_move(partition, name)
    if not connection.is_gone:
        connection.say("success", request_id=command.request_id)


# ---- GET_LAST_MESSAGE_ID


async def last_message_id(
    connection: PulsarConnection, command: CommandGetLastMessageId, _frame: memoryview
) -> None:
    """Tell the last message, and how far the consumer's subscription has acked."""
    dispatcher = _dispatcher(connection, command.consumer_id)
    door, partition = connection.door, dispatcher.partition
    last = await last_row(door, partition)
    mark = dispatcher.acked.mark
    plog = partition.log
    if last is not None and mark >= last.end:
        mark_delete = last.base  # clients ask whether it is that of the last message
    else:
        if plog.start_offset <= mark < plog.stable_end:
            mark, _ = await locate(door, plog, mark)
        mark_delete = mark - 1
    partition_id, index = partition.partition_id, dispatcher.index
    if connection.is_gone:
        return
    connection.say(
        "getLastMessageIdResponse",
        request_id=command.request_id,
        last_message_id=id_of_row(partition_id, index, last),
        consumer_mark_delete_position={"ledgerId": partition_id, "entryId": unsigned(mark_delete)},
    )


async def last_row(door: Shared, partition: Partition) -> Row | None:
    """Find the last item that a consumer could get."""
    plog = partition.log
    end, step = plog.stable_end, FIRST_STEP
    while end > plog.start_offset:
        offset = begin = max(plog.start_offset, end - step)
        if step == FIRST_STEP:  # mostly it is the very last entry
            offset = begin = end - 1
        found: Row | None = None
        while offset < end:
            part = await read_at(door, plog, offset, READ_BYTES)
            seen = [row for row in part.rows if row.section is not None and row.base < end]
            found = seen[-1] if seen else found
            if part.end <= offset:
                break
            offset = part.end
        if found is not None:
            return found
        end, step = begin, step * 4
    return None


def id_of_row(partition_id: int, index: int, row: Row | None) -> dict[str, Any]:
    """Write the id of the last message of an item; -1 everywhere if there is none."""
    if row is None:
        return _id(-1, -1, index)
    return _id(partition_id, row.base, index, row.end - row.base - 1 if row.is_batch else -1)


def _id(ledger_id: int, entry_id: int, index: int, batch_index: int = -1) -> dict[str, Any]:
    return {
        "ledgerId": unsigned(ledger_id),
        "entryId": unsigned(entry_id),
        "partition": index,
        "batch_index": batch_index,
    }


__all__ = [
    "LATEST",
    "id_of_row",
    "last_message_id",
    "last_row",
    "locate",
    "offset_for_publish_time",
    "place_of",
    "read_at",
    "seek",
    "start_of",
]
