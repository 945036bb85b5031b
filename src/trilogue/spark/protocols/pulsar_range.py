"""Reads a range of a Pulsar partition: from a position to a position, by a reader."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncGenerator, Iterator
from typing import TYPE_CHECKING

from trilogue.client.errors import TimedOut
from trilogue.client.pulsar.consumer.chunk_assembler import BegunMessage
from trilogue.client.pulsar.consumer.reader import Reader
from trilogue.client.pulsar.message import Message
from trilogue.entry.conversion.pulsar_read import neutral_message
from trilogue.spark.errors import DataLost
from trilogue.spark.protocols.message_rows import PlacedMessage, read_rows
from trilogue.spark.protocols.positions import format_position, join_position
from trilogue.spark.protocols.pulsar_lookup import (
    find_begin,
    find_start,
    open_reader,
    pulsar_client,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from trilogue.spark.offsets import Range
    from trilogue.spark.read_options import ReadOptions

log = logging.getLogger("trilogue.spark")
AT_ONCE = 1_000
QUIET_S = 2.0
"""After this silence the broker is asked whether there is more."""


def read_pulsar(
    options: ReadOptions, where: Range, columns: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    """Return the messages of the entries in [start, end)."""
    assert options.service is not None
    link = pulsar_client(options.service)
    return read_rows(link, _read(options, where), where, columns)


async def _read(options: ReadOptions, where: Range) -> AsyncGenerator[list[PlacedMessage]]:
    assert options.service is not None
    client = pulsar_client(options.service).client
    start = find_start(where.start)
    async with open_reader(client, where.topic, where.partition, start) as opened:
        reader = _RangeReader(opened, options, where)
        while (found := await reader.receive_next()) is not None:
            yield found


class _RangeReader:
    """Reads the messages that begin in a range.

    A message in chunks may end after it: its last chunks are awaited there. Other messages that
    come meanwhile are those of the next range.
    """

    def __init__(self, reader: Reader, options: ReadOptions, where: Range) -> None:
        self._reader, self._options, self._where = reader, options, where
        self._has_offsets = reader.server_version.startswith("Trilogue")
        self._is_passed = False
        """Whether every entry of the range was received."""
        self._abandoned: set[tuple[int, int]] = set()
        self._wait_until = math.inf

    async def receive_next(self) -> list[PlacedMessage] | None:
        """Return more messages, or none yet; None after the last one. DataLost."""
        now = asyncio.get_running_loop().time()
        if self._is_passed and (now >= self._wait_until or not self._awaited()):
            self._leave_out()
            return None
        self._wait_until = min(self._wait_until, now + self._options.patience_ms / 1000)
        try:
            found = await self._reader.receive_many(AT_ONCE, QUIET_S)
        except TimedOut:
            return None if await self._is_over() else []
        if not self._is_passed:
            self._wait_until = math.inf
        self._note_abandoned(found)
        self._is_passed = self._is_passed or _ends_range(found[-1], self._where)
        return [self._place(each) for each in found if self._has(find_begin(each))]

    def _awaited(self) -> list[BegunMessage]:
        """Return the messages of the range that began, and whose end may still come."""
        return [
            each
            for each in self._reader.begun_messages()
            if self._has(each.first) and each.first not in self._abandoned
        ]

    def _has(self, begin: tuple[int, int]) -> bool:
        """Whether a message that begins here is one of the range."""
        return self._where.start <= join_position(*begin) < self._where.end

    def _note_abandoned(self, found: list[Message]) -> None:
        """Await no message whose producer sends another one: it sends one after the other."""
        if awaited := self._awaited():
            newest = {each.metadata.producer_name: find_begin(each) for each in found}
            self._abandoned |= {
                each.first
                for each in awaited
                if newest.get(each.producer_name, each.first) > each.first
            }

    def _leave_out(self) -> None:
        """Report the messages whose end does not come."""
        for each in self._awaited():
            log.warning(
                "spark.chunks-left-out topic=%s partition=%d begin=%d:%d waited_ms=%d",
                self._where.topic, self._where.partition, *each.first, self._options.patience_ms,
            )  # fmt: skip

    async def _is_over(self) -> bool:
        """Whether nothing more comes: the rest of the range was compacted, or its ledger is gone.

        DataLost where the broker has sent nothing for too long although there is more.
        """
        is_late = asyncio.get_running_loop().time() >= self._wait_until
        if awaited := self._awaited():
            if not is_late:
                return False
            (last,) = await self._reader.last_message_ids()
            if self._is_passed or last[:2] <= max(each.last for each in awaited):
                self._leave_out()
                return True
        elif not await self._reader.has_message_available():
            return True
        if not is_late:
            return False
        if not self._options.fail_on_data_loss:
            return True
        where = self._where
        raise DataLost(
            f"{where.topic}-{where.partition}: entries up to {format_position(where.end)} are "
            f"wanted, and none came for {self._options.patience_ms / 1000:g} s. "
            "failOnDataLoss=false reads on after them."
        )

    def _place(self, message: Message) -> PlacedMessage:
        """Return a message with its offset: the sum of its numbers where Trilogue serves."""
        offset = message.id.entry_id + max(0, message.id.batch_index)
        return PlacedMessage(
            offset if self._has_offsets else None,
            neutral_message(message.single, message.metadata),
        )


def _ends_range(message: Message, where: Range) -> bool:
    """Whether no entry of the range comes after this message."""
    is_last = message.id.batch_index + 1 >= message.id.batch_size
    return join_position(*message.id[:2]) + is_last >= where.end
