"""Reads a range of a TubeMQ partition, pack by pack.

A broker gives messages in packs. Of a pack it says where its reading began, and, when it is
confirmed, where the next one begins; of a message only its id. Trilogue's ids have the offset in
them. Elsewhere a pack that goes beyond the range is cut at the first message that the broker gives
at the end of the range.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from typing import TYPE_CHECKING

from trilogue.client.errors import ClientError
from trilogue.client.tubemq.consumer import Consumer
from trilogue.client.tubemq.errors import NoMessage
from trilogue.client.tubemq.message import Message
from trilogue.client.tubemq.partition_state import Batch
from trilogue.entry.conversion.tubemq import neutral_message
from trilogue.spark.errors import DataLost
from trilogue.spark.plan import lost
from trilogue.spark.protocols.message_rows import UNKNOWN_TIME_MS, PlacedMessage, read_rows
from trilogue.spark.protocols.tubemq_link import find_offset, number_partitions, tubemq_link
from trilogue.spark.protocols.tubemq_lookup import END

if TYPE_CHECKING:
    import pyarrow as pa

    from trilogue.spark.offsets import Range
    from trilogue.spark.read_options import ReadOptions

QUIET_S = 0.5
"""After this silence it is checked whether the broker has answered that there is no more."""
PAUSE_S = 0.3
"""Between two tries at a broker that does not answer."""
OFFSET_BITS = 44
_OFFSET_MASK = (1 << OFFSET_BITS) - 1


def read_tubemq(
    options: ReadOptions, where: Range, columns: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    """Return the messages in [start, end)."""
    assert options.service is not None
    link = tubemq_link(options.service)
    return read_rows(link, _read(options, where), where, columns)


async def _read(options: ReadOptions, where: Range) -> AsyncGenerator[list[PlacedMessage]]:
    assert options.service is not None
    link = tubemq_link(options.service).client
    async with link.open_consumer([where.topic]) as consumer:
        keys = number_partitions(consumer, where.topic)
        if where.partition not in keys:
            raise DataLost(f"{where.topic}-{where.partition} is gone")
        reader = _RangeReader(consumer, keys[where.partition], options, where)
        await reader.begin()
        while reader.position < where.end:
            batch = await reader.get_batch()
            if batch is None:
                return
            yield await reader.place(batch)


class _RangeReader:
    """One consumer in one partition; `position` is where the next pack begins."""

    def __init__(self, consumer: Consumer, key: str, options: ReadOptions, where: Range) -> None:
        self._consumer, self._key = consumer, key
        self._options, self._where = options, where
        self.position = where.start

    async def begin(self) -> None:
        """Register at the start; DataLost where the partition does not have it."""
        await self._consumer.connect(self._key, self._where.start)
        self.position = self._consumer.offsets()[self._key].current
        if self.position != self._where.start:
            await self._lose(f"offset {self._where.start} is wanted")

    async def get_batch(self) -> Batch | None:
        """Return a pack that is confirmed; None after the last one of the range.

        A confirmation that fails may have arrived: the same messages are read again from their
        offset.
        """
        patience_s = self._options.patience_ms / 1000
        until = asyncio.get_running_loop().time() + patience_s
        while asyncio.get_running_loop().time() < until:
            try:
                batch = await self._consumer.get(QUIET_S)
            except NoMessage as problem:
                if await self._is_at_end():
                    return None
                if self._key not in self._consumer.partitions:
                    await self._go_on()
                del problem
                continue
            if batch.offset < self.position:  # the broker has lost the position of the group
                await self._go_on()
                continue
            try:
                await self._consumer.confirm(batch)
            except ClientError:
                await self._go_on()
                continue
            self.position = max(self.position, self._consumer.offsets()[self._key].current)
            return batch
        raise DataLost(
            f"{self._where.topic}-{self._where.partition}: offsets [{self.position}, "
            f"{self._where.end}) are wanted, and the broker gave none for {patience_s:g} s"
        )

    async def _go_on(self) -> None:
        """Register again at the position; a broker that does not answer has time until then."""
        try:
            if self._key in self._consumer.partitions:
                await self._consumer.set_offset(self._key, self.position)
            else:
                await self._consumer.connect(self._key, self.position)
        except ClientError:
            self._consumer.check()
            await asyncio.sleep(PAUSE_S)

    async def _is_at_end(self) -> bool:
        """Whether the broker has answered that there is no more; DataLost if that is too early."""
        held = self._consumer.reading.holding.get(self._key)
        if held is None or not held.at_end:
            return False
        await self._consumer.disconnect(self._key)
        end = await find_offset(self._consumer, self._key, END)
        if end < self._where.end:
            await self._lose(f"offsets up to {self._where.end} are wanted")
        return True

    async def _lose(self, what: str) -> None:
        if not self._options.fail_on_data_loss:
            return
        if self._key in self._consumer.partitions:
            await self._consumer.disconnect(self._key)
        first = await find_offset(self._consumer, self._key, 0)
        last = await find_offset(self._consumer, self._key, END)
        raise lost([(self._where.topic, self._where.partition)], what, first, last)

    async def place(self, batch: Batch) -> list[PlacedMessage]:
        """Return the messages of a pack that are in the range."""
        end, messages = self._where.end, batch.messages
        offsets = find_offsets(batch)
        if offsets is not None:
            return [
                _place(offset, one)
                for offset, one in zip(offsets, messages, strict=True)
                if offset < end
            ]
        if self.position > end:
            first_after = await self._find_first_after()
            ids = [one.message_id for one in messages]
            if first_after in ids:
                messages = messages[: ids.index(first_after)]
        return [_place(None, one) for one in messages]

    async def _find_first_after(self) -> int | None:
        """Return the id of the first message at the end of the range or after it."""
        after, self.position = self.position, self._where.end
        await self._consumer.set_offset(self._key, self._where.end)
        batch = await self.get_batch()
        self.position = after
        return None if batch is None else batch.messages[0].message_id


def find_offsets(batch: Batch) -> list[int] | None:
    """Return the offsets of messages by their ids; None where these are not Trilogue's."""
    ids = [one.message_id or 0 for one in batch.messages]
    offsets = [one & _OFFSET_MASK for one in ids]
    is_ours = len({one >> OFFSET_BITS for one in ids}) == 1 and ids[0] >> OFFSET_BITS > 0
    if not is_ours or offsets[0] < batch.offset or offsets[-1] >= batch.max_offset:
        return None
    return offsets if offsets == sorted(set(offsets)) else None


def _place(offset: int | None, message: Message) -> PlacedMessage:
    return PlacedMessage(
        offset, neutral_message(message.attribute_bytes, message.body, UNKNOWN_TIME_MS)
    )
