"""Stored entries as Kafka's clients get them: converted, without aborted transactions."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from trilogue.entry.compression import Buffer
from trilogue.entry.conversion.convert import kafka_batch
from trilogue.entry.entry import Format
from trilogue.entry.kafka.record_batch import first_record_at_or_after
from trilogue.entry.walk import formats_in, read_header, walk_headers
from trilogue.log.segments.sealed import SealedLog
from trilogue.log.segments.segment import AbortedTransaction

KAFKA_ONLY = 1 << Format.KAFKA


def split_for_kafka(data: memoryview) -> Iterator[Buffer]:
    """Yield entries that follow each other: in one piece, or, converted, one by one.

    Entries of Pulsar's and TubeMQ's clients are converted as the broker does it for Kafka's.
    """
    if formats_in(data) | KAFKA_ONLY == KAFKA_ONLY:
        yield data
        return
    for position, length, *_ in walk_headers(data):
        entry = data[position : position + length]
        header = read_header(entry)
        yield entry if header.format is Format.KAFKA else kafka_batch(entry, header).data


class AbortedRanges:
    """Aborted transactions of a partition, looked up while its entries are read in order."""

    def __init__(self, transactions: Iterable[AbortedTransaction]) -> None:
        self._to_come = deque(sorted(transactions, key=lambda each: each.first_offset))
        self._open: list[AbortedTransaction] = []

    def find_within(self, entries: Buffer) -> list[tuple[int, int]]:
        """Return producer and first offset of the transactions that these entries may be in."""
        if not self._to_come and not self._open:
            return []
        walked = walk_headers(memoryview(entries))
        first, last = walked[0][2], walked[-1][2] + walked[-1][3]
        while self._to_come and self._to_come[0].first_offset <= last:
            self._open.append(self._to_come.popleft())
        self._open = [each for each in self._open if each.last_offset >= first]
        return [(each.producer_id, each.first_offset) for each in self._open]


def first_at_time(log: SealedLog, partition_id: int, time_ms: int) -> int | None:
    """Return the first offset of a partition whose message has this time (ms) or a later one."""
    start, end = log.range_of(partition_id)
    for piece in log.plan(partition_id):
        if piece.extent.max_event_ms < time_ms:
            continue
        offset = max(start, piece.start)
        while (entry := log.entry_for_time(piece, time_ms, offset)) is not None:
            header = read_header(entry)
            for part in split_for_kafka(entry):
                found = first_record_at_or_after(part, time_ms, offset)
                if found is not None and found[0] < end:
                    return found[0]
            offset = header.last_offset + 1
    return None
