"""Namespaces over HTTP: /admin/v2/namespaces/…: created, deleted, listed; permissions, properties.

A namespace may be created with policies (`message_ttl_in_seconds`, …): known ones are applied as if
each was set by itself, empty and default ones are ignored, all others are rejected.

Permissions to produce and consume are a view of ACLs (broker/access/granted_actions.py). Others, of
functions, sources, sinks and packages, are stored and returned.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.access.granted_actions import GrantedActions, without_operation
from trilogue.broker.errors import InUse, InvalidSetting, NamespaceExists, UnknownNamespace
from trilogue.broker.names import NamespaceName, format_pulsar
from trilogue.broker.topics.namespaces import Namespace
from trilogue.broker.topics.partition import Partition
from trilogue.broker.topics.policies import PolicyLevel, check_policy
from trilogue.broker.topics.topic import Topic
from trilogue.gateway.http.pulsar.admin_request import AdminRequest, AdminRoute, Reply
from trilogue.gateway.http.pulsar.policies import (
    ALLOWED_CLUSTERS,
    change_namespace,
    namespace_policy_routes,
)
from trilogue.gateway.http.pulsar.subscription_permissions import subscription_permission_routes
from trilogue.gateway.http.pulsar.topic_clients import unload_partition
from trilogue.gateway.http.request_limits import HttpError
from trilogue.gateway.pulsar.non_persistent.topics import close_clients

BUNDLE = "0x00000000_0xffffffff"
BUNDLES = {"boundaries": ["0x00000000", "0xffffffff"], "numBundles": 1}
ACTIONS = frozenset({"produce", "consume", "functions", "sources", "sinks", "packages"})
PERMISSIONS_MAX = 10_000
PROPERTIES_MAX = 1_000

# Fields of the body that creates a namespace, and their policies.
POLICY_OF_FIELD = {
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
    "subscription_auth_mode": "subscriptionAuthMode",
    "delayed_delivery_policies": "delayedDelivery",
    "publishMaxMessageRate": "publishRate",
    "topicDispatchRate": "dispatchRate",
    "subscriptionDispatchRate": "subscriptionDispatchRate",
    "clusterSubscribeRate": "subscribeRate",
    "max_topics_per_namespace": "maxTopicsPerNamespace",
    "subscription_expiration_time_minutes": "subscriptionExpirationTime",
    "compaction_threshold": "compactionThreshold",
}
# Of these the body has an object: the name of a cluster, and its value.
RATE_FIELDS = frozenset(
    {
        "publishMaxMessageRate",
        "topicDispatchRate",
        "subscriptionDispatchRate",
        "clusterSubscribeRate",
    }
)
# The older field of the compatibility of schemas, which holds where the newer one is not set.
# "Full", which Go's administration and pulsarctl send by default, is the default: no policy.
AUTO_UPDATE_FIELD = "schema_auto_update_compatibility_strategy"
STRATEGY_OF_AUTO_UPDATE = {
    "AutoUpdateDisabled": "ALWAYS_INCOMPATIBLE",
    "Backward": "BACKWARD",
    "Forward": "FORWARD",
    "AlwaysCompatible": "ALWAYS_COMPATIBLE",
    "BackwardTransitive": "BACKWARD_TRANSITIVE",
    "ForwardTransitive": "FORWARD_TRANSITIVE",
    "FullTransitive": "FULL_TRANSITIVE",
}
UNSET_FIELDS: dict[str, Any] = {
    "backlog_quota_map": {},
    "schema_compatibility_strategy": "UNDEFINED",
    "schema_validation_enforced": False,
    "is_allow_auto_update_schema": True,
    "subscription_types_enabled": [],
    "encryption_required": False,
    "subscription_auth_mode": "None",
}
IGNORED_FIELDS = frozenset({"bundles", "deleted", "latency_stats_sample_rate", AUTO_UPDATE_FIELD})
UNSET_VALUES: tuple[Any, ...] = (None, {}, [], -1, "UNDEFINED")  # of policies
IGNORED_VALUES: tuple[Any, ...] = (*UNSET_VALUES, False, "None", "")  # of other fields


def list_namespaces(request: AdminRequest) -> object:
    """Return the namespaces of a tenant, or of one of its clusters by an old path."""
    tenant, known = request.params["tenant"], request.broker.namespaces
    cluster = request.params.get("cluster")
    prefix = f"{tenant}/" if cluster is None else f"{tenant}/{cluster}/"
    try:
        known.tenant(tenant)
    except UnknownNamespace as error:
        raise HttpError(404, "Tenant not found") from error
    names = map(str, known.namespace_names(tenant))
    return [each for each in names if each.startswith(prefix)]


def find_namespace(request: AdminRequest) -> Namespace:
    """Return the namespace of the path; raises HttpError 404."""
    try:
        return request.broker.namespaces.namespace(request.namespace)
    except UnknownNamespace as error:
        raise HttpError(404, "Namespace does not exist") from error


def get_namespace(request: AdminRequest) -> object:
    """Return the policies, permissions and properties of a namespace."""
    found = find_namespace(request)
    fields = {
        name: found.policies.get(policy, UNSET_FIELDS.get(name))
        for name, policy in POLICY_OF_FIELD.items()
    }
    for name in RATE_FIELDS:
        rate = fields[name]
        fields[name] = {} if rate is None else {request.gateway.settings.cluster: rate}
    return {
        "auth_policies": {
            "namespace_auth": namespace_permissions(request),
            "destination_auth": {},
            "subscription_auth_roles": found.subscription_roles,
        },
        "replication_clusters": [request.gateway.settings.cluster],
        "allowed_clusters": found.policies.get(ALLOWED_CLUSTERS.policy, []),
        "bundles": BUNDLES,
        **{name: value for name, value in fields.items() if value is not None},
        "deleted": False,
        "offload_threshold": found.policies.get("offloadThreshold", -1),
        "offload_threshold_in_seconds": found.policies.get("offloadThresholdInSeconds", -1),
        "properties": found.properties,
        "migrated": False,
    }


async def create_namespace(request: AdminRequest) -> None:
    """Create a namespace."""
    name, known = request.namespace, request.broker.namespaces
    try:
        allowed = known.tenant(name.tenant).allowed_clusters
    except UnknownNamespace as error:
        raise HttpError(404, "Tenant does not exist") from error
    here = request.gateway.settings.cluster
    body = request.any_json() if request.body else {}
    _check_clusters(body, name.tenant, set(allowed) or {here})
    made = parse_namespace_body(body, here)
    granted = made.permissions
    if granted:
        request.check_grant(ResourceKind.NAMESPACE, name)
        others = {role: without_operation(actions) for role, actions in granted.items()}
        made = msgspec.structs.replace(made, permissions={k: v for k, v in others.items() if v})
    try:
        await request.commit_change(lambda: known.plan_create(name, made))
    except NamespaceExists as error:
        raise HttpError(409, "Namespace already exists") from error
    view = GrantedActions(request.broker.acls, name)
    acls = [acl for role, actions in granted.items() for acl in view.acls_to_grant(role, actions)]
    await request.change_acls(acls, ())


def _check_clusters(body: Any, tenant: str, allowed: set[str]) -> None:
    """Refuse clusters that a tenant may not use, in Pulsar's words: HttpError 403."""
    wanted = body.get("replication_clusters") if isinstance(body, dict) else body
    if isinstance(wanted, list):
        others = [each for each in wanted if isinstance(each, str) and each not in allowed]
        if others:
            raise HttpError(
                403,
                f"Cluster [{', '.join(others)[:200]}] is not in the list of allowed clusters list "
                f"for tenant [{tenant}]",
            )


def parse_namespace_body(body: Any, cluster: str) -> Namespace:
    """Return the namespace that a body describes; raises InvalidSetting."""
    if isinstance(body, list):  # the oldest clients send the clusters alone
        body = {"replication_clusters": body}
    if not isinstance(body, dict):
        raise HttpError(400, "a namespace is made from an object")
    policies = _parse_auto_update(body.get(AUTO_UPDATE_FIELD))
    permissions: dict[str, list[str]] = {}
    properties: dict[str, str] = {}
    for field, value in body.items():
        unsaid = UNSET_VALUES if field in POLICY_OF_FIELD else IGNORED_VALUES
        if field in IGNORED_FIELDS or value in unsaid:
            continue
        if field in {"replication_clusters", "allowed_clusters"}:
            if value != [cluster]:
                raise InvalidSetting("Clusters do not exist")
        elif field == "properties":
            properties = _parse_properties(value)
        elif field == "auth_policies":
            permissions = _parse_permissions(value)
        elif field in POLICY_OF_FIELD:
            policies[POLICY_OF_FIELD[field]] = _parse_policy(field, value, cluster)
        else:
            raise InvalidSetting(f"{field}: is not obeyed, so it is not taken")
    return Namespace(policies, permissions, properties)


def _parse_auto_update(value: Any) -> dict[str, Any]:
    """Return the policy of AUTO_UPDATE_FIELD, which another field may replace."""
    if value in (None, "Full"):
        return {}
    strategy = STRATEGY_OF_AUTO_UPDATE.get(value) if isinstance(value, str) else None
    if strategy is None:
        raise InvalidSetting(f"{AUTO_UPDATE_FIELD}: Full, {', '.join(STRATEGY_OF_AUTO_UPDATE)}")
    return {"schemaCompatibilityStrategy": strategy}


def _parse_policy(field: str, value: Any, cluster: str) -> Any:
    if field in RATE_FIELDS:
        if not isinstance(value, dict) or set(value) != {cluster}:
            raise InvalidSetting(f"{field}: an object with the rate of the cluster {cluster}")
        value = value[cluster]
    return check_policy(POLICY_OF_FIELD[field], PolicyLevel.NAMESPACE, value)


def _parse_permissions(value: Any) -> dict[str, list[str]]:
    try:
        roles = msgspec.convert(value.get("namespace_auth", {}), dict[str, list[str]])
    except (AttributeError, msgspec.ValidationError) as error:
        raise HttpError(400, "auth_policies cannot be read") from error
    return {role: check_actions(actions) for role, actions in roles.items()}


async def delete_namespace(request: AdminRequest) -> None:
    """Delete a namespace without topics; `force` deletes its topics first."""
    find_namespace(request)
    name, known, cluster = request.namespace, request.broker.namespaces, request.broker.cluster
    if request.flag("force"):
        for topic in cluster.topics_in(name):
            request.check_access(ResourceKind.TOPIC, topic.name)
            await request.delete_topic(topic.name)
    if cluster.topic_count(name):
        raise InUse("Cannot delete non empty namespace")
    await _delete_non_persistent(request, name, force=request.flag("force"))
    await request.commit_change(lambda: known.plan_delete(name))
    await request.change_acls((), GrantedActions(request.broker.acls, name).all_acls())


async def _delete_non_persistent(
    request: AdminRequest, namespace: NamespaceName, *, force: bool
) -> None:
    """Delete the non-persistent topics of a namespace; without `force` one is InUse."""
    topics = request.broker.non_persistent
    loaded = [each for each in topics if each.name.topic.namespace_name == namespace]
    partitioned = topics.partitioned_in(namespace)
    if not force:
        if partitioned or any(each.is_used for each in loaded):
            raise InUse("Cannot delete non empty namespace")
        return
    for name in {*partitioned, *(each.name.topic for each in loaded)}:
        request.check_access(ResourceKind.TOPIC, name)
    for name in partitioned:
        await request.commit_change(lambda name=name: topics.plan_delete(name))  # type: ignore[misc]
    for each in loaded:
        topics.discard(each)
        close_clients(each)


def _check_bundle(request: AdminRequest) -> None:
    find_namespace(request)
    if request.params["bundle"] != BUNDLE:
        raise HttpError(412, f"a namespace has one bundle, {BUNDLE}")


def delete_bundle(request: AdminRequest) -> None:
    """Succeed without effect for an empty bundle: a namespace has one bundle."""
    _check_bundle(request)
    if request.broker.cluster.topic_count(request.namespace):
        raise HttpError(409, "Cannot delete non empty bundle")


def unload_bundle(request: AdminRequest) -> None:
    """Close the connections to the topics of a namespace; clients look them up again."""
    _check_bundle(request)
    unload_namespace(request)


def unload_namespace(request: AdminRequest) -> None:
    """Do the same for the whole namespace."""
    find_namespace(request)
    for topic in request.broker.cluster.topics_in(request.namespace):
        for partition in topic.partitions:
            unload_partition(request.gateway, partition)
    for each in request.broker.non_persistent:
        if each.name.topic.namespace_name == request.namespace:
            close_clients(each)


# -- backlogs and subscriptions of all topics


def _each_partition(request: AdminRequest) -> list[Partition]:
    """Return the partitions of a namespace on this node; the principal may alter all topics."""
    find_namespace(request)
    if "bundle" in request.params:
        _check_bundle(request)
    topics = request.broker.cluster.topics_in(request.namespace)
    for topic in topics:
        request.check_access(ResourceKind.TOPIC, topic.name)
    return [partition for topic in topics for partition in topic.local_partitions]


def clear_backlog(request: AdminRequest) -> None:
    """Acknowledge all messages of all topics, for one subscription or for all."""
    wanted, known = request.params.get("subscription"), request.broker.subscriptions
    for partition in _each_partition(request):
        for name, cursor in list(known.of_partition(partition.partition_id).items()):
            if wanted in {None, name}:
                known.ack_until(cursor, partition.log.high_watermark)
                request.gateway.subscriptions.mark_moved(partition.partition_id, name)


async def delete_subscription(request: AdminRequest) -> None:
    """Delete a subscription of all topics; HttpError 412 while one has consumers."""
    name, readers = request.params["subscription"], request.gateway.subscriptions
    partitions = _each_partition(request)
    for partition in partitions:
        dispatcher = readers.find_dispatcher(partition.partition_id, name)
        if dispatcher is not None and dispatcher.consumers:
            raise HttpError(412, "Subscription has active connected consumers")
    for partition in partitions:
        if request.broker.subscriptions.find_cursor(partition.partition_id, name) is not None:
            await readers.delete(partition, name)


def list_bundles(request: AdminRequest) -> object:
    """Return the only bundle."""
    find_namespace(request)
    return BUNDLES


# -- what is in it


def partition_names(topic: Topic) -> list[str]:
    """Return the names that Pulsar clients have for a topic's partitions."""
    if not topic.partitioned:
        return [format_pulsar(topic.name)]
    return [format_pulsar(topic.name, index) for index in range(len(topic.partitions))]


def visible_topics(request: AdminRequest, name: NamespaceName) -> list[Topic]:
    """Return the topics of a namespace that the principal may see."""
    can_see, kind = request.can_see, ResourceKind.TOPIC
    return [each for each in request.broker.cluster.topics_in(name) if can_see(kind, each.name)]


def visible_non_persistent(request: AdminRequest, name: NamespaceName) -> list[str]:
    """Return the names of a namespace's non-persistent topics that the principal may see."""
    return [
        str(each)
        for each in request.broker.non_persistent.names_in(name)
        if request.can_see(ResourceKind.TOPIC, each.topic)
    ]


def list_topics(request: AdminRequest) -> object:
    """Return the topics of a namespace, by partition."""
    find_namespace(request)
    mode = request.http.query_params.get("mode", "PERSISTENT")
    if mode not in {"PERSISTENT", "NON_PERSISTENT", "ALL"}:
        raise HttpError(400, "mode is PERSISTENT, NON_PERSISTENT or ALL")
    found: list[str] = []
    if mode != "NON_PERSISTENT":
        for topic in visible_topics(request, request.namespace):
            found += partition_names(topic)
    if mode != "PERSISTENT":
        found += visible_non_persistent(request, request.namespace)
    return found


def list_persistent_topics(request: AdminRequest) -> object:
    """Return the same at the path of topics."""
    find_namespace(request)
    return [
        name
        for topic in visible_topics(request, request.namespace)
        for name in partition_names(topic)
    ]


def list_partitioned_topics(request: AdminRequest) -> object:
    """Return the partitioned topics."""
    find_namespace(request)
    seen = visible_topics(request, request.namespace)
    return [format_pulsar(each.name) for each in seen if each.partitioned]


# -- permissions, properties


def namespace_permissions(request: AdminRequest) -> dict[str, list[str]]:
    """Return the actions of each role on the namespace of the path."""
    granted = GrantedActions(request.broker.acls, request.namespace).by_role()
    return join_actions(granted, find_namespace(request).permissions)


def join_actions(*grants: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return the sorted actions by role of several grants together."""
    joined: dict[str, set[str]] = {}
    for each in grants:
        for role, actions in each.items():
            joined.setdefault(role, set()).update(actions)
    return {role: sorted(actions) for role, actions in joined.items()}


def get_permissions(request: AdminRequest) -> object:
    """Return the permissions by role."""
    return namespace_permissions(request)


def check_actions(actions: Any) -> list[str]:
    """Return the sorted actions of a role; raises for unknown ones."""
    if not isinstance(actions, list) or not all(isinstance(each, str) for each in actions):
        raise HttpError(400, "actions are a list of names")
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


async def grant_permission(request: AdminRequest) -> None:
    """Grant actions to a role."""
    find_namespace(request)
    role, actions = request.params["role"], check_actions(request.any_json())
    request.check_grant(ResourceKind.NAMESPACE, request.namespace)
    view = GrantedActions(request.broker.acls, request.namespace)
    await request.change_acls(view.acls_to_grant(role, actions), ())
    others = without_operation(actions)

    def change(after: dict[str, list[str]]) -> None:
        after[role] = sorted({*after.get(role, []), *others})

    if others:
        await change_namespace(request, _changing_permissions(change))


async def revoke_permission(request: AdminRequest) -> None:
    """Revoke the permissions of a role."""
    found, role = find_namespace(request), request.params["role"]
    request.check_grant(ResourceKind.NAMESPACE, request.namespace)
    view = GrantedActions(request.broker.acls, request.namespace)
    await request.change_acls((), view.acls_to_revoke(role))
    if role in found.permissions:
        await change_namespace(request, _changing_permissions(lambda after: after.pop(role, None)))  # type: ignore[arg-type]


def _parse_properties(value: Any) -> dict[str, str]:
    try:
        found = msgspec.convert(value, dict[str, str])
    except msgspec.ValidationError as error:
        raise HttpError(400, f"properties are texts: {error}") from error
    if len(found) > PROPERTIES_MAX:
        raise InUse(f"there may be {PROPERTIES_MAX} properties")
    return found


def get_properties(request: AdminRequest) -> object:
    """Return the properties of a namespace."""
    return find_namespace(request).properties


async def add_properties(request: AdminRequest) -> None:
    """Add properties."""
    find_namespace(request)
    added = _parse_properties(request.any_json())

    def changed(before: Namespace) -> Namespace:
        after = _parse_properties({**before.properties, **added})
        return msgspec.structs.replace(before, properties=after)

    await change_namespace(request, changed)


def get_property(request: AdminRequest) -> Reply:
    """Return one property as its text, without quotes; nothing where there is none."""
    value = find_namespace(request).properties.get(request.params["key"])
    return Reply(204) if value is None else Reply(200, value.encode(), "application/json")


async def add_property(request: AdminRequest) -> None:
    """Add one property."""
    find_namespace(request)
    added = {request.params["key"]: request.params["value"]}

    def changed(before: Namespace) -> Namespace:
        after = _parse_properties({**before.properties, **added})
        return msgspec.structs.replace(before, properties=after)

    await change_namespace(request, changed)


async def delete_property(request: AdminRequest) -> Reply:
    """Delete one property; return its value."""
    found = get_property(request)

    def changed(before: Namespace) -> Namespace:
        after = {k: v for k, v in before.properties.items() if k != request.params["key"]}
        return msgspec.structs.replace(before, properties=after)

    await change_namespace(request, changed)
    return found


async def delete_properties(request: AdminRequest) -> None:
    """Delete all properties."""
    find_namespace(request)
    await change_namespace(request, lambda before: msgspec.structs.replace(before, properties={}))


# -- replication: one cluster


def get_replication(request: AdminRequest) -> object:
    """Return the only cluster."""
    find_namespace(request)
    return [request.gateway.settings.cluster]


def set_replication(request: AdminRequest) -> None:
    """Accept the only cluster, reject others."""
    find_namespace(request)
    if request.json(list[str]) != [request.gateway.settings.cluster]:
        raise InvalidSetting("replication: there is one cluster")


KIND, TOPIC = ResourceKind.NAMESPACE, ResourceKind.TOPIC
DESCRIBE, ALTER, SETTINGS = Operation.DESCRIBE, Operation.ALTER, Operation.ALTER_SETTINGS


BACKLOG_PATHS = (
    ("/clearBacklog", clear_backlog),
    ("/clearBacklog/{subscription}", clear_backlog),
    ("/unsubscribe/{subscription}", delete_subscription),
)


def routes(prefix: str, place: str) -> list[AdminRoute]:
    """Return the routes of namespaces.

    `place` is `{tenant}/{namespace}` or has a cluster between.
    """
    one = f"{prefix}/namespaces/{place}"
    return [
        AdminRoute("GET", f"{one}/topics", list_topics, KIND, DESCRIBE),
        AdminRoute("GET", f"{one}/destinations", list_topics, KIND, DESCRIBE),
        AdminRoute("GET", f"{one}/bundles", list_bundles, KIND, DESCRIBE),
        AdminRoute("GET", f"{one}/permissions", get_permissions, KIND, DESCRIBE),
        AdminRoute("POST", f"{one}/permissions/{{role}}", grant_permission, KIND, ALTER),
        AdminRoute("DELETE", f"{one}/permissions/{{role}}", revoke_permission, KIND, ALTER),
        *subscription_permission_routes(one),
        *(
            AdminRoute("POST", one + bundle + path, handler, KIND, ALTER)
            for bundle in ("", "/{bundle}")
            for path, handler in BACKLOG_PATHS
        ),
        AdminRoute("GET", f"{one}/properties", get_properties, KIND, DESCRIBE),
        AdminRoute("PUT", f"{one}/properties", add_properties, KIND, SETTINGS),
        AdminRoute("DELETE", f"{one}/properties", delete_properties, KIND, SETTINGS),
        AdminRoute("GET", f"{one}/property/{{key}}", get_property, KIND, DESCRIBE),
        AdminRoute("PUT", f"{one}/property/{{key}}/{{value}}", add_property, KIND, SETTINGS),
        AdminRoute("DELETE", f"{one}/property/{{key}}", delete_property, KIND, SETTINGS),
        AdminRoute("GET", f"{one}/replication", get_replication, KIND, DESCRIBE),
        AdminRoute("POST", f"{one}/replication", set_replication, KIND, SETTINGS),
        AdminRoute("PUT", f"{one}/unload", unload_namespace, KIND, ALTER),
        AdminRoute("PUT", f"{one}/{{bundle}}/unload", unload_bundle, KIND, ALTER),
        *(route.below(one) for route in namespace_policy_routes()),
        AdminRoute("DELETE", f"{one}/{{bundle}}", delete_bundle, KIND, Operation.DELETE),
        AdminRoute("GET", one, get_namespace, KIND, DESCRIBE),
        AdminRoute("PUT", one, create_namespace, KIND, Operation.CREATE),
        AdminRoute("DELETE", one, delete_namespace, KIND, Operation.DELETE),
        AdminRoute("GET", f"{prefix}/persistent/{place}", list_persistent_topics, KIND, DESCRIBE),
        AdminRoute(
            "GET",
            f"{prefix}/persistent/{place}/partitioned",
            list_partitioned_topics,
            KIND,
            DESCRIBE,
        ),
    ]
