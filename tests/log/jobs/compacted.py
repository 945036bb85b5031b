"""A partition in segments that is compacted, beside a model that keeps everything ever written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.fakes import FakeFileSystem
from tests.log.samples import CLUSTER
from tests.log.samples import samples as plain_samples
from trilogue.entry.control import Outcome, build_marker
from trilogue.entry.entry import NO_PRODUCER, EntryHeader, Format, Record
from trilogue.entry.kafka.record_batch import build_batch, iter_records, set_base
from trilogue.entry.walk import read_header, walk_headers
from trilogue.log.jobs.compaction import compact
from trilogue.log.jobs.compaction_job import CompactJob, CompactResult
from trilogue.log.segments.segment import OPEN, AbortedTransaction, Block, EpochStart, SegmentHeader
from trilogue.log.segments.segment import SegmentWriter as Writer
from trilogue.log.segments.segment_info import SegmentInfo, segment_name
from trilogue.log.segments.segment_reader import SegmentReaders
from trilogue.log.transactions import Transactions, TransactionStep, read_transaction_step

SEGMENTS = Path("/segments")
PARTITION = 7
NEIGHBOUR = 9
DAY_MS = 86_400_000


@dataclass
class Written:
    """One entry as it was appended."""

    entry: bytes
    header: EntryHeader
    records: list[Record]
    outcome: Outcome | None = None  # a marker's

    @property
    def is_data(self) -> bool:
        return not self.header.is_control


@dataclass(repr=False)
class World:
    """Appends, flushes and compactions of one partition."""

    fs: FakeFileSystem = field(default_factory=FakeFileSystem)
    entries_per_block: int = 3
    direct: bool = False
    map_bytes: int = 1 << 20
    target_bytes: int = 1 << 30
    delete_retention_ms: int = DAY_MS
    now_ms: int = 1000
    epoch: int = 1
    end: int = 0
    start: int = 0
    compacted_end: int = 0
    producers: dict[int, int] = field(default_factory=dict)
    written: list[Written] = field(default_factory=list)  # everything, for ever
    infos: dict[int, SegmentInfo] = field(default_factory=dict)
    transactions: Transactions = field(default_factory=Transactions)
    flushed: Transactions = field(default_factory=Transactions)  # as of what is in segments
    horizons: dict[int, int] = field(default_factory=dict)  # of tombstones, by offset

    def __post_init__(self) -> None:
        self._unflushed: list[Written] = []
        self._segment_id = 0
        self._readers = SegmentReaders(self.fs, SEGMENTS)
        self.fs.make_directory(SEGMENTS)

    # -- what is appended ----------------------------------------------------------------------

    def append(
        self,
        *pairs: tuple[bytes | None, bytes | None],
        producer: int = NO_PRODUCER,
        transactional: bool = False,
        codec: int = 0,
        time_ms: int | None = None,
        hole: int = 0,
        sequence: int = 0,
    ) -> int:
        """Append a batch of (key, value); returns its first offset."""
        time_ms = self.now_ms if time_ms is None else time_ms
        records = [Record(at, time_ms + at, *pair) for at, pair in enumerate(pairs)]
        return self.append_entry(
            build_batch(
                records,
                codec=codec,
                transactional=transactional,
                producer_id=producer,
                producer_epoch=0 if producer >= 0 else -1,
                base_sequence=sequence if producer >= 0 else -1,
            ),
            hole=hole,
        )

    def mark(self, producer: int, outcome: Outcome) -> int:
        """Append the marker that ends a producer's transaction."""
        return self.append_entry(
            build_marker(
                outcome,
                producer_id=producer,
                producer_epoch=0,
                coordinator_epoch=0,
                timestamp_ms=self.now_ms,
            )
        )

    def append_entry(self, entry: bytes, *, hole: int = 0, is_readable: bool = True) -> int:
        stored = bytearray(entry)
        base = self.end + hole
        set_base(stored, base, self.epoch)
        header = read_header(stored)
        is_readable = is_readable and header.format is Format.KAFKA
        step = read_transaction_step(stored, header, base) if header.is_transactional else None
        if step is not None:
            self.transactions.apply(step)
        written = Written(
            bytes(stored),
            header,
            list(iter_records(stored)) if is_readable else [],
            step.outcome if step and header.is_control else None,
        )
        if header.producer_id >= 0 and not header.is_control:
            self.producers[header.producer_id] = base
        self.written.append(written)
        self._unflushed.append(written)
        self.end = header.last_offset + 1
        return base

    @staticmethod
    def _step(written: Written) -> TransactionStep | None:
        header = written.header
        if not header.is_transactional:
            return None
        return read_transaction_step(written.entry, header, header.base_offset)

    @property
    def stable_end(self) -> int:
        """All transactions below it have ended, as far as segments show."""
        first = self.flushed.first_open
        return self.flushed_end if first is None else min(first, self.flushed_end)

    @property
    def flushed_end(self) -> int:
        return self._unflushed[0].header.base_offset if self._unflushed else self.end

    # -- segments ------------------------------------------------------------------------------

    def next_id(self) -> int:
        self._segment_id += 1
        return self._segment_id

    def flush(self, *, neighbour: bool = True) -> SegmentInfo | None:
        """Write what is not in a segment into one, beside another partition's entries."""
        entries, self._unflushed = self._unflushed, []
        if not entries:
            return None
        segment_id = self.next_id()
        name = segment_name(segment_id)
        file = self.fs.open(SEGMENTS / name, create=True)
        writer = Writer(file, SegmentHeader(segment_id, 0, 1, 1, CLUSTER, self.now_ms))
        floor = entries[0].header.base_offset
        epochs: list[EpochStart] = []
        for each in entries:
            step = self._step(each)
            if step is not None:
                self.flushed.apply(step)
            if not epochs or epochs[-1].owner_epoch != each.header.leader_epoch:
                epochs.append(EpochStart(each.header.leader_epoch, each.header.base_offset))
        writer.begin(PARTITION, epochs, self.flushed.rows(floor, self.end))
        for at in range(0, len(entries), self.entries_per_block):
            some = entries[at : at + self.entries_per_block]
            headers = [each.header for each in some]
            block = Block(
                headers[0].base_offset,
                headers[-1].last_offset + 1,
                len(some),
                min(header.base_timestamp for header in headers),
                max(header.max_timestamp for header in headers),
                self.now_ms,
                self.now_ms,
            )
            writer.block(block, b"".join(each.entry for each in some))
        if neighbour:
            (sample,) = plain_samples(NEIGHBOUR, 1, base=segment_id)
            writer.begin(NEIGHBOUR, [EpochStart(1, sample.base)])
            times = (self.now_ms,) * 4
            writer.block(Block(sample.base, sample.end, 1, *times), sample.data)
        info = writer.finish(name, segment_id, segment_id)
        file.close()
        self.infos[segment_id] = info
        return info

    def inputs(self) -> tuple[SegmentInfo, ...]:
        found = [
            info
            for info in self.infos.values()
            if PARTITION in info.partitions and info.partitions[PARTITION].end_offset > self.start
        ]
        return tuple(sorted(found, key=lambda info: info.partitions[PARTITION].base_offset))

    def job(self, end: int | None = None, **changes: object) -> CompactJob:
        fields: dict[str, object] = {
            "partition_id": PARTITION,
            "inputs": self.inputs(),
            "directory": str(SEGMENTS),
            "segment_ids": tuple(self.next_id() for _ in range(20)),
            "level": 1,
            "start_offset": self.start,
            "compacted_end": self.compacted_end,
            "end_offset": self.stable_end if end is None else end,
            "delete_retention_ms": self.delete_retention_ms,
            "producers": dict(self.producers),
            "map_bytes": self.map_bytes,
            "target_bytes": self.target_bytes,
            "cluster_id": CLUSTER,
            "node_id": 1,
            "node_epoch": 1,
            "now_ms": self.now_ms,
            "direct": self.direct,
            **changes,
        }
        return CompactJob(**fields)  # type: ignore[arg-type]

    def compact_and_once_more_a_day_later(self, *written: tuple[bytes, bytes | None]) -> None:
        """The second time there is something new, and tombstones may go."""
        self.compact()
        self.append(*written)
        self.flush()
        self.now_ms += DAY_MS
        self.compact()

    def compact(self, end: int | None = None, **changes: object) -> CompactResult:
        """Compact, and let what was made take the place of what was there."""
        job = self.job(end, **changes)
        result = compact(job, self.fs)
        swap = result.swap(PARTITION, self.infos.values())
        for segment_id in swap.removed:
            del self.infos[segment_id]
            self._readers.forget(segment_id)
            self.fs.unlink(SEGMENTS / segment_name(segment_id))
        for info in (*swap.changed, *swap.added):
            self._readers.forget(info.segment_id)
            self.infos[info.segment_id] = info
        self.compacted_end = result.compacted_end
        return result

    # -- what readers see ----------------------------------------------------------------------

    def read(self, offset: int | None = None, max_bytes: int = 1 << 20) -> bytes:
        """All entries from an offset on, as readers get them."""
        offset = self.start if offset is None else offset
        found = b""
        for info in self.inputs():
            end = info.partitions[PARTITION].end_offset
            while offset < end:
                data = self._readers.read(info, PARTITION, offset, max_bytes)
                found += data
                _, _, base, delta, *_ = walk_headers(data)[-1]
                assert base + delta >= offset
                offset = base + delta + 1
        return found

    def first_at(self, offset: int) -> EntryHeader:
        """Return the first entry of a read from an offset."""
        for info in self.inputs():
            if info.partitions[PARTITION].end_offset > offset:
                return read_header(self._readers.read(info, PARTITION, offset, 1))
        raise AssertionError(f"nothing at {offset} or behind it")

    def entries(self, offset: int | None = None) -> list[bytes]:
        data = self.read(offset)
        return [data[at : at + length] for at, length, *_ in walk_headers(data)]

    def headers(self) -> list[EntryHeader]:
        return [read_header(each) for each in self.entries()]

    def rows(self) -> list[AbortedTransaction]:
        """The aborted transactions that the segments name, those open at some end included."""
        found: list[AbortedTransaction] = []
        for info in self.inputs():
            with self._readers.lease(info) as reader:
                found += reader.aborted(PARTITION)
        return found

    def epochs(self) -> list[list[EpochStart]]:
        """Where owner epochs begin, by segment."""
        found = []
        for info in self.inputs():
            with self._readers.lease(info) as reader:
                found.append(reader.epochs(PARTITION))
        return found

    def committed(self) -> list[Record]:
        """What a reader of committed data sees: by Kafka's rule, from the rows and the markers."""
        aborted = sorted(
            {(row.first_offset, row.producer_id) for row in self.rows() if row.last_offset != OPEN},
            reverse=True,
        )
        current: set[int] = set()
        seen = []
        for entry in self.entries():
            header = read_header(entry)
            if header.last_offset >= self.stable_end:
                break
            while aborted and aborted[-1][0] <= header.last_offset:
                current.add(aborted.pop()[1])
            if header.is_control:
                step = read_transaction_step(entry, header, header.base_offset)
                if step is not None and step.outcome is Outcome.ABORT:
                    current.discard(header.producer_id)
            elif header.format is Format.KAFKA and not (
                header.is_transactional and header.producer_id in current
            ):
                seen += iter_records(entry)
        return seen

    # -- what the model expects ----------------------------------------------------------------

    def truly_committed(self, end: int | None = None) -> list[Record]:
        """What was written below an offset and not aborted, in order, compaction or not."""
        end = self.stable_end if end is None else end
        return [
            record
            for at, written in enumerate(self.written)
            if written.is_data and written.header.last_offset < end and not self._aborted(at)
            for record in written.records
        ]

    def _aborted(self, at: int) -> bool:
        header = self.written[at].header
        if not header.is_transactional:
            return False
        for later in self.written[at:]:
            if later.header.producer_id == header.producer_id and later.outcome is not None:
                return later.outcome is Outcome.ABORT
        return False

    def originals(self) -> dict[int, Written]:
        return {each.header.base_offset: each for each in self.written}

    def retained(self) -> Iterator[tuple[EntryHeader, list[Record]]]:
        for entry in self.entries():
            header = read_header(entry)
            if header.format is Format.KAFKA:
                yield header, list(iter_records(entry))


def latest(records: list[Record]) -> dict[bytes, bytes]:
    """Return what a full read results in: the last value of each key."""
    found: dict[bytes, bytes] = {}
    for record in records:
        if record.key is None:
            continue
        if record.value is None:
            found.pop(record.key, None)
        else:
            found[record.key] = record.value
    return found
