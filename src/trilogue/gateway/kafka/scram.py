"""DescribeUserScramCredentials v0, AlterUserScramCredentials v0: passwords of users (KIP-554).

There are no users yet: everybody is let in. So the list of all is empty, each user who is asked
for is not there (91), nor is a password that shall be forgotten; one that shall be kept is refused
(54), since nobody would ever be asked for it.
"""

from __future__ import annotations

from collections import Counter

from trilogue.broker.access import CLUSTER
from trilogue.gateway.kafka.errors import NOT_ALLOWED
from trilogue.gateway.kafka.shared import Call
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.scram import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

MECHANISMS = {1, 2}  # SCRAM-SHA-256, SCRAM-SHA-512
Outcome = tuple[ErrorCode, str]


def describe(
    call: Call, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """Say that there are none."""
    if not call.allowed(CLUSTER.name):
        return DescribeUserScramCredentialsResponse(
            error_code=NOT_ALLOWED.code, error_message=NOT_ALLOWED.text
        )
    response = DescribeUserScramCredentialsResponse(error_message=None)
    for name, times in Counter(each.name for each in request.users or ()).items():
        code, what = ErrorCode.RESOURCE_NOT_FOUND, f"there is no password of a user {name}"
        if times > 1:
            code, what = ErrorCode.DUPLICATE_RESOURCE, f"the user {name} is named more than once"
        response.results.append(
            DescribeUserScramCredentialsResult(user=name, error_code=code, error_message=what)
        )
    return response


def alter(
    call: Call, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """Refuse each, once for a user."""
    found: dict[str, Outcome] = {}
    for gone in request.deletions:
        missing = ErrorCode.RESOURCE_NOT_FOUND, "there is no such password to be forgotten"
        found.setdefault(gone.name, _wrong(gone.name, gone.mechanism) or missing)
    for new in request.upsertions:
        refused = ErrorCode.SECURITY_DISABLED, "passwords are not kept here: everybody is let in"
        found.setdefault(new.name, _wrong(new.name, new.mechanism) or refused)
    if not call.allowed(CLUSTER.name):
        found = dict.fromkeys(found, NOT_ALLOWED)
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(user=user, error_code=code, error_message=what)
            for user, (code, what) in found.items()
        ]
    )


def _wrong(user: str, mechanism: int) -> Outcome | None:
    """What a real one says before it looks for the user."""
    if not user:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "a user has a name"
    if mechanism not in MECHANISMS:
        return ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"there is no SCRAM mechanism {mechanism}"
    return None
