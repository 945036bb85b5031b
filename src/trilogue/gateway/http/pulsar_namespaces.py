"""Namespaces over HTTP: /admin/v2/namespaces/…: made, deleted, listed; permissions, properties.

A namespace may be made with what a client says of it at once (`message_ttl_in_seconds`, …): what is
known is taken as if it had been set by itself, what is empty or its default is passed over, and
anything else is refused.

Permissions are kept and shown. There is no authentication yet, so there is nobody to whom they
could apply: everybody may do everything (docs/reference/pulsar-policies.md says so).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from trilogue.broker.access import Operation, ResourceKind
from trilogue.broker.errors import InUse, InvalidSetting, NamespaceExists, UnknownNamespace
from trilogue.broker.names import NamespaceName, spelled_pulsar
from trilogue.broker.namespaces import Namespace
from trilogue.broker.policies import Level, check_policy
from trilogue.broker.topic import Topic
from trilogue.gateway.http.incoming import Problem
from trilogue.gateway.http.pulsar_asked import Asked, Row
from trilogue.gateway.http.pulsar_live import unload_partition
from trilogue.gateway.http.pulsar_policies import change_namespace, namespace_rows

BUNDLE = "0x00000000_0xffffffff"
BUNDLES = {"boundaries": ["0x00000000", "0xffffffff"], "numBundles": 1}
ACTIONS = frozenset({"produce", "consume", "functions", "sources", "sinks", "packages"})
PERMISSIONS_MAX = 10_000
PROPERTIES_MAX = 1_000

# What a namespace is made with, as administration calls it here, and which policy that is.
SAID_AS = {
    "retention_policies": "retention",
    "message_ttl_in_seconds": "messageTTL",
    "deduplicationEnabled": "deduplication",
    "backlog_quota_map": "backlogQuota",
    "persistence": "persistence",
    "autoTopicCreationOverride": "autoTopicCreation",
    "autoSubscriptionCreationOverride": "autoSubscriptionCreation",
    "max_producers_per_topic": "maxProducers",
    "max_consumers_per_topic": "maxConsumers",
    "max_consumers_per_subscription": "maxConsumersPerSubscription",
    "max_subscriptions_per_topic": "maxSubscriptionsPerTopic",
    "max_unacked_messages_per_consumer": "maxUnackedMessagesOnConsumer",
    "max_unacked_messages_per_subscription": "maxUnackedMessagesOnSubscription",
    "schema_compatibility_strategy": "schemaCompatibilityStrategy",
    "schema_validation_enforced": "schemaValidationEnforced",
    "is_allow_auto_update_schema": "isAllowAutoUpdateSchema",
    "subscription_types_enabled": "subscriptionTypesEnabled",
    "encryption_required": "encryptionRequired",
    "delayed_delivery_policies": "delayedDelivery",
}
SHOWN_UNSET: dict[str, Any] = {
    "backlog_quota_map": {},
    "schema_compatibility_strategy": "UNDEFINED",
    "schema_validation_enforced": False,
    "is_allow_auto_update_schema": True,
    "subscription_types_enabled": [],
    "encryption_required": False,
}
PASSED_OVER = frozenset({"bundles", "deleted", "latency_stats_sample_rate"})
NOT_SAID: tuple[Any, ...] = (None, {}, [], -1, "UNDEFINED")  # of what is a policy
HARMLESS: tuple[Any, ...] = (*NOT_SAID, False, "None", "")  # of what is none


def namespaces(asked: Asked) -> object:
    """Name the namespaces of a tenant."""
    tenant, known = asked.params["tenant"], asked.broker.namespaces
    try:
        known.tenant(tenant)
    except UnknownNamespace as error:
        raise Problem(404, "Tenant not found") from error
    return [str(each) for each in known.names(tenant)]


def find(asked: Asked) -> Namespace:
    """What was said of the namespace in the path; Problem 404."""
    try:
        return asked.broker.namespaces.find(asked.namespace)
    except UnknownNamespace as error:
        raise Problem(404, "Namespace does not exist") from error


def namespace(asked: Asked) -> object:
    """Tell everything that was said of one."""
    found = find(asked)
    said = {
        name: found.policies.get(policy, SHOWN_UNSET.get(name)) for name, policy in SAID_AS.items()
    }
    return {
        "auth_policies": {
            "namespace_auth": found.permissions,
            "destination_auth": {},
            "subscription_auth_roles": {},
        },
        "replication_clusters": [asked.door.settings.cluster],
        "allowed_clusters": [],
        "bundles": BUNDLES,
        **{name: value for name, value in said.items() if value is not None},
        "deleted": False,
        "subscription_auth_mode": "None",
        "offload_threshold": -1,
        "offload_threshold_in_seconds": -1,
        "properties": found.properties,
        "migrated": False,
    }


async def put_namespace(asked: Asked) -> None:
    """Make one."""
    name, known = asked.namespace, asked.broker.namespaces
    try:
        known.tenant(name.tenant)
    except UnknownNamespace as error:
        raise Problem(404, "Tenant does not exist") from error
    made = read_namespace(asked.any_json() if asked.body else {}, asked.door.settings.cluster)
    try:
        await asked.carry_out(lambda: known.plan_create(name, made))
    except NamespaceExists as error:
        raise Problem(409, "Namespace already exists") from error


def read_namespace(body: Any, cluster: str) -> Namespace:
    """Turn what a client says of a new namespace into what is kept; InvalidSetting."""
    if isinstance(body, list):  # the oldest clients send the clusters alone
        body = {"replication_clusters": body}
    if not isinstance(body, dict):
        raise Problem(400, "a namespace is made from an object")
    policies: dict[str, Any] = {}
    permissions: dict[str, list[str]] = {}
    properties: dict[str, str] = {}
    for field, value in body.items():
        unsaid = NOT_SAID if field in SAID_AS else HARMLESS
        if field in PASSED_OVER or value in unsaid:
            continue
        if field in {"replication_clusters", "allowed_clusters"}:
            if value != [cluster]:
                raise InvalidSetting("Clusters do not exist")
        elif field == "properties":
            properties = _properties(value)
        elif field == "auth_policies":
            permissions = _permissions(value)
        elif field in SAID_AS:
            policies[SAID_AS[field]] = check_policy(SAID_AS[field], Level.NAMESPACE, value)
        else:
            raise InvalidSetting(f"{field}: is not obeyed, so it is not taken")
    return Namespace(policies, permissions, properties)


def _permissions(value: Any) -> dict[str, list[str]]:
    try:
        roles = msgspec.convert(value.get("namespace_auth", {}), dict[str, list[str]])
    except (AttributeError, msgspec.ValidationError) as error:
        raise Problem(400, "auth_policies cannot be read") from error
    return {role: check_actions(actions) for role, actions in roles.items()}


async def delete_namespace(asked: Asked) -> None:
    """Forget one that has no topics; with `force` its topics go first."""
    find(asked)
    name, known, cluster = asked.namespace, asked.broker.namespaces, asked.broker.cluster
    if asked.flag("force"):
        for topic in cluster.topics_in(name):
            asked.check(ResourceKind.TOPIC, topic.name)
            await asked.delete_topic(topic.name)
    if cluster.count_in(name):
        raise InUse("Cannot delete non empty namespace")
    await asked.carry_out(lambda: known.plan_delete(name))


def _check_bundle(asked: Asked) -> None:
    find(asked)
    if asked.params["bundle"] != BUNDLE:
        raise Problem(412, f"a namespace has one bundle, {BUNDLE}")


def delete_bundle(asked: Asked) -> None:
    """Let go of all of a namespace: there is nothing to let go of, its topics stay."""
    _check_bundle(asked)
    if asked.broker.cluster.count_in(asked.namespace):
        raise Problem(409, "Cannot delete non empty bundle")


def unload_bundle(asked: Asked) -> None:
    """Close what is connected to the topics of a namespace: they look again and come back."""
    _check_bundle(asked)
    unload(asked)


def unload(asked: Asked) -> None:
    """The same for the whole namespace."""
    find(asked)
    for topic in asked.broker.cluster.topics_in(asked.namespace):
        for partition in topic.partitions:
            unload_partition(asked.door, partition)


def bundles(asked: Asked) -> object:
    """Tell the only bundle."""
    find(asked)
    return BUNDLES


# -- what is in it


def spelled(topic: Topic) -> list[str]:
    """The names that Pulsar clients know a topic's partitions by."""
    if not topic.partitioned:
        return [spelled_pulsar(topic.name)]
    return [spelled_pulsar(topic.name, index) for index in range(len(topic.partitions))]


def topics_seen(asked: Asked, name: NamespaceName) -> list[Topic]:
    """The topics of a namespace that whoever asks may know of."""
    allowed, kind = asked.allowed, ResourceKind.TOPIC
    return [each for each in asked.broker.cluster.topics_in(name) if allowed(kind, each.name)]


def topics(asked: Asked) -> object:
    """Name the topics of a namespace, by partition."""
    find(asked)
    mode = asked.request.query_params.get("mode", "PERSISTENT")
    if mode not in {"PERSISTENT", "NON_PERSISTENT", "ALL"}:
        raise Problem(400, "mode is PERSISTENT, NON_PERSISTENT or ALL")
    if mode == "NON_PERSISTENT":
        return []
    return [name for topic in topics_seen(asked, asked.namespace) for name in spelled(topic)]


def persistent_topics(asked: Asked) -> object:
    """The same at the path of topics."""
    find(asked)
    return [name for topic in topics_seen(asked, asked.namespace) for name in spelled(topic)]


def partitioned_topics(asked: Asked) -> object:
    """Name the topics with numbered partitions."""
    find(asked)
    seen = topics_seen(asked, asked.namespace)
    return [spelled_pulsar(each.name) for each in seen if each.partitioned]


def no_topics(asked: Asked) -> object:
    """Name the topics that are not kept: there are none."""
    find(asked)
    return []


# -- permissions, properties


def permissions(asked: Asked) -> object:
    """Tell who was said to be allowed what."""
    return find(asked).permissions


def check_actions(actions: Any) -> list[str]:
    """Return what a role may do, or refuse what nobody can."""
    if not isinstance(actions, list) or not all(isinstance(each, str) for each in actions):
        raise Problem(400, "actions are a list of names")
    if not set(actions) <= ACTIONS:
        raise InvalidSetting(f"actions are {', '.join(sorted(ACTIONS))}")
    return sorted(set(actions))


def _changing_permissions(change: Callable[[dict[str, list[str]]], None]) -> Any:
    def changed(before: Namespace) -> Namespace:
        after = dict(before.permissions)
        change(after)
        if len(after) > PERMISSIONS_MAX:
            raise InUse(f"a namespace has permissions for {PERMISSIONS_MAX} roles at most")
        return msgspec.structs.replace(before, permissions=after)

    return changed


async def grant(asked: Asked) -> None:
    """Say what a role may do."""
    find(asked)
    role, actions = asked.params["role"], check_actions(asked.any_json())

    def change(after: dict[str, list[str]]) -> None:
        after[role] = sorted({*after.get(role, []), *actions})

    await change_namespace(asked, _changing_permissions(change))


async def revoke(asked: Asked) -> None:
    """Say that a role may do nothing any more."""
    find(asked)
    role = asked.params["role"]
    await change_namespace(asked, _changing_permissions(lambda after: after.pop(role, None)))  # type: ignore[arg-type]


def _properties(value: Any) -> dict[str, str]:
    try:
        found = msgspec.convert(value, dict[str, str])
    except msgspec.ValidationError as error:
        raise Problem(400, f"properties are texts: {error}") from error
    if len(found) > PROPERTIES_MAX:
        raise InUse(f"there may be {PROPERTIES_MAX} properties")
    return found


def properties(asked: Asked) -> object:
    """Tell a namespace's own notes."""
    return find(asked).properties


async def put_properties(asked: Asked) -> None:
    """Add to them."""
    find(asked)
    added = _properties(asked.any_json())

    def changed(before: Namespace) -> Namespace:
        after = _properties({**before.properties, **added})
        return msgspec.structs.replace(before, properties=after)

    await change_namespace(asked, changed)


def one_property(asked: Asked) -> object:
    """Tell one of them."""
    value = find(asked).properties.get(asked.params["key"])
    if value is None:
        raise Problem(404, "there is no such property")
    return value


async def put_property(asked: Asked) -> None:
    """Add one."""
    find(asked)
    added = {asked.params["key"]: asked.params["value"]}

    def changed(before: Namespace) -> Namespace:
        after = _properties({**before.properties, **added})
        return msgspec.structs.replace(before, properties=after)

    await change_namespace(asked, changed)


async def delete_property(asked: Asked) -> object:
    """Forget one; tell what it was."""
    found = one_property(asked)

    def changed(before: Namespace) -> Namespace:
        after = {k: v for k, v in before.properties.items() if k != asked.params["key"]}
        return msgspec.structs.replace(before, properties=after)

    await change_namespace(asked, changed)
    return found


async def delete_properties(asked: Asked) -> None:
    """Forget them."""
    find(asked)
    await change_namespace(asked, lambda before: msgspec.structs.replace(before, properties={}))


# -- replication: one cluster


def replication(asked: Asked) -> object:
    """Name the only cluster."""
    find(asked)
    return [asked.door.settings.cluster]


def set_replication(asked: Asked) -> None:
    """Take the only cluster, refuse others."""
    find(asked)
    if asked.json(list[str]) != [asked.door.settings.cluster]:
        raise InvalidSetting("replication: there is one cluster")


KIND, TOPIC = ResourceKind.NAMESPACE, ResourceKind.TOPIC
DESCRIBE, ALTER, SETTINGS = Operation.DESCRIBE, Operation.ALTER, Operation.ALTER_SETTINGS


def rows(prefix: str, place: str) -> list[Row]:
    """The rows of namespaces; `place` is `{tenant}/{namespace}` or has a cluster between."""
    one = f"{prefix}/namespaces/{place}"
    return [
        Row("GET", f"{one}/topics", topics, KIND, DESCRIBE),
        Row("GET", f"{one}/destinations", topics, KIND, DESCRIBE),
        Row("GET", f"{one}/bundles", bundles, KIND, DESCRIBE),
        Row("GET", f"{one}/permissions", permissions, KIND, DESCRIBE),
        Row("POST", f"{one}/permissions/{{role}}", grant, KIND, ALTER),
        Row("DELETE", f"{one}/permissions/{{role}}", revoke, KIND, ALTER),
        Row("GET", f"{one}/properties", properties, KIND, DESCRIBE),
        Row("PUT", f"{one}/properties", put_properties, KIND, SETTINGS),
        Row("DELETE", f"{one}/properties", delete_properties, KIND, SETTINGS),
        Row("GET", f"{one}/property/{{key}}", one_property, KIND, DESCRIBE),
        Row("PUT", f"{one}/property/{{key}}/{{value}}", put_property, KIND, SETTINGS),
        Row("DELETE", f"{one}/property/{{key}}", delete_property, KIND, SETTINGS),
        Row("GET", f"{one}/replication", replication, KIND, DESCRIBE),
        Row("POST", f"{one}/replication", set_replication, KIND, SETTINGS),
        Row("PUT", f"{one}/unload", unload, KIND, ALTER),
        Row("PUT", f"{one}/{{bundle}}/unload", unload_bundle, KIND, ALTER),
        *(
            Row(row.methods, one + row.path, row.handler, row.resource, row.operation)
            for row in namespace_rows()
        ),
        Row("DELETE", f"{one}/{{bundle}}", delete_bundle, KIND, Operation.DELETE),
        Row("GET", one, namespace, KIND, DESCRIBE),
        Row("PUT", one, put_namespace, KIND, Operation.CREATE),
        Row("DELETE", one, delete_namespace, KIND, Operation.DELETE),
        Row("GET", f"{prefix}/persistent/{place}", persistent_topics, KIND, DESCRIBE),
        Row("GET", f"{prefix}/persistent/{place}/partitioned", partitioned_topics, KIND, DESCRIBE),
        Row("GET", f"{prefix}/non-persistent/{place}", no_topics, KIND, DESCRIBE),
        Row("GET", f"{prefix}/non-persistent/{place}/partitioned", no_topics, KIND, DESCRIBE),
    ]
