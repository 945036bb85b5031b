"""GetTelemetrySubscriptions v0, PushTelemetry v0: client metrics (KIP-714); none is collected.

As in a Kafka without a telemetry plugin, neither is in ApiVersions, so clients do not send them
(`ApiSpec.advertised` in gateway/kafka/apis.py). A client that does gets an instance id, if it has
none, and a subscription without metrics. Pushed metrics are checked and dropped: 42 without an
instance id, 117 for an unknown subscription id, 76 for an unknown compression, 118 above 1 MiB.
"""

from __future__ import annotations

from trilogue.entry.checksum import crc32c
from trilogue.entry.entry import Codec
from trilogue.gateway.kafka.context import RequestContext
from trilogue.wire.kafka.cluster.telemetry import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
    PushTelemetryResponse,
)
from trilogue.wire.kafka.codec.schema import ZERO_UUID
from trilogue.wire.kafka.errors import ErrorCode

CODECS = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)  # in Kafka's order of preference
PUSH_INTERVAL_MS = 300_000
METRICS_BYTES_MAX = 1 << 20


def handle_get_telemetry_subscriptions(
    context: RequestContext, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    """Return a subscription without metrics."""
    instance = request.client_instance_id
    if instance == ZERO_UUID:
        instance = context.broker.cluster.new_topic_id()
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance,
        subscription_id=_subscription(instance),
        accepted_compression_types=[int(codec) for codec in CODECS],
        push_interval_ms=PUSH_INTERVAL_MS,
        telemetry_max_bytes=METRICS_BYTES_MAX,
        delta_temporality=True,
        requested_metrics=[],
    )


def handle_push_telemetry(
    _context: RequestContext, request: PushTelemetryRequest
) -> PushTelemetryResponse:
    """Check the request and drop the metrics."""
    instance = request.client_instance_id
    code = ErrorCode.NONE
    if instance == ZERO_UUID:
        code = ErrorCode.INVALID_REQUEST
    elif request.subscription_id != _subscription(instance):
        code = ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    elif request.compression_type not in {Codec.NONE, *CODECS}:
        code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    elif len(request.metrics) > METRICS_BYTES_MAX:
        code = ErrorCode.TELEMETRY_TOO_LARGE
    return PushTelemetryResponse(error_code=code)


def _subscription(instance: bytes) -> int:
    """The subscription id of a client instance: derived, so that nothing is kept for it."""
    return crc32c(instance) & 0x7FFFFFFF
