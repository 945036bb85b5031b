"""Traces of messages through the broker: a span when a batch arrives, one when it is delivered.

    gateway ── is_due, copy of a batch ──► queue ──► thread: header `traceparent` ──► exporter

A batch gets a span if one of its messages has a W3C trace context that is sampled; the span is a
child of the first of these. Batches are looked at up to a number per second, so the cost for the
event loop is bounded: a copy. Without an exporter there is no `MessageTracer` at all.
"""

from __future__ import annotations

import logging
import queue
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import msgspec

from trilogue.entry.conversion.convert import read_messages
from trilogue.entry.conversion.tubemq import neutral_message
from trilogue.entry.entry import EntryError, Format
from trilogue.entry.kafka.record_batch import iter_records
from trilogue.entry.pulsar.pulsar_entry import build_entry
from trilogue.entry.tubemq.tubemq_blob import split_data
from trilogue.gateway.stream import Buffer

if TYPE_CHECKING:
    from trilogue.log.journal.journal import Journal

log = logging.getLogger(__name__)

PUBLISH: Final = "publish"
DELIVER: Final = "deliver"
TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
SAMPLED_PARENT: Final = re.compile("[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f][13579bdf]")
Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]
TubeMessages: TypeAlias = Sequence[tuple[int, bytes]]  # flag and data of each
SPANS_MAX: Final = 100  # of one fetch of a partition
QUEUED_MAX: Final = 1_000  # batches
BYTES_MAX: Final = 1 << 20  # of a batch that is looked at
LENGTH_AT, LENGTH_SIZE = 8, 12  # of a Kafka batch: its length without the first 12 bytes


class TracedBatch(msgspec.Struct):
    """A batch that was sent or delivered.

    `data` are Kafka batches, one section of Pulsar, or messages of TubeMQ, which has no batches.
    """

    operation: str  # PUBLISH or DELIVER
    system: str
    topic: str
    partition: int
    data: bytes | TubeMessages
    format: Format
    start_ns: int
    end_ns: int
    offset: int = -1
    client: str = ""


class TraceContext(msgspec.Struct):
    """The headers of a message that carry its trace."""

    traceparent: str
    tracestate: str


class SpanExporter(Protocol):
    """Exports spans; called in the thread of the tracer only."""

    def export(self, batch: TracedBatch, context: TraceContext) -> None:
        """Export the span of a batch."""

    def close(self) -> None:
        """Export what is left, within a few seconds."""


class MessageTracer:
    """Takes batches on the event loop, and exports their spans from a thread."""

    def __init__(
        self,
        make_exporter: Callable[[], SpanExporter],
        batches_per_second: int,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.dropped = 0  # the queue was full
        self._make_exporter = make_exporter
        self._rate = batches_per_second
        self._monotonic = monotonic
        self._second_ends = 0.0
        self._left = 0
        self._queue: queue.Queue[TracedBatch | None] = queue.Queue(QUEUED_MAX)
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def is_due(self) -> bool:
        """Whether one more batch of this second is looked at; counts it."""
        now_s = self._monotonic()
        if now_s >= self._second_ends:
            self._second_ends = now_s + 1
            self._left = self._rate
        self._left -= 1
        return self._left >= 0

    def record(self, batches: Iterable[TracedBatch], end_ns: int = 0) -> None:
        """Queue batches, which ended now or at `end_ns`; what has no room is dropped."""
        for each in batches:
            each.end_ns = end_ns or time.time_ns()
            try:
                self._queue.put_nowait(each)
            except queue.Full:
                self.dropped += 1

    def record_committed(self, journal: Journal, batches: Sequence[TracedBatch]) -> None:
        """Record batches that were appended when they are durable; none if they never are."""

        def committed(problem: BaseException | None) -> None:
            if problem is None:
                self.record(batches)

        journal.on_commit(committed)

    def record_delivery(  # noqa: PLR0917 - a batch
        self,
        system: str,
        topic: str,
        partition: int,
        data: Buffer | Sequence[Buffer] | None,
        kind: Format,
        client: str,
    ) -> None:
        """Record what is sent to a client, if it is due; of a large fetch the first part."""
        if not data or not self.is_due():
            return
        copied = bytes(data) if isinstance(data, bytes | bytearray | memoryview) else b"".join(data)
        now_ns = time.time_ns()
        batch = TracedBatch(
            DELIVER,
            system,
            topic,
            partition,
            copied[:BYTES_MAX],
            kind,
            now_ns,
            now_ns,
            client=client,
        )
        self.record([batch], now_ns)

    def close(self, timeout_s: float = 10.0) -> None:
        """Export what is queued, for at most so long; blocks."""
        try:
            self._queue.put(None, timeout=timeout_s)
        except queue.Full:
            return
        self._thread.join(timeout_s)

    def _run(self) -> None:
        exporter = self._make_exporter()
        while (batch := self._queue.get()) is not None:
            try:
                for context in islice(find_contexts(batch), SPANS_MAX):
                    exporter.export(batch, context)
            except EntryError:
                continue  # encrypted, a chunk, or cut off
            except Exception:
                log.exception("trace.failed", extra={"topic": batch.topic})
        exporter.close()


def find_contexts(traced: TracedBatch) -> Iterator[TraceContext]:
    """Yield the sampled trace of the first message of each batch that has one; EntryError."""
    for messages in _iter_batches(traced):
        for headers in messages:
            found = dict(headers)
            parent = _text(found.get(TRACEPARENT))
            if SAMPLED_PARENT.fullmatch(parent):
                yield TraceContext(parent, _text(found.get(TRACESTATE)))
                break


def _iter_batches(traced: TracedBatch) -> Iterator[Iterator[Headers]]:
    if not isinstance(traced.data, bytes):
        for flag, message in traced.data:
            attributes, body = split_data(message, flag)
            yield iter((neutral_message(attributes.encode(), bytes(body), None).headers,))
        return
    if traced.format is Format.PULSAR:
        stored, header, _ = build_entry(traced.data, broker_ms=0)
        yield (message.headers for _, message in read_messages(stored, header)[0])
        return
    data, at = memoryview(traced.data), 0
    while at + LENGTH_SIZE <= len(data):
        end = at + LENGTH_SIZE + int.from_bytes(data[at + LENGTH_AT : at + LENGTH_SIZE], "big")
        if end > len(data):
            return
        yield (record.headers for record in iter_records(data[at:end]))
        at = end


def _text(value: bytes | None) -> str:
    return (value or b"").decode("ascii", "replace")
