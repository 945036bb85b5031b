"""ListConfigResources (74), v0-1: which things have settings; v0 meant client metrics alone."""

from __future__ import annotations

from trilogue.wire.kafka.schema import int8, int16, int32, message, since, string


@message(key=74, versions=(0, 1), flexible=0)
class ListConfigResourcesRequest:
    """List the things of these kinds, or of all."""

    resource_types: list[int8] = since(1)


@message()
class ConfigResource:
    """A thing that has settings."""

    resource_name: string = since(0)
    resource_type: int8 = since(1, default=16)


@message(key=74, versions=(0, 1), flexible=0)
class ListConfigResourcesResponse:
    """The things."""

    throttle_time_ms: int32 = since(0)
    error_code: int16 = since(0)
    config_resources: list[ConfigResource] = since(0)
