"""Compaction of one stored entry: lists its keys, and rewrites it with the records to retain.

A rewritten entry has the same base offset and span, producer id, producer epoch and sequence, owner
epoch and codec, so that offsets, retries of producers and stored positions stay valid. Removed
records leave holes. The rules are those of Kafka's cleaner (`MemoryRecords.filterTo`): timestamps
are relative to the first retained record and the maximum timestamp is that of the retained records.
An entry whose tombstones are the last of their keys has its delete horizon in the base timestamp,
marked by attribute bit 6 (KIP-534). An entry without records that must remain is a header alone.

Each format has its own class. A TubeMQ message has no key and is retained. If it has the reserved
key attribute for readers of other protocols, it is not opened, so that tombstones of that key are
not removed either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress as select
from typing import Final

from trilogue.entry.compaction.pulsar import open_pulsar
from trilogue.entry.compaction.record import EntryRecord, OpenEntry
from trilogue.entry.compression import Buffer
from trilogue.entry.control import MARKER, Outcome, read_marker
from trilogue.entry.conversion.reserved_names import KEY
from trilogue.entry.entry import (
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    Codec,
    EntryHeader,
    Format,
)
from trilogue.entry.kafka.record_batch import DECOMPRESSED_LIMIT, seal, unpack_records
from trilogue.entry.pack import RecordPacker
from trilogue.entry.walk import RecordWalker

_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1
_KEPT_FLAGS: Final = LOG_APPEND_TIME | TRANSACTIONAL | CONTROL
_packer = RecordPacker()


class KafkaEntry:
    """A Kafka batch, decompressed. Raises `EntryError` where its records are damaged."""

    __slots__ = ("_unpacked", "header", "records")

    keeps_keyless: Final = False

    def __init__(self, entry: Buffer, header: EntryHeader, limit: int) -> None:
        self.header = header
        self._unpacked = unpack_records(entry, header, limit=limit)
        walker = RecordWalker(header, self._unpacked)
        self.records: Sequence[EntryRecord] = list(
            map(EntryRecord._make, walker.read_keys(header.record_count + 1))
        )

    def keeping(self, kept: Sequence[bool], horizon_ms: int | None = None) -> bytes:
        """Build the entry with only the records whose flag is set; at least one must be set.

        `horizon_ms` is the delete horizon of its tombstones, where the entry has none yet.
        """
        header = self.header
        flags = header.attributes & _KEPT_FLAGS
        times = list(select((each.timestamp for each in self.records), kept))
        base_timestamp = times[0]
        if horizon_ms is None:
            horizon_ms = delete_horizon(header)
        if horizon_ms is not None:
            base_timestamp = horizon_ms
            flags |= DELETE_HORIZON
        if min(times) - base_timestamp < _INT64_MIN or max(times) - base_timestamp > _INT64_MAX:
            base_timestamp = header.base_timestamp  # a delta would exceed 64 bits
            flags = header.attributes & (_KEPT_FLAGS | DELETE_HORIZON)
        _packer.clear()
        count = _packer.pack_kept(RecordWalker(header, self._unpacked), bytes(kept), base_timestamp)
        latest = header.max_timestamp if header.log_append_time else max(NO_TIMESTAMP, *times)
        return _sealed(
            header, flags, (base_timestamp, latest), records=_packer.packed(), count=count
        )


class TubeEntry:
    """A TubeMQ entry: one message without a key, which is retained."""

    __slots__ = ("_entry", "header", "records")

    keeps_keyless: Final = True

    def __init__(self, entry: Buffer, header: EntryHeader) -> None:
        self.header = header
        self._entry = entry
        self.records: Sequence[EntryRecord] = [
            EntryRecord(header.base_offset, header.max_timestamp, None, is_tombstone=False)
        ]

    def keeping(self, kept: Sequence[bool], horizon_ms: int | None = None) -> bytes:
        """Return the entry unchanged: its only message is retained."""
        assert all(kept)
        assert horizon_ms is None, "a message without a key is no tombstone"
        return bytes(self._entry)


def open_tubemq(entry: Buffer, header: EntryHeader, _limit: int) -> TubeEntry | None:
    """Open an entry; None if it may have the reserved key attribute.

    TubeMQ has no keys, so compaction always retains the message. Readers of other protocols see the
    key, though: if a later tombstone of that key were removed, the message would reappear to them.
    """
    return None if KEY.encode() in bytes(entry) else TubeEntry(entry, header)


def open_entry(
    entry: Buffer, header: EntryHeader, *, limit: int = DECOMPRESSED_LIMIT
) -> OpenEntry | None:
    """Open an entry; None when compaction cannot read it and has to retain it unchanged.

    The checksum is not verified. Raises `EntryError` when the bytes are not those of its format, or
    exceed `limit` when decompressed.
    """
    way = _WAYS.get(header.format)
    return None if way is None else way(entry, header, limit)


def emptied(header: EntryHeader) -> bytes:
    """Build the entry without records that remains when only its header must be retained."""
    flags = header.attributes & _KEPT_FLAGS
    return _sealed(header, flags, (NO_TIMESTAMP, header.max_timestamp))


def delete_horizon(header: EntryHeader) -> int | None:
    """Return the time from which tombstones or the marker may be removed; None: not yet set."""
    return header.base_timestamp if header.attributes & DELETE_HORIZON else None


def outcome_of(entry: Buffer, header: EntryHeader) -> Outcome | None:
    """Return the outcome in a transaction marker; None: not a marker, or one without its record."""
    if header.attributes & MARKER != MARKER or not header.record_count:
        return None
    marker = read_marker(entry, header)
    return None if marker is None else marker.outcome


def _sealed(
    header: EntryHeader,
    flags: int,
    times: tuple[int, int],
    *,
    records: Buffer = b"",
    count: int = 0,
) -> bytes:
    """Build an entry from the retained header fields and records; times: base and maximum."""
    return seal(
        records,
        record_count=count,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=times[0],
        max_timestamp=times[1],
        codec=header.codec if count else Codec.NONE,
        flags=flags,
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )


_WAYS: Final[dict[Format, Callable[[Buffer, EntryHeader, int], OpenEntry | None]]] = {
    Format.KAFKA: KafkaEntry,
    Format.PULSAR: open_pulsar,
    Format.TUBEMQ: open_tubemq,
}
