"""Access control lists: described, created, deleted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trilogue.client.kafka.admin.model import Acl, AclFilter
from trilogue.client.kafka.admin.requests import AdminRequests
from trilogue.client.kafka.errors import KafkaError, error_for_code, raise_for_code
from trilogue.wire.kafka.security.acls import (
    AclCreation,
    AclDescription,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)


class AclAdmin(AdminRequests):
    """Requests about access control lists."""

    async def describe_acls(self, wanted: AclFilter) -> list[Acl]:
        """Return the rules that match."""
        answer: DescribeAclsResponse = await self._send_to_any(
            DescribeAclsRequest(**_filter_fields(wanted))
        )
        raise_for_code(answer.error_code, answer.error_message or "describe rules")
        return [_make_acl(one, each) for one in answer.resources for each in one.acls]

    async def create_acls(self, acls: Sequence[Acl]) -> dict[Acl, KafkaError | None]:
        """Create rules."""
        creations = [
            AclCreation(
                resource_type=each.resource_type,
                resource_name=each.resource_name,
                resource_pattern_type=each.pattern_type,
                principal=each.principal,
                host=each.host,
                operation=each.operation,
                permission_type=each.permission,
            )
            for each in acls
        ]
        answer: CreateAclsResponse = await self._send_to_any(CreateAclsRequest(creations=creations))
        return {
            acl: error_for_code(row.error_code, row.error_message or "create a rule")
            if row.error_code
            else None
            for acl, row in zip(acls, answer.results, strict=True)
        }

    async def delete_acls(self, wanted: AclFilter) -> list[Acl]:
        """Delete the rules that match, and return them."""
        row = DeleteAclsFilter(**_filter_fields(wanted))
        answer: DeleteAclsResponse = await self._send_to_any(DeleteAclsRequest(filters=[row]))
        (result,) = answer.filter_results
        raise_for_code(result.error_code, result.error_message or "delete rules")
        for each in result.matching_acls:
            raise_for_code(each.error_code, each.error_message or "delete a rule")
        return [_make_acl(each, each) for each in result.matching_acls]


def _filter_fields(wanted: AclFilter) -> dict[str, Any]:
    """Return the fields by which two requests name the rules that they are about."""
    return {
        "resource_type_filter": wanted.resource_type,
        "resource_name_filter": wanted.resource_name,
        "pattern_type_filter": wanted.pattern_type,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission,
    }


def _make_acl(
    resource: DescribeAclsResource | DeleteAclsMatchingAcl,
    rule: AclDescription | DeleteAclsMatchingAcl,
) -> Acl:
    return Acl(
        resource.resource_type,
        resource.resource_name,
        resource.pattern_type,
        rule.principal,
        rule.host,
        rule.operation,
        rule.permission_type,
    )
