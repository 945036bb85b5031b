"""Moves permissions that older versions stored beside their namespaces and topics to ACLs, once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import msgspec

from trilogue.broker.access.acls import Acl
from trilogue.broker.access.granted_actions import ACTIONS, GrantedActions, without_operation
from trilogue.broker.broker import Broker
from trilogue.broker.metadata_change import MetadataChange
from trilogue.broker.names import NamespaceName, TopicName
from trilogue.broker.topics.policies import PERMISSIONS

Write = Callable[[MetadataChange[Any]], Awaitable[object]]
Grants = dict[str, list[str]]


async def move_permissions(broker: Broker, write: Write) -> None:
    """Make ACLs of the actions that they express; the others stay where they are.

    The ACLs come first: an end in between repeats it.
    """
    for name in broker.namespaces:
        stored = broker.namespaces.namespace(name)
        if _is_expressible(stored.permissions.values()):
            await write(broker.acls.plan_create(_acls(broker, name, stored.permissions)))
            left = msgspec.structs.replace(stored, permissions=_others(stored.permissions))
            await write(broker.namespaces.plan_alter(name, left))
    for topic in list(broker.cluster):
        grants = read_grants(topic.settings)
        if _is_expressible(grants.values()):
            await write(broker.acls.plan_create(_acls(broker, topic.name, grants)))
            settings = {key: text for key, text in topic.settings.items() if key != PERMISSIONS}
            others = _others(grants)
            if others:
                settings[PERMISSIONS] = msgspec.json.encode(others).decode()
            await write(broker.cluster.plan_alter(topic.name, settings))


def read_grants(settings: dict[str, str]) -> Grants:
    """Return the actions by role that a topic's settings store."""
    text = settings.get(PERMISSIONS)
    return msgspec.json.decode(text, type=Grants) if text else {}


def _is_expressible(actions: Iterable[list[str]]) -> bool:
    return any(ACTIONS.keys() & set(each) for each in actions)


def _acls(broker: Broker, place: NamespaceName | TopicName, grants: Grants) -> list[Acl]:
    view = GrantedActions(broker.acls, place)
    return [acl for role, actions in grants.items() for acl in view.acls_to_grant(role, actions)]


def _others(grants: Grants) -> Grants:
    others = {role: without_operation(actions) for role, actions in grants.items()}
    return {role: actions for role, actions in others.items() if actions}
