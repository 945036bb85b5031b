"""DescribeUserScramCredentials v0, AlterUserScramCredentials v0: SCRAM passwords (KIP-554).

There are no users: no client authenticates. The list of all users is empty, a requested user is not
found (91), and neither is a credential to delete. Creating one is refused (54), since it would
never be checked.
"""

from __future__ import annotations

from collections import Counter

from trilogue.broker.access.authorizer import CLUSTER
from trilogue.gateway.kafka.context import RequestContext
from trilogue.gateway.kafka.errors import CLUSTER_DENIED
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.security.scram import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

MECHANISMS = {1, 2}  # SCRAM-SHA-256, SCRAM-SHA-512
Outcome = tuple[ErrorCode, str]


def handle_describe_user_scram_credentials(
    context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """Report that no user has credentials."""
    if not context.is_allowed(CLUSTER.name):
        return DescribeUserScramCredentialsResponse(
            error_code=CLUSTER_DENIED.code, error_message=CLUSTER_DENIED.text
        )
    response = DescribeUserScramCredentialsResponse(error_message=None)
    for name, times in Counter(each.name for each in request.users or ()).items():
        code, message = ErrorCode.RESOURCE_NOT_FOUND, f"there is no password of a user {name}"
        if times > 1:
            code, message = ErrorCode.DUPLICATE_RESOURCE, f"the user {name} is named more than once"
        response.results.append(
            DescribeUserScramCredentialsResult(user=name, error_code=code, error_message=message)
        )
    return response


def handle_alter_user_scram_credentials(
    context: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """Refuse each change, once per user."""
    found: dict[str, Outcome] = {}
    for gone in request.deletions:
        missing = ErrorCode.RESOURCE_NOT_FOUND, "there is no such password to be forgotten"
        found.setdefault(gone.name, _check_change(gone.name, gone.mechanism) or missing)
    for new in request.upsertions:
        refused = (
            ErrorCode.SECURITY_DISABLED,
            "credentials are not kept: clients do not authenticate",
        )
        found.setdefault(new.name, _check_change(new.name, new.mechanism) or refused)
    if not context.is_allowed(CLUSTER.name):
        found = dict.fromkeys(found, CLUSTER_DENIED)
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(user=user, error_code=code, error_message=message)
            for user, (code, message) in found.items()
        ]
    )


def _check_change(user: str, mechanism: int) -> Outcome | None:
    """Return what Kafka refuses before it looks up the user, or None."""
    if not user:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "a user has a name"
    if mechanism not in MECHANISMS:
        return ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"there is no SCRAM mechanism {mechanism}"
    return None
