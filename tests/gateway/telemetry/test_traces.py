"""Which batches are looked at, and which of their messages a span belongs to."""

from __future__ import annotations

import threading

import pytest

from trilogue.entry.entry import Format, Record
from trilogue.entry.kafka.record_batch import build_batch
from trilogue.gateway.telemetry.traces import (
    QUEUED_MAX,
    MessageTracer,
    TraceContext,
    TracedBatch,
    find_contexts,
)

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED = f"00-{TRACE}-{PARENT}-01".encode()
UNSAMPLED = f"00-{TRACE}-{PARENT}-00".encode()


class Exporter:
    """Keeps what is exported; waits for `go` first."""

    def __init__(self, go: threading.Event | None = None) -> None:
        self.exported: list[TraceContext] = []
        self.closed = False
        self._go = go

    def export(self, _batch: TracedBatch, context: TraceContext) -> None:
        if self._go is not None:
            self._go.wait()
        self.exported.append(context)

    def close(self) -> None:
        self.closed = True


def make_data(*parents: bytes | None) -> bytes:
    records = [
        Record(number, 0, None, b"x", () if parent is None else (("traceparent", parent),))
        for number, parent in enumerate(parents)
    ]
    return bytes(build_batch(records))


def traced(data: bytes) -> TracedBatch:
    return TracedBatch("publish", "kafka", "t", 0, data, Format.KAFKA, 1, 2)


@pytest.mark.parametrize(
    ("data", "count"),
    [
        (make_data(None, None), 0),
        (make_data(None, UNSAMPLED, SAMPLED, SAMPLED), 1),
        (make_data(SAMPLED) + make_data(None) + make_data(SAMPLED), 2),
        (make_data(SAMPLED) + make_data(SAMPLED)[:-1], 1),  # the copy ends inside the second
        (make_data(b"not a context"), 0),
        (make_data(b"\xff" * 55), 0),
    ],
)
def test_each_batch_has_the_context_of_its_first_sampled_message(data: bytes, count: int):
    found = list(find_contexts(traced(data)))

    assert [each.traceparent for each in found] == [SAMPLED.decode()] * count


def test_only_so_many_batches_of_a_second_are_looked_at():
    times_s = [0.0, 0.1, 0.2, 0.9, 1.1, 1.2]
    tracer = MessageTracer(Exporter, 2, monotonic=iter(times_s).__next__)

    assert [tracer.is_due() for _ in times_s] == [True, True, False, False, True, True]


def test_a_full_queue_drops_batches_and_its_rest_is_exported_at_the_end():
    go = threading.Event()
    exporter = Exporter(go)
    tracer = MessageTracer(lambda: exporter, 1)
    tracer.record(traced(make_data(SAMPLED)) for _ in range(QUEUED_MAX + 5))
    assert tracer.dropped == 5

    tracer.start()
    go.set()
    tracer.close(60)
    assert len(exporter.exported) == QUEUED_MAX
    assert exporter.closed


def test_a_damaged_batch_ends_no_tracer():
    exporter = Exporter()
    tracer = MessageTracer(lambda: exporter, 1)
    tracer.start()
    damaged = bytearray(make_data(SAMPLED))
    damaged[61:] = b"\xff" * (len(damaged) - 61)
    tracer.record([traced(bytes(damaged)), traced(make_data(SAMPLED))])
    tracer.close(60)

    assert len(exporter.exported) == 1
