"""DescribeAcls, CreateAcls, DeleteAcls v0-v3: access control lists (KIP-11, KIP-290).

v1 pattern types · v2 flexible · v3 users of delegation tokens. Describing needs DESCRIBE on the
cluster, changing ALTER (31). A node without `access.authorize` answers 54, as a Kafka without an
authorizer: rules without effect would be worse than none. Every change is a line of the audit log.

A request may name very many ACLs: they are created and deleted in parts, each one change of the
metadata, and others are served between them.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Sequence
from typing import Any, Final, TypeVar

from trilogue.broker.access.acls import Acl, check_acl, resource_of, sort_acls
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
from trilogue.gateway.steps import next_step
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
CHANGED_AT_ONCE: Final = 500  # ACLs
SCANNED_AT_ONCE: Final = 5_000  # ACLs that a filter is compared with
T = TypeVar("T")


async def handle_describe_acls(
    context: RequestContext, request: DescribeAclsRequest
) -> DescribeAclsResponse:
    """Describe the ACLs that pass the filter, by resource."""
    code, message = _check_request(context)
    if not code and not _is_valid(request):
        code, message = ErrorCode.INVALID_REQUEST, INVALID_FILTER
    if code:
        return DescribeAclsResponse(error_code=code, error_message=message)
    resources: dict[tuple[ResourceKind, int, str], DescribeAclsResource] = {}
    for count, acl in enumerate(await _find(context, request), 1):
        if count % SCANNED_AT_ONCE == 0:
            await next_step()
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
    response = CreateAclsResponse()
    for count, part in enumerate(_split(request.creations, CHANGED_AT_ONCE)):
        if count:
            await next_step()
        response.results += await _create_part(context, part)
    return response


async def _create_part(
    context: RequestContext, creations: Sequence[AclCreation]
) -> list[AclCreationResult]:
    results: list[AclCreationResult] = []
    parsed: list[Acl] = []
    for creation in creations:
        result = AclCreationResult(error_message=None)
        try:
            acl = _parse(creation)
            check_acl(acl)
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
    return results


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
        result = DeleteAclsFilterResult(error_message=None)
        response.filter_results.append(result)
        for part in _split(await _find(context, each), CHANGED_AT_ONCE):
            result.matching_acls += await _delete_part(context, part)
        await next_step()
    return response


async def _delete_part(
    context: RequestContext, found: Sequence[Acl]
) -> list[DeleteAclsMatchingAcl]:
    rows = [_show_deleted(acl) for acl in found]
    try:
        await context.gateway.write_metadata(context.broker.acls.plan_delete(found))
    except BrokerError as problem:
        for row in rows:
            row.error_code, row.error_message = to_error_code(problem), str(problem)
    else:
        for acl in found:
            _record(context, "delete ACL", acl)
    return rows


def _split(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Iterate over the parts of a list of so many items each."""
    return (items[start : start + size] for start in range(0, len(items), size))


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


async def _find(context: RequestContext, each: Filter) -> list[Acl]:
    """Return the ACLs that pass a filter, in order."""
    found: list[Acl] = []
    for count, part in enumerate(_split(context.broker.acls.unsorted(), SCANNED_AT_ONCE)):
        if count:
            await next_step()
        found += [
            acl
            for acl in part
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
    return sort_acls(found)


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
