"""ListConfigResources (74) v0-v1: the resources that have settings.

v0 lists client metrics only (then ListClientMetricsResources) · v1 resource types (KIP-1142).
"""

from __future__ import annotations

from trilogue.wire.kafka.codec.schema import int8, int16, int32, message, since, string


@message(key=74, versions=(0, 1), flexible=0)
class ListConfigResourcesRequest:
    """List the resources of these types, or of all."""

    resource_types: list[int8] = since(1)


@message()
class ConfigResource:
    """A resource that has settings."""

    resource_name: string = since(0)
    resource_type: int8 = since(1, default=16)


@message(key=74, versions=(0, 1), flexible=0)
class ListConfigResourcesResponse:
    """The resources."""

    throttle_time_ms: int32 = since(0)
    error_code: int16 = since(0)
    config_resources: list[ConfigResource] = since(0)
