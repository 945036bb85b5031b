"""DescribeAcls (29), CreateAcls (30), DeleteAcls (31) v0-v3: access control lists.

v1 pattern types (KIP-290) · v2 flexible · v3 users of delegation tokens.
"""

from __future__ import annotations

from trilogue.wire.kafka.codec.schema import int8, int16, int32, message, since, string


@message(key=29, versions=(0, 3), flexible=2)
class DescribeAclsRequest:
    """Describe the rules that match."""

    resource_type_filter: int8 = since(0)
    resource_name_filter: string | None = since(0, null=0)
    pattern_type_filter: int8 = since(1, default=3)
    principal_filter: string | None = since(0, null=0)
    host_filter: string | None = since(0, null=0)
    operation: int8 = since(0)
    permission_type: int8 = since(0)


@message()
class AclDescription:
    """A rule: principal, host, operation, permission."""

    principal: string = since(0)
    host: string = since(0)
    operation: int8 = since(0)
    permission_type: int8 = since(0)


@message()
class DescribeAclsResource:
    """The rules of one resource."""

    resource_type: int8 = since(0)
    resource_name: string = since(0)
    pattern_type: int8 = since(1, default=3)
    acls: list[AclDescription] = since(0)


@message(key=29, versions=(0, 3), flexible=2)
class DescribeAclsResponse:
    """The rules by resource."""

    throttle_time_ms: int32 = since(0)
    error_code: int16 = since(0)
    error_message: string | None = since(0, null=0)
    resources: list[DescribeAclsResource] = since(0)


@message()
class AclCreation:
    """A rule to create."""

    resource_type: int8 = since(0)
    resource_name: string = since(0)
    resource_pattern_type: int8 = since(1, default=3)
    principal: string = since(0)
    host: string = since(0)
    operation: int8 = since(0)
    permission_type: int8 = since(0)


@message(key=30, versions=(0, 3), flexible=2)
class CreateAclsRequest:
    """Create rules."""

    creations: list[AclCreation] = since(0)


@message()
class AclCreationResult:
    """The result of one rule, in the order of the request."""

    error_code: int16 = since(0)
    error_message: string | None = since(0, null=0)


@message(key=30, versions=(0, 3), flexible=2)
class CreateAclsResponse:
    """The results."""

    throttle_time_ms: int32 = since(0)
    results: list[AclCreationResult] = since(0)


@message()
class DeleteAclsFilter:
    """A filter of the rules to delete."""

    resource_type_filter: int8 = since(0)
    resource_name_filter: string | None = since(0, null=0)
    pattern_type_filter: int8 = since(1, default=3)
    principal_filter: string | None = since(0, null=0)
    host_filter: string | None = since(0, null=0)
    operation: int8 = since(0)
    permission_type: int8 = since(0)


@message(key=31, versions=(0, 3), flexible=2)
class DeleteAclsRequest:
    """Delete the rules that match."""

    filters: list[DeleteAclsFilter] = since(0)


@message()
class DeleteAclsMatchingAcl:
    """A matching rule and the result of its deletion."""

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
    """The result of one filter, in the order of the request."""

    error_code: int16 = since(0)
    error_message: string | None = since(0, null=0)
    matching_acls: list[DeleteAclsMatchingAcl] = since(0)


@message(key=31, versions=(0, 3), flexible=2)
class DeleteAclsResponse:
    """The results."""

    throttle_time_ms: int32 = since(0)
    filter_results: list[DeleteAclsFilterResult] = since(0)
