"""Where entries lie: the entry of a message id, of a publish time, and the last one.

All of these read the log, segments in the executor.
"""

from __future__ import annotations

from typing import Final

from trilogue.broker.topics.partition import Partition
from trilogue.entry.walk import read_header
from trilogue.gateway.partition_reader import ExecutorRead
from trilogue.gateway.pulsar.entry_reader import (
    READ_BYTES,
    DispatchEntry,
    EntryRange,
    read_entries,
)
from trilogue.gateway.pulsar.message_ids import signed
from trilogue.gateway.pulsar.services import PulsarServices
from trilogue.log.errors import OffsetOutOfRange
from trilogue.log.partition_log import PartitionLog, SegmentSlice
from trilogue.wire.pulsar.pulsar_pb2 import MessageIdData

FIRST_STEP: Final = 64  # offsets that the search for the last entry looks back at first
SEARCHES_MAX: Final = 1_000


async def read_at(
    gateway: PulsarServices, plog: PartitionLog, offset: int, max_bytes: int = 1
) -> EntryRange:
    """Return the entries from an offset on, wherever they lie; raises OffsetOutOfRange."""
    found = read_entries(plog, offset, gateway.settings.message_bytes_max, max_bytes)
    if isinstance(found, ExecutorRead):
        return await gateway.loop.run_in_executor(gateway.executor, found.run)
    return found


async def find_entry(gateway: PulsarServices, plog: PartitionLog, offset: int) -> tuple[int, int]:
    """Return (base, end) of the entry, or of the hole, that contains an offset."""
    try:
        found = await read_at(gateway, plog, offset)
    except OffsetOutOfRange:
        if offset < plog.start_offset:
            return offset, plog.start_offset
        raise
    at = found.index_of(offset)
    if at == len(found.entries):
        return offset, max(found.end, offset + 1)
    entry = found.entries[at]
    return (entry.base, entry.end) if entry.base <= offset else (offset, entry.base)


async def find_message_id(
    gateway: PulsarServices, partition: Partition, message_id: MessageIdData
) -> tuple[int, int]:
    """Return (base, end) of the entry that an id names; outside the log both are its end.

    A reader that starts at an id starts at the base, as with Apache Pulsar 4.0.7: which messages of
    a batch it passes over is known to the client alone.
    """
    plog = partition.log
    ledger_id, entry_id = signed(message_id.ledgerId), signed(message_id.entryId)
    if ledger_id < partition.partition_id or entry_id < plog.start_offset:
        return plog.start_offset, plog.start_offset
    if ledger_id > partition.partition_id or entry_id >= plog.high_watermark:
        return plog.high_watermark, plog.high_watermark
    if entry_id >= plog.stable_end:  # no consumer can have seen it
        return plog.stable_end, plog.stable_end
    return await find_entry(gateway, plog, entry_id)


async def offset_for_publish_time(
    gateway: PulsarServices, partition: Partition, time_ms: int
) -> int:
    """Return the offset of the first entry that was published at a time or later."""
    plog = partition.log
    offset = plog.start_offset
    for _ in range(SEARCHES_MAX):
        found = plog.offset_for_time(time_ms, offset)
        if found is None:
            break
        if isinstance(found, SegmentSlice):
            view = await gateway.loop.run_in_executor(gateway.executor, found.run)
            if not len(view):
                offset = found.next_offset
                continue
        else:
            view = memoryview(b"".join(found.slices))
        return max(read_header(view).base_offset, plog.start_offset)
    return plog.high_watermark


async def find_last_entry(gateway: PulsarServices, partition: Partition) -> DispatchEntry | None:
    """Return the last entry that a consumer can get; None if there is none.

    It is below the stable end, no control marker, and of no aborted transaction.
    """
    plog = partition.log
    end, step = plog.stable_end, FIRST_STEP
    while end > plog.start_offset:
        offset = begin = max(plog.start_offset, end - step)
        if step == FIRST_STEP:  # mostly it is the very last entry
            offset = begin = end - 1
        last: DispatchEntry | None = None
        while offset < end:
            part = await read_at(gateway, plog, offset, READ_BYTES)
            visible = [
                each for each in part.entries if each.section is not None and each.base < end
            ]
            last = visible[-1] if visible else last
            if part.end <= offset:
                break
            offset = part.end
        if last is not None:
            return last
        end, step = begin, step * 4
    return None
