"""The authorizer of nodes without `access.authorize`: ACLs guard some operations on topics only.

All other operations are allowed, and so is everything to a client that its gateway did not require
to authenticate.
"""

from __future__ import annotations

from collections.abc import Collection

from trilogue.broker.access.acl_authorizer import AclAuthorizer
from trilogue.broker.access.authorizer import (
    ANONYMOUS,
    Operation,
    Principal,
    Resource,
    ResourceKind,
)


class Permissions:
    """An authorizer that guards `guarded` operations on topics."""

    allows_all = False

    def __init__(self, acls: AclAuthorizer, guarded: Collection[Operation]) -> None:
        self._acls = acls
        self._guarded = frozenset(guarded)

    @property
    def generation(self) -> int:
        """Moves when decisions may change."""
        return self._acls.generation

    def allowed_on_any(
        self, principal: Principal, operation: Operation, kind: ResourceKind, host: str = ""
    ) -> bool:
        """Return True: what is not a topic is not guarded."""
        del principal, operation, kind, host
        return True

    def allowed(
        self, principal: Principal, operation: Operation, resource: Resource, host: str = ""
    ) -> bool:
        """Return whether it is allowed; never raises, never waits."""
        if operation not in self._guarded or principal == ANONYMOUS:
            return True
        if resource.kind is not ResourceKind.TOPIC:
            return True
        return self._acls.allowed(principal, operation, resource, host)
