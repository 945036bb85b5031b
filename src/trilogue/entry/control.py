"""Transaction markers: the control batches that end a transaction on a partition, as in Kafka.

A marker is a record batch v2 with the attributes transactional and control, the id and epoch of the
producer whose transaction it ends, and one record. It takes one offset; applications do not see it.

    key     +---------+---------+        value   +---------+-------------------+
            | version | type    |                | version | coordinator epoch |
            | int16 0 | int16   |                | int16 0 | int32             |
            +---------+---------+                +---------+-------------------+

Type 0 aborts, 1 commits. Other types end no transaction (Kafka's controllers write some) and are
skipped, as in Kafka's clients. Later versions only append fields.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from trilogue.entry.compression import Buffer
from trilogue.entry.entry import CONTROL, TRANSACTIONAL, CorruptEntry, EntryHeader, InvalidEntry
from trilogue.entry.kafka.record_batch import BatchBuilder, iter_records
from trilogue.entry.walk import read_header

_KEY: Final = Struct(">hh")  # version, type
_VALUE: Final = Struct(">hi")  # version, coordinator epoch
_VERSION: Final = 0
_LIMIT: Final = 1 << 20  # bytes decompressed; markers are not compressed, but the format allows it
MARKER: Final = TRANSACTIONAL | CONTROL


class Outcome(IntEnum):
    """How a transaction ended; the numbers are Kafka's."""

    ABORT = 0
    COMMIT = 1


class Marker(NamedTuple):
    """The record of a marker; its header has the producer, the producer epoch and the time."""

    outcome: Outcome
    coordinator_epoch: int


def build_marker(
    outcome: Outcome,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """Build the batch that ends a producer's transaction; the log assigns its offset."""
    builder = BatchBuilder(
        base_offset=base_offset, leader_epoch=leader_epoch, transactional=True, control=True
    )
    builder.append(
        _KEY.pack(_VERSION, outcome),
        _VALUE.pack(_VERSION, coordinator_epoch),
        timestamp=timestamp_ms,
    )
    return builder.build(producer_id=producer_id, producer_epoch=producer_epoch)


def read_marker(entry: Buffer, header: EntryHeader | None = None) -> Marker | None:
    """Return the record of a transaction marker; None for a type that ends no transaction.

    Raises `InvalidEntry` for an entry that is not a transaction marker, `CorruptEntry` for a
    truncated key or value. The checksum is not verified.
    """
    if header is None:
        header = read_header(entry)
    if header.attributes & MARKER != MARKER:
        raise InvalidEntry(f"attributes {header.attributes:#06x} are not those of a marker")
    record = next(iter_records(entry, limit=_LIMIT), None)
    if record is None:
        raise CorruptEntry("a marker without a record")
    key, value = record.key or b"", record.value or b""
    if len(key) < _KEY.size:
        raise CorruptEntry(f"the key of a marker has {len(key)} bytes")
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise CorruptEntry(f"a marker's key of version {version}")
    if number not in (Outcome.ABORT, Outcome.COMMIT):
        return None
    if len(value) < _VALUE.size:
        raise CorruptEntry(f"the value of a marker has {len(value)} bytes")
    version, coordinator_epoch = _VALUE.unpack_from(value)
    if version < 0:
        raise CorruptEntry(f"a marker's value of version {version}")
    return Marker(Outcome(number), coordinator_epoch)
