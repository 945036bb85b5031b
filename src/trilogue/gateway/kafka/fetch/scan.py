"""One scan of a fetch's partitions: what is in memory, and what has to be read in the executor.

Partitions are filled in order; the first batch found is taken whole, even above the limits. Bytes
near the end of a log are views of the tail. What is in a segment, was written by another protocol,
or goes to a client that reads only message sets becomes a `DeferredRead` for the executor.

read_committed reads up to the last stable offset and lists the aborted transactions with records in
the returned batches; their markers may be in much later segments.

A follower reads up to the end of the log, and gets entries as they are stored: nothing is converted
and no aborted transactions are listed, so that its copy is the same to the byte.
"""

from __future__ import annotations

import logging
from typing import NamedTuple, TypeAlias

from trilogue.broker.errors import StaleEpoch
from trilogue.broker.topics.partition import Partition
from trilogue.entry.entry import Codec
from trilogue.gateway.conversion_cache import KAFKA_ONLY, ConversionCache, is_kafka
from trilogue.gateway.kafka.context import RequestContext
from trilogue.gateway.kafka.errors import EXPECTED, to_error_code
from trilogue.gateway.kafka.fetch.down_convert import MESSAGE_SETS_UNTIL, down_convert_parts
from trilogue.gateway.kafka.fetch.partitions import FetchPartition, FetchTopic
from trilogue.gateway.partition_reader import (
    Aborted,
    PartitionRead,
    entries_end,
    open_read,
    resolve_aborted,
)
from trilogue.gateway.segments.read_ahead import NextRead, Prefetched, wait_for
from trilogue.gateway.stream import Buffer
from trilogue.log.errors import OffsetOutOfRange
from trilogue.log.partition_log import (
    AbortedLookup,
    PartitionLog,
    SegmentSlice,
    TailSlice,
)
from trilogue.log.partition_lookups import UNKNOWN_EPOCH, EpochEnd, SegmentLookup
from trilogue.log.segments.segment import AbortedTransaction
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.fetch import AbortedTransaction as FetchAbortedTransaction
from trilogue.wire.kafka.fetch import DivergingEpoch, FetchRequest, PartitionData
from trilogue.wire.kafka.leader import LeaderIdAndEpoch

log = logging.getLogger(__name__)

READ_COMMITTED = 1
ZSTD_SINCE = 10
# Errors of the request, not of the stored data: they are not logged.
CLIENT_ERRORS = {ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, ErrorCode.OFFSET_OUT_OF_RANGE}


class ReadResult(NamedTuple):
    """The outcome of a deferred read."""

    batches: list[Buffer]
    aborted: list[AbortedTransaction]  # to be skipped by the client
    next_offset: int = -1  # where an old client continues if it can read nothing here
    known: EpochEnd | None = None  # the end of the last epoch that the client read
    end_offset: int = -1  # behind what was read from a segment, all of which is here


class DeferredRead(NamedTuple):
    """A read or conversion of one partition, for the executor."""

    target: FetchPartition
    data: PartitionData
    read: PartitionRead
    aborted: Aborted | None  # None: the client reads uncommitted messages too
    partition_id: int
    room: int  # bytes that the partition may have in the response
    version: int
    known: SegmentLookup[EpochEnd] | None  # looked up first
    is_replica: bool = False  # nothing is converted

    @property
    def size_hint(self) -> int:
        """Bytes of the response that are reserved for it."""
        return self.read.size_hint

    def run(self, conversions: ConversionCache, spare: int) -> ReadResult:
        """Read the batches, then find aborted transactions with records in them.

        Entries of other protocols are converted; the conversion may take `spare` bytes beyond the
        reserved ones.
        """
        if self.known is not None:
            known = self.known.run()
            if _is_diverging(self.target, known):
                return ReadResult([], [], known=known)
        is_hot = isinstance(self.read.source, TailSlice)
        parts: list[Buffer] = []
        parts += self.read.load()
        if not parts:
            return ReadResult([], [])
        if self.is_replica:
            is_read = not is_hot and len(parts[-1]) > 0
            return ReadResult(parts, [], end_offset=entries_end(parts[-1]) if is_read else -1)
        room = min(self.room, self.size_hint + spare)
        if self.version <= MESSAGE_SETS_UNTIL:
            offset = self.target.requested.fetch_offset
            parts, next_offset = down_convert_parts(
                conversions,
                self.partition_id,
                parts,
                room,
                version=self.version,
                from_offset=offset,
                keep=is_hot,
            )
            return ReadResult(parts, [], next_offset)
        passed: list[AbortedTransaction] = []
        if self.aborted is not None and parts[-1]:
            passed = resolve_aborted(self.aborted, entries_end(parts[-1]))
        if not is_kafka(parts):
            zstd = self.version >= ZSTD_SINCE
            parts = conversions.for_kafka(self.partition_id, parts, room, keep=is_hot, zstd=zstd)
        elif not is_hot and parts[-1]:
            return ReadResult(parts, passed, end_offset=entries_end(parts[-1]))
        return ReadResult(parts, passed)


ReadOutcome: TypeAlias = ReadResult | Exception


def run_deferred_reads(
    readings: list[DeferredRead], conversions: ConversionCache, spare: int
) -> list[ReadOutcome]:
    """Run every read, each with its own outcome (in the executor)."""
    found: list[ReadOutcome] = []
    for reading in readings:
        try:
            read = reading.run(conversions, spare)
            found.append(read)
            spare = max(0, spare - max(0, sum(map(len, read.batches)) - reading.size_hint))
        except (*EXPECTED, OSError) as problem:
            # Without its traceback: the frames hold this list, and perhaps unpacked data.
            found.append(problem.with_traceback(None))
    return found


def records_size(found: list[tuple[FetchPartition, PartitionData]]) -> int:
    """Return the bytes of records in a response."""
    size = 0
    for _, data in found:
        records = data.records
        if records:
            size += sum(map(len, records)) if isinstance(records, list) else len(records)
    return size


class FetchScan:
    """One scan, in the order of the calls of `read`."""

    __slots__ = (
        "_allowed",
        "_context",
        "_topics",
        "_version",
        "cold",
        "committed",
        "continues",
        "found",
        "has_error",
        "has_prefetched",
        "has_rates",
        "is_replica",
        "is_sequential",
        "is_stepped",
        "left_out",
        "moved",
        "next_reads",
        "readable",
        "room",
        "size",
        "wait_s",
    )  # fmt: skip

    def __init__(
        self, context: RequestContext, request: FetchRequest, room: int, *, is_replica: bool = False
    ) -> None:
        self.found: list[tuple[FetchPartition, PartitionData]] = []
        self.size = 0
        self.readable = 0  # partitions that exist and that the client may read
        self.has_error = False  # an error: respond at once
        self.has_rates = False  # some partition has a dispatch rate
        self.wait_s = 0.0  # a partition over its dispatch rate is not read for so long; 0: none
        self.cold: list[DeferredRead] = []
        self.has_prefetched = False  # some records are of segments, and were read ahead
        self.is_sequential = False  # its client went on soon after its last response
        self.next_reads: list[NextRead] = []  # where it will go on in segments
        self.left_out: list[FetchPartition] = []  # there was no room for them
        self.continues = False  # nothing found has a form for this old client: scan further on
        self.is_stepped = False  # it took several loop iterations
        self.moved = False  # and a log moved meanwhile
        self.is_replica = is_replica
        self.committed = request.isolation_level == READ_COMMITTED and not is_replica
        self._context = context
        self._version = context.version
        most = min(
            request.max_bytes,
            context.gateway.settings.fetch_bytes_max,
            context.fetch_quota_bytes,
            room,
        )
        self.room = max(0, most)
        self._allowed: dict[FetchTopic, bool] = {}
        self._topics: set[FetchTopic] = set()  # resolved again in this scan

    def read(self, target: FetchPartition) -> None:
        """Read one partition within the limits of the whole request."""
        data = PartitionData(
            partition_index=target.requested.partition,
            error_code=ErrorCode.NONE,
            high_watermark=-1,
            aborted_transactions=[] if self.committed else None,
            records=b"",
        )
        self.found.append((target, data))
        partition = target.partition
        if partition is None or partition.deleted:
            self.has_error = self.has_error or partition is not None  # it existed a moment ago
            self._resolve_again(target)
            partition = target.partition
        plog = target.log
        topic = target.topic
        if not (self._allowed.get(topic) or self._is_allowed(topic)):
            data.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif partition is None or plog is None:
            data.error_code = target.code
        else:
            self._read(target, partition, plog, data)
            return
        data.aborted_transactions = []  # as in Kafka

    @property
    def is_outdated(self) -> bool:
        """Whether a log has moved since it was scanned, which no callback will report."""
        return any(
            target.has_moved(data, committed=self.committed)
            for target, data in self.found
            if not data.error_code
        )

    def _read(
        self, target: FetchPartition, partition: Partition, plog: PartitionLog, data: PartitionData
    ) -> None:
        self.readable += 1
        requested = target.requested
        try:
            partition.check_epoch(requested.current_leader_epoch)
            code = self._find_version_error(partition)
            if code:
                data.error_code = code
                data.aborted_transactions = []
                self.has_error = True
                return
            epoch = requested.last_fetched_epoch  # consumers do not send it
            known = None if epoch <= 0 else plog.epoch_end(epoch)
            if isinstance(known, EpochEnd) and _is_diverging(target, known):
                self._set_diverging(data, known)
            elif (
                rates := None if self.is_replica else partition.rates
            ) is None or self._is_within_rates(partition):
                room = min(requested.partition_max_bytes, self.room - self.size)
                if rates is not None:
                    room = min(room, self._context.dispatch_room(partition)[1])
                if self.size == 0 or room > 0:
                    later = known if isinstance(known, SegmentLookup) else None
                    self._add_records(target, plog, data, max(0, room), later)
                elif requested.fetch_offset < plog.flushed_end:
                    self.left_out.append(target)
        except EXPECTED as problem:
            self._set_error(target, data, problem)
            return
        data.high_watermark = plog.high_watermark
        data.last_stable_offset = plog.stable_end
        data.log_start_offset = plog.start_offset

    def _is_within_rates(self, partition: Partition) -> bool:
        """Whether a partition with rates may be read now; else its records wait."""
        self.has_rates = True
        wait_s = self._context.count_dispatched(partition, 0, 0)
        if wait_s > 0:
            self.wait_s = min(self.wait_s or wait_s, wait_s)
        return not wait_s

    def _find_version_error(self, partition: Partition) -> ErrorCode:
        """Return why old clients may not read the topic, or NONE (KIP-110, KIP-283)."""
        version, settings = self._version, partition.settings
        if version >= ZSTD_SINCE:
            return ErrorCode.NONE
        if version <= MESSAGE_SETS_UNTIL and (self.is_replica or not settings.converts_down):
            return ErrorCode.UNSUPPORTED_VERSION  # for a follower: a message set is no copy
        if settings.compression is Codec.ZSTD and not self.is_replica:
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        return ErrorCode.NONE

    def _resolve_again(self, target: FetchPartition) -> None:
        """Resolve the topic again: it may exist by now, also under the name of a deleted one."""
        if target.topic not in self._topics:
            self._topics.add(target.topic)
            target.topic.resolve(self._context.gateway)
        target.find_partition_again()
        if target.partition is not None and target.partition.deleted:  # it is being deleted
            target.partition = target.log = None
            target.code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _is_allowed(self, topic: FetchTopic) -> bool:
        name = topic.checked_name
        allowed = self.is_replica or name is None or self._context.is_allowed(name)
        self._allowed[topic] = allowed
        return allowed

    def _set_error(
        self, target: FetchPartition, data: PartitionData, problem: BaseException
    ) -> None:
        data.error_code = to_error_code(problem)
        data.records = b""
        self.has_error = True
        assert target.partition is not None
        if isinstance(problem, StaleEpoch):
            data.current_leader = LeaderIdAndEpoch(
                leader_id=self._context.broker.cluster.node_id,
                leader_epoch=target.partition.owner_epoch,
            )

    def _set_diverging(self, data: PartitionData, known: EpochEnd) -> None:
        """Report that the client's log diverges from this one."""
        data.diverging_epoch = DivergingEpoch(epoch=known.epoch, end_offset=known.end_offset)
        self.has_error = True

    def _add_records(
        self,
        target: FetchPartition,
        plog: PartitionLog,
        data: PartitionData,
        room: int,
        known: SegmentLookup[EpochEnd] | None,
    ) -> None:
        """Add the records from the fetch offset on, or a deferred read of them."""
        offset = target.requested.fetch_offset
        read = open_read(
            plog,
            offset,
            room,
            committed=self.committed,
            at_least_one=self.size == 0,
            is_replica=self.is_replica,
        )
        found = read.source
        is_empty = isinstance(found, TailSlice) and not found.size
        if is_empty and known is None:
            return
        version = self._version
        if (
            isinstance(found, SegmentSlice)
            or version <= MESSAGE_SETS_UNTIL
            or known is not None
            or (
                plog.tail_formats & ~KAFKA_ONLY
                and not self.is_replica
                and not is_kafka(found.slices)
            )
        ):
            if isinstance(found, SegmentSlice):
                source = self._find_source(target, data, read, room, is_ready=known is None)
                if source is None:
                    return
                read = read._replace(source=source)
            reading = DeferredRead(
                target,
                data,
                read,
                read.find_aborted(plog) if self.committed else None,
                plog.partition_id,
                room,
                version,
                known,
                is_replica=self.is_replica,
            )
            self.cold.append(reading)
            self.size += 0 if is_empty else max(1, reading.size_hint)
            return
        aborted = read.find_aborted(plog) if self.committed else []
        assert not isinstance(aborted, AbortedLookup), "what is read from memory ended there"
        data.records = found.slices
        self.size += found.size
        if aborted:
            data.aborted_transactions = list_aborted(aborted)

    def _find_source(
        self,
        target: FetchPartition,
        data: PartitionData,
        read: PartitionRead,
        room: int,
        *,
        is_ready: bool,
    ) -> SegmentSlice | None:
        """Return how to read a segment in the executor; None if there is nothing to read there.

        Its entries may have been read ahead, or wait for the next response.
        """
        plog, found = target.log, read.source
        assert plog is not None
        assert isinstance(found, SegmentSlice)
        read_ahead = self._context.gateway.read_ahead
        key = (plog.partition_id, read.offset, self.committed)
        expected = read_ahead.find_expected(key)
        size = found.size_hint
        if expected is not None:
            self.is_sequential = True
            size = expected.size
        if self.size and room < size:  # a part would be read now, and the rest once more
            self.left_out.append(target)
            return None
        if expected is None:
            return found
        read_ahead.remove_expected(key)
        prefetched = expected.found
        if is_ready and prefetched is not None and self._is_ready(prefetched, room):
            self._add_prefetched(target, data, prefetched)
            return None
        return wait_for(expected, found, room)

    def _is_ready(self, found: Prefetched, room: int) -> bool:
        """Whether entries that were read ahead need no thread any more."""
        return (
            len(found.data) <= room
            and (found.is_kafka or self.is_replica)
            and self._version > MESSAGE_SETS_UNTIL
        )

    def _add_prefetched(
        self, target: FetchPartition, data: PartitionData, found: Prefetched
    ) -> None:
        self.has_prefetched = True
        data.records = [found.data]
        self.size += len(found.data)
        if found.aborted:
            data.aborted_transactions = list_aborted(found.aborted)
        self._expect_next_read(target, found.end_offset)

    def fill(self, outcomes: list[ReadOutcome]) -> None:
        """Add the outcomes of the deferred reads."""
        for reading, outcome in zip(self.cold, outcomes, strict=True):
            data = reading.data
            if isinstance(outcome, Exception):
                data.error_code = code = to_error_code(outcome)
                if code not in CLIENT_ERRORS:
                    log.error(
                        "fetch.cold_read_failed",
                        extra={"partition": data.partition_index, "problem": str(outcome)},
                    )
            else:
                if outcome.known is not None:
                    self._set_diverging(data, outcome.known)
                elif any(map(len, outcome.batches)):
                    data.records = outcome.batches
                elif outcome.next_offset > reading.target.requested.fetch_offset:
                    reading.target.requested.fetch_offset = outcome.next_offset
                    self.continues = True
                if outcome.aborted:
                    data.aborted_transactions = list_aborted(outcome.aborted)
                if outcome.end_offset >= 0:
                    self._expect_next_read(reading.target, outcome.end_offset)
        if self.continues:
            self.continues = not any(data.records or data.error_code for _, data in self.found)

    def _expect_next_read(self, target: FetchPartition, offset: int) -> None:
        plog = target.log
        if plog is None:
            return
        self.next_reads.append(
            NextRead(
                plog,
                (plog.partition_id, offset, self.committed),
                target.requested.partition_max_bytes,
                plog.stable_end if self.committed else None,
            )
        )

    def read_ahead(self, *, ahead: bool, left_out_first: bool) -> None:
        """Expect the client where its partitions go on; with `ahead` read there for it.

        Those that this response had no room for come first in the next one of a session.
        """
        read = self.next_reads
        self.next_reads = []
        for target in self.left_out:
            self._expect_next_read(target, target.requested.fetch_offset)
        left_out, self.next_reads = self.next_reads, []
        reads = left_out + read if left_out_first else read + left_out
        self._context.gateway.read_ahead.expect(reads, ahead=ahead)


def _is_diverging(target: FetchPartition, known: EpochEnd) -> bool:
    """Whether the client read beyond the end of its epoch, or has an epoch that is not here.

    Raises `OffsetOutOfRange` for an unknown epoch, as Kafka does.
    """
    requested = target.requested
    if known == UNKNOWN_EPOCH:
        offset = requested.fetch_offset
        raise OffsetOutOfRange(offset, 0, offset)
    return known.epoch < requested.last_fetched_epoch or known.end_offset < requested.fetch_offset


def list_aborted(aborted: list[AbortedTransaction]) -> list[FetchAbortedTransaction]:
    """Return aborted transactions as the response lists them."""
    return [
        FetchAbortedTransaction(producer_id=row.producer_id, first_offset=row.first_offset)
        for row in aborted
    ]
