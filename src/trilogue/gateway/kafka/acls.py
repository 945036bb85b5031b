"""DescribeAcls, CreateAcls, DeleteAcls v0-v3: who may do what.

v1 patterns of names (KIP-290) · v2 flexible · v3 users of delegation tokens.

There are no rules yet: everybody may do everything. So each is answered as by a Kafka without an
authorizer, 54: rules that nobody looks at are worse than none.
"""

from __future__ import annotations

from trilogue.broker.access import CLUSTER
from trilogue.gateway.kafka.errors import NOT_ALLOWED
from trilogue.gateway.kafka.shared import Call
from trilogue.wire.kafka.acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from trilogue.wire.kafka.errors import ErrorCode

NOBODY_LOOKS = "No Authorizer is configured: everybody may do everything"


def describe(call: Call, _request: DescribeAclsRequest) -> DescribeAclsResponse:
    """Say that there are no rules."""
    code, what = _refusal(call)
    return DescribeAclsResponse(error_code=code, error_message=what)


def create(call: Call, request: CreateAclsRequest) -> CreateAclsResponse:
    """Refuse each rule."""
    code, what = _refusal(call)
    return CreateAclsResponse(
        results=[AclCreationResult(error_code=code, error_message=what) for _ in request.creations]
    )


def delete(call: Call, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """Refuse each filter."""
    code, what = _refusal(call)
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(error_code=code, error_message=what) for _ in request.filters
        ]
    )


def _refusal(call: Call) -> tuple[ErrorCode, str]:
    if call.allowed(CLUSTER.name):
        return ErrorCode.SECURITY_DISABLED, NOBODY_LOOKS
    return NOT_ALLOWED
