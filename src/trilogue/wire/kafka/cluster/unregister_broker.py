"""UnregisterBroker (64) v0: remove a broker from the cluster (KIP-631)."""

from __future__ import annotations

from trilogue.wire.kafka.codec.schema import int16, int32, message, since, string


@message(key=64, versions=(0, 0), flexible=0)
class UnregisterBrokerRequest:
    """Remove this broker."""

    broker_id: int32 = since(0)


@message(key=64, versions=(0, 0), flexible=0)
class UnregisterBrokerResponse:
    """The result."""

    throttle_time_ms: int32 = since(0)
    error_code: int16 = since(0)
    error_message: string | None = since(0, null=0)
