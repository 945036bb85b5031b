"""Pulsar's permissions as a view of ACLs: actions that roles have on a namespace or a topic.

    produce    WRITE, allowed to User:role from every host
    consume    READ

A namespace's are those of the PREFIXED pattern `tenant/namespace/`, a topic's those of its LITERAL
name. An ACL for ALL operations is both actions. The view leaves out what actions cannot express:
denials, ACLs of one host, other operations, and patterns that are wider or narrower.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from trilogue.broker.access.acls import ANY_HOST, Acl, AclStore, Pattern
from trilogue.broker.access.authorizer import USER, Operation, Principal, ResourceKind
from trilogue.broker.names import NamespaceName, TopicName

ACTIONS: Mapping[str, Operation] = {"produce": Operation.WRITE, "consume": Operation.READ}
_ACTIONS_OF: Mapping[Operation, Collection[str]] = {
    Operation.WRITE: ("produce",),
    Operation.READ: ("consume",),
    Operation.ALL: ("produce", "consume"),
}


class GrantedActions:
    """The actions on one namespace or topic."""

    def __init__(self, acls: AclStore, place: NamespaceName | TopicName) -> None:
        self._acls = acls
        is_topic = isinstance(place, TopicName)
        self._pattern = Pattern.LITERAL if is_topic else Pattern.PREFIXED
        self._name = str(place) if is_topic else f"{place}/"

    def by_role(self) -> dict[str, list[str]]:
        """Return the sorted actions of each role."""
        found: dict[str, set[str]] = {}
        for acl in self._expressible():
            found.setdefault(acl.principal.name, set()).update(_ACTIONS_OF[acl.operation])
        return {role: sorted(actions) for role, actions in sorted(found.items())}

    def acls_to_grant(self, role: str, actions: Collection[str]) -> list[Acl]:
        """Return the ACLs that grant actions; those without an operation are left out."""
        return [
            self._make(role, operation)
            for action, operation in ACTIONS.items()
            if action in actions
        ]

    def acls_to_revoke(self, role: str) -> list[Acl]:
        """Return the ACLs that grant actions to a role."""
        return [acl for acl in self._expressible() if acl.principal.name == role]

    def all_acls(self) -> list[Acl]:
        """Return the ACLs that grant actions to any role."""
        return list(self._expressible())

    def _expressible(self) -> Iterator[Acl]:
        for acl in self._acls.find(ResourceKind.TOPIC, self._name):
            if (
                (acl.pattern, acl.name) == (self._pattern, self._name)
                and acl.allow
                and acl.host == ANY_HOST
                and acl.principal.kind == USER
                and acl.operation in _ACTIONS_OF
            ):
                yield acl

    def _make(self, role: str, operation: Operation) -> Acl:
        return Acl(
            ResourceKind.TOPIC,
            self._pattern,
            self._name,
            Principal(USER, role),
            ANY_HOST,
            operation,
            allow=True,
        )


def without_operation(actions: Collection[str]) -> list[str]:
    """Return the sorted actions that no ACL expresses: of functions, sources, sinks, packages."""
    return sorted(set(actions) - ACTIONS.keys())
