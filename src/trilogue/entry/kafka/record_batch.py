"""Kafka's record batch v2: checks, patches, builds and reads one.

To check a batch and to set offset, epoch and time, only the header and the checksum are read.
Functions that read records (`iter_records`, `first_record_at_or_after`) decompress, up to a limit:
call them outside the event loop unless the batch is small.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from struct import pack_into
from typing import Final

from trilogue.entry.checksum import crc32c
from trilogue.entry.compression import Buffer, compress, decompress
from trilogue.entry.entry import (
    CODEC_MASK,
    CONTROL,
    LOG_APPEND_TIME,
    NO_PRODUCER,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    Codec,
    CorruptEntry,
    EntryHeader,
    Format,
    InvalidEntry,
    Record,
)
from trilogue.entry.header import (
    CHECKED_FROM,
    HEADER,
    HEADER_SIZE,
    LENGTH_PREFIX,
    MAGIC,
    SMALLEST_RECORD,
)
from trilogue.entry.pack import RecordPacker
from trilogue.entry.walk import RecordWalker, check_produced, read_header, set_base

__all__ = [
    "DECOMPRESSED_LIMIT",
    "BatchBuilder",
    "Record",
    "build_batch",
    "check_crc",
    "check_produced",
    "first_record_at_or_after",
    "iter_records",
    "read_header",
    "repack",
    "seal",
    "set_base",
    "set_log_append_time",
    "unpack_records",
    "walk_records",
]

DECOMPRESSED_LIMIT: Final = 32 * 1024 * 1024
_RECORDS_AT_ONCE: Final = 1000  # the objects take many times the bytes of the records
_CRC_AT: Final = 17
_ATTRIBUTES_AT: Final = 21
_MAX_TIMESTAMP_AT: Final = 35


def set_log_append_time(entry: bytearray | memoryview, now_ms: int) -> None:
    """Set log append time for all records of a batch, and its new checksum."""
    header = read_header(entry)
    view = memoryview(entry)[: header.length]
    pack_into(">h", view, _ATTRIBUTES_AT, header.attributes | LOG_APPEND_TIME)
    pack_into(">q", view, _MAX_TIMESTAMP_AT, now_ms)
    pack_into(">I", view, _CRC_AT, crc32c(view[CHECKED_FROM:]))


def check_crc(entry: Buffer) -> EntryHeader:
    """Return the header of a complete entry; raises `CorruptEntry` if its checksum is wrong."""
    header = read_header(entry)
    computed = crc32c(memoryview(entry)[CHECKED_FROM : header.length])
    if computed != header.crc:
        raise CorruptEntry(f"checksum {computed:08x}, the entry has {header.crc:08x}")
    return header


def walk_records(
    entry: Buffer, *, limit: int = DECOMPRESSED_LIMIT, header: EntryHeader | None = None
) -> RecordWalker:
    """Decompress the records of an entry and return an iterator over them."""
    if header is None:
        header = read_header(entry)
    return RecordWalker(header, unpack_records(entry, header, limit=limit))


def unpack_records(
    entry: Buffer, header: EntryHeader, *, limit: int = DECOMPRESSED_LIMIT
) -> memoryview:
    """Return the bytes of an entry's records, decompressed."""
    if header.format is not Format.KAFKA:
        raise InvalidEntry(f"{header.format.name} where a Kafka batch is expected")
    packed = memoryview(entry)[HEADER_SIZE : header.length]
    records = packed
    if header.codec is not Codec.NONE and header.record_count:
        records = memoryview(decompress(header.codec, packed, limit))
    if header.record_count * SMALLEST_RECORD > len(records):
        raise CorruptEntry(f"{header.record_count} records do not fit into {len(records)} bytes")
    return records


def iter_records(entry: Buffer, *, limit: int = DECOMPRESSED_LIMIT) -> Iterator[Record]:
    """Yield the records of an entry; the checksum is not verified (see `check_crc`)."""
    walker = walk_records(entry, limit=limit)
    while records := walker.read_records(_RECORDS_AT_ONCE):
        yield from records


def first_record_at_or_after(
    entry: Buffer, timestamp: int, from_offset: int = 0, *, limit: int = DECOMPRESSED_LIMIT
) -> tuple[int, int] | None:
    """Find the first record, in the order of offsets, with this time or a later one.

    Those below `from_offset` do not count. Returns its offset and time. The header's maximum is not
    trusted to rule a batch out: some clients leave it unset, and then only the records know.
    """
    header = read_header(entry)
    if header.log_append_time and header.max_timestamp < timestamp:
        return None
    walker = walk_records(entry, limit=limit, header=header)
    while walker.find_time(timestamp):
        if walker.offset >= from_offset:
            return walker.offset, walker.timestamp
    return None


def seal(
    records: Buffer,
    *,
    record_count: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    codec: int = Codec.NONE,
    level: int | None = None,
    flags: int = 0,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """Put the header before packed records, which are compressed first. `flags`: attribute bits."""
    packed = records if codec == Codec.NONE else compress(codec, records, level)
    header = bytearray(HEADER_SIZE)
    HEADER.pack_into(
        header,
        0,
        base_offset,
        HEADER_SIZE - LENGTH_PREFIX + len(packed),
        leader_epoch,
        MAGIC,
        0,
        flags | codec,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )
    pack_into(">I", header, _CRC_AT, crc32c(packed, crc32c(header[CHECKED_FROM:])))
    return b"".join((header, packed))


def repack(
    entry: Buffer,
    *,
    codec: int,
    level: int | None = None,
    header: EntryHeader | None = None,
    records: Buffer | None = None,
) -> bytes:
    """Return the batch compressed by another codec, with all other header fields unchanged.

    `header` and `records` (decompressed) save the work of a caller that has them.
    """
    if header is None:
        header = read_header(entry)
    return seal(
        unpack_records(entry, header) if records is None else records,
        record_count=header.record_count,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
        codec=codec,
        level=level,
        flags=header.attributes & ~CODEC_MASK,
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )


class BatchBuilder:
    """Collects records, then builds one batch of them; may be used again after `build`.

    Offsets count up from `base_offset` unless a record brings its own (which leaves holes).
    """

    def __init__(
        self,
        *,
        codec: int = Codec.NONE,
        base_offset: int = 0,
        leader_epoch: int = -1,
        transactional: bool = False,
        control: bool = False,
    ) -> None:
        self._codec = codec
        self._base_offset = base_offset
        self._leader_epoch = leader_epoch
        self._flags = (TRANSACTIONAL if transactional else 0) | (CONTROL if control else 0)
        self._packer = RecordPacker()
        self._reset()

    def _reset(self) -> None:
        self._packer.clear()
        self.count = 0
        self._last_offset_delta = -1
        self._base_timestamp = self._max_timestamp = NO_TIMESTAMP

    @property
    def size(self) -> int:
        """The size of the batch without compression, in bytes."""
        return HEADER_SIZE + self._packer.used

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        *,
        timestamp: int = NO_TIMESTAMP,
        offset: int | None = None,
    ) -> int:
        """Add a record; returns its offset."""
        delta = self._last_offset_delta + 1 if offset is None else offset - self._base_offset
        if not self._last_offset_delta < delta < 2**31:
            raise ValueError(f"offset {offset} after {self._base_offset + self._last_offset_delta}")
        base_timestamp = self._base_timestamp if self.count else timestamp
        encoded = [(name.encode(), content) for name, content in headers] if headers else ()
        self._packer.pack(delta, timestamp - base_timestamp, key, value, encoded)
        self._last_offset_delta = delta
        self._base_timestamp = base_timestamp
        self._max_timestamp = max(self._max_timestamp, timestamp)
        self.count += 1
        return self._base_offset + delta

    def build(
        self,
        *,
        producer_id: int = NO_PRODUCER,
        producer_epoch: int = -1,
        base_sequence: int = -1,
    ) -> bytes:
        """Return the batch, and clear the builder for another one at the same base offset."""
        if not self.count:
            raise ValueError("a batch needs a record")
        batch = seal(
            self._packer.packed(),
            record_count=self.count,
            last_offset_delta=self._last_offset_delta,
            base_timestamp=self._base_timestamp,
            max_timestamp=self._max_timestamp,
            codec=self._codec,
            flags=self._flags,
            base_offset=self._base_offset,
            leader_epoch=self._leader_epoch,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
        )
        self._reset()
        return batch


def build_batch(
    records: Iterable[Record],
    *,
    codec: int = Codec.NONE,
    base_offset: int | None = None,
    leader_epoch: int = -1,
    transactional: bool = False,
    control: bool = False,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """Build the batch that holds these records at their offsets, the first one's unless given."""
    builder: BatchBuilder | None = None
    for record in records:
        if builder is None:
            builder = BatchBuilder(
                codec=codec,
                base_offset=record.offset if base_offset is None else base_offset,
                leader_epoch=leader_epoch,
                transactional=transactional,
                control=control,
            )
        builder.append(
            record.key,
            record.value,
            record.headers,
            timestamp=record.timestamp,
            offset=record.offset,
        )
    if builder is None:
        raise ValueError("a batch needs a record")
    return builder.build(
        producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=base_sequence
    )
