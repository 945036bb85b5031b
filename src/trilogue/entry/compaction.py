"""What compaction does to one stored entry: list its keys, keep some of its records, or none.

An entry keeps its place: base offset and span, producer id, epoch and sequence, owner epoch and
codec stay, so that offsets, a producer's retries and old positions mean what they meant. Records
that go leave holes. The rules are those of Kafka's cleaner (`MemoryRecords.filterTo`): times count
from the first record kept and the largest time is that of what is kept; an entry whose tombstones
were found to be the last of their keys says in its base time, by attribute bit 6, when they may go
(KIP-534); an entry that has nothing left but must stay is a header alone.

Each format has its own way to be looked into. TubeMQ's messages have no key, and stay; where one
says a key for readers of other protocols it is left alone, and so are tombstones behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress as select
from typing import Final

from trilogue.entry.compaction_pulsar import open_pulsar
from trilogue.entry.compaction_record import EntryRecord, OpenEntry
from trilogue.entry.compression import Buffer
from trilogue.entry.control import MARKER, Outcome, read_marker
from trilogue.entry.convert_names import KEY
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
from trilogue.entry.kafka_batch import DECOMPRESSED_LIMIT, seal, unpack_records
from trilogue.entry.pack import RecordPacker
from trilogue.entry.walk import RecordWalker

_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1
_KEPT_FLAGS: Final = LOG_APPEND_TIME | TRANSACTIONAL | CONTROL
_packer = RecordPacker()


class KafkaEntry:
    """A Kafka batch, decompressed. Raises `EntryError` where its records are not in order."""

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
        """Build the entry anew with the records whose flag is set, of which there is one at least.

        `horizon_ms` is when its tombstones may go, where that was not known before.
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
            base_timestamp = header.base_timestamp  # times out of this world: what fits fits
            flags = header.attributes & (_KEPT_FLAGS | DELETE_HORIZON)
        _packer.clear()
        count = _packer.pack_kept(RecordWalker(header, self._unpacked), bytes(kept), base_timestamp)
        latest = header.max_timestamp if header.log_append_time else max(NO_TIMESTAMP, *times)
        return _sealed(
            header, flags, (base_timestamp, latest), records=_packer.packed(), count=count
        )


class TubeEntry:
    """A TubeMQ entry: one message without a key, which stays."""

    __slots__ = ("_entry", "header", "records")

    keeps_keyless: Final = True

    def __init__(self, entry: Buffer, header: EntryHeader) -> None:
        self.header = header
        self._entry = entry
        self.records: Sequence[EntryRecord] = [
            EntryRecord(header.base_offset, header.max_timestamp, None, is_tombstone=False)
        ]

    def keeping(self, kept: Sequence[bool], horizon_ms: int | None = None) -> bytes:
        """Give the entry as it is: there is nothing in it that could go by itself."""
        assert all(kept)
        assert horizon_ms is None, "a message without a key is no tombstone"
        return bytes(self._entry)


def open_tubemq(entry: Buffer, header: EntryHeader, _limit: int) -> TubeEntry | None:
    """Look into an entry; None where it may have a key.

    TubeMQ knows none, so the message stays whatever else has that key. A reader of another protocol
    finds it, though: a tombstone that went would give it back.
    """
    return None if KEY.encode() in bytes(entry) else TubeEntry(entry, header)


def open_entry(
    entry: Buffer, header: EntryHeader, *, limit: int = DECOMPRESSED_LIMIT
) -> OpenEntry | None:
    """Look into an entry; None when it is to be left alone, with all that it may hide.

    The checksum is not looked at. Raises `EntryError` when the bytes are not those of its format,
    or would be more than `limit` decompressed.
    """
    way = _WAYS.get(header.format)
    return None if way is None else way(entry, header, limit)


def emptied(header: EntryHeader) -> bytes:
    """Build the entry that is left when it has to stay and none of its records does."""
    flags = header.attributes & _KEPT_FLAGS
    return _sealed(header, flags, (NO_TIMESTAMP, header.max_timestamp))


def delete_horizon(header: EntryHeader) -> int | None:
    """Say from when on the tombstones of an entry, or its marker, may go; None: not yet known."""
    return header.base_timestamp if header.attributes & DELETE_HORIZON else None


def outcome_of(entry: Buffer, header: EntryHeader) -> Outcome | None:
    """Say how the transaction ended whose marker this is; None: no marker, or an emptied one."""
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
    """Put what stays of a header before what stays of its records; times: base and largest."""
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
