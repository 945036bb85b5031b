"""DescribeAcls, CreateAcls, DeleteAcls v0-v3: access control lists (KIP-11, KIP-290).

v1 pattern types · v2 flexible · v3 users of delegation tokens. Describing needs DESCRIBE on the
cluster, changing ALTER (31). A node without `access.authorize` answers 54, as a Kafka without an
authorizer: rules without effect would be worse than none. Every change is a line of the audit log.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from trilogue.broker.access.acls import Acl, resource_of
from trilogue.broker.access.authorizer import CLUSTER, Resource, ResourceKind
from trilogue.broker.errors import BrokerError
from trilogue.gateway.kafka.context import RequestContext
from trilogue.gateway.kafka.errors import CLUSTER_DENIED, to_error_code
from trilogue.gateway.kafka.security.acl_codes import (
    ALLOW,
    ANY,
    CODES,
    DENY,
    KIND_CODES,
    KINDS,
    MATCH,
    OPERATIONS,
    PREFIXED,
    matches,
    parse_acl,
    show_name,
)
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.security.acls import (
    AclCreation,
    AclCreationResult,
    AclDescription,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

NO_AUTHORIZER = (
    "No Authorizer is configured: access.authorize is off, every client may do everything"
)
INVALID_FILTER = "the filter names an unknown type, pattern, operation or permission"
Filter = DescribeAclsRequest | DeleteAclsFilter


def handle_describe_acls(
    context: RequestContext, request: DescribeAclsRequest
) -> DescribeAclsResponse:
    """Describe the ACLs that pass the filter, by resource."""
    code, message = _check_request(context)
    if not code and not _is_valid(request):
        code, message = ErrorCode.INVALID_REQUEST, INVALID_FILTER
    if code:
        return DescribeAclsResponse(error_code=code, error_message=message)
    resources: dict[tuple[ResourceKind, int, str], DescribeAclsResource] = {}
    for acl in _find(context, request):
        pattern, name = show_name(acl)
        resource = resources.setdefault(
            (acl.kind, pattern, name),
            DescribeAclsResource(
                resource_type=KIND_CODES[acl.kind], resource_name=name, pattern_type=pattern
            ),
        )
        resource.acls.append(
            AclDescription(
                principal=str(acl.principal),
                host=acl.host,
                operation=CODES[acl.operation],
                permission_type=ALLOW if acl.allow else DENY,
            )
        )
    return DescribeAclsResponse(error_message=None, resources=list(resources.values()))


def handle_create_acls(
    context: RequestContext, request: CreateAclsRequest
) -> CreateAclsResponse | Coroutine[Any, Any, CreateAclsResponse]:
    """Create each ACL that is valid; the response waits until they are durable."""
    code, message = _check_request(context)
    if code:
        refused = AclCreationResult(error_code=code, error_message=message)
        return CreateAclsResponse(results=[refused for _ in request.creations])
    return _create(context, request)


async def _create(context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    results: list[AclCreationResult] = []
    parsed: list[Acl] = []
    for creation in request.creations:
        result = AclCreationResult(error_message=None)
        try:
            acl = _parse(creation)
            context.broker.acls.plan_create([acl])  # its names are checked
            parsed.append(acl)
        except BrokerError as problem:
            result.error_code, result.error_message = to_error_code(problem), str(problem)
        results.append(result)
    try:
        await context.gateway.write_metadata(context.broker.acls.plan_create(parsed))
    except BrokerError as problem:
        for result in results:
            if not result.error_code:
                result.error_code, result.error_message = to_error_code(problem), str(problem)
    else:
        for acl in parsed:
            _record(context, "create ACL", acl)
    return CreateAclsResponse(results=results)


def handle_delete_acls(
    context: RequestContext, request: DeleteAclsRequest
) -> DeleteAclsResponse | Coroutine[Any, Any, DeleteAclsResponse]:
    """Delete the ACLs that pass the filters; the response waits until that is durable."""
    code, message = _check_request(context)
    if code:
        refused = DeleteAclsFilterResult(error_code=code, error_message=message)
        return DeleteAclsResponse(filter_results=[refused for _ in request.filters])
    return _delete(context, request)


async def _delete(context: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    response = DeleteAclsResponse()
    for each in request.filters:
        if not _is_valid(each):
            refused = DeleteAclsFilterResult(
                error_code=ErrorCode.INVALID_REQUEST, error_message=INVALID_FILTER
            )
            response.filter_results.append(refused)
            continue
        found = _find(context, each)
        result = DeleteAclsFilterResult(
            error_message=None, matching_acls=[_show_deleted(acl) for acl in found]
        )
        response.filter_results.append(result)
        try:
            await context.gateway.write_metadata(context.broker.acls.plan_delete(found))
        except BrokerError as problem:
            for row in result.matching_acls:
                row.error_code, row.error_message = to_error_code(problem), str(problem)
        else:
            for acl in found:
                _record(context, "delete ACL", acl)
    return response


def _check_request(context: RequestContext) -> tuple[ErrorCode, str | None]:
    if not context.is_allowed(CLUSTER.name):
        return CLUSTER_DENIED
    if context.gateway.allows_all:
        return ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER
    return ErrorCode.NONE, None


def _parse(creation: AclCreation) -> Acl:
    return parse_acl(
        kind=creation.resource_type,
        name=creation.resource_name,
        pattern=creation.resource_pattern_type,
        principal=creation.principal,
        host=creation.host,
        operation=creation.operation,
        permission=creation.permission_type,
    )


def _is_valid(each: Filter) -> bool:
    return (
        each.resource_type_filter in {ANY, *KINDS}
        and each.operation in {ANY, *OPERATIONS}
        and each.permission_type in {ANY, DENY, ALLOW}
        and each.pattern_type_filter in {ANY, MATCH, 3, PREFIXED}
    )


def _find(context: RequestContext, each: Filter) -> list[Acl]:
    return [
        acl
        for acl in context.broker.acls
        if matches(
            acl,
            kind=each.resource_type_filter,
            name=each.resource_name_filter,
            pattern=each.pattern_type_filter,
            principal=each.principal_filter,
            host=each.host_filter,
            operation=each.operation,
            permission=each.permission_type,
        )
    ]


def _show_deleted(acl: Acl) -> DeleteAclsMatchingAcl:
    pattern, name = show_name(acl)
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=KIND_CODES[acl.kind],
        resource_name=name,
        pattern_type=pattern,
        principal=str(acl.principal),
        host=acl.host,
        operation=CODES[acl.operation],
        permission_type=ALLOW if acl.allow else DENY,
    )


def _record(context: RequestContext, what: str, acl: Acl) -> None:
    kind, name = resource_of(acl)
    context.access.record_act(
        what,
        Resource(kind, name),
        to=str(acl.principal),
        from_host=acl.host,
        acl=f"{'allow' if acl.allow else 'deny'} {acl.operation.value}",
    )
