"""DescribeUserScramCredentials v0, AlterUserScramCredentials v0: SCRAM passwords (KIP-554).

Describing needs DESCRIBE on the cluster, changing ALTER (31). Kafka's tools send the salted
password, so a user that they make has SCRAM verifiers only: these serve PLAIN and Pulsar's basic
too, but not TubeMQ's signatures, which need the password itself. A change ends the user's sessions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Coroutine
from typing import Any

import msgspec

from trilogue.broker.access.authorizer import CLUSTER, Resource, ResourceKind
from trilogue.broker.access.scram import HASHES, ITERATIONS_MAX, ITERATIONS_MIN, verifier_of
from trilogue.broker.access.users import User, check_name
from trilogue.broker.errors import BrokerError, InvalidRequest
from trilogue.gateway.kafka.context import RequestContext
from trilogue.gateway.kafka.errors import CLUSTER_DENIED, to_error_code
from trilogue.gateway.steps import next_step
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.security.scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
USERS_PER_STEP = 500
NUMBERS = {name: number for number, name in MECHANISMS.items()}
DIGEST_BYTES = {"sha256": 32, "sha512": 64}
SALT_BYTES_MAX = 1_024
Outcome = tuple[ErrorCode, str]


def handle_describe_user_scram_credentials(
    context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """Describe the mechanisms and iterations of users, never their secrets."""
    if not context.is_allowed(CLUSTER.name):
        return DescribeUserScramCredentialsResponse(
            error_code=CLUSTER_DENIED.code, error_message=CLUSTER_DENIED.text
        )
    users = context.broker.users
    named = Counter(each.name for each in request.users or ())
    if not named:  # an empty list is all users, too (KIP-554): that of sarama
        named = Counter(user.name for user in users if user.scram)
    response = DescribeUserScramCredentialsResponse(error_message=None)
    for name, times in named.items():
        result = DescribeUserScramCredentialsResult(user=name, error_message=None)
        user = users.find(name)
        if times > 1:
            result.error_code = ErrorCode.DUPLICATE_RESOURCE
            result.error_message = f"the user {name} is named more than once"
        elif user is None or not user.scram:
            result.error_code = ErrorCode.RESOURCE_NOT_FOUND
            result.error_message = f"there is no password of a user {name}"
        else:
            result.credential_infos = [
                CredentialInfo(mechanism=NUMBERS[mechanism], iterations=verifier.iterations)
                for mechanism, verifier in user.scram.items()
            ]
        response.results.append(result)
    return response


def handle_alter_user_scram_credentials(
    context: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse | Coroutine[Any, Any, AlterUserScramCredentialsResponse]:
    """Set and delete verifiers, all changes of a user together."""
    names = dict.fromkeys(each.name for each in request.deletions)
    names |= dict.fromkeys(each.name for each in request.upsertions)
    if not context.is_allowed(CLUSTER.name):
        return _respond(dict.fromkeys(names, (CLUSTER_DENIED.code, CLUSTER_DENIED.text)))
    return _alter(context, request, list(names))


async def _alter(
    context: RequestContext, request: AlterUserScramCredentialsRequest, names: list[str]
) -> AlterUserScramCredentialsResponse:
    outcomes: dict[str, Outcome] = {}
    deletions: dict[str, list[ScramCredentialDeletion]] = {name: [] for name in names}
    upsertions: dict[str, list[ScramCredentialUpsertion]] = {name: [] for name in names}
    for gone in request.deletions:
        deletions[gone.name].append(gone)
    for new in request.upsertions:
        upsertions[new.name].append(new)
    for count, name in enumerate(names):
        if count % USERS_PER_STEP == USERS_PER_STEP - 1:
            await next_step()
        change = name, deletions[name], upsertions[name]
        outcomes[name] = _check(*change) or await _alter_user(context, *change)
    return _respond(outcomes)


def _respond(outcomes: dict[str, Outcome]) -> AlterUserScramCredentialsResponse:
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(
                user=user, error_code=code, error_message=message or None
            )
            for user, (code, message) in outcomes.items()
        ]
    )


def _check(
    name: str,
    deletions: list[ScramCredentialDeletion],
    upsertions: list[ScramCredentialUpsertion],
) -> Outcome | None:
    """Return what is refused before the user is looked up, or None."""
    numbers = [each.mechanism for each in deletions]
    numbers += [each.mechanism for each in upsertions]
    try:
        check_name(name)
    except InvalidRequest as problem:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, str(problem)
    if unknown := [each for each in numbers if each not in MECHANISMS]:
        return (
            ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            f"there is no SCRAM mechanism {unknown[0]}",
        )
    if len(numbers) != len(set(numbers)):
        return ErrorCode.DUPLICATE_RESOURCE, "a mechanism of a user is named more than once"
    for each in upsertions:
        size = DIGEST_BYTES[HASHES[MECHANISMS[each.mechanism]]]
        if not ITERATIONS_MIN <= each.iterations <= ITERATIONS_MAX:
            return (
                ErrorCode.UNACCEPTABLE_CREDENTIAL,
                f"{ITERATIONS_MIN} to {ITERATIONS_MAX} iterations are accepted",
            )
        if not 0 < len(each.salt) <= SALT_BYTES_MAX or len(each.salted_password) != size:
            return ErrorCode.UNACCEPTABLE_CREDENTIAL, "the salt or the password has a wrong size"
    return None


async def _alter_user(
    context: RequestContext,
    name: str,
    deletions: list[ScramCredentialDeletion],
    upsertions: list[ScramCredentialUpsertion],
) -> Outcome:
    users, now_ms = context.broker.users, context.gateway.now_ms()
    user = users.find(name) or User(name, now_ms)
    verifiers = dict(user.scram)
    for gone in deletions:
        if verifiers.pop(MECHANISMS[gone.mechanism], None) is None:
            return ErrorCode.RESOURCE_NOT_FOUND, "there is no such password to be deleted"
    for new in upsertions:
        mechanism = MECHANISMS[new.mechanism]
        verifiers[mechanism] = verifier_of(
            mechanism, bytes(new.salt), bytes(new.salted_password), new.iterations
        )
    # A password that Kafka's tools set is the user's only one: another would go on to work.
    changed = msgspec.structs.replace(
        user,
        changed_ms=max(now_ms, user.changed_ms + 1),
        scram=verifiers,
        password=None if upsertions else user.password,
        signing="" if upsertions else user.signing,
    )
    has_secret = changed.scram or changed.password or changed.signing
    try:
        await context.gateway.write_metadata(
            users.plan_put(changed) if has_secret else users.plan_delete(name, now_ms)
        )
    except BrokerError as problem:
        return to_error_code(problem), str(problem)
    context.access.record_act("alter SCRAM credentials", Resource(ResourceKind.USER, name))
    return ErrorCode.NONE, ""
