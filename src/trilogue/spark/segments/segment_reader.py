"""Reads the part of a range that is in segments; the rest is for the broker, if one is named."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trilogue.log.errors import OffsetOutOfRange, UnknownPartition
from trilogue.spark.plan import lost
from trilogue.spark.segments.entries import AbortedRanges, split_for_kafka
from trilogue.spark.segments.segment_lookup import find_topics, open_log, readable_segments

if TYPE_CHECKING:
    import pyarrow as pa

    from trilogue.entry.arrow import ArrowReader
    from trilogue.log.segments.sealed import SealedLog
    from trilogue.spark.offsets import Range
    from trilogue.spark.read_options import ReadOptions


def read_segments(
    options: ReadOptions, where: Range, partition_id: int, arrow: ArrowReader
) -> Iterator[pa.RecordBatch]:
    """Decode what segments have of a range, in order, and advance `arrow` behind it.

    What is not in segments is left to the broker. Without one it is DataLost, or is left out where
    failOnDataLoss is false.
    """
    place = options.segments
    assert place is not None
    find_topics(place)  # the newest manifest
    log = open_log(place)
    with readable_segments(place):
        while not arrow.done:
            try:
                yield from _read(log, partition_id, where.end, arrow, options.fetch_bytes)
            except (OffsetOutOfRange, UnknownPartition):
                log.refresh()
            if not arrow.done:
                if options.servers:
                    return
                known = log.manifest.partitions.get(partition_id)
                held = (0, 0) if known is None else (known.start_offset, known.stable_end)
                arrow.next_offset = _after_gap(options, where, arrow.next_offset, held)


def _read(
    log: SealedLog, partition_id: int, end: int, arrow: ArrowReader, max_bytes: int
) -> Iterator[pa.RecordBatch]:
    _, stable_end = log.range_of(partition_id)
    start, end = arrow.next_offset, min(end, stable_end)
    aborted = AbortedRanges(log.aborted(partition_id, start, end))
    for data in log.read(partition_id, start, end, max_bytes=max_bytes):
        for entries in split_for_kafka(data):
            yield from arrow.feed(entries, aborted.find_within(entries))
    arrow.next_offset = max(arrow.next_offset, end)  # offsets may skip before it


def _after_gap(options: ReadOptions, where: Range, offset: int, held: tuple[int, int]) -> int:
    """Return the next offset that there is; DataLost with failOnDataLoss."""
    if options.fail_on_data_loss:
        raise lost(
            [(where.topic, where.partition)], f"offsets [{offset}, {where.end}) are wanted", *held
        )
    return min(held[0], where.end) if offset < held[0] else where.end
