"""Which clients may use a subscription: it may have roles, or its name has to begin with one."""

from __future__ import annotations

from trilogue.broker.access.authorizer import Operation, Resource, ResourceKind
from trilogue.broker.errors import AccessDenied
from trilogue.broker.names import TopicName
from trilogue.broker.topics.policies import Policies
from trilogue.gateway.pulsar.connection import PulsarConnection


def check_role(
    connection: PulsarConnection, subscription: str, topic: TopicName, policies: Policies
) -> None:
    """Refuse a subscription that the namespace has for other roles; raises AccessDenied."""
    if not can_use_subscription(connection, subscription, topic, policies):
        connection.access.record_refusal(Operation.READ, ResourceKind.GROUP, subscription)
        raise AccessDenied(Operation.READ, Resource(ResourceKind.GROUP, subscription))


def can_use_subscription(
    connection: PulsarConnection, subscription: str, topic: TopicName, policies: Policies
) -> bool:
    """Return whether the namespace has a subscription for the role of the client.

    It names the roles of the subscription, or the role has to be before the subscription's name.
    Clients that may change the namespace may use any.
    """
    role, namespace = connection.principal.name, topic.namespace_name
    found = connection.gateway.broker.namespaces.namespace(namespace)
    roles = found.subscription_roles.get(subscription)
    prefixed = not policies.role_prefixes or subscription.startswith(role)
    if prefixed and (not roles or role in roles):
        return True
    return connection.can_see(Operation.ALTER, ResourceKind.NAMESPACE, namespace)
