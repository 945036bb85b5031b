"""Which clients may use a subscription: it may have roles, or its name has to begin with one."""

from __future__ import annotations

from typing import Protocol

from trilogue.broker.access.authorizer import Operation, Principal, Resource, ResourceKind
from trilogue.broker.access.client_access import ClientAccess
from trilogue.broker.errors import AccessDenied
from trilogue.broker.names import TopicName
from trilogue.broker.topics.namespaces import Namespaces
from trilogue.broker.topics.policies import Policies
from trilogue.gateway.pulsar.connection import PulsarConnection


class AuthorizedClient(Protocol):
    """A client of Pulsar's protocol, of its administration or of the console."""

    @property
    def principal(self) -> Principal:
        """The identity of the client."""

    def can_see(self, operation: Operation, kind: ResourceKind, name: str, /) -> bool:
        """Whether the client may perform this operation on this resource."""


def check_role(
    connection: PulsarConnection, subscription: str, topic: TopicName, policies: Policies
) -> None:
    """Refuse a subscription that the namespace has for other roles; raises AccessDenied."""
    namespaces = connection.gateway.broker.namespaces
    if not can_use_subscription(connection, namespaces, subscription, topic, policies):
        connection.access.record_refusal(Operation.READ, ResourceKind.GROUP, subscription)
        raise AccessDenied(Operation.READ, Resource(ResourceKind.GROUP, subscription))


def check_administered(
    access: ClientAccess, namespaces: Namespaces, subscription: str, topic: TopicName
) -> None:
    """Refuse to move, delete or look into such a subscription, too; raises AccessDenied."""
    namespace = topic.namespace_name
    if not namespaces.exists(namespace):
        return
    policies = namespaces.namespace_policies(namespace)
    if not can_use_subscription(access, namespaces, subscription, topic, policies):
        access.record_refusal(Operation.READ, ResourceKind.GROUP, subscription)
        raise AccessDenied(Operation.READ, Resource(ResourceKind.GROUP, subscription))


def can_use_subscription(
    client: AuthorizedClient,
    namespaces: Namespaces,
    subscription: str,
    topic: TopicName,
    policies: Policies,
) -> bool:
    """Return whether the namespace has a subscription for the role of the client.

    It names the roles of the subscription, or the role has to be before the subscription's name.
    Clients that may change the namespace may use any.
    """
    role, namespace = client.principal.name, topic.namespace_name
    found = namespaces.namespace(namespace)
    roles = found.subscription_roles.get(subscription)
    prefixed = not policies.role_prefixes or subscription.startswith(role)
    if prefixed and (not roles or role in roles):
        return True
    return client.can_see(Operation.ALTER, ResourceKind.NAMESPACE, str(namespace))
