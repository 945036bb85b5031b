"""Roles that alone may consume from a subscription of a namespace, on each of its topics.

A subscription without such roles is for all that may consume from the topic. The ones that have
them need the right to consume, too. SUBSCRIBE checks them (gateway/pulsar/consumers.py), and
open consumers end when their role is removed (gateway/pulsar/auth/revocation.py).
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.errors import InUse
from trilogue.broker.topics.namespaces import Namespace
from trilogue.gateway.http.pulsar.admin_request import AdminRequest, AdminRoute
from trilogue.gateway.http.pulsar.policies import change_namespace
from trilogue.gateway.http.request_limits import HttpError

SUBSCRIPTIONS_MAX, ROLES_MAX = 1_000, 1_000
KIND = ResourceKind.NAMESPACE

Roles = dict[str, list[str]]


def get_roles(request: AdminRequest) -> object:
    """Return the roles by subscription."""
    return request.broker.namespaces.namespace(request.namespace).subscription_roles


async def set_roles(request: AdminRequest) -> None:
    """Set the roles of a subscription, in place of those it has."""
    request.check_grant(KIND, request.namespace)
    roles, name = request.any_json(), request.params["subscription"]
    if not isinstance(roles, list) or not all(isinstance(each, str) for each in roles):
        raise HttpError(400, "roles are a list of names")
    if len(roles) > ROLES_MAX:
        raise InUse(f"a subscription has {ROLES_MAX} roles at most")
    await change_namespace(request, _changing(lambda kept: {**kept, name: sorted(set(roles))}))


async def remove_role(request: AdminRequest) -> None:
    """Remove a role from a subscription; the last one leaves it to all."""
    request.check_grant(KIND, request.namespace)
    name, role = request.params["subscription"], request.params["role"]

    def change(kept: Roles) -> Roles:
        return {**kept, name: [each for each in kept.get(name, []) if each != role]}

    await change_namespace(request, _changing(change))


def _changing(change: Callable[[Roles], Roles]) -> Callable[[Namespace], Namespace]:
    def changed(before: Namespace) -> Namespace:
        after = {name: roles for name, roles in change(before.subscription_roles).items() if roles}
        if len(after) > SUBSCRIPTIONS_MAX:
            raise InUse(f"a namespace has roles for {SUBSCRIPTIONS_MAX} subscriptions at most")
        return msgspec.structs.replace(before, subscription_roles=after)

    return changed


def subscription_permission_routes(namespace: str) -> list[AdminRoute]:
    """Return the routes below the path of a namespace."""
    root = f"{namespace}/permissions"
    one = f"{root}/subscription/{{subscription}}"
    return [
        AdminRoute("GET", f"{root}/subscription", get_roles, KIND, Operation.DESCRIBE),
        AdminRoute("POST", one, set_roles, KIND, Operation.ALTER),
        AdminRoute(
            "DELETE", f"{root}/{{subscription}}/{{role}}", remove_role, KIND, Operation.ALTER
        ),
    ]
