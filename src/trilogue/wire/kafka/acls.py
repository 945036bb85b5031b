"""DescribeAcls (29), CreateAcls (30), DeleteAcls (31), v0-3: who may do what.

v1 patterns of names (KIP-290), v2 is flexible, v3 users of delegation tokens.
"""

from __future__ import annotations

from trilogue.wire.kafka.schema import int8, int16, int32, message, since, string


@message(key=29, versions=(0, 3), flexible=2)
class DescribeAclsRequest:
    """Tell the rules that fit."""

    resource_type_filter: int8 = since(0)
    resource_name_filter: string | None = since(0, null=0)
    pattern_type_filter: int8 = since(1, default=3)
    principal_filter: string | None = since(0, null=0)
    host_filter: string | None = since(0, null=0)
    operation: int8 = since(0)
    permission_type: int8 = since(0)


@message()
class AclDescription:
    """Who may do what, from where."""

    principal: string = since(0)
    host: string = since(0)
    operation: int8 = since(0)
    permission_type: int8 = since(0)


@message()
class DescribeAclsResource:
    """The rules of one thing."""

    resource_type: int8 = since(0)
    resource_name: string = since(0)
    pattern_type: int8 = since(1, default=3)
    acls: list[AclDescription] = since(0)


@message(key=29, versions=(0, 3), flexible=2)
class DescribeAclsResponse:
    """The rules by thing."""

    throttle_time_ms: int32 = since(0)
    error_code: int16 = since(0)
    error_message: string | None = since(0, null=0)
    resources: list[DescribeAclsResource] = since(0)


@message()
class AclCreation:
    """A rule to be made."""

    resource_type: int8 = since(0)
    resource_name: string = since(0)
    resource_pattern_type: int8 = since(1, default=3)
    principal: string = since(0)
    host: string = since(0)
    operation: int8 = since(0)
    permission_type: int8 = since(0)


@message(key=30, versions=(0, 3), flexible=2)
class CreateAclsRequest:
    """Make rules."""

    creations: list[AclCreation] = since(0)


@message()
class AclCreationResult:
    """The outcome for one rule, in the order of the request."""

    error_code: int16 = since(0)
    error_message: string | None = since(0, null=0)


@message(key=30, versions=(0, 3), flexible=2)
class CreateAclsResponse:
    """Outcomes."""

    throttle_time_ms: int32 = since(0)
    results: list[AclCreationResult] = since(0)


@message()
class DeleteAclsFilter:
    """Which rules shall go."""

    resource_type_filter: int8 = since(0)
    resource_name_filter: string | None = since(0, null=0)
    pattern_type_filter: int8 = since(1, default=3)
    principal_filter: string | None = since(0, null=0)
    host_filter: string | None = since(0, null=0)
    operation: int8 = since(0)
    permission_type: int8 = since(0)


@message(key=31, versions=(0, 3), flexible=2)
class DeleteAclsRequest:
    """Remove the rules that fit."""

    filters: list[DeleteAclsFilter] = since(0)


@message()
class DeleteAclsMatchingAcl:
    """A rule that fitted, and whether it is gone."""

    error_code: int16 = since(0)
    error_message: string | None = since(0, null=0)
    resource_type: int8 = since(0)
    resource_name: string = since(0)
    pattern_type: int8 = since(1, default=3)
    principal: string = since(0)
    host: string = since(0)
    operation: int8 = since(0)
    permission_type: int8 = since(0)


@message()
class DeleteAclsFilterResult:
    """The outcome for one filter, in the order of the request."""

    error_code: int16 = since(0)
    error_message: string | None = since(0, null=0)
    matching_acls: list[DeleteAclsMatchingAcl] = since(0)


@message(key=31, versions=(0, 3), flexible=2)
class DeleteAclsResponse:
    """Outcomes."""

    throttle_time_ms: int32 = since(0)
    filter_results: list[DeleteAclsFilterResult] = since(0)
