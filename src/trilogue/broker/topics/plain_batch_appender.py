# ruff: noqa: ERA001 -- the next line is for the compiler
# cython: annotation_typing=False
"""Appends the most common kind of batch: valid, without a producer id, to a topic without extras.

`Partition` owns one and takes every other batch itself. Compiled (plain_batch_appender.pxd adds the
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
    """Appends plain batches of up to `size_max` bytes; -1 = the partition takes none that way."""

    __slots__ = ("_log", "size_max")

    def __init__(self, log: EntryLog) -> None:
        self.size_max = -1
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
