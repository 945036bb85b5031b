"""The login of HTTP clients: every request passes here before an application has it.

    Authorization: Basic …       a user's name and password
    Authorization: Bearer …      a token
    a certificate of the client  that the HTTPS listener has verified
    none of them                 the anonymous user, where `access.anonymous` names one

A WebSocket may have its token as `token` in the query, since pages cannot set headers.

Where `access.authenticate` is off, every client is `User:ANONYMOUS` and credentials are not read.
The applications find a `ClientAccess` in `scope["access"]`, and in `scope[CREDENTIALS]` what the
client logged in with, for those that act in its name elsewhere. Without a login only /healthz,
/livez and /readyz are served. An address that fails often is refused without a check (429), for
passwords to be guessed slowly; a password that was right before is still accepted from it.

A page in a browser reaches this listener under a name of its own (DNS rebinding): the Host header
has to be an IP address, `localhost` or one of the node's names.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import json
from collections.abc import Collection
from typing import Final

import msgspec
from starlette.datastructures import Headers, QueryParams
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from trilogue.broker.access.authorizer import (
    ANONYMOUS,
    CLUSTER,
    USER,
    Authorizer,
    Operation,
    Principal,
)
from trilogue.broker.access.client_access import ClientAccess
from trilogue.broker.errors import AuthenticationFailed, TooManyLogins
from trilogue.gateway.authentication import Authenticator, Login
from trilogue.gateway.failed_logins import (
    TOO_MANY_FAILURES,
    TOO_MANY_FAILURES_OF_USER,
    FailedLogins,
)
from trilogue.gateway.http.app import IS_PUBLIC
from trilogue.gateway.http.request_limits import CERTIFICATE, CREDENTIALS, HEADERS, HttpError

PROTOCOL: Final = "http"
REQUESTS: Final = frozenset({"http", "websocket"})
HEALTH_PATHS: Final = frozenset({"/healthz", "/livez", "/readyz"})
METRICS_PATH: Final = "/metrics"
ANY_HOST: Final = "*"
CHALLENGES: Final = ('Basic realm="Trilogue", charset="UTF-8"', 'Bearer realm="Trilogue"')


class LoginRules(msgspec.Struct, frozen=True):
    """What the settings require of HTTP clients; `hosts` are names in the Host header."""

    requires_login: bool = False
    anonymous: str = ""
    public_metrics: bool = False
    hosts: Collection[str] = ()


class HttpLogin:
    """An ASGI application around another: it sees requests of clients that are logged in."""

    def __init__(
        self, app: ASGIApp, authenticator: Authenticator, authorizer: Authorizer, rules: LoginRules
    ) -> None:
        self._app = app
        self._authenticator = authenticator
        self._authorizer = authorizer
        self._rules = rules
        self._hosts = {host.lower().rstrip(".") for host in (*rules.hosts, "localhost")}
        self._failures = FailedLogins()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or answer 401, 403, 421, 429 or 503."""
        if scope["type"] not in REQUESTS or scope["path"] in HEALTH_PATHS:
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        try:
            self._check_host(headers.get("host", ""))
            access = await self._find_access(scope, headers)
            self._check_metrics(scope["path"], access)
        except HttpError as problem:
            await _refusal(problem)(scope, receive, send)
            return
        is_public = self._is_public(scope["path"], access)
        known = {"access": access, CREDENTIALS: _find_credentials(scope, headers)}
        await self._app({**scope, **known, IS_PUBLIC: is_public}, receive, send)

    def _is_public(self, path: str, access: ClientAccess) -> bool:
        """Whether a request needed no login because metrics are public."""
        rules = self._rules
        is_anonymous = rules.requires_login and access.principal == ANONYMOUS
        return path == METRICS_PATH and rules.public_metrics and is_anonymous

    def _check_host(self, host: str) -> None:
        name = _host_name(host)
        if name and not _is_ip(name) and not self._hosts & {name, ANY_HOST}:
            raise HttpError(421, f"this server has no name {name[:100]!r}: see http.allowed-hosts")

    def _check_metrics(self, path: str, access: ClientAccess) -> None:
        """Refuse the figures of the whole cluster to a client that may not describe it."""
        if path != METRICS_PATH or self._rules.public_metrics:
            return
        if not access.is_allowed(Operation.DESCRIBE, *CLUSTER):
            raise HttpError(403, "metrics need DESCRIBE on the cluster")

    async def _find_access(self, scope: Scope, headers: Headers) -> ClientAccess:
        host = scope["client"][0] if scope.get("client") else ""
        principal = await self._find_principal(scope, headers, host)
        return ClientAccess(
            self._authorizer,
            self._authenticator.audit,
            protocol=PROTOCOL,
            host=host,
            principal=principal,
        )

    async def _find_principal(self, scope: Scope, headers: Headers, host: str) -> Principal:
        if not self._rules.requires_login:
            return ANONYMOUS
        credentials = _find_credentials(scope, headers)
        if credentials:
            return (await self._verify(credentials, host)).principal
        certificate = scope.get("state", {}).get(CERTIFICATE)
        login = self._authenticator.identify_certificate(certificate or {})
        if login is not None:
            return login.principal
        if self._rules.anonymous:
            return Principal(USER, self._rules.anonymous)
        if scope["path"] == METRICS_PATH and self._rules.public_metrics:
            return ANONYMOUS
        raise HttpError(401, "credentials are needed: a password, a token or a certificate")

    async def _verify(self, credentials: list[str], host: str) -> Login:
        scheme, _, text = credentials[0].partition(" ")
        try:
            if len(credentials) == 1 and scheme.lower() == "bearer":
                return self._authenticator.verify_token(
                    text.strip(), protocol=PROTOCOL, host=host, method="bearer"
                )
            if len(credentials) == 1 and scheme.lower() == "basic":
                return await self._verify_password(text, host)
            raise self._authenticator.login_failed(
                "", protocol=PROTOCOL, host=host, method=scheme[:20], reason="not basic, not bearer"
            )
        except TooManyLogins as problem:
            raise HttpError(503, str(problem)) from None
        except AuthenticationFailed as problem:
            self._failures.count(host)
            too_many = str(problem) == TOO_MANY_FAILURES_OF_USER
            raise HttpError(429 if too_many else 401, str(problem)) from None

    async def _verify_password(self, text: str, host: str) -> Login:
        user, password = decode_basic(text)
        known = self._authenticator.recall_password(user, password, method="basic")
        if known is not None:
            return known
        if self._failures.is_full(host):
            raise HttpError(429, TOO_MANY_FAILURES)
        return await self._authenticator.verify_password(
            user, password, protocol=PROTOCOL, host=host, method="basic"
        )


def _find_credentials(scope: Scope, headers: Headers) -> list[str]:
    """Return the Authorization headers of a request, or a WebSocket's token as if it were one."""
    found = headers.getlist("authorization")
    if found or scope["type"] != "websocket":
        return found
    query = QueryParams(scope.get("query_string", b""))
    return [f"Bearer {token}" for token in query.getlist("token")]


def decode_basic(text: str) -> tuple[str, bytes]:
    """Return user and password; ("", b"") for what is no such text: it fails as any wrong one."""
    try:
        user, colon, password = base64.b64decode(text.strip(), validate=True).partition(b":")
        return (user.decode(), password) if colon else ("", b"")
    except (binascii.Error, ValueError):
        return "", b""


def _host_name(host: str) -> str:
    """Return the name of a Host header, without port and brackets, in lower case."""
    name = host.strip().lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.partition(":")[0].rstrip(".")


def _is_ip(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _refusal(problem: HttpError) -> Response:
    content = json.dumps({"reason": str(problem)}).encode()
    headers = {**HEADERS, "connection": "close"}  # the body is not read
    response = Response(content, problem.status, headers, "application/json")
    if problem.status == 401:
        for challenge in CHALLENGES:
            response.headers.append("www-authenticate", challenge)
    if problem.status in {429, 503}:
        response.headers["retry-after"] = "1"
    return response
