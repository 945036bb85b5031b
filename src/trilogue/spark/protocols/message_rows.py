"""Arrow columns of messages of clients that give them one by one, as a Kafka client gets them.

Reserved properties and attributes become what they stand for (docs/reference/conversion.md), so
that a topic has the same rows by each protocol.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from trilogue.entry.arrow import arrow_schema
from trilogue.entry.conversion.kafka import record_headers
from trilogue.entry.entry import NO_TIMESTAMP
from trilogue.entry.message import Message

if TYPE_CHECKING:
    import pyarrow as pa

    from trilogue.spark.offsets import Range
    from trilogue.spark.protocols.client_loop import ClientLoop

ROWS_PER_BATCH = 8_192
MICROSECONDS = 1_000
INT64_MAX = 2**63 - 1
UNKNOWN_TIME_MS = -(2**62)
"""The publish time of a message whose protocol does not transmit it: its column is null."""


class PlacedMessage(NamedTuple):
    """A message and its offset; None where the protocol has no number for it."""

    offset: int | None
    message: Message


def read_rows(
    link: ClientLoop[Any],
    found: AsyncGenerator[list[PlacedMessage]],
    where: Range,
    columns: Sequence[str],
) -> Iterator[pa.RecordBatch]:
    """Yield batches of the messages that a generator of the client's loop gives, and end it."""
    rows: list[PlacedMessage] = []
    try:
        while (some := link.run(_next(found))) is not None:
            rows += some
            if len(rows) >= ROWS_PER_BATCH:
                yield build_rows(where.topic, where.partition, rows, columns)
                rows = []
    finally:
        link.run(found.aclose())
    if rows:
        yield build_rows(where.topic, where.partition, rows, columns)


async def _next(found: AsyncGenerator[list[PlacedMessage]]) -> list[PlacedMessage] | None:
    return await anext(found, None)


def build_rows(
    topic: str, partition: int, found: Sequence[PlacedMessage], columns: Sequence[str]
) -> pa.RecordBatch:
    """Return a batch with these columns."""
    import pyarrow as pa

    schema = arrow_schema(columns)
    count = len(found)
    arrays = []
    for field in schema:
        match field.name:
            case "topic":
                array = pa.repeat(pa.scalar(topic), count)
            case "partition":
                array = pa.repeat(pa.scalar(partition, pa.int32()), count)
            case "timestampType":
                array = pa.repeat(pa.scalar(0, pa.int32()), count)
            case name:
                array = pa.array([_value(each, name) for each in found], field.type)
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _value(placed: PlacedMessage, name: str) -> Any:
    message = placed.message
    match name:
        case "key":
            return message.key
        case "value":
            return message.value
        case "offset":
            return placed.offset
        case "timestamp":
            time_ms = NO_TIMESTAMP if message.time_ms is None else message.time_ms
            if time_ms == UNKNOWN_TIME_MS:
                return None
            return min(time_ms * MICROSECONDS, INT64_MAX)
        case _:
            headers = record_headers(message)
            return [{"key": key, "value": value} for key, value in headers] or None
