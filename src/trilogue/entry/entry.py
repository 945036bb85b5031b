"""An entry is what the log stores: one batch in the format of its producer's protocol.

Whatever the format, an entry starts with the 61 bytes of Kafka's record batch v2 (header.py has the
layout), so that there is one way to walk, verify, find an offset or a time, and detect a repeated
sequence.

Base offset and epoch lie outside the checksum: the broker sets them without touching the rest.
Attributes: bits 0-2 codec, 3 log append time, 4 transactional, 5 control, 6 delete horizon,
8-9 format (set by the broker; a batch of a producer that sets them is refused).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40
FORMAT_SHIFT: Final = 8
FORMAT_MASK: Final = 0x300

NO_PRODUCER: Final = -1
NO_TIMESTAMP: Final = -1


class EntryError(Exception):
    """The bytes of an entry are wrong; the base class of every exception of this room."""


class CorruptEntry(EntryError):
    """The bytes were damaged: cut, a wrong checksum, a length that leads nowhere."""


class InvalidEntry(EntryError):
    """The bytes are undamaged, but hold a value that the format does not allow."""


class EntryTooLarge(InvalidEntry):
    """Decompressed, the entry would be larger than its reader allows."""


class UnsupportedCompression(EntryError):
    """The entry names a codec that does not exist."""


class Format(IntEnum):
    """The protocol of the producer, which decides how the bytes after the header are read."""

    KAFKA = 0
    PULSAR = 1
    TUBEMQ = 2


class Codec(IntEnum):
    """How the records after the header are compressed; the header never is."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class Record(NamedTuple):
    """One record of a Kafka batch. `timestamp` is in ms, -1 when it has none."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    attributes: int = 0


class EntryHeader(NamedTuple):
    """The first 61 bytes of an entry. `length` is the whole entry's, these bytes included."""

    base_offset: int
    length: int
    leader_epoch: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def span(self) -> int:
        """How many offsets the entry covers, holes included: never the count of its records."""
        return self.last_offset_delta + 1

    @property
    def last_offset(self) -> int:
        """The last offset that the entry covers."""
        return self.base_offset + self.last_offset_delta

    @property
    def format(self) -> Format:
        """The protocol of the producer."""
        number = (self.attributes & FORMAT_MASK) >> FORMAT_SHIFT
        if number > Format.TUBEMQ:
            raise InvalidEntry(f"entry format {number} does not exist")
        return Format(number)

    @property
    def codec(self) -> Codec:
        """How the records are compressed."""
        number = self.attributes & CODEC_MASK
        if number > Codec.ZSTD:
            raise UnsupportedCompression(f"codec {number} does not exist")
        return Codec(number)

    @property
    def is_control(self) -> bool:
        """True for a transaction marker, which applications do not see."""
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        """True when readers of committed data see the entry only if its transaction commits."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def log_append_time(self) -> bool:
        """True when every record's time is the broker's, which is `max_timestamp`."""
        return bool(self.attributes & LOG_APPEND_TIME)
