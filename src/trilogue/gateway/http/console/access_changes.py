"""The page of users and ACLs, and its forms; each change is a line of the audit log."""

from __future__ import annotations

from typing import Final

from trilogue.broker.access.acl_names import FIELDS, KINDS, OPERATIONS, PATTERNS, PERMISSIONS
from trilogue.broker.access.authorizer import CLUSTER, Operation
from trilogue.gateway.access_administration import AccessAdministration
from trilogue.gateway.http.console.rendering import Page, Redirect
from trilogue.gateway.http.console.request import ConsoleRequest, make_link
from trilogue.gateway.http.request_limits import HttpError

ROWS_SHOWN: Final = 500


async def list_users(request: ConsoleRequest) -> Page:
    """Return the users and the ACLs."""
    request.check(Operation.DESCRIBE, *CLUSTER)
    administration = request.services.make_administration()
    users, acls = administration.list_users(), administration.list_acls({})
    return Page(
        "users.html",
        {
            "users": users[:ROWS_SHOWN],
            "user_count": len(users),
            "acls": acls[:ROWS_SHOWN],
            "acl_count": len(acls),
            "can_change": request.can(Operation.ALTER, *CLUSTER),
            "kinds": list(KINDS),
            "operations": list(OPERATIONS),
            "patterns": list(PATTERNS),
            "permissions": list(PERMISSIONS),
        },
    )


async def create_user(request: ConsoleRequest) -> Redirect:
    """Create a user with a password."""
    administration = _administration(request)
    await administration.create_user(_name(request), _password(request))
    return Redirect(make_link("/users"))


async def set_password(request: ConsoleRequest) -> Redirect:
    """Give a user another password; its sessions end."""
    administration = _administration(request)
    await administration.set_password(_name(request), _password(request))
    return Redirect(make_link("/users"))


async def delete_user(request: ConsoleRequest) -> Redirect:
    """Delete a user whose name was typed once more."""
    administration, name = _administration(request), _name(request)
    if request.fields.get("confirm", "").strip() != name:
        raise HttpError(400, f"to delete the user, type the name: {name}")
    await administration.delete_user(name)
    return Redirect(make_link("/users"))


async def add_acl(request: ConsoleRequest) -> Redirect:
    """Add an ACL."""
    await _administration(request).add_acls([_acl(request)])
    return Redirect(make_link("/users"))


async def remove_acl(request: ConsoleRequest) -> Redirect:
    """Remove an ACL; HttpError 404 where there is none like it."""
    if not await _administration(request).remove_acls([_acl(request)]):
        raise HttpError(404, "there is no such ACL")
    return Redirect(make_link("/users"))


def _administration(request: ConsoleRequest) -> AccessAdministration:
    """Return the administration for a principal that may change users and ACLs."""
    request.check(Operation.ALTER, *CLUSTER)
    return request.services.make_administration().recorded_by(request.access.record_act)


def _name(request: ConsoleRequest) -> str:
    name = request.fields.get("name", "").strip()
    if not name:
        raise HttpError(400, "the user has no name")
    return name


def _password(request: ConsoleRequest) -> bytes:
    password = request.fields.get("password", "")
    if not password:
        raise HttpError(400, "the password is empty")
    return password.encode()


def _acl(request: ConsoleRequest) -> dict[str, str]:
    """Return the fields of the form that an ACL has; those that are empty have defaults."""
    given = {name: request.fields.get(name, "").strip() for name in FIELDS}
    return {name: value for name, value in given.items() if value}
