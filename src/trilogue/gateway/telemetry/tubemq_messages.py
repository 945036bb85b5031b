"""Spans of TubeMQ's clients: what they send, and what a get returns (traces.py)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import islice
from typing import Final

from trilogue.entry.entry import Format
from trilogue.entry.tubemq.layout import ATTRIBUTES
from trilogue.entry.tubemq.tubemq_entry import Transfer
from trilogue.gateway.telemetry.traces import (
    BYTES_MAX,
    DELIVER,
    PUBLISH,
    SPANS_MAX,
    MessageTracer,
    TracedBatch,
)
from trilogue.log.journal.journal import Journal
from trilogue.wire.tubemq.rpc_types import SendRequest

SYSTEM: Final = "tubemq"


def trace_sent(
    tracer: MessageTracer, journal: Journal, topic: str, sent: SendRequest, offset: int
) -> None:
    """Record a message that was appended; its span ends with the next commit."""
    if not sent.flag & ATTRIBUTES or len(sent.data) > BYTES_MAX or not tracer.is_due():
        return
    now_ns = time.time_ns()
    batch = TracedBatch(
        PUBLISH,
        SYSTEM,
        topic,
        sent.partition_id,
        [(sent.flag, bytes(sent.data))],
        Format.TUBEMQ,
        now_ns,
        now_ns,
        offset=offset,
        client=sent.client_id,
    )
    tracer.record_committed(journal, [batch])


def trace_delivered(
    tracer: MessageTracer, topic: str, partition: int, messages: Sequence[Transfer], client: str
) -> None:
    """Record the first messages of a get that have attributes."""
    if not messages or not tracer.is_due():
        return
    with_attributes = (each for each in messages if each.flag & ATTRIBUTES)
    copied = [(each.flag, bytes(each.data)) for each in islice(with_attributes, SPANS_MAX)]
    now_ns = time.time_ns()
    batch = TracedBatch(
        DELIVER, SYSTEM, topic, partition, copied, Format.TUBEMQ, now_ns, now_ns, client=client
    )
    tracer.record([batch], now_ns)
