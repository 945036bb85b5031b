"""DescribeConfigs (32) v0-v4, AlterConfigs (33) v0-v2, IncrementalAlterConfigs (44) v0-v1.

Describe: v1 synonyms and the source of a value · v2 unchanged · v3 types and documentation · v4
flexible. Alter: v1 unchanged · v2 flexible. Incremental (KIP-339): v1 flexible.
"""

from __future__ import annotations

from trilogue.wire.kafka.codec.schema import boolean, int8, int16, int32, message, since, string


@message()
class DescribeConfigsResource:
    """A resource and the settings to describe; null is all."""

    resource_type: int8 = since(0)
    resource_name: string = since(0)
    configuration_keys: list[string] | None = since(0, null=0)


@message(key=32, versions=(0, 4), flexible=4)
class DescribeConfigsRequest:
    """Describe settings."""

    resources: list[DescribeConfigsResource] = since(0)
    include_synonyms: boolean = since(1)
    include_documentation: boolean = since(3)


@message()
class DescribeConfigsSynonym:
    """A value that would hold without the ones before it."""

    name: string = since(1)
    value: string | None = since(1, null=0)
    source: int8 = since(1)


@message()
class DescribeConfigsResourceResult:
    """One setting."""

    name: string = since(0)
    value: string | None = since(0, null=0)
    read_only: boolean = since(0)
    is_default: boolean = since(0, until=0)
    config_source: int8 = since(1, default=-1)
    is_sensitive: boolean = since(0)
    synonyms: list[DescribeConfigsSynonym] = since(1)
    config_type: int8 = since(3)
    documentation: string | None = since(3, null=0)


@message()
class DescribeConfigsResult:
    """The settings of one resource."""

    error_code: int16 = since(0)
    error_message: string | None = since(0, null=0)
    resource_type: int8 = since(0)
    resource_name: string = since(0)
    configs: list[DescribeConfigsResourceResult] = since(0)


@message(key=32, versions=(0, 4), flexible=4)
class DescribeConfigsResponse:
    """One result per resource."""

    throttle_time_ms: int32 = since(0)
    results: list[DescribeConfigsResult] = since(0)


@message()
class AlterableConfig:
    """A setting and its new value."""

    name: string = since(0)
    value: string | None = since(0, null=0)


@message()
class AlterConfigsResource:
    """All overrides of a resource; other settings return to their defaults."""

    resource_type: int8 = since(0)
    resource_name: string = since(0)
    configs: list[AlterableConfig] = since(0)


@message(key=33, versions=(0, 2), flexible=2)
class AlterConfigsRequest:
    """Replace overrides, or only validate the change."""

    resources: list[AlterConfigsResource] = since(0)
    validate_only: boolean = since(0)


@message()
class AlterConfigsResourceResponse:
    """The result of one resource."""

    error_code: int16 = since(0)
    error_message: string | None = since(0, null=0)
    resource_type: int8 = since(0)
    resource_name: string = since(0)


@message(key=33, versions=(0, 2), flexible=2)
class AlterConfigsResponse:
    """One result per resource."""

    throttle_time_ms: int32 = since(0)
    responses: list[AlterConfigsResourceResponse] = since(0)


@message()
class IncrementalAlterableConfig:
    """A change of one setting: 0 set, 1 delete, 2 append to a list, 3 subtract from one."""

    name: string = since(0)
    config_operation: int8 = since(0)
    value: string | None = since(0, null=0)


@message()
class IncrementalAlterConfigsResource:
    """Changes of one resource's settings."""

    resource_type: int8 = since(0)
    resource_name: string = since(0)
    configs: list[IncrementalAlterableConfig] = since(0)


@message(key=44, versions=(0, 1), flexible=1)
class IncrementalAlterConfigsRequest:
    """Change settings, or only validate the changes."""

    resources: list[IncrementalAlterConfigsResource] = since(0)
    validate_only: boolean = since(0)


@message(key=44, versions=(0, 1), flexible=1)
class IncrementalAlterConfigsResponse:
    """One result per resource."""

    throttle_time_ms: int32 = since(0)
    responses: list[AlterConfigsResourceResponse] = since(0)
