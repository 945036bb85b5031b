"""Compaction of one partition: of all messages with one key only the last one stays.

Like a flush (flush.py) it is a pure function of files, for the helper process (`run`) or a test
(`compact`). It reads twice:

    start          compacted_end             end                  what segments hold
      |  compacted    |       dirty           |       left alone        |
      |               |--- survey: key -> last offset --->- - - - - - ->|  (how transactions ended)
      |--- rewrite: what is not the last of its key goes -->| copied     |

The survey notes the last offset of each key of the dirty part, in bounded memory: where that is
full the end comes earlier, and the next job continues from there. Messages of a transaction count
when its marker commits it; compaction ends at the first transaction without a marker. The rewrite
keeps every entry's base offset and span (entry/compaction/compaction.py) and never joins entries.
The rules are those of Kafka's cleaner:

- a message stays if no later one below the end has its key; one without a key is dropped (where its
  protocol refuses those for such topics: Pulsar's stay);
- a tombstone stays until the delete horizon that the first job to see it has set;
- messages of an aborted transaction are dropped at once; its marker, and any other marker, when
  nothing of its transaction is left and the horizon that was set then has passed;
- an entry with no messages left is dropped, unless it is the last one of a known producer or the
  last one before the end: then its header stays.

Entries that cannot be decoded (another format, records that are out of order) are kept as they are,
and so are tombstones behind them, which might delete something in them. Damage is an error: the
partition then stays as it was.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable
from typing import Final

from trilogue.entry.compaction.compaction import delete_horizon, emptied, open_entry, outcome_of
from trilogue.entry.compaction.record import OpenEntry
from trilogue.entry.control import Outcome
from trilogue.entry.entry import NO_PRODUCER, EntryError, EntryHeader
from trilogue.entry.walk import read_header
from trilogue.log.files import FileSystem
from trilogue.log.jobs.compaction_files import WHOLE, Blocks, Output, Source
from trilogue.log.jobs.compaction_job import CompactJob, CompactResult
from trilogue.log.jobs.offset_map import OffsetMap, digest_of
from trilogue.log.jobs.pace import Pace
from trilogue.log.objects.obstore_store import Reach
from trilogue.log.segments.merge_input import Row
from trilogue.log.segments.segment_files import files_for

MAX_TIME_MS: Final = 2**63 - 1
UNDECIDED_MAX: Final = 200_000  # messages of transactions without a marker so far


def run(job: CompactJob, reach: Reach | None = None) -> CompactResult:
    """Compact on the operating system's files and object storage, in the helper process."""
    return compact(job, files_for(job.inputs, reach))


def compact(
    job: CompactJob,
    files: FileSystem,
    *,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> CompactResult:
    """Write the messages to keep of a partition into durable segments of its own.

    Raises CorruptLog for damage in the partition, OSError if an output cannot be written. No file
    is left behind then. `added` and `replaced` are empty when there was nothing to drop.
    """
    source = Source(job, files, Pace(job.bytes_per_second, monotonic, sleep))
    floor = max(job.start_offset, job.compacted_end)
    survey = _Survey(job, floor)
    survey.read(source)
    if survey.end_offset <= floor:
        return CompactResult((), (), job.compacted_end, 0, 0, 0, source.bytes_read, 0)
    output = Output(job, files, survey.end_offset)
    try:
        rewrite = _Rewrite(job, survey, output)
        replaced = rewrite.write(source)
        if rewrite.changed:
            added = output.finish()
        else:  # the inputs may stay as they are
            replaced, added = (), ()
            output.abandon()
    except Exception:  # meta will not record these files: on a full disk they must not stay
        output.abandon()
        raise
    return CompactResult(
        added,
        replaced,
        survey.end_offset,
        rewrite.entries_read,
        output.entries,
        rewrite.records_dropped,
        source.bytes_read,
        sum(each.size for each in added),
    )


# ── survey: the last message of each key ──────────────────────────────────────────────────────


class _Survey:
    """Reads the dirty part, and beyond it until every transaction in it has ended."""

    def __init__(self, job: CompactJob, floor: int) -> None:
        self.end_offset = job.end_offset
        self.last_offsets = OffsetMap(job.map_bytes)
        self._floor = floor
        self._partition_id = job.partition_id
        self._aborted: dict[int, list[tuple[int, int]]] = {}  # producer -> first, marker's offset
        self._first: dict[int, int] = {}  # of open transactions
        self._waiting: dict[int, list[tuple[bytes, int]]] = {}  # digest, offset of their messages
        self._waiting_count = 0

    def read(self, source: Source) -> None:
        """Read as far as needed. Afterwards `end_offset` is where compaction has to end."""
        for blocks in source.inputs(self._floor):
            for row, data in blocks.read():
                if row[0] >= self.end_offset and not self._first:
                    return
                for header, entry in blocks.entries(row, data):
                    self._take(entry, header)
        if self._first:
            self.end_offset = min(self.end_offset, *self._first.values())

    def is_aborted(self, header: EntryHeader) -> bool:
        """Whether an entry of the dirty part belongs to an aborted transaction."""
        ended = self._aborted.get(header.producer_id, ())
        at = bisect_right(ended, header.base_offset, key=_first_of) - 1
        return at >= 0 and header.base_offset < ended[at][1]

    def _take(self, entry: memoryview, header: EntryHeader) -> None:
        if header.last_offset < self._floor:
            return
        producer_id = header.producer_id
        if header.is_control:
            self._decide(producer_id, header.base_offset, outcome_of(entry, header))
        elif header.last_offset >= self.end_offset:
            return
        elif header.is_transactional:
            self._first.setdefault(producer_id, header.base_offset)
            found = _keys(entry, header)
            self._waiting.setdefault(producer_id, []).extend(found)
            self._waiting_count += len(found)
        else:
            for digest, offset in _keys(entry, header):
                self.last_offsets.put(digest, offset)
        if header.last_offset < self.end_offset and self._is_full:
            self.end_offset = header.last_offset + 1

    @property
    def _is_full(self) -> bool:
        waiting = self._waiting_count
        known = self.last_offsets
        return waiting >= UNDECIDED_MAX or known.count + waiting >= known.key_limit

    def _decide(self, producer_id: int, offset: int, outcome: Outcome | None) -> None:
        if outcome is None:
            return
        first = self._first.pop(producer_id, None)
        waiting = self._waiting.pop(producer_id, ())
        self._waiting_count -= len(waiting)
        if first is None:
            return
        if outcome is Outcome.ABORT:
            self._aborted.setdefault(producer_id, []).append((first, offset))
            return
        for digest, each in waiting:
            self.last_offsets.put(digest, each)


def _first_of(transaction: tuple[int, int]) -> int:
    return transaction[0]


def _keys(entry: memoryview, header: EntryHeader) -> list[tuple[bytes, int]]:
    """List the digests and offsets of an entry's messages that have a key."""
    try:
        found = open_entry(entry, header)
    except EntryError:
        return []
    if found is None:
        return []
    return [(digest_of(each.key), each.offset) for each in found.records if each.key is not None]


# ── rewrite: the messages that stay ───────────────────────────────────────────────────────────


class _Rewrite:
    """Reads everything up to the end and writes the messages that stay."""

    def __init__(self, job: CompactJob, survey: _Survey, output: Output) -> None:
        self.changed = False  # whether anything was dropped
        self.entries_read = 0
        self.records_dropped = 0
        self._job = job
        self._survey = survey
        self._end = survey.end_offset
        self._last_offset = survey.last_offsets.get
        self._output = output
        self._horizon_ms = min(job.now_ms + job.delete_retention_ms, MAX_TIME_MS)
        self._traversed: set[int] = set()  # producers with data since their last marker
        self._is_sure = True  # whether every entry so far could be decoded

    def write(self, source: Source) -> tuple[int, ...]:
        """Rewrite the inputs that begin below the end; return their ids."""
        replaced = []
        for blocks in source.inputs(self._job.start_offset):
            if blocks.base_offset >= self._end:
                break
            self._output.follow(blocks)
            replaced.append(blocks.segment_id)
            for row, data in blocks.read():
                self._write_block(blocks, row, data)
        return tuple(replaced)

    def _write_block(self, blocks: Blocks, row: Row, data: memoryview) -> None:
        """Copy a block if nothing in it changes, else write what stays of its entries."""
        if row[0] >= self._end:
            self._output.copy(row, data)
            return
        stay: list[tuple[EntryHeader, memoryview | bytes]] = []
        changed = False
        for header, entry in blocks.entries(row, data):
            self.entries_read += 1
            kept = self._keep(entry, header)
            changed |= kept is not entry
            if kept is not None:
                stay.append((header if kept is entry else read_header(kept), kept))
        self.changed |= changed
        if changed or len(data) < WHOLE:
            for header, kept in stay:
                self._output.add(header, kept, row[6])
        else:
            self._output.copy(row, data)

    def _keep(self, entry: memoryview, header: EntryHeader) -> memoryview | bytes | None:
        """Return what stays of an entry: the entry, a replacement, or None."""
        if header.last_offset >= self._end:
            return entry
        if header.last_offset < self._job.start_offset:
            return None
        kept = self._keep_marker(entry, header) if header.is_control else self._some(entry, header)
        if kept is not None:
            return kept
        self.records_dropped += header.record_count
        is_last = header.last_offset + 1 == self._end or (
            header.producer_id != NO_PRODUCER
            and self._job.producers.get(header.producer_id) == header.base_offset
        )
        if not is_last:
            return None
        return emptied(header) if header.record_count else entry

    def _keep_marker(self, entry: memoryview, header: EntryHeader) -> memoryview | bytes | None:
        """Keep a marker until its transaction has no entries left and its horizon has passed."""
        outcome = outcome_of(entry, header)
        if outcome is None:
            return entry if header.record_count else None
        if header.producer_id in self._traversed:
            self._traversed.discard(header.producer_id)
            return entry
        horizon_ms = delete_horizon(header)
        if horizon_ms is not None:
            return None if horizon_ms <= self._job.now_ms else entry
        marker = open_entry(entry, header)
        return (
            entry
            if marker is None
            else marker.keeping([True] * header.record_count, self._horizon_ms)
        )

    def _some(self, entry: memoryview, header: EntryHeader) -> memoryview | bytes | None:
        """Keep the messages that are the last of their keys."""
        if header.is_transactional:
            self._traversed.add(header.producer_id)
            if self._survey.is_aborted(header):
                return None
        try:
            found = open_entry(entry, header)
        except EntryError:
            found = None
        if found is None:
            self._is_sure = False
            return entry
        horizon_ms = delete_horizon(header)
        is_over = horizon_ms is not None and horizon_ms <= self._job.now_ms and self._is_sure
        kept = self._flags(found, without_tombstones=is_over)
        count = sum(kept)
        if not count:
            return None
        needs_horizon = horizon_ms is None and any(
            flag and each.is_tombstone for flag, each in zip(kept, found.records, strict=True)
        )
        if count == len(kept) and not needs_horizon:
            return entry
        self.records_dropped += len(kept) - count
        return found.keeping(kept, self._horizon_ms if needs_horizon else None)

    def _flags(self, found: OpenEntry, *, without_tombstones: bool) -> list[bool]:
        last_offset = self._last_offset
        keeps_keyless = found.keeps_keyless
        return [
            keeps_keyless
            if key is None
            else offset >= last_offset(digest_of(key)) and not (is_tombstone and without_tombstones)
            for offset, _, key, is_tombstone in found.records
        ]
