"""Converts message sets of magic 0 and 1 to record batches and back, for clients from before 2017.

`upgrade` makes one batch of the message set that an old producer sent for one partition: plain
messages, or one wrapper, whose value is a compressed message set. `downgrade` makes messages of a
stored batch: plain ones, or one wrapper if the batch is compressed.

    set    | message | message | ...        each message: message_set.py
    wrapper| offset of the last one inside | attributes: codec | key null | value: compressed set |

Inside a wrapper of magic 0 offsets are absolute; in magic 1 they are relative to the first message.
`downgrade` loses what the old formats do not have: headers, and in magic 0 timestamps. Transaction
markers are left out. In magic 0 the frame header of LZ4 has a wrong checksum, because the first
clients computed it over too many bytes; the broker ignores it when reading, and writes the wrong
one, which those clients expect. Message sets have no zstd (KIP-110).

The rules are those of Kafka's classes LogValidator, RecordsUtil and MemoryRecordsBuilder.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from trilogue.entry.compression import Buffer, compress, decompress
from trilogue.entry.entry import (
    CODEC_MASK,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    Codec,
    CorruptEntry,
    EntryHeader,
    EntryTooLarge,
    InvalidEntry,
    UnsupportedCompression,
)
from trilogue.entry.header import MAGIC, MAGIC_AT
from trilogue.entry.kafka.message_set import SetWalker, SetWriter
from trilogue.entry.kafka.record_batch import DECOMPRESSED_LIMIT, seal, walk_records
from trilogue.entry.pack import RecordPacker

_INT64_MAX: Final = 2**63 - 1
_LZ4_MAGIC: Final = 4  # bytes before the flags
_LZ4_CONTENT_SIZE, _LZ4_DICTIONARY = 0x08, 0x01  # flags: 8 and 4 bytes more in the header
_LZ4_CHECKSUM_AT: Final = 6  # in the header that the broker writes
_WORD: Final = Struct("<I")
_PRIMES: Final = (2654435761, 2246822519, 3266489917, 668265263, 374761393)


class UpgradedBatch(NamedTuple):
    """A batch made of a message set; `claims_append_time`: the producer set log append time.

    `claims_for_untimed`: it set log append time on a message without a timestamp.
    """

    batch: bytes
    claims_append_time: bool
    claims_for_untimed: bool


class _Packed(NamedTuple):
    """The records of a message set; the timestamps are the first and the latest one."""

    records: RecordPacker
    record_count: int
    base_timestamp: int
    latest: int
    claims: bool
    claims_for_untimed: bool


def is_message_set(records: Buffer) -> bool:
    """Whether the records of an old producer are a message set, valid or not, and no batch."""
    return len(records) <= MAGIC_AT or records[MAGIC_AT] != MAGIC


def upgrade(
    records: Buffer,
    *,
    size_max: int,
    codec: Codec | None = None,
    level: int | None = None,
    limit: int = DECOMPRESSED_LIMIT,
) -> UpgradedBatch:
    """Make one batch of a message set, compressed by `codec` or else by the codec of the set.

    `size_max` is the maximum of bytes of one message as sent, `limit` of all when decompressed.
    Raises `EntryTooLarge` beyond these, `CorruptEntry` for a wrong checksum or size, `InvalidEntry`
    for an undamaged set that breaks a rule: messages of different magic, a wrapper inside a wrapper
    or beside other messages.
    """
    walker = SetWalker(records)
    if not walker.advance():
        raise InvalidEntry("a set without messages")
    source, magic = _codec_of(walker), walker.magic
    if source is Codec.NONE:
        packed = _pack(walker, walker, size_max=size_max, limit=limit)
    else:
        _check_size(walker, size_max)
        inner = _inside(walker, source, limit)
        packed = _pack(inner, walker, size_max=limit, limit=limit)
        if magic and 0 != walker.offset < inner.offset:  # some clients set it to 0
            raise InvalidEntry(f"a wrapper at {walker.offset}, its last message at {inner.offset}")
        if walker.advance():
            raise InvalidEntry("another message follows a compressed one")
    batch = seal(
        packed.records.packed(),
        record_count=packed.record_count,
        last_offset_delta=packed.record_count - 1,
        base_timestamp=packed.base_timestamp,
        max_timestamp=packed.latest,
        codec=source if codec is None else codec,
        level=level,
    )
    return UpgradedBatch(batch, packed.claims, packed.claims_for_untimed)


def _codec_of(walker: SetWalker) -> Codec:
    number = walker.attributes & CODEC_MASK
    if number > Codec.LZ4:
        raise InvalidEntry(f"codec {number} in a message of magic {walker.magic}")
    return Codec(number)


def _check_size(walker: SetWalker, size_max: int) -> None:
    size = walker.pos - walker.start
    if size > size_max:
        raise EntryTooLarge(f"a message of {size} bytes, at most {size_max} are accepted")


def _inside(walker: SetWalker, codec: Codec, limit: int) -> SetWalker:
    """Decompress a wrapper and advance to the first message in it."""
    value = walker.value()
    if value is None:
        raise InvalidEntry("a compressed message without a value")
    try:
        inner = SetWalker(_decompress(codec, value, walker.magic, limit))
    except CorruptEntry as error:  # the outer checksum is right: the producer sent it so
        raise InvalidEntry(f"a compressed message, and: {error}") from error
    if not inner.advance():
        raise InvalidEntry("a compressed message with nothing in it")
    return inner


def _pack(walker: SetWalker, outer: SetWalker, *, size_max: int, limit: int) -> _Packed:
    """Pack the current message of a walker and all that follow, with offsets from 0.

    `outer` is at their wrapper, or is the same walker. The timestamp of a wrapper with log append
    time is that of all its messages.
    """
    packer = RecordPacker()
    magic = outer.magic
    count = base_timestamp = 0
    latest = NO_TIMESTAMP
    claims = claims_for_untimed = False
    while True:
        if walker.magic != magic:
            raise InvalidEntry(f"a message of magic {walker.magic} among those of {magic}")
        if walker.attributes & CODEC_MASK:
            raise InvalidEntry("a compressed message among or within others")
        _check_size(walker, size_max)
        claiming = bool(magic and outer.attributes & LOG_APPEND_TIME)
        timestamp = outer.timestamp if claiming else walker.timestamp
        if timestamp < NO_TIMESTAMP:
            raise InvalidEntry(f"timestamp {timestamp}")
        claims = claims or claiming
        claims_for_untimed = claims_for_untimed or (claiming and timestamp == NO_TIMESTAMP)
        base_timestamp = base_timestamp if count else timestamp
        packer.pack(count, timestamp - base_timestamp, walker.key(), walker.value(), ())
        if packer.used > limit:
            raise EntryTooLarge(f"more than the {limit} bytes allowed")
        latest = max(latest, timestamp)
        count += 1
        if not walker.advance():
            return _Packed(packer, count, base_timestamp, latest, claims, claims_for_untimed)


def downgrade(
    entry: Buffer,
    header: EntryHeader,
    *,
    magic: int,
    from_offset: int = 0,
    room: int = _INT64_MAX,
    zstd_as: Codec | None = None,
    limit: int = DECOMPRESSED_LIMIT,
) -> tuple[Buffer, int]:
    """Make messages of a stored batch; return them and the offset after them.

    Plain messages begin at `from_offset` and have at most `room` bytes, except that the first is
    always included; a wrapper holds the whole batch, of any size. A marker or an empty batch gives
    no messages. A batch in zstd becomes a wrapper in the codec `zstd_as`; without one it raises
    `UnsupportedCompression`.
    """
    end = header.last_offset + 1
    codec = header.codec
    if header.is_control or not header.record_count:
        return b"", end
    if codec is Codec.ZSTD:
        if zstd_as is None:
            raise UnsupportedCompression("message sets know no zstd")
        codec = zstd_as
    append_time = LOG_APPEND_TIME if magic and header.log_append_time else 0
    walker = walk_records(entry, limit=limit, header=header)
    writer = SetWriter(magic)
    if codec is Codec.NONE:
        left = writer.put_records(walker, from_offset, append_time, room)
        return writer.written(), end if left < 0 else left
    _, last_offset, latest = writer.put_inner(walker, append_time)
    value = _compress(codec, writer.written(), magic)
    writer = SetWriter(magic)
    writer.put(last_offset, latest, append_time | codec, None, value)
    return writer.written(), end


# ---- LZ4 of magic 0


def _decompress(codec: Codec, data: bytes, magic: int, limit: int) -> Buffer:
    if codec is Codec.LZ4 and magic == 0:
        data = _with_right_checksum(data)
    return decompress(codec, data, limit)


def _compress(codec: Codec, data: Buffer, magic: int) -> bytes:
    packed = compress(codec, data)
    if codec is not Codec.LZ4 or magic:
        return packed
    wrong = _checksum(packed[:_LZ4_CHECKSUM_AT])  # includes the frame's magic
    return packed[:_LZ4_CHECKSUM_AT] + bytes([wrong]) + packed[_LZ4_CHECKSUM_AT + 1 :]


def _with_right_checksum(frame: bytes) -> bytes:
    """Put the right checksum into the header of an LZ4 frame."""
    if len(frame) <= _LZ4_CHECKSUM_AT:
        raise CorruptEntry("lz4: cut")
    flags = frame[_LZ4_MAGIC]
    at = _LZ4_CHECKSUM_AT
    at += 8 if flags & _LZ4_CONTENT_SIZE else 0
    at += 4 if flags & _LZ4_DICTIONARY else 0
    if len(frame) <= at:
        raise CorruptEntry("lz4: cut")
    return frame[:at] + bytes([_checksum(frame[_LZ4_MAGIC:at])]) + frame[at + 1 :]


def _checksum(data: bytes) -> int:
    """Compute the checksum of an LZ4 header: the second byte of xxHash32, of less than 16 bytes."""
    assert len(data) < 16, "only the form for short input is here"
    one, two, three, four, five = _PRIMES
    state = five + len(data)
    words = len(data) // 4
    for number in range(words):
        (word,) = _WORD.unpack_from(data, 4 * number)
        state = _rotate_left(state + word * three, 17) * four
    for byte in data[4 * words :]:
        state = _rotate_left(state + byte * five, 11) * one
    state &= 0xFFFFFFFF
    state = (state ^ state >> 15) * two & 0xFFFFFFFF
    state = (state ^ state >> 13) * three & 0xFFFFFFFF
    return (state ^ state >> 16) >> 8 & 255


def _rotate_left(value: int, bits: int) -> int:
    value &= 0xFFFFFFFF
    return (value << bits | value >> 32 - bits) & 0xFFFFFFFF
