"""The authorizer of access control lists: Kafka's rules for all protocols.

Nothing is allowed that no ACL allows, and one ACL that denies is stronger than all that allow. A
permission to READ, WRITE, DELETE or ALTER is one to DESCRIBE; one to ALTER_SETTINGS is one to
DESCRIBE_SETTINGS. Super users may do everything, and the administrators of a tenant everything
within it: these are the admin roles of Pulsar's tenants, which no list has. Where
`allow_without_acl` is set, everyone may do everything with a resource that no ACL is about (Kafka's
allow.everyone.if.no.acl.found).

The broker's internal topics show every group and transactional id: to READ one needs a permission
to DESCRIBE the cluster, too, as to list all groups does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain

from trilogue.broker.access.acls import ANY_HOST, ANY_NAME, ANY_USER, Acl, AclStore, Pattern
from trilogue.broker.access.authorizer import (
    CLUSTER,
    Operation,
    Principal,
    Resource,
    ResourceKind,
)
from trilogue.broker.names import INTERNAL_TOPICS

# What else permits an operation.
IMPLIED_BY: dict[Operation, frozenset[Operation]] = {
    Operation.DESCRIBE: frozenset(
        {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    ),
    Operation.DESCRIBE_SETTINGS: frozenset({Operation.ALTER_SETTINGS}),
}
_PERMITTING = {
    operation: IMPLIED_BY.get(operation, frozenset()) | {operation, Operation.ALL}
    for operation in Operation
}
_FORBIDDING = {operation: frozenset({operation, Operation.ALL}) for operation in Operation}
_OF_ALL_GROUPS = frozenset(map(str, INTERNAL_TOPICS))  # topics with the state of every group
_BY_TENANT = {ResourceKind.TOPIC, ResourceKind.NAMESPACE}


class AclAuthorizer:
    """Decides by a list, the super users and the administrators of tenants.

    `tenant_admins` returns the names of a tenant's administrators; the code that changes them calls
    `move`.
    """

    allows_all = False

    def __init__(
        self,
        acls: AclStore,
        super_users: Collection[Principal] = (),
        *,
        tenant_admins: Callable[[str], Collection[str]] = lambda _tenant: (),
        allow_without_acl: bool = False,
    ) -> None:
        self.generation = 1
        self.acls = acls
        self.super_users = frozenset(super_users)
        self._tenant_admins = tenant_admins
        self._allow_without_acl = allow_without_acl
        acls.listeners.append(self.move)

    def move(self) -> None:
        """Move the generation: an ACL, a tenant or roles of a subscription have changed."""
        self.generation += 1

    def allowed(
        self, principal: Principal, operation: Operation, resource: Resource, host: str = ""
    ) -> bool:
        """Return whether it is allowed to a client at this address; never raises, never waits."""
        if principal in self.super_users:
            return True
        kind, name = resource
        if (
            name in _OF_ALL_GROUPS
            and kind is ResourceKind.TOPIC
            and operation is Operation.READ
            and not self.allowed(principal, Operation.DESCRIBE, CLUSTER, host)
        ):
            return False
        found = self._find(kind, name)
        if self._allow_without_acl:
            first = next(found, None)
            if first is None:
                return kind is not ResourceKind.NAMESPACE or not self._has_acl_within(name)
            found = chain((first,), found)
        verdict = _decide(found, principal, operation, host)
        if verdict is None and kind in _BY_TENANT:
            tenant = name.partition("/")[0]
            verdict = principal.name in self._tenant_admins(tenant)
        return bool(verdict)

    def _find(self, kind: ResourceKind, name: str) -> Iterator[Acl]:
        if kind is ResourceKind.NAMESPACE:
            return self.acls.find_covering(ResourceKind.TOPIC, f"{name}/")
        return self.acls.find(kind, name)

    def _has_acl_within(self, namespace: str) -> bool:
        """Return whether an ACL is about some topics of a namespace or a tenant."""
        prefix = f"{namespace}/"
        return any(acl.name.startswith(prefix) for acl in self.acls.of_kind(ResourceKind.TOPIC))

    def allowed_on_any(
        self, principal: Principal, operation: Operation, kind: ResourceKind, host: str = ""
    ) -> bool:
        """Return whether it is allowed on at least one resource of this kind.

        A pattern is not allowed where a pattern that covers it is denied.
        """
        if principal in self.super_users:
            return True
        mine = [acl for acl in self.acls.of_kind(kind) if _concerns(acl, principal, host)]
        denied = [acl for acl in mine if not acl.allow and acl.operation in _FORBIDDING[operation]]
        if self._allow_without_acl and not any(acl.name == ANY_NAME for acl in denied):
            return True  # on a resource without ACLs
        return any(
            acl.allow
            and acl.operation in _PERMITTING[operation]
            and not any(_covers(denial, acl) for denial in denied)
            for acl in mine
        )


def _decide(
    acls: Iterable[Acl], principal: Principal, operation: Operation, host: str
) -> bool | None:
    """Return False if an ACL denies, True if one allows, None if none is about it."""
    permitting, forbidding = _PERMITTING[operation], _FORBIDDING[operation]
    allowed = None
    for acl in acls:
        if acl.operation in (permitting if acl.allow else forbidding) and _concerns(
            acl, principal, host
        ):
            if not acl.allow:
                return False
            allowed = True
    return allowed


def _concerns(acl: Acl, principal: Principal, host: str) -> bool:
    return acl.principal in (principal, ANY_USER) and acl.host in (ANY_HOST, host)


def _covers(wide: Acl, narrow: Acl) -> bool:
    """Return whether every resource of the pattern of one ACL is in that of another."""
    if wide.pattern is Pattern.LITERAL:
        return wide.name in (ANY_NAME, narrow.name) and (
            wide.name == ANY_NAME or narrow.pattern is Pattern.LITERAL
        )
    if narrow.pattern is Pattern.LITERAL and narrow.name == ANY_NAME:
        return False
    return narrow.name.startswith(wide.name)
