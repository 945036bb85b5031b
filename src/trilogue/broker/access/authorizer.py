"""Authorization: one interface for all gateways, on canonical names.

Every row of every gateway's request table names a `ResourceKind` and an `Operation`. `AllowAll` is
used where a node has no rules, `acl_authorizer.py` where it has. A connection calls neither: its
`ClientAccess` (client_access.py) knows the client and caches the decisions.
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
    DELEGATION_TOKEN = "delegation token"  # noqa: S105
    USER = "user"

    __hash__ = object.__hash__  # members are the keys of every decision: Enum's own is slow


@unique
class Operation(Enum):
    """What can be done to it. READ, WRITE, DELETE and ALTER imply DESCRIBE.

    ALL stands for every operation, in ACLs only.
    """

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
    CREATE_TOKENS = "create tokens"
    DESCRIBE_TOKENS = "describe tokens"
    TWO_PHASE_COMMIT = "two phase commit"
    ALL = "all"

    __hash__ = object.__hash__


class Principal(NamedTuple):
    """The identity of a client. `kind` is `User` everywhere today; written `User:alice`."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


class Resource(NamedTuple):
    """One thing by its canonical name.

    That is `tenant/namespace/topic`, `tenant/namespace`, a tenant's or a group's name, `cluster`.
    """

    kind: ResourceKind
    name: str


USER = "User"
ANONYMOUS = Principal(USER, "ANONYMOUS")
CLUSTER = Resource(ResourceKind.CLUSTER, "cluster")


class Authorizer(Protocol):
    """Decides whether a request is allowed."""

    @property
    def allows_all(self) -> bool:
        """Whether every principal may do everything."""
        ...

    @property
    def generation(self) -> int:
        """A number that moves when decisions may change, so that callers can cache them."""
        ...

    def allowed(
        self, principal: Principal, operation: Operation, resource: Resource, host: str = ""
    ) -> bool:
        """Return whether it is allowed to a client at this address; never raises, never waits."""
        ...

    def allowed_on_any(
        self, principal: Principal, operation: Operation, kind: ResourceKind, host: str = ""
    ) -> bool:
        """Return whether it is allowed on at least one resource of this kind."""
        ...


class AllowAll:
    """Allows everything: what a node without access control uses."""

    allows_all = True
    generation = 0

    def allowed(
        self, principal: Principal, operation: Operation, resource: Resource, host: str = ""
    ) -> bool:
        """Return True."""
        del principal, operation, resource, host
        return True

    def allowed_on_any(
        self, principal: Principal, operation: Operation, kind: ResourceKind, host: str = ""
    ) -> bool:
        """Return True."""
        del principal, operation, kind, host
        return True
