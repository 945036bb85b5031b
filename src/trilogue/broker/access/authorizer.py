"""Authorization: one interface for all gateways, on canonical names.

Every row of every gateway's request table names a `ResourceKind` and an `Operation`. `AllowAll` is
used where a node has no rules; `access/permissions.py` grants by namespace and topic.
"""

from __future__ import annotations

from enum import Enum, unique
from typing import NamedTuple, Protocol


@unique
class ResourceKind(Enum):
    """What can be protected."""

    TOPIC = "topic"
    NAMESPACE = "namespace"
    GROUP = "group"
    CLUSTER = "cluster"
    TRANSACTION = "transaction"


@unique
class Operation(Enum):
    """What can be done to it. READ, WRITE, DELETE and ALTER imply DESCRIBE."""

    READ = "read"
    WRITE = "write"
    CREATE = "create"
    DELETE = "delete"
    ALTER = "alter"
    DESCRIBE = "describe"
    ALTER_SETTINGS = "alter settings"
    DESCRIBE_SETTINGS = "describe settings"
    IDEMPOTENT_WRITE = "idempotent write"
    CLUSTER_ACTION = "cluster action"


class Principal(NamedTuple):
    """The identity of a client. `kind` is `user` everywhere today."""

    kind: str
    name: str


class Resource(NamedTuple):
    """One thing by its canonical name.

    That is `tenant/namespace/topic`, `tenant/namespace`, a tenant's or a group's name, `cluster`.
    """

    kind: ResourceKind
    name: str


ANONYMOUS = Principal("user", "ANONYMOUS")
CLUSTER = Resource(ResourceKind.CLUSTER, "cluster")


class Authorizer(Protocol):
    """Decides whether a request is allowed; every gateway calls it before it acts."""

    def allowed(self, principal: Principal, operation: Operation, resource: Resource) -> bool:
        """Return whether it is allowed; never raises, never waits."""
        ...


class AllowAll:
    """Allows everything: what a node without authentication uses."""

    def allowed(self, principal: Principal, operation: Operation, resource: Resource) -> bool:
        """Return True."""
        del principal, operation, resource
        return True
