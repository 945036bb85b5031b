"""The authorizer of granted permissions: which users may produce to and consume from which topics.

Permissions are those of Pulsar's administration, of namespaces and of single topics: a user's name
and `produce`, `consume` or both. The administrators of a tenant (its admin roles) may do both in
all its namespaces. Settings choose which of the two operations are guarded; all others are
allowed, and so is everything to a client that its gateway did not require to authenticate.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from trilogue.broker.access.authorizer import (
    ANONYMOUS,
    Operation,
    Principal,
    Resource,
    ResourceKind,
)
from trilogue.broker.errors import UnknownNamespace
from trilogue.broker.names import NamespaceName, TopicName
from trilogue.broker.topics.cluster import Cluster
from trilogue.broker.topics.namespaces import Namespaces
from trilogue.broker.topics.policies import PERMISSIONS

ACTIONS: Mapping[Operation, str] = {Operation.WRITE: "produce", Operation.READ: "consume"}


class Permissions:
    """An authorizer that allows what was granted."""

    allows_all = False

    def __init__(
        self, namespaces: Namespaces, cluster: Cluster, guarded: Collection[Operation]
    ) -> None:
        self._namespaces = namespaces
        self._cluster = cluster
        self._guarded = frozenset(guarded)
        self._calls = 0

    @property
    def generation(self) -> int:
        """Moves with every call, since grants are not counted: no decision is cached."""
        self._calls += 1
        return self._calls

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
        del host
        if operation not in self._guarded or principal == ANONYMOUS:
            return True
        if resource.kind is not ResourceKind.TOPIC:
            return True
        name = read_name(resource.name)
        return self._granted(principal.name, ACTIONS[operation], name)

    def _granted(self, user: str, action: str, name: TopicName) -> bool:
        try:
            if user in self._namespaces.tenant(name.tenant).admin_roles:
                return True
            if action in self._namespaces.namespace(name.namespace_name).permissions.get(user, ()):
                return True
        except UnknownNamespace:
            return False
        topic = self._cluster.find_topic(name)
        text = None if topic is None else topic.settings.get(PERMISSIONS)
        if text is None:
            return False
        return action in msgspec.json.decode(text, type=dict[str, list[str]]).get(user, ())


def read_name(canonical: str) -> TopicName:
    """Parse a canonical topic name: only a namespace may contain a slash."""
    tenant, _, rest = canonical.partition("/")
    namespace, _, name = rest.rpartition("/")
    return TopicName(*NamespaceName(tenant, namespace), name)
