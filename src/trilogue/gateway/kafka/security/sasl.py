"""SaslHandshake v0-v1, SaslAuthenticate v0-v2: logins (KIP-43, KIP-152, KIP-368).

Handshake v0: the tokens follow bare, each behind its length, and a failure closes · v1: they follow
inside SaslAuthenticate, whose response has the reason. Authenticate: v1 the life of the session.

On a listener without SASL both answer 34, as a real one does. A mechanism that is not enabled is 33
with those that are, then the connection closes. A failed login is answered with 58 after a moment,
then the connection closes; its text does not tell an unknown user from a wrong password. A password
that was not checked, because too many wait, closes the connection without an answer: a client tries
again then, and gives up after 58.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, cast

from trilogue.broker.errors import AuthenticationFailed, TooManyLogins
from trilogue.gateway.kafka.context import RequestContext
from trilogue.gateway.kafka.security.sasl_login import FAILURE_DELAY_S, LoginConnection, SaslLogin
from trilogue.gateway.stream import Close
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.security.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

NO_SASL = "this listener has no SASL"


def handle_sasl_handshake(
    context: RequestContext, request: SaslHandshakeRequest
) -> SaslHandshakeResponse:
    """Choose the mechanism of the exchange that follows."""
    connection = cast("LoginConnection", context.session)
    login = connection.login
    if login is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    mechanisms = list(login.mechanisms)
    if login.is_exchanging:
        context.gateway.call_soon(connection.drain)  # after the response
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=mechanisms)
    if request.mechanism not in login.mechanisms:
        context.gateway.call_soon(connection.drain)
        return SaslHandshakeResponse(
            error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=mechanisms
        )
    login.begin(request.mechanism, bare=context.version == 0)
    return SaslHandshakeResponse(mechanisms=mechanisms)


def handle_sasl_authenticate(
    context: RequestContext, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse | Coroutine[Any, Any, SaslAuthenticateResponse]:
    """Answer a token of the client."""
    connection = cast("LoginConnection", context.session)
    login = connection.login
    if login is None or not login.is_exchanging:
        if login is not None:
            context.gateway.call_soon(connection.drain)
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message=NO_SASL if login is None else "SaslHandshake comes first",
        )
    return _authenticate(connection, login, bytes(request.auth_bytes))


async def _authenticate(
    connection: LoginConnection, login: SaslLogin, token: bytes
) -> SaslAuthenticateResponse:
    try:
        answer = await login.answer(token)
    except TooManyLogins:
        raise Close("connection.too_many_logins") from None
    except AuthenticationFailed as problem:
        await asyncio.sleep(FAILURE_DELAY_S)
        connection.drain()
        return SaslAuthenticateResponse(
            error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=str(problem)
        )
    return SaslAuthenticateResponse(
        error_message=None, auth_bytes=answer, session_lifetime_ms=login.lifetime_ms
    )
