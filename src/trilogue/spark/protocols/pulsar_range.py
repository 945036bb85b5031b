"""Reads a range of a Pulsar partition: from a position to a position, by a reader."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from typing import TYPE_CHECKING

from trilogue.client.errors import TimedOut
from trilogue.client.pulsar.consumer.reader import Reader
from trilogue.client.pulsar.message import Message
from trilogue.entry.conversion.pulsar_read import neutral_message
from trilogue.spark.errors import DataLost
from trilogue.spark.protocols.message_rows import PlacedMessage, read_rows
from trilogue.spark.protocols.positions import format_position, join_position
from trilogue.spark.protocols.pulsar_lookup import find_start, open_reader, pulsar_client

if TYPE_CHECKING:
    import pyarrow as pa

    from trilogue.spark.offsets import Range
    from trilogue.spark.read_options import ReadOptions

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
    async with open_reader(client, where.topic, where.partition, start) as reader:
        has_offsets = reader.server_version.startswith("Trilogue")
        waited_s = 0.0
        while True:
            try:
                found = await reader.receive_many(AT_ONCE, QUIET_S)
            except TimedOut:
                waited_s += QUIET_S
                if await _is_over(reader, where, waited_s, options):
                    return
                continue
            waited_s = 0.0
            wanted = [each for each in found if _position(each) < where.end]
            yield [_place(each, has_offsets=has_offsets) for each in wanted]
            if len(wanted) < len(found) or _ends_range(found[-1], where):
                return


def _position(message: Message) -> int:
    return join_position(message.id.ledger_id, message.id.entry_id)


def _ends_range(message: Message, where: Range) -> bool:
    """Whether no message of the range comes after this one."""
    is_last = message.id.batch_index + 1 >= message.id.batch_size
    return is_last and _position(message) + 1 >= where.end


async def _is_over(reader: Reader, where: Range, waited_s: float, options: ReadOptions) -> bool:
    """Whether nothing more comes: the rest of the range was compacted, or its ledger is gone.

    DataLost where the broker has sent nothing for too long although there is more.
    """
    if not await reader.has_message_available():
        return True
    if waited_s * 1000 < options.patience_ms:
        return False
    if not options.fail_on_data_loss:
        return True
    raise DataLost(
        f"{where.topic}-{where.partition}: entries up to {format_position(where.end)} are wanted, "
        f"and none came for {waited_s:g} s. failOnDataLoss=false reads on after them."
    )


def _place(message: Message, *, has_offsets: bool) -> PlacedMessage:
    """Return a message with its offset, which is the sum of its numbers where Trilogue serves."""
    offset = message.id.entry_id + max(0, message.id.batch_index) if has_offsets else None
    return PlacedMessage(offset, neutral_message(message.single, message.metadata))
