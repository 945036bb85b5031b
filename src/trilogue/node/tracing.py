"""The exporter of traces: OpenTelemetry's SDK and OTLP over HTTP, the extra `traces`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from importlib.util import find_spec
from typing import Any, Final

from trilogue import __version__
from trilogue.gateway.telemetry.traces import (
    TRACEPARENT,
    TRACESTATE,
    MessageTracer,
    SpanExporter,
    TraceContext,
    TracedBatch,
)
from trilogue.node.errors import WRONG_SETTING, StartError
from trilogue.node.settings.table import Settings

TRACES_PATH: Final = "/v1/traces"
EXPORT_S: Final = 5


def open_tracer(settings: Settings, node_id: int, stack: AsyncExitStack) -> MessageTracer:
    """Return the tracer of a node with `traces.endpoint`; StartError without the extra."""
    endpoint = settings.text("traces.endpoint")
    if not endpoint.startswith(("http://", "https://")):
        raise StartError(f"traces.endpoint={endpoint} is no address of HTTP", WRONG_SETTING)
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.sdk") is None:
        raise StartError(
            "traces.endpoint needs OpenTelemetry: pip install 'trilogue[traces]'", WRONG_SETTING
        )
    tracer = MessageTracer(
        _exporter_maker(endpoint, node_id), settings.number("traces.batches-per-second")
    )
    tracer.start()

    async def close() -> None:
        await asyncio.to_thread(tracer.close)

    stack.push_async_callback(close)
    return tracer


def _exporter_maker(endpoint: str, node_id: int) -> Callable[[], SpanExporter]:
    if not endpoint.rstrip("/").endswith(TRACES_PATH):
        endpoint = endpoint.rstrip("/") + TRACES_PATH
    return lambda: OtlpExporter(endpoint, node_id)


class OtlpExporter:
    """Makes spans by the SDK, which sends them in batches from a thread of its own."""

    def __init__(self, endpoint: str, node_id: int) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        resource = Resource.create(
            {
                "service.name": "trilogue",
                "service.version": __version__,
                "service.instance.id": str(node_id),
            }
        )
        self._provider = TracerProvider(
            sampler=ParentBased(ALWAYS_OFF), resource=resource, shutdown_on_exit=False
        )
        self._provider.add_span_processor(
            BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint, timeout=EXPORT_S))
        )
        self._tracer = self._provider.get_tracer("trilogue", __version__)
        self._extract: Callable[..., Any] = TraceContextTextMapPropagator().extract
        self._kind = SpanKind.SERVER

    def export(self, batch: TracedBatch, context: TraceContext) -> None:
        """Hand a span over to the SDK, unless its trace is not sampled."""
        carrier = {TRACEPARENT: context.traceparent, TRACESTATE: context.tracestate}
        span = self._tracer.start_span(
            f"{batch.operation} {batch.topic}",
            context=self._extract(carrier),
            kind=self._kind,
            start_time=batch.start_ns,
            attributes={
                "messaging.system": batch.system,
                "messaging.operation.name": batch.operation,
                "messaging.destination.name": batch.topic,
                "messaging.destination.partition.id": str(batch.partition),
                "messaging.client.id": batch.client,
                "trilogue.offset": batch.offset,
            },
        )
        span.end(batch.end_ns)

    def close(self) -> None:
        """Send what is left."""
        self._provider.shutdown()
