"""UnregisterBroker (64), v0: forget a node that is gone for good (KIP-631)."""

from __future__ import annotations

from trilogue.wire.kafka.schema import int16, int32, message, since, string


@message(key=64, versions=(0, 0), flexible=0)
class UnregisterBrokerRequest:
    """Forget this node."""

    broker_id: int32 = since(0)


@message(key=64, versions=(0, 0), flexible=0)
class UnregisterBrokerResponse:
    """Whether it is forgotten."""

    throttle_time_ms: int32 = since(0)
    error_code: int16 = since(0)
    error_message: string | None = since(0, null=0)
