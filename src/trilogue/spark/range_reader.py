"""Turns a range of offsets into Arrow batches, from the broker or from segments; needs no Spark.

The next fetch is under way while Spark processes the present one. Memory holds one fetch, the
received part of the next one, and the batch that is being filled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from trilogue.client.errors import ServerRefused
from trilogue.client.kafka.consumer.batch_reader import FetchedRecords
from trilogue.client.kafka.model import EARLIEST, LATEST
from trilogue.entry.arrow import ArrowReader, arrow_schema
from trilogue.entry.walk import walk_headers
from trilogue.spark.errors import explained_errors
from trilogue.spark.link import Link, link
from trilogue.spark.offsets import Range
from trilogue.spark.payload.payload_options import Mode
from trilogue.spark.plan import lost
from trilogue.spark.read_options import ReadOptions
from trilogue.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    import pyarrow as pa

    from trilogue.spark.payload.batch_decoder import BatchDecoder
    from trilogue.spark.payload.payload import Payload

WAIT_MS = 500


def read_range(
    options: ReadOptions,
    wanted_range: Range,
    payloads: Sequence[Payload] = (),
    partition_id: int | None = None,
) -> Generator[pa.RecordBatch, None, None]:
    """Fetch and decode one range; DataLost if it is missing and failOnDataLoss is set.

    `partition_id`: of the partition in the data directory of the options, from which its older
    messages are read.
    """
    with explained_errors():
        decoders = _make_decoders(
            payloads,
            options.columns,
            f"{wanted_range.topic}-{wanted_range.partition}",
            _find_dead_letter_writer(options, wanted_range),
        )
        columns = decoders[0].columns if decoders else options.columns
        batches = _read_range(options, wanted_range, columns, partition_id)
        for decoder in decoders:
            batches = decoder.decode_all(batches)
        yield from batches


def _make_decoders(
    payloads: Sequence[Payload],
    columns: tuple[str, ...],
    place: str,
    write_dead_letters: Callable[[pa.RecordBatch], None] | None = None,
) -> list[BatchDecoder]:
    """Return a decoder for each payload; each gets the batches that the one before it yields."""
    if not payloads:
        return []
    from trilogue.spark.payload.batch_decoder import BatchDecoder

    decoders: list[BatchDecoder] = []
    added = (one.corrupt_column for one in payloads[:-1] if one.mode is Mode.PERMISSIVE)
    wanted = (*columns, *added)
    for payload in reversed(payloads):
        wanted = tuple(name for name in wanted if name != payload.corrupt_column)
        decoders.insert(0, BatchDecoder(payload, wanted, place, write_dead_letters))
        wanted = decoders[0].columns
    return decoders


def _find_dead_letter_writer(
    options: ReadOptions, where: Range
) -> Callable[[pa.RecordBatch], None] | None:
    if options.dead_letter_topic is None:
        return None
    from trilogue.spark.payload.dead_letters import DeadLetterWriter

    return DeadLetterWriter(options, where.topic, where.partition).write


def read_schema(options: ReadOptions, payloads: Sequence[Payload]) -> pa.Schema:
    """Return the schema of the batches that `read_range` yields."""
    import pyarrow as pa

    decoders = _make_decoders(payloads, options.columns, "")
    columns = decoders[0].columns if decoders else options.columns
    batches: Iterable[pa.RecordBatch] = [pa.RecordBatch.from_pylist([], arrow_schema(columns))]
    for decoder in decoders:
        batches = decoder.decode_all(batches)
    (empty,) = batches
    return empty.schema


def _read_range(
    options: ReadOptions,
    wanted_range: Range,
    columns: tuple[str, ...],
    partition_id: int | None,
) -> Iterator[pa.RecordBatch]:
    if options.service is not None and options.service.protocol == "tubemq":
        from trilogue.spark.protocols.tubemq_range import read_tubemq

        yield from read_tubemq(options, wanted_range, columns)
        return
    if options.service is not None:
        from trilogue.spark.protocols.pulsar_range import read_pulsar

        yield from read_pulsar(options, wanted_range, columns)
        return
    arrow = ArrowReader(*wanted_range, columns=columns, limit=options.decompressed_limit)
    if options.segments is not None and partition_id is not None:
        from trilogue.spark.segments.segment_reader import read_segments

        yield from read_segments(options, wanted_range, partition_id, arrow)
    if not arrow.done:
        yield from _read_broker(options, wanted_range, arrow)
    yield from arrow.flush()


def _read_broker(
    options: ReadOptions, wanted_range: Range, arrow: ArrowReader
) -> Iterator[pa.RecordBatch]:
    at = link(options)
    fetches = _Fetches(at, options, wanted_range)
    waits = 0
    try:
        while not arrow.done:
            before = arrow.next_offset
            fetched = fetches.finish_fetch(before)
            if fetched is not None:
                fetches.go_on(_end(fetched.records, before))
                yield from arrow.feed(fetched.records, fetched.aborted)
            waits = waits + 1 if arrow.next_offset == before else 0
            if fetched is None or waits * WAIT_MS >= options.patience_ms:
                arrow.next_offset = _after_gap(at, wanted_range, options, before, waits)
    finally:
        fetches.drop()


class _Fetches:
    """The fetches of one range, one ahead of what Spark processes."""

    def __init__(self, at: Link, options: ReadOptions, where: Range) -> None:
        self._at, self._options, self._where = at, options, where
        self._offset = -1
        self._task: asyncio.Task[FetchedRecords] | None = None

    def go_on(self, offset: int) -> None:
        """Start the fetch at `offset`, unless it is beyond the range."""
        self._offset = offset
        self._task = None if offset >= self._where.end else self._at.start(self._fetch(offset))

    def finish_fetch(self, offset: int) -> FetchedRecords | None:
        """Return the fetch at `offset`; None if the log has no such offset."""
        if self._task is None or self._offset != offset:
            self.drop()
            self.go_on(offset)
        task, self._task = self._task, None
        assert task is not None
        try:
            return self._at.wait(task)
        except ServerRefused as refused:
            if refused.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            return None

    def drop(self) -> None:
        """Cancel the fetch under way."""
        if self._task is not None:
            self._at.drop(self._task)
            self._task = None

    async def _fetch(self, offset: int) -> FetchedRecords:
        topic, partition, _, _ = self._where
        size = self._options.fetch_bytes
        consumer = self._at.consumer
        return await consumer.fetch(topic, partition, offset, max_bytes=size, max_wait_ms=WAIT_MS)


def _end(records: memoryview, offset: int) -> int:
    """Return where the next fetch begins after this one."""
    entries = walk_headers(records, cut_is_end=True)
    return max(offset, entries[-1][2] + entries[-1][3] + 1) if entries else offset


def _after_gap(at: Link, where: Range, options: ReadOptions, offset: int, waits: int) -> int:
    """Handle a missing offset: raise DataLost, or return the next offset of the log."""
    key = (where.topic, where.partition)
    first = at.resolve({key: EARLIEST})[key]
    last = at.resolve({key: LATEST})[key]
    if first <= offset <= last and waits * WAIT_MS < options.patience_ms:
        return offset  # it is there by now
    if options.fail_on_data_loss:
        raise lost([key], f"offsets [{offset}, {where.end}) are wanted", first, last)
    return min(first, where.end) if offset < first else where.end
