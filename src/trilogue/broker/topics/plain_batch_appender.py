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
from trilogue.entry.entry import TRANSACTIONAL, EntryError, EntryHeader
from trilogue.log.errors import LogError

if not cython.compiled:  # plain_batch_appender.pxd imports the compiled version
    from trilogue.entry.header import HEADER_SIZE, PRODUCER_ID_AT
    from trilogue.entry.memory import bytes_of
    from trilogue.entry.walk import checked_fields

_TRANSACTIONAL = TRANSACTIONAL
_ATTRIBUTES = EntryHeader._fields.index("attributes")


class EntryLog(Protocol):
    """The log of a partition, as far as an append needs it."""

    def append(self, entry: memoryview, header: EntryHeader, /) -> int:
        """Append a copy of an entry and return its base offset; raises `LogError`."""


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
        if bytes_of(records)[PRODUCER_ID_AT] < 0x80:
            return -1
        try:
            fields = checked_fields(records)
        except EntryError:
            return -1
        if fields[_ATTRIBUTES] & _TRANSACTIONAL:
            return -1
        try:
            return self._log.append(records, fields)  # type: ignore[arg-type] # the same fields
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
