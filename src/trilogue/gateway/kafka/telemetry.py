"""GetTelemetrySubscriptions v0, PushTelemetry v0: metrics of clients (KIP-714), which nobody wants.

As with a Kafka that has no plugin to receive them, neither is in ApiVersions, so clients do not ask
(`Row.told` in apis.py). Who asks all the same is given an instance id if it has none, and told that
no metric is wanted. What is pushed is checked and dropped: 42 without an instance id, 117 for a
subscription that was not given out, 76 for an unknown compression, 118 above 1 MiB.
"""

from __future__ import annotations

from crc32c import crc32c

from trilogue.entry.entry import Codec
from trilogue.gateway.kafka.shared import Call
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.schema import ZERO_UUID
from trilogue.wire.kafka.telemetry import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
    PushTelemetryResponse,
)

CODECS = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)  # as a real one prefers them
PUSH_INTERVAL_MS = 300_000
METRICS_BYTES_MAX = 1 << 20


def subscriptions(
    call: Call, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    """Tell a client that none of its metrics are wanted."""
    instance = request.client_instance_id
    if instance == ZERO_UUID:
        instance = call.broker.cluster.new_id()
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance,
        subscription_id=_subscription(instance),
        accepted_compression_types=[int(codec) for codec in CODECS],
        push_interval_ms=PUSH_INTERVAL_MS,
        telemetry_max_bytes=METRICS_BYTES_MAX,
        delta_temporality=True,
        requested_metrics=[],
    )


def push(_call: Call, request: PushTelemetryRequest) -> PushTelemetryResponse:
    """Take nothing, and say what was wrong if something was."""
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
    """The number of the one subscription of an instance: nothing need be remembered for it."""
    return crc32c(instance) & 0x7FFFFFFF
