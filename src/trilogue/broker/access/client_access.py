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
        # A name of None: on any resource of the kind.
        self._decisions: dict[tuple[Operation, ResourceKind, str | None], bool] = {}

    def set_principal(self, principal: Principal) -> None:
        """Set the principal, after a login."""
        self.principal = principal
        self._decisions.clear()

    def is_allowed(self, operation: Operation, kind: ResourceKind, name: str) -> bool:
        """Return whether the client may do this; a refusal is a line of the audit log."""
        if self.can_see(operation, kind, name):
            return True
        self.record_refusal(operation, kind, name)
        return False

    def record_refusal(self, operation: Operation, kind: ResourceKind, name: str) -> None:
        """Write the line of the audit log of something that was refused."""
        if self._audit is not None:
            resource = Resource(kind, name)
            self._audit.refused(self.principal, self.protocol, self.host, operation, resource)

    def can_see(self, operation: Operation, kind: ResourceKind, name: str) -> bool:
        """Return the same without a line of the audit log: for lists, which leave things out."""
        if self.allows_all:
            return True
        if self._generation == self._authorizer.generation:
            decision = self._decisions.get((operation, kind, name))
            if decision is not None:
                return decision
        return self._decide(operation, kind, name)

    def is_allowed_on_any(self, operation: Operation, kind: ResourceKind) -> bool:
        """Return whether the client may do this to at least one resource of a kind."""
        if self.allows_all:
            return True
        if self._generation == self._authorizer.generation:
            decision = self._decisions.get((operation, kind, None))
            if decision is not None:
                return decision
        return self._decide(operation, kind, None)

    def _decide(self, operation: Operation, kind: ResourceKind, name: str | None) -> bool:
        """Decide and remember; what was decided before a change is forgotten."""
        authorizer = self._authorizer
        generation = authorizer.generation
        if self._generation != generation or len(self._decisions) >= DECISIONS_MAX:
            self._generation = generation
            self._decisions.clear()
        if name is None:
            decision = authorizer.allowed_on_any(self.principal, operation, kind, self.host)
        else:
            resource = Resource(kind, name)
            decision = authorizer.allowed(self.principal, operation, resource, self.host)
        self._decisions[operation, kind, name] = decision
        return decision

    def record_act(self, operation: str, resource: Resource, **details: object) -> None:
        """Write the line of an administrative act that was done."""
        if self._audit is not None:
            self._audit.done(
                self.principal, self.protocol, self.host, operation, resource, **details
            )
