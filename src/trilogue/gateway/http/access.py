"""The HTTP API of users and ACLs, which `trilogue users` and `trilogue acls` call.

    GET    /trilogue/users                      list
    GET    /trilogue/users/NAME                 describe
    PUT    /trilogue/users/NAME                 {"password": "…"}            create
    DELETE /trilogue/users/NAME                 delete
    POST   /trilogue/users/NAME/password        {"password": "…", "current": "…"}
    POST   /trilogue/users/NAME/tokens          {"lifetimeMs": 3600000}      {"token": "…", …}
    DELETE /trilogue/users/NAME/tokens          revoke all tokens
    GET    /trilogue/acls?principal=User:alice  list; any field of an ACL is a parameter
    POST   /trilogue/acls                       [{"resourceType": "TOPIC", …}]   add
    POST   /trilogue/acls/remove                the same fields                  remove

Changes need ALTER on the cluster, the rest DESCRIBE; a user may change its own password if it
knows the present one. No response has a secret but that of a new token.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from trilogue.broker.access.authorizer import CLUSTER, Operation
from trilogue.broker.access.client_access import ClientAccess
from trilogue.broker.errors import (
    AccessDenied,
    AuthenticationFailed,
    BrokerError,
    ConcurrentChange,
    InUse,
    NotServed,
    TooManyLogins,
    UnknownUser,
)
from trilogue.gateway.access_administration import AccessAdministration
from trilogue.gateway.authentication import Authenticator
from trilogue.gateway.http.login import PROTOCOL
from trilogue.gateway.http.request_limits import HEADERS, HttpError, check_origin, read_body
from trilogue.log.errors import LogError
from trilogue.meta.errors import MetaError

log = logging.getLogger(__name__)

ROOT = "/trilogue"
STATUS: dict[type[BrokerError], int] = {
    UnknownUser: 404,
    AccessDenied: 403,
    InUse: 409,
    ConcurrentChange: 409,
    NotServed: 405,
    AuthenticationFailed: 403,
    TooManyLogins: 503,
}
T = TypeVar("T")


class PasswordBody(msgspec.Struct, forbid_unknown_fields=True):
    """A new password; `current` is the present one, of a user that changes its own."""

    password: str
    current: str = ""


class TokenBody(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """The lifetime of a new token in ms; null: it does not end."""

    lifetime_ms: int | None = None


class AccessApi:
    """The handlers; each returns what becomes the JSON of the response, None for 204."""

    def __init__(self, administration: AccessAdministration, authenticator: Authenticator) -> None:
        self._administration = administration
        self._authenticator = authenticator

    async def list_users(self, request: Request) -> object:
        """Return all users."""
        _check(request, Operation.DESCRIBE)
        return self._administration.list_users()

    async def describe_user(self, request: Request) -> object:
        """Return one user."""
        _check(request, Operation.DESCRIBE)
        return self._administration.describe_user(_name(request))

    async def create_user(self, request: Request) -> object:
        """Create a user."""
        _check(request, Operation.ALTER)
        body = await _read(request, PasswordBody)
        return await self._recorded(request).create_user(_name(request), body.password.encode())

    async def delete_user(self, request: Request) -> object:
        """Delete a user."""
        _check(request, Operation.ALTER)
        await self._recorded(request).delete_user(_name(request))
        return None

    async def set_password(self, request: Request) -> object:
        """Give a user another password."""
        name, body = _name(request), await _read(request, PasswordBody)
        access = _access(request)
        if body.current and access.principal.name == name:
            await self._authenticator.verify_password(
                name, body.current.encode(), protocol=PROTOCOL, host=access.host
            )
        else:
            _check(request, Operation.ALTER)
        return await self._recorded(request).set_password(name, body.password.encode())

    async def issue_token(self, request: Request) -> object:
        """Return a new token of a user."""
        _check(request, Operation.ALTER)
        body = await _read(request, TokenBody)
        return self._recorded(request).issue_token(_name(request), body.lifetime_ms)

    async def revoke_tokens(self, request: Request) -> object:
        """Revoke all tokens of a user."""
        _check(request, Operation.ALTER)
        await self._recorded(request).revoke_tokens(_name(request))
        return None

    async def list_acls(self, request: Request) -> object:
        """Return the ACLs with the fields of the query."""
        _check(request, Operation.DESCRIBE)
        return self._administration.list_acls(dict(request.query_params))

    async def add_acls(self, request: Request) -> object:
        """Add ACLs."""
        _check(request, Operation.ALTER)
        return await self._recorded(request).add_acls(await _read(request, list[dict[str, str]]))

    async def remove_acls(self, request: Request) -> object:
        """Remove ACLs, and return those that existed."""
        _check(request, Operation.ALTER)
        return await self._recorded(request).remove_acls(await _read(request, list[dict[str, str]]))

    def _recorded(self, request: Request) -> AccessAdministration:
        return self._administration.recorded_by(_access(request).record_act)


def build_access_app(administration: AccessAdministration, authenticator: Authenticator) -> ASGIApp:
    """Return the application, for the paths below `ROOT`."""
    api = AccessApi(administration, authenticator)
    user = f"{ROOT}/users/{{name}}"
    rows: list[tuple[str, str, Callable[[Request], Awaitable[object]]]] = [
        ("GET", f"{ROOT}/users", api.list_users),
        ("GET", user, api.describe_user),
        ("PUT", user, api.create_user),
        ("DELETE", user, api.delete_user),
        ("POST", f"{user}/password", api.set_password),
        ("POST", f"{user}/tokens", api.issue_token),
        ("DELETE", f"{user}/tokens", api.revoke_tokens),
        ("GET", f"{ROOT}/acls", api.list_acls),
        ("POST", f"{ROOT}/acls", api.add_acls),
        ("POST", f"{ROOT}/acls/remove", api.remove_acls),
    ]
    return Starlette(
        routes=[Route(path, _endpoint(handler), methods=[verb]) for verb, path, handler in rows]
    )


def _endpoint(
    handler: Callable[[Request], Awaitable[object]],
) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        try:
            check_origin(request, changes=request.method != "GET")
            result = await handler(request)
        except ClientDisconnect:
            return Response(status_code=400)
        except HttpError as problem:
            return _error(problem.status, str(problem))
        except BrokerError as problem:
            return _error(STATUS.get(type(problem), 400), str(problem))
        except (LogError, MetaError) as problem:
            return _error(503, str(problem))
        except Exception:
            log.exception("request.failed", extra={"listener": "http", "path": ROOT})
            return _error(500, "a mistake of ours; the log has it")
        return _encode(result)

    return answer


def _encode(result: object) -> Response:
    if result is None:
        return Response(status_code=204, headers=HEADERS)
    return Response(msgspec.json.encode(result), 200, HEADERS, "application/json")


def _error(status: int, reason: str) -> Response:
    headers = {**HEADERS, "connection": "close"} if status in {408, 413} else HEADERS
    content = msgspec.json.encode({"reason": reason})
    return Response(content, status, headers, "application/json")


def _access(request: Request) -> ClientAccess:
    access: ClientAccess = request.scope["access"]  # of login.py
    return access


def _check(request: Request, operation: Operation) -> None:
    if not _access(request).is_allowed(operation, *CLUSTER):
        raise AccessDenied(operation, CLUSTER)


def _name(request: Request) -> str:
    name: str = request.path_params["name"]
    return name


async def _read(request: Request, kind: type[T]) -> T:
    """Return the body; its text is in no error, since it may have a password."""
    try:
        return msgspec.json.decode(await read_body(request), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise HttpError(400, "the body is not the JSON that docs/reference describes") from None
