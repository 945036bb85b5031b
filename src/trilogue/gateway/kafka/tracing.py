"""Spans of Kafka's clients: what they produce, and what is sent to them (telemetry/traces.py)."""

from __future__ import annotations

from collections.abc import Iterable

from trilogue.entry.entry import Format
from trilogue.gateway.kafka.context import RequestContext
from trilogue.gateway.kafka.fetch.partitions import FetchPartition
from trilogue.gateway.kafka.produce.produce import find_topic
from trilogue.gateway.telemetry.traces import BYTES_MAX, PUBLISH, MessageTracer, TracedBatch
from trilogue.wire.kafka.fetch import PartitionData
from trilogue.wire.kafka.produce import ProduceRequest, ProduceResponse

SYSTEM = "kafka"


def trace_produced(
    tracer: MessageTracer,
    call: RequestContext,
    request: ProduceRequest,
    response: ProduceResponse,
    start_ns: int,
) -> None:
    """Record the batches that were appended; their spans end with the next commit."""
    batches: list[TracedBatch] = []
    for data, answer in zip(request.topic_data, response.responses, strict=True):
        pairs = zip(data.partition_data, answer.partition_responses, strict=True)
        for sent, appended in pairs:
            records = sent.records
            if appended.error_code or not isinstance(records, memoryview):
                continue
            if len(records) > BYTES_MAX:
                continue
            batches.append(
                TracedBatch(
                    PUBLISH,
                    SYSTEM,
                    str(find_topic(call, data).name),
                    sent.index,
                    bytes(records),
                    Format.KAFKA,
                    start_ns,
                    start_ns,
                    offset=appended.base_offset,
                    client=call.client_id or "",
                )
            )

    if batches:
        tracer.record_committed(call.gateway.journal, batches)


def trace_fetched(
    tracer: MessageTracer,
    call: RequestContext,
    sent: Iterable[tuple[FetchPartition, PartitionData]],
) -> None:
    """Record what a fetch returns."""
    for target, data in sent:
        found = target.topic.found
        if found is not None:
            tracer.record_delivery(
                SYSTEM,
                str(found.name),
                data.partition_index,
                data.records,
                Format.KAFKA,
                call.client_id or "",
            )
