"""Spans of what Pulsar's clients send (telemetry/traces.py)."""

from __future__ import annotations

import time

from trilogue.broker.names import parse_pulsar
from trilogue.entry.entry import Format
from trilogue.gateway.pulsar.connection import PulsarConnection
from trilogue.gateway.pulsar.send import handle_send
from trilogue.gateway.telemetry.traces import BYTES_MAX, PUBLISH, TracedBatch
from trilogue.wire.pulsar.message_codec import read_send

SYSTEM = "pulsar"


def send_traced(connection: PulsarConnection, _command: None, frame: memoryview) -> bool:
    """Handle a SEND as `handle_send`, and record its message if that was appended."""
    tracer = connection.gateway.tracer
    if tracer is None or len(frame) > BYTES_MAX or not tracer.is_due():
        return handle_send(connection, None, frame)
    sent = read_send(frame)
    producer = connection.producers.get(sent.producer_id)
    if producer is None or not producer.ready:
        return handle_send(connection, None, frame)
    start_ns = time.time_ns()
    partition = producer.partition
    offset = partition.log.end_offset
    section = bytes(frame[sent.section_at :])
    if not handle_send(connection, None, frame):
        return False
    if partition.log.end_offset == offset:
        return True  # it was refused, or is a duplicate
    named = parse_pulsar(producer.spelled)
    batch = TracedBatch(
        PUBLISH,
        SYSTEM,
        str(named.topic),
        named.partition or 0,
        section,
        Format.PULSAR,
        start_ns,
        start_ns,
        offset=offset,
        client=producer.name,
    )

    tracer.record_committed(connection.gateway.journal, [batch])
    return True
