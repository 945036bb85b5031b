"""CreateDelegationToken, DescribeDelegationToken v0-v3, Renew-, ExpireDelegationToken v0-v2.

v2 flexible · v3 tokens for another owner (KIP-373).

Every one of them needs a connection that logged in by SASL or by a certificate, and not by a
delegation token itself (64). A token for another owner needs CREATE_TOKENS on the user (65). The
owner and the renewers renew and expire a token (63). Describing leaves out the tokens that a client
is not the owner, the requester or a renewer of, unless it has DESCRIBE on the token or
DESCRIBE_TOKENS on its owner. Codes and the order of the checks are those of Kafka 3.9.

A limit on the number of tokens is 44 (POLICY_VIOLATION). Every change is a line of the audit log.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, cast

from trilogue.broker.access.authorizer import (
    ANONYMOUS,
    USER,
    Operation,
    Principal,
    Resource,
    ResourceKind,
)
from trilogue.broker.access.delegation_tokens import DelegationToken, DelegationTokens
from trilogue.broker.errors import BrokerError
from trilogue.broker.metadata_change import MetadataChange
from trilogue.gateway.kafka.context import RequestContext
from trilogue.gateway.kafka.errors import to_error_code
from trilogue.gateway.kafka.security.sasl_login import LoginConnection
from trilogue.gateway.steps import run_in_turns
from trilogue.log.steps import Steps
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.security.delegation_tokens import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

TOKENS_PER_STEP = 200


def handle_create_delegation_token(
    context: RequestContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse | Coroutine[Any, Any, CreateDelegationTokenResponse]:
    """Create a token of the client, or of another owner."""
    owner = context.principal
    if request.owner_principal_name:
        owner = Principal(request.owner_principal_type or "", request.owner_principal_name)
    response = CreateDelegationTokenResponse(
        principal_type=owner.kind,
        principal_name=owner.name,
        token_requester_principal_type=context.principal.kind,
        token_requester_principal_name=context.principal.name,
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
    )
    renewers = [Principal(each.principal_type, each.principal_name) for each in request.renewers]
    response.error_code = _check_creation(context, owner, renewers)
    if response.error_code:
        return response
    return _create(context, owner, renewers, request.max_lifetime_ms, response)


async def _create(
    context: RequestContext,
    owner: Principal,
    renewers: list[Principal],
    lifetime_ms: int,
    response: CreateDelegationTokenResponse,
) -> CreateDelegationTokenResponse:
    tokens = context.broker.delegation_tokens
    token = tokens.make_token(
        owner,
        context.principal,
        renewers,
        lifetime_ms=lifetime_ms,
        now_ms=context.gateway.now_ms(),
    )
    try:
        digest = tokens.hmac_of(token.token_id)
        await context.gateway.write_metadata(tokens.plan_create(token))
    except BrokerError as problem:
        response.error_code = to_error_code(problem)
        return response
    _record(context, "create delegation token", token)
    response.issue_timestamp_ms = token.issued_ms
    response.expiry_timestamp_ms = token.expires_ms
    response.max_timestamp_ms = token.end_ms
    response.token_id = token.token_id
    response.hmac = digest
    return response


def handle_renew_delegation_token(
    context: RequestContext, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse | Coroutine[Any, Any, RenewDelegationTokenResponse]:
    """Move the expiry of a token."""
    code, token = _find(context, request.hmac)
    if token is not None and token.is_expired(context.gateway.now_ms()):
        code = ErrorCode.DELEGATION_TOKEN_EXPIRED
    elif token is not None and not token.may_be_renewed_by(context.principal):
        code = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    if code or token is None:
        return RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=-1)
    return _renew(context, token, request.renew_period_ms)


async def _renew(
    context: RequestContext, token: DelegationToken, period_ms: int
) -> RenewDelegationTokenResponse:
    tokens = context.broker.delegation_tokens
    renewed = tokens.renew(token, period_ms, context.gateway.now_ms())
    code = await _write(context, tokens.plan_replace(renewed))
    if code:
        return RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=-1)
    _record(context, "renew delegation token", renewed)
    return RenewDelegationTokenResponse(expiry_timestamp_ms=renewed.expires_ms)


def handle_expire_delegation_token(
    context: RequestContext, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse | Coroutine[Any, Any, ExpireDelegationTokenResponse]:
    """Remove a token, or move its expiry; sessions with it end."""
    code, token = _find(context, request.hmac)
    if token is not None and not token.may_be_renewed_by(context.principal):
        code = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    elif (
        token is not None
        and request.expiry_time_period_ms >= 0
        and token.is_expired(context.gateway.now_ms())
    ):
        code = ErrorCode.DELEGATION_TOKEN_EXPIRED
    if code or token is None:
        return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=-1)
    return _expire(context, token, request.expiry_time_period_ms)


async def _expire(
    context: RequestContext, token: DelegationToken, period_ms: int
) -> ExpireDelegationTokenResponse:
    tokens, now_ms = context.broker.delegation_tokens, context.gateway.now_ms()
    expired = tokens.expire(token, max(period_ms, 0), now_ms)
    change = tokens.plan_remove([token]) if period_ms < 0 else tokens.plan_replace(expired)
    code = await _write(context, change)
    if code:
        return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=-1)
    _record(context, "expire delegation token", expired)
    return ExpireDelegationTokenResponse(expiry_timestamp_ms=expired.expires_ms)


def handle_describe_delegation_token(
    context: RequestContext, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse | Coroutine[Any, Any, DescribeDelegationTokenResponse]:
    """Describe the tokens of some owners, or of all, that the client may see."""
    code = _check_request(context)
    if code or request.owners == []:
        return DescribeDelegationTokenResponse(error_code=code)
    return run_in_turns(_describe_in_steps(context, request))


def _describe_in_steps(
    context: RequestContext, request: DescribeDelegationTokenRequest
) -> Steps[DescribeDelegationTokenResponse]:
    owners = None
    if request.owners is not None:
        owners = {Principal(each.principal_type, each.principal_name) for each in request.owners}
    tokens = context.broker.delegation_tokens
    response = DescribeDelegationTokenResponse()
    for number, token in enumerate(tokens):
        if (owners is None or owners & token.principals) and _can_see(context, token):
            try:
                response.tokens.append(_describe(tokens, token))
            except BrokerError as problem:  # the secret cannot be read
                return DescribeDelegationTokenResponse(error_code=to_error_code(problem))
        if number % TOKENS_PER_STEP == TOKENS_PER_STEP - 1:
            yield
    return response


# -- checks


def _check_request(context: RequestContext) -> ErrorCode:
    """Return why the connection may not request anything about tokens, or NONE."""
    connection = cast("LoginConnection", context.session)
    if connection.login is not None:
        may_request = not connection.login.token_id
    else:
        listener = connection.listener
        may_request = listener is not None and listener.tls and context.principal != ANONYMOUS
    if not may_request:
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    if not context.broker.delegation_tokens.is_enabled:
        return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    return ErrorCode.NONE


def _check_creation(
    context: RequestContext, owner: Principal, renewers: list[Principal]
) -> ErrorCode:
    code = _check_request(context)
    is_allowed = owner == context.principal or context.is_allowed(owner)
    if code is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED:
        return code
    if not is_allowed:
        return ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    if not code and any(each.kind != USER for each in (owner, *renewers)):
        return ErrorCode.INVALID_PRINCIPAL_TYPE
    return code


def _find(context: RequestContext, digest: object) -> tuple[ErrorCode, DelegationToken | None]:
    code = _check_request(context)
    if code:
        return code, None
    try:
        token = context.broker.delegation_tokens.find_by_hmac(bytes(cast("bytes", digest)))
    except BrokerError as problem:  # the secret cannot be read
        return to_error_code(problem), None
    return (ErrorCode.DELEGATION_TOKEN_NOT_FOUND if token is None else ErrorCode.NONE), token


def _can_see(context: RequestContext, token: DelegationToken) -> bool:
    return (
        context.principal in token.principals
        or context.can_see(Operation.DESCRIBE, ResourceKind.DELEGATION_TOKEN, token.token_id)
        or context.can_see(Operation.DESCRIBE_TOKENS, ResourceKind.USER, token.owner)
    )


# -- results


async def _write(context: RequestContext, change: MetadataChange[None]) -> ErrorCode:
    try:
        await context.gateway.write_metadata(change)
    except BrokerError as problem:
        return to_error_code(problem)
    return ErrorCode.NONE


def _describe(tokens: DelegationTokens, token: DelegationToken) -> DescribedDelegationToken:
    return DescribedDelegationToken(
        principal_type=token.owner.kind,
        principal_name=token.owner.name,
        token_requester_principal_type=token.requester.kind,
        token_requester_principal_name=token.requester.name,
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expires_ms,
        max_timestamp=token.end_ms,
        token_id=token.token_id,
        hmac=tokens.hmac_of(token.token_id),
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=each.kind, principal_name=each.name)
            for each in token.renewers
        ],
    )


def _record(context: RequestContext, operation: str, token: DelegationToken) -> None:
    context.access.record_act(
        operation,
        Resource(ResourceKind.DELEGATION_TOKEN, token.token_id),
        owner=str(token.owner),
        expires_ms=token.expires_ms,
    )
