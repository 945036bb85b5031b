"""Segment format v1, and its writer.

A segment holds entries of many partitions, sorted by partition id and then by offset, byte for byte
as they stood in the journal. It is written once, front to back, and never changed. All numbers are
big-endian; every part has its own checksum (CRC-32C), so that damage costs the partition it hits.

```
 header     64   magic, version, header size, level, flags, segment id, node id, node epoch,
                 cluster id, created, crc
 blocks          entries of one partition, concatenated: 256 KiB at most, or one larger entry
 footer          sections: per partition its blocks (56 each: base, end, position, size, entries,
                           max event time, max append time, crc), the starts of owner epochs (16)
                           and aborted transactions (32)
                 directory: per partition 120 bytes: the extent, where its section lies, what it
                           counts, the section's crc, the record's crc
 trailer    80   footer position and size, directory position, counts, segment id, sequences of the
                 journal frames it was made from, version, crc, magic
```

The trailer ends the file, so a file that was cut is seen at once. Nothing counts before the file
and its folder are synced and meta knows the segment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from struct import Struct
from typing import Final, NamedTuple

import msgspec

from trilogue.entry.checksum import crc32c, crc32c_around
from trilogue.log.files import File
from trilogue.log.segments.appender import Appender
from trilogue.log.segments.extents import Extent, Extents
from trilogue.log.segments.segment_info import SegmentInfo

FORMAT_VERSION: Final = 1
HEADER_MAGIC: Final = b"TRILSEGM"
TRAILER_MAGIC: Final = b"TRILSEGE"

BLOCK_TARGET: Final = 256 << 10

#     magic, version, header size, level, flags, segment id, node id, node epoch, cluster id,
#     created, crc of all before
HEADER: Final = Struct(">8sHHHHQIQ16sqI")
HEADER_CHECKED: Final = HEADER.size - 4

#     base, end, position, size, entries, max event time, max append time, crc, 0
BLOCK: Final = Struct(">qqQIIqqII")
EPOCH: Final = Struct(">IIq")  # owner epoch, 0, its first offset here
ABORTED: Final = Struct(">qqqq")  # producer id, first offset, last offset, stable end after it
OPEN: Final = (1 << 63) - 1  # as a last offset: the transaction goes on behind this segment

#     partition id, base, end, position, size, entries, owner epoch, 0, event times, append times,
#     section position, blocks, epochs, aborted, section crc, 0, crc of all before
RECORD: Final = Struct(">QqqQQQIIqqqqQIIIIII")
RECORD_CHECKED: Final = RECORD.size - 4
MIN_EVENT_TIME, MIN_APPEND_TIME = 8, 10  # fields of RECORD

#     footer position, footer size, directory position, partitions, blocks, entries, segment id,
#     first sequence, last sequence, version, crc of all before, magic
TRAILER: Final = Struct(">QQQIIQQQQII8s")
TRAILER_CHECKED: Final = TRAILER.size - 12


class SectionPlace(NamedTuple):
    """The place of a partition's section in the footer, as its row of the directory has it."""

    position: int
    blocks: int
    epochs: int
    aborted: int
    checksum: int

    @classmethod
    def of_record(cls, record: Sequence[int]) -> SectionPlace:
        """Read the place from the fields of a row, RECORD."""
        return cls(*record[12:17])

    @property
    def epochs_at(self) -> int:
        """The position of the epochs in the section: behind its blocks."""
        return self.blocks * BLOCK.size

    @property
    def aborted_at(self) -> int:
        """The position of the aborted transactions in the section."""
        return self.epochs_at + self.epochs * EPOCH.size

    @property
    def size(self) -> int:
        """The bytes of the section."""
        return self.aborted_at + self.aborted * ABORTED.size


class EpochStart(NamedTuple):
    """The first offset of an owner epoch in this segment."""

    owner_epoch: int
    start_offset: int


class AbortedTransaction(NamedTuple):
    """Entries of one producer that readers of committed data skip.

    The row is in the segment that has the marker. A row whose last offset is `OPEN` stands for a
    transaction that was still open at the end of a segment, and may be aborted later:
    log/transactions.py.
    """

    producer_id: int
    first_offset: int
    last_offset: int  # the marker's
    stable_end: int  # after the marker: first offset of the oldest open one, else the next offset

    def holds(self, producer_id: int, offset: int) -> bool:
        """Whether a transactional entry of a producer belongs to this transaction."""
        return self.producer_id == producer_id and self.first_offset <= offset <= self.last_offset


class Block(NamedTuple):
    """The index row of consecutive entries of one partition."""

    base_offset: int
    end_offset: int
    entry_count: int
    min_event_ms: int
    max_event_ms: int
    min_append_ms: int
    max_append_ms: int


class SegmentHeader(msgspec.Struct, frozen=True):
    """The origin of a segment. `node_epoch` fences: a late file of an older owner is refused."""

    segment_id: int
    level: int
    node_id: int
    node_epoch: int
    cluster_id: bytes
    created_ms: int


def encode_header(header: SegmentHeader) -> bytes:
    """Build the first bytes of a segment."""
    fields = (header.segment_id, header.node_id, header.node_epoch, header.cluster_id)
    data = HEADER.pack(
        HEADER_MAGIC, FORMAT_VERSION, HEADER.size, header.level, 0, *fields, header.created_ms, 0
    )[:HEADER_CHECKED]
    return data + crc32c(data).to_bytes(4, "big")


class _Partition:
    """What the writer collects about one partition until the footer is written."""

    __slots__ = ("aborted", "epochs", "partition_id", "position", "rows", "size", "stats")

    def __init__(self, partition_id: int, position: int) -> None:
        self.partition_id = partition_id
        self.position = position
        self.size = 0
        self.stats: list[Block] = []
        self.rows = bytearray()
        self.epochs: list[EpochStart] = []
        self.aborted: list[AbortedTransaction] = []

    def extent(self) -> Extent:
        """Return the extent of all blocks."""
        stats = self.stats
        return Extent(
            self.partition_id,
            stats[0].base_offset,
            stats[-1].end_offset,
            self.position,
            self.size,
            sum(block.entry_count for block in stats),
            self.epochs[-1].owner_epoch,
            min(block.min_event_ms for block in stats),
            max(block.max_event_ms for block in stats),
            min(block.min_append_ms for block in stats),
            max(block.max_append_ms for block in stats),
        )

    def section(self) -> bytes:
        """Encode the partition's own part of the footer."""
        epochs = b"".join(
            EPOCH.pack(each.owner_epoch, 0, each.start_offset) for each in self.epochs
        )
        return bytes(self.rows) + epochs + b"".join(ABORTED.pack(*each) for each in self.aborted)

    def record(self, extent: Extent, section_position: int, section: bytes) -> bytes:
        """Encode the partition's row of the directory."""
        counts = (len(self.stats), len(self.epochs), len(self.aborted))
        data = RECORD.pack(
            extent.partition_id,
            extent.base_offset,
            extent.end_offset,
            extent.position,
            extent.size,
            extent.entry_count,
            extent.owner_epoch,
            0,
            extent.min_event_ms,
            extent.max_event_ms,
            extent.min_append_ms,
            extent.max_append_ms,
            section_position,
            *counts,
            crc32c(section),
            0,
            0,
        )[:RECORD_CHECKED]
        return data + crc32c(data).to_bytes(4, "big")


class SegmentWriter:
    """Writes one segment, front to back; holds one mebibyte and the index in memory.

    `on_write` is called with the number of bytes after each write; a paced job sleeps in it, and
    writes `gently`, in smaller pieces.
    """

    def __init__(
        self,
        file: File,
        header: SegmentHeader,
        on_write: Callable[[int], None] = lambda _: None,
        *,
        gently: bool = False,
    ) -> None:
        self._header = header
        self._partitions: list[_Partition] = []
        self._out = Appender(file, on_write, gently=gently)
        self._put = self._out.add
        self._put(encode_header(header))

    @property
    def size(self) -> int:
        """Bytes given to the segment so far."""
        return self._out.size

    def begin(
        self,
        partition_id: int,
        epochs: Iterable[EpochStart],
        aborted: Iterable[AbortedTransaction] = (),
    ) -> None:
        """Start the next partition; ids only grow, and every partition gets a block."""
        last = self._partitions[-1] if self._partitions else None
        assert last is None or (last.partition_id < partition_id and last.stats)
        partition = _Partition(partition_id, self.size)
        partition.epochs.extend(epochs)
        partition.aborted.extend(aborted)
        assert partition.epochs
        self._partitions.append(partition)

    def amend(
        self, epochs: Iterable[EpochStart], aborted: Iterable[AbortedTransaction] = ()
    ) -> None:
        """Replace what `begin` recorded of the partition, if it is known only at its end."""
        partition = self._partitions[-1]
        partition.epochs, partition.aborted = list(epochs), list(aborted)
        assert partition.epochs

    def block(
        self,
        block: Block,
        data: bytes | bytearray | memoryview,
        known: Sequence[tuple[int, int, int]] = (),
    ) -> None:
        """Append the next whole entries of the partition, already joined.

        `known`: parts (start, end, checksum) of the data, in order, that need not be walked again.
        """
        partition = self._partitions[-1]
        assert data
        assert block.entry_count > 0
        assert block.base_offset < block.end_offset
        assert not partition.stats or partition.stats[-1].end_offset <= block.base_offset
        partition.rows += BLOCK.pack(
            block.base_offset,
            block.end_offset,
            self.size,
            len(data),
            block.entry_count,
            block.max_event_ms,
            block.max_append_ms,
            crc32c_around(data, known) if known else crc32c(data),
            0,
        )
        partition.stats.append(block)
        partition.size += len(data)
        self._put(data)

    def finish(self, name: str, first_sequence: int, last_sequence: int) -> SegmentInfo:
        """Write footer and trailer and sync the file; the caller has to sync its folder."""
        extents = [partition.extent() for partition in self._partitions]
        footer_position = self.size
        records = []
        for partition, extent in zip(self._partitions, extents, strict=True):
            section = partition.section()
            records.append(partition.record(extent, self.size, section))
            self._put(section)
        directory_position = self.size
        self._put(b"".join(records))
        header = self._header
        data = TRAILER.pack(
            footer_position,
            self.size - footer_position,
            directory_position,
            len(extents),
            sum(len(partition.stats) for partition in self._partitions),
            sum(extent.entry_count for extent in extents),
            header.segment_id,
            first_sequence,
            last_sequence,
            FORMAT_VERSION,
            0,
            TRAILER_MAGIC,
        )[:TRAILER_CHECKED]
        footer_size = self.size - footer_position
        self._put(data + crc32c(data).to_bytes(4, "big") + TRAILER_MAGIC)
        self._out.finish()
        return SegmentInfo(
            header.segment_id,
            header.level,
            name,
            self.size,
            header.node_id,
            header.node_epoch,
            header.created_ms,
            first_sequence,
            last_sequence,
            footer_position,
            footer_size,
            Extents.of(extents),
        )
