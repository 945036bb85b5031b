"""A log on a fake disk and a fake loop, that can be killed and opened again."""

from __future__ import annotations

from pathlib import Path
from random import Random

from tests.fakes import FakeFileSystem, FakeLoop
from trilogue.entry.checksum import crc32c
from trilogue.entry.entry import EntryHeader
from trilogue.entry.header import HEADER, HEADER_SIZE
from trilogue.entry.walk import read_header
from trilogue.log.directory import DataDirectory
from trilogue.log.errors import StorageFailed
from trilogue.log.journal.commit import InlineCommitter
from trilogue.log.journal.files import SealedFile
from trilogue.log.journal.journal import JournalLimits
from trilogue.log.log import Log, LogEnvironment, LogLimits
from trilogue.log.partition_log import TailSlice
from trilogue.log.segments.manifest import Manifest, PartitionRange
from trilogue.log.segments.segment_info import SegmentInfo

DATA = Path("/data")
CLUSTER = b"a cluster's id 1"
SMALL = LogLimits(
    tail_bytes=1 << 20,
    reserve_bytes=0,
    journal=JournalLimits(
        window_bytes=32 << 10,
        file_bytes=64 << 10,
        first_file_bytes=48 << 10,
        file_entries=40,
        min_free_bytes=0,
    ),
)


def make_entry(
    size: int = 100,
    *,
    span: int = 1,
    time_ms: int = 1000,
    fill: int = 0,
    producer_id: int = -1,
    base_sequence: int = -1,
) -> memoryview:
    """An entry as a producer would send it: base offset 0, a true checksum."""
    body = bytes([fill & 0xFF]) * (size - HEADER_SIZE)
    rest = (0, span - 1, time_ms, time_ms, producer_id, 0 if producer_id >= 0 else -1)
    rest = (*rest, base_sequence, span)
    crc = crc32c(HEADER.pack(0, size - 12, 0, 2, 0, *rest)[21:] + body)
    return memoryview(HEADER.pack(0, size - 12, 0, 2, crc, *rest) + body)


def header_of(entry: memoryview) -> EntryHeader:
    return read_header(entry)


class Rig:
    """What a node is to the log."""

    def __init__(
        self, *, partitions: int = 3, limits: LogLimits = SMALL, fs: FakeFileSystem | None = None
    ) -> None:
        self.fs = fs or FakeFileSystem()
        self.limits = limits
        self.ranges = {number: PartitionRange(0, 0, 0) for number in range(1, partitions + 1)}
        self.flushed_through = 0
        self.epoch = 0
        self.random = Random(1)
        self.segments: list[SegmentInfo] = []

    def open(self, *, salvage: bool = False) -> Log:
        self.epoch += 1
        self.loop = FakeLoop()
        self.sealed: list[SealedFile] = []
        self.failures: list[StorageFailed] = []
        self.entries: list[tuple[int, EntryHeader]] = []
        self.facts: list[tuple[int, bytes]] = []
        self.directory = DataDirectory.open(self.fs, DATA)
        manifest = Manifest(
            CLUSTER, 0, self.flushed_through, (), dict(self.ranges), tuple(self.segments)
        )
        self.log = Log.open(
            self.directory,
            manifest,
            self.surroundings(),
            node_id=1,
            node_epoch=self.epoch,
            on_entry=lambda *seen: self.entries.append(seen),
            on_fact=lambda *seen: self.facts.append(seen),
            limits=self.limits,
            salvage_damage=salvage,
        )
        self.log.on_sealed = self.sealed.append
        self.log.on_failed = self.failures.append
        return self.log

    def surroundings(self) -> LogEnvironment:
        return LogEnvironment(
            fs=self.fs,
            scheduler=self.loop,
            background=self.loop.background,
            committer=InlineCommitter(self.loop),
            now_ms=self.loop.now_ms,
            monotonic=self.loop.monotonic,
            random_bytes=self.random.randbytes,
        )

    def append(self, partition_id: int = 1, entry: memoryview | None = None) -> int:
        entry = make_entry() if entry is None else entry
        return self.log.partition(partition_id).append(entry, header_of(entry))

    def commit(self, partition_id: int = 1, entry: memoryview | None = None) -> int:
        """Append and wait until it is durable."""
        outcomes: list[object] = []
        offset = self.append(partition_id, entry)
        self.log.journal.on_commit(outcomes.append)
        self.loop.run()
        assert outcomes == [None]
        return offset

    def restart(self, *, salvage: bool = False) -> Log:
        """Kill and open again."""
        self.fs.kill()
        return self.open(salvage=salvage)

    def shut(self) -> None:
        self.log.close()
        self.directory.close()

    def content(self, partition_id: int = 1, offset: int | None = None) -> bytes:
        """All that can be read, from memory."""
        partition = self.log.partition(partition_id)
        found = partition.read(partition.start_offset if offset is None else offset, 1 << 30)
        assert isinstance(found, TailSlice)
        return b"".join(found.slices)

    def journal_files(self) -> list[Path]:
        return [DATA / "journal" / name for name in self.fs.listdir(DATA / "journal")]
