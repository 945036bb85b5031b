"""Restores entries and facts that recovery found in the journal to memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from trilogue.entry.entry import FORMAT_MASK, FORMAT_SHIFT, TRANSACTIONAL, EntryHeader
from trilogue.entry.header import REPLAYED
from trilogue.entry.walk import read_header
from trilogue.log.errors import CorruptLog
from trilogue.log.journal.frame import LOST, Frame, iter_entries, iter_facts
from trilogue.log.partition_log import PartitionLog
from trilogue.log.segments.manifest import PartitionRange

OnEntry = Callable[[int, EntryHeader], None]
OnForeign = Callable[[int, EntryHeader, memoryview], None]
OnFact = Callable[[int, bytes], None]


class FrameReplay:
    """Collects replayed frames and restores them once the partitions are known."""

    def __init__(self, on_entry: OnEntry, on_fact: OnFact, on_foreign: OnForeign) -> None:
        self._on_entry = on_entry
        self._on_foreign = on_foreign
        self._on_fact = on_fact
        self._frames: list[tuple[memoryview, Frame, Path]] = []
        self._ranges: Mapping[int, PartitionRange] = {}

    def collect(self, data: memoryview, frame: Frame, path: Path) -> None:
        """Keep a frame; `recover` may still find that the log cannot be used."""
        self._frames.append((data, frame, path))

    def run(
        self, partitions: Mapping[int, PartitionLog], ranges: Mapping[int, PartitionRange]
    ) -> None:
        """Restore entries and facts, in order."""
        frames, self._frames = self._frames, []
        self._ranges = ranges
        lost = False
        for data, frame, path in frames:
            lost = lost or bool(frame.flags & LOST)
            try:
                self._entries(data, frame, partitions, lost=lost)
                for kind, payload in iter_facts(data, frame):
                    self._on_fact(kind, bytes(payload))
            except CorruptLog as error:
                if error.path is None:
                    raise CorruptLog(error.reason, path, error.position) from error
                raise

    def _entries(
        self,
        data: memoryview,
        frame: Frame,
        partitions: Mapping[int, PartitionLog],
        *,
        lost: bool,
    ) -> None:
        for partition_id, owner_epoch, position, length in iter_entries(data, frame):
            partition = partitions.get(partition_id)
            if partition is None:
                continue  # deleted: meta records a partition before its first frame
            base_offset, attributes, delta, max_timestamp, producer_id = REPLAYED.unpack_from(
                data, position
            )
            end_offset = base_offset + delta + 1
            expected = partition.end_offset
            if attributes & TRANSACTIONAL and base_offset >= self._ranges[partition_id].flushed_end:
                partition.restore_transaction(data[position : position + length])
            if end_offset <= expected and expected == partition.flushed_end:
                if base_offset >= self._ranges[partition_id].flushed_end:
                    entry = data[position : position + length]
                    self._report_entry(partition_id, attributes, producer_id, entry)
                continue  # in a segment already, or below the start offset
            if base_offset != expected and not (
                lost or base_offset < expected == partition.flushed_end
            ):
                raise CorruptLog(
                    f"partition {partition_id} goes on at {base_offset}, {expected} was next",
                    position=position,
                )
            entry = data[position : position + length]
            partition.restore(
                entry,
                base_offset,
                end_offset,
                owner_epoch,
                max_timestamp,
                append_ms=frame.append_time_ms,
                formats=1 << (attributes >> FORMAT_SHIFT & 3),
            )
            self._report_entry(partition_id, attributes, producer_id, entry)

    def _report_entry(
        self, partition_id: int, attributes: int, producer_id: int, entry: memoryview
    ) -> None:
        if attributes & FORMAT_MASK:
            self._on_foreign(partition_id, read_header(entry), entry)
        elif producer_id >= 0:
            self._on_entry(partition_id, read_header(entry))
