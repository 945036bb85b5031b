"""Sample batches: by strategies, by other clients' libraries, and by hand."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from struct import pack_into

from aiokafka.record.default_records import DefaultRecordBatch as AioBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from hypothesis import strategies as st

from trilogue.entry.checksum import crc32c
from trilogue.entry.entry import EntryHeader, Record
from trilogue.entry.header import CHECKED_FROM, HEADER
from trilogue.entry.kafka.record_batch import seal

with warnings.catch_warnings():  # kafka-python reads its schemas by a deprecated function
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record import default_records as kafka_python

CODECS = (0, 1, 2, 3, 4)
HEADER_FIELDS = (
    "base_offset",
    "batch_length",
    "leader_epoch",
    "magic",
    "crc",
    "attributes",
    "last_offset_delta",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "record_count",
)

octets = st.binary(max_size=40)
maybe_octets = st.none() | octets
header_lists = st.lists(st.tuples(st.text(max_size=10), maybe_octets), max_size=3).map(tuple)
times = st.integers(min_value=0, max_value=2**42)


@st.composite
def record_lists(draw: st.DrawFn, *, holes: bool = False, max_size: int = 12) -> list[Record]:
    """Records with ascending offsets, from 0 without holes, as a producer numbers them."""
    offset = draw(st.integers(0, 2**40)) if holes else 0
    found = []
    for _ in range(draw(st.integers(1, max_size))):
        found.append(
            Record(offset, draw(times), draw(maybe_octets), draw(maybe_octets), draw(header_lists))
        )
        offset += draw(st.integers(1, 1000)) if holes else 1
    return found


def plain_records(count: int, *, value: bytes = b"x" * 20) -> list[Record]:
    return [Record(i, 1_700_000_000_000 + i, b"key%d" % i, value) for i in range(count)]


def build_by_kafka_python(records: Sequence[Record], codec: int) -> bytes:
    builder = kafka_python.DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 24)
    for record in records:
        builder.append(
            record.offset, record.timestamp, record.key, record.value, list(record.headers)
        )
    return bytes(builder.build())


def build_by_aiokafka(records: Sequence[Record], codec: int) -> bytes:
    builder = AioBuilder(2, codec, 0, -1, -1, -1, 1 << 24)
    for record in records:
        builder.append(
            record.offset, record.timestamp, record.key, record.value, list(record.headers)
        )
    return bytes(builder.build())


def read_by_kafka_python(batch: bytes) -> list[Record]:
    reader = kafka_python.DefaultRecordBatch(batch)
    assert reader.validate_crc()
    return [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in reader]


def read_by_aiokafka(batch: bytes) -> list[Record]:
    reader = AioBatch(batch)
    assert reader.validate_crc()
    return [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in reader]


def patched(batch: bytes, *, fix_crc: bool = True, **fields: int) -> bytes:
    """Overwrite fields of a batch's header, and set the right checksum."""
    values = dict(zip(HEADER_FIELDS, HEADER.unpack_from(batch), strict=True)) | fields
    changed = bytearray(batch)
    HEADER.pack_into(changed, 0, *values.values())
    if fix_crc and "crc" not in fields:
        pack_into(">I", changed, 17, crc32c(changed[CHECKED_FROM:]))
    return bytes(changed)


def varint(value: int) -> bytes:
    """Write a zigzag number of any size, also of sizes that readers must refuse."""
    raw = value * 2 if value >= 0 else -value * 2 - 1
    out = bytearray()
    while raw >= 128:
        out.append(raw & 127 | 128)
        raw >>= 7
    return bytes((*out, raw))


def record_bytes(*parts: bytes | int, size: int | None = None) -> bytes:
    """A record by hand: numbers become varints, bytes stay; the attributes are put in front."""
    body = b"\x00" + b"".join(p if isinstance(p, bytes) else varint(p) for p in parts)
    return varint(len(body) if size is None else size) + body


def sealed(records: bytes, *, count: int = 1, last: int | None = None, **fields: int) -> bytes:
    """Return any bytes after a valid header with the right checksum."""
    return seal(
        records,
        record_count=count,
        last_offset_delta=count - 1 if last is None else last,
        base_timestamp=fields.pop("base_timestamp", 1000),
        max_timestamp=fields.pop("max_timestamp", 2000),
        **fields,
    )


def header_of(batch: bytes) -> EntryHeader:
    f = dict(zip(HEADER_FIELDS, HEADER.unpack_from(batch), strict=True))
    f["length"] = f.pop("batch_length") + 12
    del f["magic"]
    return EntryHeader(**f)
