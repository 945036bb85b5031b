"""DescribeAcls, CreateAcls, DeleteAcls v0-v3: access control lists.

v1 pattern types (KIP-290) · v2 flexible · v3 users of delegation tokens.

There is no authorizer: every client may do everything. So each request is answered with 54, as by a
Kafka without an authorizer: rules without effect would be worse than none.
"""

from __future__ import annotations

from trilogue.broker.access.authorizer import CLUSTER
from trilogue.gateway.kafka.context import RequestContext
from trilogue.gateway.kafka.errors import CLUSTER_DENIED
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.security.acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)

NO_AUTHORIZER = "No Authorizer is configured: every client may do everything"


def handle_describe_acls(
    context: RequestContext, _request: DescribeAclsRequest
) -> DescribeAclsResponse:
    """Refuse: there are no rules."""
    code, message = _refusal(context)
    return DescribeAclsResponse(error_code=code, error_message=message)


def handle_create_acls(context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    """Refuse each rule."""
    code, message = _refusal(context)
    return CreateAclsResponse(
        results=[
            AclCreationResult(error_code=code, error_message=message) for _ in request.creations
        ]
    )


def handle_delete_acls(context: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """Refuse each filter."""
    code, message = _refusal(context)
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(error_code=code, error_message=message) for _ in request.filters
        ]
    )


def _refusal(context: RequestContext) -> tuple[ErrorCode, str]:
    if context.is_allowed(CLUSTER.name):
        return ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER
    return CLUSTER_DENIED
