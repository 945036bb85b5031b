# ruff: noqa: ERA001 -- the next line is for the compiler
# cython: annotation_typing=False
"""The way of a small batch through the broker, compiled.

`HotPartition` is the hot half of `Partition` (partition.py), which derives from it. Cython reads
this file together with hot.pxd, which only adds types; uncompiled it is plain Python
(docs/decisions/0058).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

from trilogue.broker.errors import failure
from trilogue.entry.entry import HEADER_SIZE, TRANSACTIONAL, EntryError, EntryHeader
from trilogue.log.errors import LogError

if not cython.compiled:  # hot.pxd takes the compiled ones
    from trilogue.entry.memory import bytes_of
    from trilogue.entry.walk import checked_fields

if TYPE_CHECKING:
    from trilogue.log.partition_log import PartitionLog

PRODUCER_AT = 43  # in a batch: the producer's id, below 0 where it has none
_HEADER_SIZE = HEADER_SIZE
_PRODUCER_AT = PRODUCER_AT
_TRANSACTIONAL = TRANSACTIONAL
_ATTRIBUTES = EntryHeader._fields.index("attributes")


class HotPartition:
    """What takes batches that need no more than to be sound."""

    __slots__ = ("_simple_size_max", "log", "prepares")

    log: PartitionLog
    prepares: bool  # whether batches are looked into
    _simple_size_max: int  # of a batch, in bytes; -1: none is simple

    def append_plain(self, records: memoryview) -> int:
        """Append a sound batch of nobody in particular, the most common kind; its base offset.

        -1 for all others, of which nothing is appended: `append_sent` takes them, or says why not.
        Raises `BrokerError` where the log takes nothing.
        """
        size = len(records)
        if size > self._simple_size_max or size < _HEADER_SIZE:
            return -1
        if bytes_of(records)[_PRODUCER_AT] < 0x80:
            return -1
        try:
            fields = checked_fields(records)
        except EntryError:
            return -1
        if fields[_ATTRIBUTES] & _TRANSACTIONAL:
            return -1
        try:
            return self.log.append(records, fields)  # type: ignore[arg-type] # the same fields
        except LogError as error:
            raise failure(error) from error
