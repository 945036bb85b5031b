# ruff: noqa: ERA001 -- the next line is for the compiler
# cython: annotation_typing=False
"""Appends what needs no more than its bytes checked, to a topic without extras.

That is the most common kind of Kafka's batches, valid and without a producer id, and the entries of
the other formats, which were checked when they were built. `Partition` owns one and takes every
other batch and entry itself. Compiled (plain_batch_appender.pxd adds the
types), since it runs once per small produce request; uncompiled it is plain Python. See
docs/decisions/0061.
"""

from __future__ import annotations

from typing import Protocol

import cython

from trilogue.broker.errors import convert_log_error
from trilogue.entry.checksum import crc32c
from trilogue.entry.entry import TRANSACTIONAL, EntryHeader
from trilogue.log.errors import LogError

if not cython.compiled:  # plain_batch_appender.pxd imports the compiled version
    from trilogue.entry.header import (
        ATTRIBUTES_AT,
        BASE_TIMESTAMP_AT,
        CHECKED_FROM,
        CHECKSUM_AT,
        HEADER_SIZE,
        LAST_OFFSET_DELTA_AT,
        LENGTH_AT,
        LENGTH_PREFIX,
        MAGIC,
        MAGIC_AT,
        MAX_TIMESTAMP_AT,
        PRODUCER_ID_AT,
        RECORD_COUNT_AT,
    )
    from trilogue.entry.memory import bytes_of, load32, load64, quick_crc32c
    from trilogue.entry.walk import contents_fault

_COUNT_MAX = (1 << 31) - 1
_TRANSACTIONAL = TRANSACTIONAL
_ATTRIBUTES = EntryHeader._fields.index("attributes")


class EntryLog(Protocol):
    """The log of a partition, as far as an append needs it."""

    def append(self, entry: memoryview, header: EntryHeader, /) -> int:
        """Append a copy of an entry and return its base offset; raises `LogError`."""

    def append_plain(
        self, entry: memoryview, attributes: int, last_offset_delta: int, max_timestamp: int, /
    ) -> int:
        """Do the same by the fields of its header that this needs."""


class PlainBatchAppender:
    """Appends plain batches of up to `size_max` bytes; -1 = the partition takes none that way.

    `entry_size_max` is the same for entries of other formats, and `memory_size_max` for these
    where the topic acknowledges them from memory.
    """

    __slots__ = ("_log", "entry_size_max", "memory_size_max", "size_max")

    def __init__(self, log: EntryLog) -> None:
        self.size_max = -1
        self.entry_size_max = -1
        self.memory_size_max = -1
        self._log = log

    def append(self, records: memoryview) -> int:
        """Append a plain batch and return its base offset; -1 where it is not plain.

        Nothing is appended then: `Partition.append_sent` appends or refuses it. Raises
        `BrokerError` where the log takes nothing.
        """
        size = len(records)
        if size > self.size_max or size < HEADER_SIZE:
            return -1
        data = bytes_of(records)
        if load64(data, PRODUCER_ID_AT) != -1 or not _is_valid(data, size):
            return -1
        computed = quick_crc32c(records, CHECKED_FROM)
        if computed < 0:
            computed = crc32c(records[CHECKED_FROM:])
        if computed != load32(data, CHECKSUM_AT):
            return -1
        try:
            return self._log.append_plain(
                records,
                load32(data, ATTRIBUTES_AT) >> 16,
                load32(data, LAST_OFFSET_DELTA_AT),
                load64(data, MAX_TIMESTAMP_AT),
            )
        except LogError as error:
            raise convert_log_error(error) from error

    def append_entry(self, entry: memoryview, header: EntryHeader, size: int) -> int:
        """Append an entry that was built of `size` bytes and return its base offset.

        -1 where the topic or the entry has extras: nothing is appended then, and
        `Partition.append_entry` appends or refuses it. Raises `BrokerError` where the log takes
        nothing.
        """
        return self._append(entry, header, size, self.entry_size_max)

    def append_to_memory(self, entry: memoryview, header: EntryHeader, size: int) -> int:
        """Do the same where the entry is acknowledged before it is durable."""
        return self._append(entry, header, size, self.memory_size_max)

    def _append(self, entry: memoryview, header: EntryHeader, size: int, size_max: int) -> int:
        if size > size_max or not isinstance(header, tuple):
            return -1
        fields = cython.cast(tuple, header)  # the compiler accepts no named tuple as a tuple
        if fields[_ATTRIBUTES] & _TRANSACTIONAL:
            return -1
        try:
            return self._log.append(entry, header)
        except LogError as error:
            raise convert_log_error(error) from error


def _is_valid(data: memoryview, size: int) -> bool:
    """Whether `walk.check_produced` accepts a batch without a producer, except for its checksum.

    It makes no object: a tuple of all fields is a third of what a small request allocates.
    """
    attributes = load32(data, ATTRIBUTES_AT) >> 16
    count = load32(data, RECORD_COUNT_AT)
    if data[MAGIC_AT] != MAGIC or load32(data, LENGTH_AT) + LENGTH_PREFIX != size:
        return False
    if attributes & _TRANSACTIONAL or count > _COUNT_MAX:
        return False
    fault = contents_fault(
        attributes,
        load32(data, LAST_OFFSET_DELTA_AT),
        load64(data, BASE_TIMESTAMP_AT),
        load64(data, MAX_TIMESTAMP_AT),
        count,
        size,
    )
    return fault == 0
