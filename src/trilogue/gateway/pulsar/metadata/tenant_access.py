"""Which clients learn that a tenant does not exist, when they may do nothing in it.

A real broker says so to every client. Here, who administers a tenant or may list the tenants
learns it; all others are refused as in a tenant that exists, so that they cannot find tenants by
trying names (docs/decisions/0147-tenants-that-do-not-exist.md).
"""

from __future__ import annotations

from trilogue.broker.access.authorizer import CLUSTER, Operation
from trilogue.broker.errors import UnknownNamespace
from trilogue.broker.topics.namespaces import Namespaces
from trilogue.gateway.pulsar.metadata.subscription_access import AuthorizedClient


def may_see_tenants(client: AuthorizedClient, namespaces: Namespaces) -> bool:
    """Return whether a client may know which tenants exist."""
    return namespaces.has_admin(client.principal.name) or client.can_see(
        Operation.DESCRIBE, *CLUSTER
    )


def is_missing_tenant(client: AuthorizedClient, namespaces: Namespaces, tenant: str) -> bool:
    """Return whether a tenant does not exist and the client may know that."""
    if not may_see_tenants(client, namespaces):
        return False
    try:
        namespaces.tenant(tenant)
    except UnknownNamespace:
        return True
    return False
