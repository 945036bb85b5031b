"""Builds an entry of a TubeMQ producer's message, and selects stored messages for consumers.

The layout is in layout.py. Compiled with tubemq_entry.pxd, which only adds types; without a
compiler it is plain Python.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from struct import pack
from typing import NamedTuple, TypeAlias
from zlib import crc32

import cython

from trilogue.entry.checksum import crc32c
from trilogue.entry.entry import FORMAT_SHIFT, CorruptEntry, EntryHeader, Format, InvalidEntry

Int: TypeAlias = int  # the compiler would take a bare `int` for a Python object, and so on
View: TypeAlias = memoryview
Buffer: TypeAlias = bytes | bytearray | memoryview
Bytes: TypeAlias = memoryview  # a pointer when compiled
Hashes: TypeAlias = frozenset[int]
MaybeHashes: TypeAlias = "frozenset[int] | None"  # a string: the compiler would evaluate it
MaybeTexts: TypeAlias = "frozenset[bytes] | None"

TYPE_SIZE_MAX = 4096
_NO_TYPE = b""
# tubemq_entry.pxd declares these as C variables.
_TUBEMQ = int(Format.TUBEMQ) << FORMAT_SHIFT  # attributes: the format
_FORMAT = int(Format.TUBEMQ)  # in the byte at FORMAT_AT
_FORMAT_MASK = 3
_tuple_new = tuple.__new__

if not cython.compiled:  # tubemq_entry.pxd imports the compiled version
    from trilogue.entry.header import (
        BASE_OFFSET_AT,
        CHECKED_FROM,
        CHECKSUM_AT,
        FORMAT_AT,
        HEADER_SIZE,
        LAST_OFFSET_DELTA_AT,
        LENGTH_AT,
        LENGTH_PREFIX,
        MAGIC,
        MAGIC_AT,
        RECORD_COUNT_AT,
    )
    from trilogue.entry.memory import (
        bytes_of,
        copy,
        load32,
        load64,
        new_bytes,
        store32,
        store64,
        writable_bytes_of,
        write_header,
    )
    from trilogue.entry.tubemq.layout import (
        ATTRIBUTES,
        BLOCK_VERSION,
        BROKER_TIME_AT,
        DATA_CHECKSUM_AT,
        FLAGS_AT,
        MESSAGE_TIME_AT,
        SENT_FROM_AT,
        TYPE_AT,
        TYPE_HASH_AT,
        TYPE_SIZE_AT,
        TYPED,
        VERSION_AT,
    )
    from trilogue.wire.memory import signed32


class WrongChecksum(InvalidEntry):
    """The data does not match the checksum of its producer."""

    def __init__(self, given: int, actual: int) -> None:
        super().__init__(f"checksum {given}, that of the data is {actual}")
        self.given = given
        self.actual = actual


class Transfer(NamedTuple):
    """One message as sent to a consumer; the fields are those of the codec in wire/tubemq."""

    message_id: int
    checksum: int
    data: memoryview
    flag: int


class PickedMessages(NamedTuple):
    """The result of `pick`: messages, the next offset, their bytes of data, entries examined."""

    messages: list[Transfer]
    next_offset: int
    size: int
    entries: int


@lru_cache(maxsize=4096)
def java_hash(text: str) -> int:
    """Return the value of Java's `String.hashCode`: over UTF-16 units, as int32."""
    return _hash(text.encode("utf-16-be", "surrogatepass"))


def _hash(units: bytes) -> Int:
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return signed32(value)


def message_id(partition_id: Int, offset: Int) -> Int:
    """Return the TubeMQ message id, a positive int64 that never changes, on any node.

    Unique while partition ids are below 2**18 - 1 and offsets below 2**44; beyond, it is a digest.
    """
    if 0 <= partition_id < 262_143 and 0 <= offset < 17_592_186_044_416:
        place = partition_id + 1
        return place << 44 | offset
    digest = blake2b(pack(">qq", partition_id, offset), digest_size=8).digest()
    return 4_611_686_018_427_387_904 | int.from_bytes(digest, "big") >> 2


def build_entry(  # noqa: PLR0917 - once per message
    data: Buffer,
    flag: Int,
    checksum: Int,
    sent_addr: Int,
    message_type: str | None,
    message_time: str | None,
    broker_ms: Int,
) -> tuple[memoryview, EntryHeader]:
    """Build an entry of a message; the append sets base offset and epoch.

    A `checksum` of -1 is computed here. Raises `WrongChecksum` where it does not match the data,
    `InvalidEntry` for a message that is not allowed.
    """
    view = data if type(data) is memoryview else memoryview(data)
    size = len(view)
    actual = crc32(view) & 0x7FFFFFFF
    if checksum not in {-1, actual}:
        raise WrongChecksum(checksum, actual)
    if flag not in {0, 1}:
        raise InvalidEntry(f"flag {flag}")
    if flag:
        _check_attributes(view)
    kind = _NO_TYPE
    code = 0
    flags = flag
    if message_type is not None:
        trimmed = _trimmed(message_type)
        if trimmed:
            kind = trimmed.encode()
            code = java_hash(trimmed)
            flags |= TYPED
    time = -1
    if message_time is not None:
        time = _time_of(message_time)
    type_size = len(kind)
    if type_size > 4096:
        raise InvalidEntry(f"a type of {type_size} bytes")

    start = TYPE_AT + type_size
    length = start + size
    entry = memoryview(new_bytes(length))
    out = writable_bytes_of(entry)
    write_header(out, length, _TUBEMQ, 1, 1, broker_ms)
    out[VERSION_AT] = BLOCK_VERSION
    out[FLAGS_AT] = flags
    out[TYPE_SIZE_AT] = type_size >> 8
    out[TYPE_SIZE_AT + 1] = type_size & 255
    store32(out, TYPE_HASH_AT, code)
    store32(out, DATA_CHECKSUM_AT, actual)
    store32(out, SENT_FROM_AT, sent_addr)
    store64(out, MESSAGE_TIME_AT, time)
    store64(out, BROKER_TIME_AT, broker_ms)
    if type_size:
        copy(out, TYPE_AT, bytes_of(memoryview(kind)), 0, type_size)
    if size:
        copy(out, start, bytes_of(view), 0, size)
    total = crc32c(entry[CHECKED_FROM:])
    store32(out, CHECKSUM_AT, signed32(total))
    values = (0, length, -1, total, _TUBEMQ, 0, broker_ms, broker_ms, -1, -1, -1, 1)
    header: EntryHeader = _tuple_new(EntryHeader, values)
    return entry, header


def _check_attributes(view: View) -> None:
    """Raise `InvalidEntry` unless the attributes end within the data."""
    size = len(view)
    if size < 4:
        raise InvalidEntry(f"attributes in {size} bytes")
    length = load32(bytes_of(view), 0)
    if length > size - 4:
        raise InvalidEntry(f"attributes of {length} bytes, {size - 4} are there")


def _trimmed(text: str) -> str:
    """Trim a type as TubeMQ's broker does before it hashes it: Java's trim; "" if blank."""
    return text.strip(_JAVA_BLANKS) if text.strip() else ""


_JAVA_BLANKS = "".join(map(chr, range(33)))


def _time_of(text: str) -> Int:
    """Parse yyyyMMddHHmm as a number; -1 for any other text, which stays in the attributes."""
    if len(text) != 12 or not text.isascii() or not text.isdigit():
        return -1
    return int(text)


def pick(  # noqa: PLR0917 - once per read
    entries: Buffer,
    partition_id: Int,
    offset: Int,
    hashes: MaybeHashes,
    size_max: Int,
    count_max: Int,
    texts: MaybeTexts = None,
) -> PickedMessages:
    """Return the messages of consecutive entries from an offset on, filtered by type.

    All entries must be of format 2 (`formats_in`). With `hashes`, messages of other type hashes are
    skipped; with `texts` (UTF-8) those of other types, since two types may have the same hash. Ends
    before more than `size_max` bytes of data, but not before the first message, and after
    `count_max` entries. Raises `CorruptEntry` for damaged entries.
    """
    view = entries if type(entries) is memoryview else memoryview(entries)
    data = bytes_of(view)
    stop = len(view)
    pos = 0
    size = 0
    count = 0
    found: list[Transfer] = []
    while pos < stop and count < count_max:
        length = _entry_length(data, pos, stop)
        base = load64(data, pos + BASE_OFFSET_AT)
        last = base + load32(data, pos + LAST_OFFSET_DELTA_AT)
        if last < offset:
            pos += length
            continue
        count += 1
        if load32(data, pos + RECORD_COUNT_AT) and (hashes is None or _passes(data, pos, hashes)):
            at = _data_at(data, pos, length)
            body = length - (at - pos)
            if texts is not None and bytes(view[pos + TYPE_AT : at]) not in texts:
                offset = last + 1
                pos += length
                continue
            if found and size + body > size_max:
                break
            values = (
                message_id(partition_id, base),
                load32(data, pos + DATA_CHECKSUM_AT),
                view[at : pos + length],
                data[pos + FLAGS_AT] & ATTRIBUTES,
            )
            found.append(_tuple_new(Transfer, values))
            size += body
        offset = last + 1
        pos += length
    picked: PickedMessages = _tuple_new(PickedMessages, (found, offset, size, count))
    return picked


def _passes(data: Bytes, pos: Int, hashes: Hashes) -> Int:
    """Whether the hash of the type of the message at `pos` is in `hashes`; never without a type."""
    return data[pos + FLAGS_AT] & TYPED and signed32(load32(data, pos + TYPE_HASH_AT)) in hashes


def _entry_length(data: Bytes, pos: Int, stop: Int) -> Int:
    """Return the length of the entry at `pos`, after checking bounds and format."""
    if stop - pos < HEADER_SIZE:
        raise CorruptEntry(f"no whole header in the {stop - pos} bytes at {pos}")
    length = LENGTH_PREFIX + load32(data, pos + LENGTH_AT)
    if length > stop - pos:
        raise CorruptEntry(f"the entry at {pos} declares {length} bytes, of {stop - pos}")
    if data[pos + MAGIC_AT] != MAGIC or data[pos + FORMAT_AT] & _FORMAT_MASK != _FORMAT:
        raise InvalidEntry(f"the entry at {pos} is not TubeMQ's")
    if length < HEADER_SIZE or (load32(data, pos + RECORD_COUNT_AT) and length < TYPE_AT):
        raise CorruptEntry(f"an entry of {length} bytes at {pos}")
    return length


def _data_at(data: Bytes, pos: Int, length: Int) -> Int:
    """Return the position of the data of the entry at `pos`."""
    if data[pos + VERSION_AT] != BLOCK_VERSION:
        raise CorruptEntry(f"version {data[pos + VERSION_AT]} of a TubeMQ entry")
    size = data[pos + TYPE_SIZE_AT] << 8 | data[pos + TYPE_SIZE_AT + 1]
    if size > length - TYPE_AT:
        raise CorruptEntry(f"a type of {size} bytes in an entry of {length}")
    return pos + TYPE_AT + size
