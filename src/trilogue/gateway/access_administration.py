"""Administration of users and ACLs, for the HTTP API and for `trilogue users` without a server.

Every method returns what is shown as JSON, never a secret: only `issue_token` returns the token
that it made. Raises InvalidRequest, InUse, UnknownUser, and what writing metadata raises. Each
change is one line of the audit log.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Protocol, Self

from trilogue.broker.access.acl_names import format_acl, parse_acl
from trilogue.broker.access.acls import AclStore
from trilogue.broker.access.authorizer import CLUSTER, Resource, ResourceKind
from trilogue.broker.access.tokens import TokenKey, TokenKeyError, TokenRules, issue_token
from trilogue.broker.access.users import User, Users, make_user
from trilogue.broker.errors import InUse, InvalidRequest, NotServed, UnknownUser
from trilogue.broker.metadata_change import MetadataChange

Row = dict[str, Any]


class ActRecorder(Protocol):
    """Writes the line of the audit log of an administrative act."""

    def __call__(self, operation: str, resource: Resource, **details: object) -> None:
        """Write the line of an act that was done."""


def ignore_act(operation: str, resource: Resource, **details: object) -> None:
    """Write no line: for what reads only."""


class AccessAdministration:
    """Changes users and ACLs; `write_metadata` returns once a change is durable and applied."""

    def __init__(
        self,
        users: Users,
        acls: AclStore,
        write_metadata: Callable[[MetadataChange[Any]], Awaitable[object]],
        *,
        signing_key: Callable[[], bytes],
        token_key: Callable[[], TokenKey | None],
        token_rules: TokenRules,
        now_ms: Callable[[], int],
    ) -> None:
        self.users = users
        self.acls = acls
        self._write = write_metadata
        self._signing_key = signing_key
        self._token_key = token_key
        self._token_rules = token_rules
        self._now_ms = now_ms
        self.record: ActRecorder = ignore_act

    def recorded_by(self, record: ActRecorder) -> Self:
        """Return the administration for one client, whose acts this recorder writes."""
        found = copy.copy(self)
        found.record = record
        return found

    # -- users

    def list_users(self) -> list[Row]:
        """Return all users."""
        return [describe_user(user) for user in self.users]

    def describe_user(self, name: str) -> Row:
        """Return one user."""
        return describe_user(self._find(name))

    async def create_user(self, name: str, password: bytes) -> Row:
        """Create a user with a password."""
        if self.users.find(name) is not None:
            raise InUse(f"the user {name} exists: set-password gives it another password")
        made = await self._put(name, password)
        self._record_user("create user", name)
        return made

    async def set_password(self, name: str, password: bytes) -> Row:
        """Give a user another password; its sessions end."""
        self._find(name)
        made = await self._put(name, password)
        self._record_user("set password", name)
        return made

    async def delete_user(self, name: str) -> None:
        """Delete a user; its sessions end and its tokens are refused."""
        self._find(name)
        await self._write(self.users.plan_delete(name, self._now_ms()))
        self._record_user("delete user", name)

    async def revoke_tokens(self, name: str) -> None:
        """Revoke all tokens that were issued to a name."""
        await self._write(self.users.plan_revoke_tokens(name, self._now_ms()))
        self._record_user("revoke tokens", name)

    def issue_token(self, name: str, lifetime_ms: int | None) -> Row:
        """Return a new token of a user."""
        self._find(name)
        if lifetime_ms is not None and lifetime_ms <= 0:
            raise InvalidRequest("a token lives for a positive number of ms")
        key = self._token_key()
        if key is None:
            raise NotServed("no key for tokens is configured: access.token-key")
        now_ms = self._now_ms()
        try:
            token = issue_token(
                key, name, now_ms=now_ms, lifetime_ms=lifetime_ms, rules=self._token_rules
            )
        except TokenKeyError as problem:
            raise NotServed(str(problem)) from None
        self._record_user("issue token", name)
        return {"token": token, "expiresMs": None if lifetime_ms is None else now_ms + lifetime_ms}

    # -- ACLs

    def list_acls(self, words: Mapping[str, str]) -> list[Row]:
        """Return the ACLs whose words are these."""
        rows = [format_acl(acl) for acl in self.acls]
        return [row for row in rows if words.items() <= row.items()]

    async def add_acls(self, rows: Iterable[Mapping[str, str]]) -> list[Row]:
        """Add ACLs; return them as they are stored."""
        acls = [parse_acl(row) for row in rows]
        await self._write(self.acls.plan_create(acls))
        return self._record_acls("create ACL", [format_acl(acl) for acl in acls])

    async def remove_acls(self, rows: Iterable[Mapping[str, str]]) -> list[Row]:
        """Remove ACLs; return those that existed."""
        acls = [acl for acl in map(parse_acl, rows) if acl in self.acls]
        await self._write(self.acls.plan_delete(acls))
        return self._record_acls("delete ACL", [format_acl(acl) for acl in acls])

    # -- parts

    def _record_user(self, act: str, name: str) -> None:
        self.record(act, Resource(ResourceKind.USER, name))

    def _record_acls(self, act: str, rows: list[Row]) -> list[Row]:
        for row in rows:
            self.record(act, CLUSTER, acl=" ".join(row.values()))
        return rows

    def _find(self, name: str) -> User:
        user = self.users.find(name)
        if user is None:
            raise UnknownUser(f"there is no user {name!r}")
        return user

    async def _put(self, name: str, password: bytes) -> Row:
        """Store a user with new secrets; they take 60 ms of CPU to make."""
        tokens_from_ms = self.users.tokens_from_ms(name)
        user = await asyncio.to_thread(
            make_user,
            name,
            password,
            self._now_ms(),
            key=self._signing_key(),
            tokens_from_ms=tokens_from_ms,
        )
        await self._write(self.users.plan_put(user))
        return describe_user(user)


def describe_user(user: User) -> Row:
    """Return what is shown of a user: which secrets it has, not the secrets."""
    methods = list(user.scram)
    if user.password is not None:
        methods.append("password")
    if user.signing:
        methods.append("tubemq")
    return {
        "name": user.name,
        "methods": sorted(methods),
        "iterations": {name: verifier.iterations for name, verifier in user.scram.items()},
        "changedMs": user.changed_ms,
        "tokensFromMs": user.tokens_from_ms,
    }
