"""GetTelemetrySubscriptions (71) v0 and PushTelemetry (72) v0: client metrics (KIP-714)."""

from __future__ import annotations

from trilogue.wire.kafka.codec.schema import (
    blob,
    boolean,
    int8,
    int16,
    int32,
    message,
    since,
    string,
    uuid,
)


@message(key=71, versions=(0, 0), flexible=0)
class GetTelemetrySubscriptionsRequest:
    """Get the metrics that the cluster subscribes to."""

    client_instance_id: uuid = since(0)


@message(key=71, versions=(0, 0), flexible=0)
class GetTelemetrySubscriptionsResponse:
    """The metrics of the subscription, the push interval and the format."""

    throttle_time_ms: int32 = since(0)
    error_code: int16 = since(0)
    client_instance_id: uuid = since(0)
    subscription_id: int32 = since(0)
    accepted_compression_types: list[int8] = since(0)
    push_interval_ms: int32 = since(0)
    telemetry_max_bytes: int32 = since(0)
    delta_temporality: boolean = since(0)
    requested_metrics: list[string] = since(0)


@message(key=72, versions=(0, 0), flexible=0)
class PushTelemetryRequest:
    """Metrics in OpenTelemetry's format."""

    client_instance_id: uuid = since(0)
    subscription_id: int32 = since(0)
    terminating: boolean = since(0)
    compression_type: int8 = since(0)
    metrics: blob = since(0)


@message(key=72, versions=(0, 0), flexible=0)
class PushTelemetryResponse:
    """The result."""

    throttle_time_ms: int32 = since(0)
    error_code: int16 = since(0)
