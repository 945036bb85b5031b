"""The authorizer that goes by what was granted: who may produce to and consume from which topics.

Grants are those that Pulsar's administration keeps, of namespaces and of single topics: a user's
name and `produce`, `consume` or both. The administrators of a tenant (its admin roles) may do
everything in it. Which of the two is guarded at all is a setting; whatever else is asked is
allowed, and so is everything to who did not have to say who it is: its door would have asked.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from trilogue.broker.access import ANONYMOUS, Operation, Principal, Resource, ResourceKind
from trilogue.broker.cluster import Cluster
from trilogue.broker.errors import UnknownNamespace
from trilogue.broker.names import NamespaceName, TopicName
from trilogue.broker.namespaces import Namespaces
from trilogue.broker.policies import PERMISSIONS

ACTIONS: Mapping[Operation, str] = {Operation.WRITE: "produce", Operation.READ: "consume"}


class Permissions:
    """Says yes to what was granted."""

    def __init__(
        self, namespaces: Namespaces, cluster: Cluster, guarded: Collection[Operation]
    ) -> None:
        self._namespaces = namespaces
        self._cluster = cluster
        self._guarded = frozenset(guarded)

    def allowed(self, principal: Principal, operation: Operation, resource: Resource) -> bool:
        """Say yes or no; never raises, never waits."""
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
            if action in self._namespaces.find(name.home).permissions.get(user, ()):
                return True
        except UnknownNamespace:
            return False
        topic = self._cluster.find(name)
        text = None if topic is None else topic.settings.get(PERMISSIONS)
        if text is None:
            return False
        return action in msgspec.json.decode(text, type=dict[str, list[str]]).get(user, ())


def read_name(canonical: str) -> TopicName:
    """A name from how `TopicName` writes it: only a namespace may have a slash in it."""
    tenant, _, rest = canonical.partition("/")
    namespace, _, name = rest.rpartition("/")
    return TopicName(*NamespaceName(tenant, namespace), name)
