"""What one client may do: its principal and address, with the decisions of the authorizer cached.

Every connection has one; a connection that several clients share has one for each. The cache is
dropped when the authorizer's generation moves, so a change of an ACL holds at the next request.
"""

from __future__ import annotations

from trilogue.broker.access.audit import AuditLog
from trilogue.broker.access.authorizer import (
    ANONYMOUS,
    AllowAll,
    Authorizer,
    Operation,
    Principal,
    Resource,
    ResourceKind,
)

DECISIONS_MAX = 10_000
ALLOW_ALL = AllowAll()


class ClientAccess:
    """The access of one client of one protocol."""

    __slots__ = (
        "_audit",
        "_authorizer",
        "_decisions",
        "_generation",
        "allows_all",
        "host",
        "principal",
        "protocol",
    )

    def __init__(
        self,
        authorizer: Authorizer = ALLOW_ALL,
        audit: AuditLog | None = None,
        *,
        protocol: str = "",
        host: str = "",
        principal: Principal = ANONYMOUS,
    ) -> None:
        self.principal = principal
        self.host = host
        self.protocol = protocol
        self.allows_all = authorizer.allows_all
        self._authorizer = authorizer
        self._audit = audit
        self._generation = -1
        self._decisions: dict[tuple[Operation, ResourceKind, str], bool] = {}

    def set_principal(self, principal: Principal) -> None:
        """Set the principal, after a login."""
        self.principal = principal
        self._decisions.clear()

    def is_allowed(self, operation: Operation, kind: ResourceKind, name: str) -> bool:
        """Return whether the client may do this; a refusal is a line of the audit log."""
        if self.can_see(operation, kind, name):
            return True
        if self._audit is not None:
            resource = Resource(kind, name)
            self._audit.refused(self.principal, self.protocol, self.host, operation, resource)
        return False

    def can_see(self, operation: Operation, kind: ResourceKind, name: str) -> bool:
        """Return the same without a line of the audit log: for lists, which leave things out."""
        if self.allows_all:
            return True
        authorizer = self._authorizer
        if self._generation != authorizer.generation or len(self._decisions) > DECISIONS_MAX:
            self._generation = authorizer.generation
            self._decisions.clear()
        key = (operation, kind, name)
        decision = self._decisions.get(key)
        if decision is None:
            decision = self._decisions[key] = authorizer.allowed(
                self.principal, operation, Resource(kind, name), self.host
            )
        return decision

    def is_allowed_on_any(self, operation: Operation, kind: ResourceKind) -> bool:
        """Return whether the client may do this to at least one resource of a kind."""
        return self.allows_all or self._authorizer.allowed_on_any(
            self.principal, operation, kind, self.host
        )

    def record_act(self, operation: str, resource: Resource, **details: object) -> None:
        """Write the line of an administrative act that was done."""
        if self._audit is not None:
            self._audit.done(
                self.principal, self.protocol, self.host, operation, resource, **details
            )
