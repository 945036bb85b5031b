"""DescribeConfigs (32) v0-4 and AlterConfigs (33) v0-2.

Describe: v1 synonyms and where a value comes from, v2 the same, v3 types and documentation, v4
flexible.  Alter: v2 flexible.
"""

from __future__ import annotations

from trilogue.wire.kafka.schema import boolean, int8, int16, int32, message, since, string


@message()
class DescribeConfigsResource:
    """Whose settings, and which of them; null is all."""

    resource_type: int8 = since(0)
    resource_name: string = since(0)
    configuration_keys: list[string] | None = since(0, null=0)


@message(key=32, versions=(0, 4), flexible=4)
class DescribeConfigsRequest:
    """Ask for settings."""

    resources: list[DescribeConfigsResource] = since(0)
    include_synonyms: boolean = since(1)
    include_documentation: boolean = since(3)


@message()
class DescribeConfigsSynonym:
    """A value that would hold if the ones before it were not set."""

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
    """All settings that a resource is to have; others go back to their defaults."""

    resource_type: int8 = since(0)
    resource_name: string = since(0)
    configs: list[AlterableConfig] = since(0)


@message(key=33, versions=(0, 2), flexible=2)
class AlterConfigsRequest:
    """Replace settings, or only say whether that would work."""

    resources: list[AlterConfigsResource] = since(0)
    validate_only: boolean = since(0)


@message()
class AlterConfigsResourceResponse:
    """The outcome for one resource."""

    error_code: int16 = since(0)
    error_message: string | None = since(0, null=0)
    resource_type: int8 = since(0)
    resource_name: string = since(0)


@message(key=33, versions=(0, 2), flexible=2)
class AlterConfigsResponse:
    """One outcome per resource."""

    throttle_time_ms: int32 = since(0)
    responses: list[AlterConfigsResourceResponse] = since(0)
