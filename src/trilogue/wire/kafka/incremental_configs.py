"""IncrementalAlterConfigs (44) v0-1: AlterConfigs change by change. v1 is flexible."""

from __future__ import annotations

from trilogue.wire.kafka.configs import AlterConfigsResourceResponse
from trilogue.wire.kafka.schema import boolean, int8, int32, message, since, string


@message()
class AlterableConfig:
    """A change of one setting: 0 set, 1 delete, 2 append to a list, 3 subtract from one."""

    name: string = since(0)
    config_operation: int8 = since(0)
    value: string | None = since(0, null=0)


@message()
class AlterConfigsResource:
    """Changes of one resource's settings."""

    resource_type: int8 = since(0)
    resource_name: string = since(0)
    configs: list[AlterableConfig] = since(0)


@message(key=44, versions=(0, 1), flexible=1)
class IncrementalAlterConfigsRequest:
    """Change settings, or only say whether that would work."""

    resources: list[AlterConfigsResource] = since(0)
    validate_only: boolean = since(0)


@message(key=44, versions=(0, 1), flexible=1)
class IncrementalAlterConfigsResponse:
    """One outcome per resource."""

    throttle_time_ms: int32 = since(0)
    responses: list[AlterConfigsResourceResponse] = since(0)
