"""Whether who asks over HTTP may do it: one question for all administrations."""

from __future__ import annotations

from trilogue.broker.access import Operation, Principal, Resource, ResourceKind
from trilogue.broker.errors import AccessDenied
from trilogue.gateway.doorway import Doorway


class Permitted:
    """A request whose row names an operation, and who makes it."""

    __slots__ = ()

    door: Doorway
    operation: Operation
    principal: Principal

    def allowed(self, kind: ResourceKind, name: object) -> bool:
        """Whether who asks may do what the row says to this thing, which may be one of many."""
        resource = Resource(kind, str(name))
        return self.door.authorizer.allowed(self.principal, self.operation, resource)

    def check(self, kind: ResourceKind, name: object) -> None:
        """The same; AccessDenied."""
        if not self.allowed(kind, name):
            raise AccessDenied(self.operation, Resource(kind, str(name)))
