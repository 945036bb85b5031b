"""What one look at the partitions of a fetch finds, and what of it has to be read elsewhere.

Partitions are filled in order; the first batch that is found is taken whole, even above the limits.
Bytes near the end are views of the tail; what stands in a segment, is of another protocol, or goes
to a client that knows only message sets becomes a `Reading`, to be run in the executor.

read_committed reads up to the last stable offset and is told which aborted transactions have
something in just the batches that it gets; their markers may lie in segments far behind.
"""

from __future__ import annotations

import logging
from typing import NamedTuple, TypeAlias

from trilogue.broker.errors import StaleEpoch
from trilogue.broker.partition import Partition
from trilogue.entry.entry import Codec
from trilogue.entry.walk import walk_headers
from trilogue.gateway.conversions import KAFKA_ONLY, Conversions, is_kafka
from trilogue.gateway.kafka.errors import EXPECTED, code_of
from trilogue.gateway.kafka.fetch_old import OLD_UNTIL, old_parts
from trilogue.gateway.kafka.fetch_wanted import Wanted, WantedTopic
from trilogue.gateway.kafka.shared import Call
from trilogue.gateway.stream import Buffer
from trilogue.log.errors import OffsetOutOfRange
from trilogue.log.lookups import UNKNOWN_EPOCH, EpochEnd, Later
from trilogue.log.partition_log import Cold, Hot, LaterAborted, PartitionLog
from trilogue.log.segment import AbortedTransaction
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.fetch import AbortedTransaction as Passed
from trilogue.wire.kafka.fetch import EpochEndOffset, FetchRequest, LeaderIdAndEpoch, PartitionData

log = logging.getLogger(__name__)

READ_COMMITTED = 1
ZSTD_SINCE = 10
# What is wrong with the question, not with what is stored.
TOLD_ONLY = {ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, ErrorCode.OFFSET_OUT_OF_RANGE}


class Read(NamedTuple):
    """What came of a reading."""

    batches: list[Buffer]
    aborted: list[AbortedTransaction]  # what to pass over
    next_offset: int = -1  # where an old client has to go on when there is nothing it can read
    known: EpochEnd | None = None  # where the epoch that the client read last ended
    end_offset: int = -1  # of what was read from a segment, all of which is here


class Reading(NamedTuple):
    """What is to be read, or converted, in the executor for one partition of the answer."""

    wanted: Wanted
    data: PartitionData
    source: Cold | Hot
    aborted: LaterAborted | list[AbortedTransaction] | None  # None: not asked for
    partition_id: int
    room: int  # bytes that the partition may have in the answer
    version: int
    known: Later[EpochEnd] | None  # to be looked up first
    is_quick: bool = False  # its reader went on soon after its last answer

    @property
    def size_hint(self) -> int:
        """Bytes of the answer that were set aside for it."""
        return self.source.size if isinstance(self.source, Hot) else self.source.size_hint

    def run(self, conversions: Conversions, spare: int) -> Read:
        """Read the batches, then look for aborted transactions with something in just these.

        Entries of other protocols are converted; what that makes larger may take `spare` bytes
        beyond those that were set aside.
        """
        if self.known is not None:
            known = self.known.run()
            if _diverges(self.wanted, known):
                return Read([], [], known=known)
        is_hot = isinstance(self.source, Hot)
        parts: list[Buffer] = []
        parts += self.source.slices if isinstance(self.source, Hot) else [self.source.run()]
        room = min(self.room, self.size_hint + spare)
        if self.version <= OLD_UNTIL:
            offset = self.wanted.asked.fetch_offset
            parts, next_offset = old_parts(
                conversions,
                self.partition_id,
                parts,
                room,
                version=self.version,
                from_offset=offset,
                keep=is_hot,
            )
            return Read(parts, [], next_offset)
        aborted = self.aborted
        passed: list[AbortedTransaction] = []
        if isinstance(aborted, LaterAborted):
            if parts[-1]:
                passed = aborted.run(_end_of(parts[-1]))
        elif aborted is not None and parts[-1]:
            passed = aborted
        if not is_kafka(parts):
            zstd = self.version >= ZSTD_SINCE
            parts = conversions.for_kafka(self.partition_id, parts, room, keep=is_hot, zstd=zstd)
        elif not is_hot and parts[-1]:
            return Read(parts, passed, end_offset=_end_of(parts[-1]))
        return Read(parts, passed)


def _end_of(entries: Buffer) -> int:
    """Where whole entries end."""
    _, _, base_offset, last_offset_delta, *_ = walk_headers(entries)[-1]
    return base_offset + last_offset_delta + 1


Outcome: TypeAlias = Read | Exception


def run(readings: list[Reading], conversions: Conversions, spare: int) -> list[Outcome]:
    """In the executor: every read, each with its own outcome."""
    found: list[Outcome] = []
    for reading in readings:
        try:
            read = reading.run(conversions, spare)
            found.append(read)
            spare = max(0, spare - max(0, sum(map(len, read.batches)) - reading.size_hint))
        except (*EXPECTED, OSError) as problem:
            # Without its frames: they know this list, and may hold what was unpacked so far.
            found.append(problem.with_traceback(None))
    return found


def records_size(found: list[tuple[Wanted, PartitionData]]) -> int:
    """How many bytes of messages there are in what was found."""
    size = 0
    for _, data in found:
        records = data.records
        if records:
            size += sum(map(len, records)) if isinstance(records, list) else len(records)
    return size


class Look:
    """One look, in the order in which `read` is called."""

    __slots__ = (
        "_allowed", "_call", "_topics", "_version", "cold", "committed", "found", "goes_on",
        "in_turns", "moved", "readable", "room", "size", "urgent",
    )  # fmt: skip

    def __init__(self, call: Call, request: FetchRequest, room: int) -> None:
        self.found: list[tuple[Wanted, PartitionData]] = []
        self.size = 0
        self.readable = 0  # partitions that are there, and may be read
        self.urgent = False  # an error while reading: it is told at once
        self.cold: list[Reading] = []
        self.goes_on = False  # nothing of what was found is for an old client: look further on
        self.in_turns = False  # others had their turns since it began
        self.moved = False  # and something called that it had moved
        self.committed = request.isolation_level == READ_COMMITTED
        self._call = call
        self._version = call.version
        most = min(request.max_bytes, call.door.settings.fetch_bytes_max, call.fetch_room, room)
        self.room = max(0, most)
        self._allowed: dict[WantedTopic, bool] = {}
        self._topics: set[WantedTopic] = set()  # looked for again

    def read(self, wanted: Wanted) -> None:
        """Read one partition as far as what the request may have in all allows."""
        data = PartitionData(
            partition_index=wanted.asked.partition,
            error_code=ErrorCode.NONE,
            high_watermark=-1,
            aborted_transactions=[] if self.committed else None,
            records=b"",
        )
        self.found.append((wanted, data))
        partition = wanted.partition
        if partition is None or partition.deleted:
            self.urgent = self.urgent or partition is not None  # it was there a moment ago
            self._resolve(wanted)
            partition = wanted.partition
        plog = wanted.log
        topic = wanted.topic
        if partition is None or plog is None:
            data.error_code = wanted.code
        elif not (self._allowed.get(topic) or self._may(topic)):
            data.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        else:
            self._read(wanted, partition, plog, data)
            return
        data.aborted_transactions = []  # as a real Kafka has it

    @property
    def is_past(self) -> bool:
        """Whether something has moved since it was looked at, so that nobody will call for it."""
        return any(
            wanted.has_moved(data, committed=self.committed)
            for wanted, data in self.found
            if not data.error_code
        )

    def _read(
        self, wanted: Wanted, partition: Partition, plog: PartitionLog, data: PartitionData
    ) -> None:
        self.readable += 1
        asked = wanted.asked
        try:
            partition.check_epoch(asked.current_leader_epoch)
            if self._version < ZSTD_SINCE and _unreadable(partition, self._version):
                data.error_code = _unreadable(partition, self._version)
                data.aborted_transactions = []
                self.urgent = True
                return
            epoch = asked.last_fetched_epoch  # consumers do not say it
            known = None if epoch < 0 else plog.epoch_end(epoch)
            if isinstance(known, EpochEnd) and _diverges(wanted, known):
                self._diverged(data, known)
            else:
                room = min(asked.partition_max_bytes, self.room - self.size)
                if self.size == 0 or room > 0:
                    later = known if isinstance(known, Later) else None
                    self._take(wanted, plog, data, max(0, room), later)
        except EXPECTED as problem:
            self._failed(wanted, data, problem)
            return
        data.high_watermark = plog.high_watermark
        data.last_stable_offset = plog.stable_end
        data.log_start_offset = plog.start_offset

    def _resolve(self, wanted: Wanted) -> None:
        """What was not there may be there by now, also under the name of what is gone."""
        if wanted.topic not in self._topics:
            self._topics.add(wanted.topic)
            wanted.topic.resolve(self._call.door)
        wanted.find_again()
        if wanted.partition is not None and wanted.partition.deleted:  # its topic is just going
            wanted.partition = wanted.log = None
            wanted.code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _may(self, topic: WantedTopic) -> bool:
        assert topic.found is not None, "a partition without a topic"
        self._allowed[topic] = allowed = self._call.allowed(topic.found.name)
        return allowed

    def _failed(self, wanted: Wanted, data: PartitionData, problem: BaseException) -> None:
        data.error_code = code_of(problem)
        data.records = b""
        self.urgent = True
        assert wanted.partition is not None
        if isinstance(problem, StaleEpoch):
            data.current_leader = LeaderIdAndEpoch(
                leader_id=self._call.broker.cluster.node_id,
                leader_epoch=wanted.partition.owner_epoch,
            )

    def _diverged(self, data: PartitionData, known: EpochEnd) -> None:
        """What the client has read is not what is here."""
        data.diverging_epoch = EpochEndOffset(epoch=known.epoch, end_offset=known.end_offset)
        self.urgent = True

    def _take(
        self,
        wanted: Wanted,
        plog: PartitionLog,
        data: PartitionData,
        room: int,
        known: Later[EpochEnd] | None,
    ) -> None:
        """Take what there is from an offset on into the answer, or what has to be read for it."""
        offset = wanted.asked.fetch_offset
        until = plog.stable_end if self.committed else None
        found = plog.read(offset, room, at_least_one=self.size == 0, until=until)
        if isinstance(found, Hot) and not found.size:
            return
        end = found.next_offset if until is None or isinstance(found, Hot) else until
        aborted = plog.aborted(offset, end) if self.committed else None
        version = self._version
        if (
            isinstance(found, Cold)
            or version <= OLD_UNTIL
            or known is not None
            or (plog.tail_formats & ~KAFKA_ONLY and not is_kafka(found.slices))
        ):
            quick = None
            if isinstance(found, Cold):
                key = (plog.partition_id, offset, self.committed)
                quick = self._call.door.read_ahead.find(key, found, room)
            reading = Reading(
                wanted,
                data,
                quick or found,
                aborted,
                plog.partition_id,
                room,
                version,
                known,
                is_quick=quick is not None,
            )
            self.cold.append(reading)
            self.size += max(1, reading.size_hint)
            return
        assert not isinstance(aborted, LaterAborted), "what is read from memory ended there"
        data.records = found.slices
        self.size += found.size
        if aborted:
            data.aborted_transactions = passed(aborted)

    def fill(self, outcomes: list[Outcome]) -> None:
        """Take in what was read elsewhere."""
        for reading, outcome in zip(self.cold, outcomes, strict=True):
            data = reading.data
            if isinstance(outcome, Exception):
                data.error_code = code = code_of(outcome)
                if code not in TOLD_ONLY:
                    log.error(
                        "fetch.cold_read_failed",
                        extra={"partition": data.partition_index, "problem": str(outcome)},
                    )
            else:
                if outcome.known is not None:
                    self._diverged(data, outcome.known)
                elif any(map(len, outcome.batches)):
                    data.records = outcome.batches
                elif outcome.next_offset > reading.wanted.asked.fetch_offset:
                    reading.wanted.asked.fetch_offset = outcome.next_offset
                    self.goes_on = True
                if outcome.aborted:
                    data.aborted_transactions = passed(outcome.aborted)
                if outcome.end_offset >= 0:
                    self._expect(reading, outcome.end_offset)
        if self.goes_on:
            self.goes_on = not any(data.records or data.error_code for _, data in self.found)

    def _expect(self, reading: Reading, end_offset: int) -> None:
        """Its reader will go on there; if it is quick, read on for it now."""
        plog = reading.wanted.log
        if plog is not None:
            self._call.door.read_ahead.expect(
                plog,
                (plog.partition_id, end_offset, self.committed),
                reading.room,
                plog.stable_end if self.committed else None,
                ahead=reading.is_quick,
            )


def _unreadable(partition: Partition, version: int) -> ErrorCode:
    """Say why the topic is not for clients that speak an old version (KIP-110, KIP-283)."""
    settings = partition.settings
    if version <= OLD_UNTIL and not settings.converts_down:
        return ErrorCode.UNSUPPORTED_VERSION
    if version < ZSTD_SINCE and settings.compression is Codec.ZSTD:
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    return ErrorCode.NONE


def _diverges(wanted: Wanted, known: EpochEnd) -> bool:
    """Whether a client has read further in an epoch than it went, or an earlier one than it says.

    Raises `OffsetOutOfRange` for an epoch that was never here, as a real Kafka does.
    """
    asked = wanted.asked
    if known == UNKNOWN_EPOCH:
        offset = asked.fetch_offset
        raise OffsetOutOfRange(offset, 0, offset)
    return known.epoch < asked.last_fetched_epoch or known.end_offset < asked.fetch_offset


def passed(aborted: list[AbortedTransaction]) -> list[Passed]:
    """As the message names them."""
    return [Passed(producer_id=row.producer_id, first_offset=row.first_offset) for row in aborted]
