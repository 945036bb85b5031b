"""Policies over HTTP: one pair of handlers for all policies of namespaces and of topics.

The tables map a path to a policy of broker/topics/policies.py, and have the result of a GET of an
unset one. A value that is invalid or would have no effect is rejected with 412 and the reason from
that table; a DELETE of an unset policy succeeds.

    GET     the value set here; with `applied=true` the effective one: topic, namespace, broker
    POST PUT  set it     DELETE  unset it
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any

import msgspec

from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.errors import InvalidSetting, UnknownNamespace
from trilogue.broker.settings.topic_settings import TopicSettings
from trilogue.broker.topics.namespaces import Namespace
from trilogue.broker.topics.policies import (
    POLICIES,
    PREFIX,
    BacklogQuotaPolicy,
    Policies,
    Policy,
    PolicyLevel,
    check_policy,
    read_topic_policies,
)
from trilogue.gateway.http.pulsar.admin_request import NOTHING_SET, AdminRequest, AdminRoute, Reply
from trilogue.gateway.http.request_limits import HttpError

log = logging.getLogger(__name__)

UNSET: Any = object()
Change = Callable[[AdminRequest, str, Callable[[Any], Any]], Awaitable[None]]
Handler = Callable[[AdminRequest], Any]


class PolicyPath(msgspec.Struct, frozen=True):
    """The policy of a path segment; `unset` is the result of GET before it is set."""

    segment: str
    policy: str
    unset: Any = UNSET


def _same(*names: str) -> tuple[PolicyPath, ...]:
    return tuple(PolicyPath(name, name) for name in names)


DISPATCHER_PAUSE = "dispatcherPauseOnAckStatePersistent"
SNAPSHOTS = "deduplicationSnapshotInterval"
NAMED_RATES = "namedDispatchRates"  # dispatch rates of subscriptions by their names

NAMESPACE_PATHS = (
    *_same(
        "retention", "messageTTL", "deduplication", "persistence", "autoTopicCreation",
        "autoSubscriptionCreation", "maxConsumersPerSubscription", "maxSubscriptionsPerTopic",
        "delayedDelivery", "publishRate", "dispatchRate", "subscriptionDispatchRate",
        "subscribeRate", "replicatorDispatchRate", "compactionThreshold", "inactiveTopicPolicies",
        "subscriptionExpirationTime", "entryFilters", "resourcegroup",
    ),
    PolicyPath("migration", "migrated"),
    PolicyPath("backlogQuotaMap", "backlogQuota", {}),
    PolicyPath("maxProducersPerTopic", "maxProducers"),
    PolicyPath("maxConsumersPerTopic", "maxConsumers"),
    PolicyPath("maxUnackedMessagesPerConsumer", "maxUnackedMessagesOnConsumer"),
    PolicyPath("maxUnackedMessagesPerSubscription", "maxUnackedMessagesOnSubscription"),
    PolicyPath("schemaCompatibilityStrategy", "schemaCompatibilityStrategy", "UNDEFINED"),
    PolicyPath("schemaValidationEnforced", "schemaValidationEnforced", False),
    PolicyPath("isAllowAutoUpdateSchema", "isAllowAutoUpdateSchema", True),
    PolicyPath("subscriptionTypesEnabled", "subscriptionTypesEnabled", []),
    PolicyPath("encryptionRequired", "encryptionRequired", False),
    PolicyPath("deduplicationSnapshotInterval", "deduplicationSnapshotInterval"),
    PolicyPath("offloadPolicies", "offloadPolicies"),
    PolicyPath("offloadThreshold", "offloadThreshold", -1),
    PolicyPath("offloadThresholdInSeconds", "offloadThresholdInSeconds", -1),
    PolicyPath("offloadDeletionLagMs", "offloadDeletionLagMs"),
    PolicyPath("subscriptionAuthMode", "subscriptionAuthMode", "None"),
    PolicyPath("persistence/bookieAffinity", "bookieAffinityGroup", None),
    PolicyPath("maxTopicsPerNamespace", "maxTopicsPerNamespace", 0),
    PolicyPath("antiAffinity", "antiAffinity", None),
    PolicyPath(DISPATCHER_PAUSE, DISPATCHER_PAUSE, False),
)  # fmt: skip

TOPIC_PATHS = (
    *_same(
        "retention", "messageTTL", "persistence", "autoSubscriptionCreation", "maxProducers",
        "maxConsumers", "maxUnackedMessagesOnConsumer", "maxUnackedMessagesOnSubscription",
        "delayedDelivery", "dispatchRate", "subscriptionDispatchRate", "subscribeRate",
        "replicatorDispatchRate", "compactionThreshold", "inactiveTopicPolicies",
        "deduplicationSnapshotInterval", "offloadPolicies", "entryFilters", "shadowTopics",
    ),
    PolicyPath("maxConsumersPerSubscription", "maxConsumersPerSubscription", None),
    PolicyPath("maxSubscriptionsPerTopic", "maxSubscriptionsPerTopic", None),
    PolicyPath("publishRate", "publishRate", None),
    PolicyPath("maxMessageSize", "maxMessageSize", None),
    PolicyPath(DISPATCHER_PAUSE, DISPATCHER_PAUSE, False),
    PolicyPath("deduplicationEnabled", "deduplication"),
    PolicyPath("backlogQuotaMap", "backlogQuota", {}),
    PolicyPath("schemaCompatibilityStrategy", "schemaCompatibilityStrategy"),
    PolicyPath("schemaValidationEnforced", "schemaValidationEnforced", False),
    PolicyPath("subscriptionTypesEnabled", "subscriptionTypesEnabled", []),
)  # fmt: skip

REPLICATION = PolicyPath("replication", "replicationClusters")
ALLOWED_CLUSTERS = PolicyPath("allowedClusters", "allowedClusters", [])
OFFLOAD = PolicyPath("removeOffloadPolicies", "offloadPolicies")

NO_DISPATCH_RATE = {
    "dispatchThrottlingRateInMsg": 0,
    "dispatchThrottlingRateInByte": 0,
    "relativeToPublishRate": False,
    "ratePeriodInSecond": 1,
}
# What is reported as the broker's own values of policies that are no single value.
BROKER_DEFAULTS: dict[str, object] = {
    "dispatchRate": NO_DISPATCH_RATE,
    "subscriptionDispatchRate": NO_DISPATCH_RATE,
    "replicatorDispatchRate": NO_DISPATCH_RATE,
    "subscribeRate": {"subscribeThrottlingRatePerConsumer": 0, "ratePeriodInSecond": 30},
    "persistence": {
        "bookkeeperEnsemble": 1,
        "bookkeeperWriteQuorum": 1,
        "bookkeeperAckQuorum": 1,
        "managedLedgerMaxMarkDeleteRate": 0.0,
    },
    "inactiveTopicPolicies": {
        "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
        "maxInactiveDurationSeconds": 60,
        "deleteWhileInactive": False,
    },
    "entryFilters": {"entryFilterNames": ""},
}
QUOTA = "backlogQuota"
QUOTA_KINDS = ("destination_storage", "message_age")
MINUTE_MS, MEBIBYTE = 60_000, 1 << 20


def _own(path: PolicyPath, policies: dict[str, Any]) -> object:
    value = policies.get(path.policy, path.unset)
    return NOTHING_SET if value is UNSET else value


def _broker_default(policy: str, defaults: Policies) -> object:
    """Return the broker's default of a policy; UNSET if it has none."""
    meaning = POLICIES[policy].meaning
    if isinstance(meaning, str):
        value = getattr(defaults, meaning)
        return value.value if isinstance(value, Enum) else value
    if policy == "autoSubscriptionCreation":
        return {"allowAutoSubscriptionCreation": defaults.auto_subscription}
    if policy == "delayedDelivery":
        active = defaults.delayed_delivery
        return {"active": active, "tickTime": 1000, "maxDeliveryDelayInMillis": 0}
    return BROKER_DEFAULTS.get(policy, UNSET)


def _with_all_quotas(quotas: dict[str, Any], defaults: Policies) -> dict[str, Any]:
    """Return backlog quotas with the broker's for the kinds that are not set."""
    found = {}
    for kind, quota in zip(QUOTA_KINDS, (defaults.size_quota, defaults.age_quota), strict=True):
        size = -1 if quota is None else quota.limit_bytes
        found[kind] = {
            "limit": size,
            "limitSize": size,
            "limitTime": -1 if quota is None else quota.limit_s,
            "policy": (BacklogQuotaPolicy.REQUEST_HOLD if quota is None else quota.overflow).value,
        }
    return found | quotas


def _describe_retention(settings: TopicSettings) -> dict[str, int]:
    """Return the retention that a topic has by its settings, as Pulsar's policy; -1: no limit."""
    age_ms, size = settings.retention_ms, settings.retention_bytes
    return {
        "retentionTimeInMinutes": age_ms if age_ms < 0 else age_ms // MINUTE_MS,
        "retentionSizeInMB": size if size < 0 else size // MEBIBYTE,
    }


# -- of a namespace


def make_namespace_getter(path: PolicyPath) -> Callable[[AdminRequest], object]:
    """Return the handler that returns one policy of a namespace."""

    def get(request: AdminRequest) -> object:
        _check_namespace(request)
        return _own(path, request.broker.namespaces.namespace(request.namespace).policies)

    return get


async def change_namespace(request: AdminRequest, change: Callable[[Namespace], Namespace]) -> None:
    """Replace a namespace by what `change` makes of it."""
    known, name = request.broker.namespaces, request.namespace
    await request.commit_change(lambda: known.plan_alter(name, change(known.namespace(name))))


def _check_namespace(request: AdminRequest) -> None:
    """Refuse a namespace that does not exist, in Pulsar's words: HttpError 404."""
    known, name = request.broker.namespaces, request.namespace
    try:
        known.tenant(name.tenant)
    except UnknownNamespace as error:
        raise HttpError(404, "Tenant does not exist") from error
    if not known.exists(name):
        raise HttpError(404, "Namespace does not exist")


async def set_namespace_policy(
    request: AdminRequest, policy: str, changed_value: Callable[[Any], Any]
) -> None:
    """Set one policy of a namespace to what `changed_value` makes of it; UNSET unsets it."""
    _check_namespace(request)

    def changed(before: Namespace) -> Namespace:
        policies = dict(before.policies)
        value = changed_value(policies.pop(policy, UNSET))
        if value is not UNSET:
            policies[policy] = check_policy(policy, PolicyLevel.NAMESPACE, value)
        return msgspec.structs.replace(before, policies=policies)

    await change_namespace(request, changed)


async def set_namespace_quota(request: AdminRequest) -> None:
    """Set or unset one kind of backlog quota."""
    await set_namespace_policy(request, QUOTA, _change_entry(request, _quota_kind(request)))


def _quota_kind(request: AdminRequest) -> str:
    kind: str = request.http.query_params.get("backlogQuotaType", QUOTA_KINDS[0])
    if kind not in QUOTA_KINDS:
        raise HttpError(400, f"backlogQuotaType is one of {', '.join(QUOTA_KINDS)}")
    return kind


def _change_entry(request: AdminRequest, name: str) -> Callable[[Any], Any]:
    """Return the change of one entry of a policy that is a table: the other entries stay."""
    entry = None if request.http.method == "DELETE" else request.any_json()

    def changed(before: Any) -> Any:
        after = {} if before is UNSET else {k: each for k, each in before.items() if k != name}
        if entry is not None:
            after[name] = entry
        return after or UNSET

    return changed


# -- of a topic


def make_topic_getter(path: PolicyPath) -> Callable[[AdminRequest], object]:
    """Return the handler that returns one policy of a topic."""

    def get(request: AdminRequest) -> object:
        topic = request.topic
        policies = read_topic_policies(topic.settings)
        if path.policy in policies or not request.flag("applied"):
            return _own(path, policies)
        known = request.broker.namespaces
        namespace = known.namespace(topic.name.namespace_name).policies
        if path.policy == QUOTA:
            return _with_all_quotas(namespace.get(QUOTA, {}), known.defaults)
        if path.policy in namespace:
            return namespace[path.policy]
        if path.policy == "retention":
            return _describe_retention(topic.partitions[0].settings)
        if path.policy == REPLICATION.policy:
            return [request.gateway.settings.cluster]
        default = _broker_default(path.policy, known.defaults)
        return _own(path, {}) if default is UNSET else default

    return get


async def set_topic_policy(
    request: AdminRequest, policy: str, changed_value: Callable[[Any], Any]
) -> None:
    """Set one policy of a topic to what `changed_value` makes of it; UNSET unsets it."""

    def change(settings: dict[str, str]) -> None:
        value = changed_value(read_topic_policies(settings).get(policy, UNSET))
        settings.pop(PREFIX + policy, None)
        if value is not UNSET:
            checked = check_policy(policy, PolicyLevel.TOPIC, value)
            settings[PREFIX + policy] = msgspec.json.encode(checked).decode()

    await request.alter_topic(lambda: request.topic, change)


def get_named_dispatch_rate(request: AdminRequest) -> object:
    """Return the dispatch rate of one subscription; `applied=true`: or that of all of them."""
    named = read_topic_policies(request.topic.settings).get(NAMED_RATES, {})
    rate = named.get(request.params["subscription"])
    if rate is None and request.flag("applied"):
        return make_topic_getter(PolicyPath("", "subscriptionDispatchRate"))(request)
    return NOTHING_SET if rate is None else rate


async def set_named_dispatch_rate(request: AdminRequest) -> None:
    """Set or unset the dispatch rate of one subscription."""
    change = _change_entry(request, request.params["subscription"])
    await set_topic_policy(request, NAMED_RATES, change)


async def delete_topic_policies(request: AdminRequest) -> None:
    """Unset all policies of a topic."""

    def change(settings: dict[str, str]) -> None:
        for policy in read_topic_policies(settings):
            del settings[PREFIX + policy]

    await request.alter_topic(lambda: request.topic, change)


async def set_topic_quota(request: AdminRequest) -> None:
    """Set or unset one kind of backlog quota."""
    await set_topic_policy(request, QUOTA, _change_entry(request, _quota_kind(request)))


# -- of either


def make_setter(
    path: PolicyPath, change: Change, read: Callable[[AdminRequest, PolicyPath], Any]
) -> Handler:
    """Return the handler that sets one policy."""

    async def set_policy(request: AdminRequest) -> object:
        row = POLICIES[path.policy]
        value = None if row.refused else read(request, path)
        await change(request, path.policy, lambda _: value)
        return _warn_without_effect(row) if row.no_effect and value is not UNSET else None

    return set_policy


def _warn_without_effect(row: Policy) -> Reply:
    """Return the reply for a policy that was kept and that nothing acts on."""
    log.warning("policy.without_effect", extra={"policy": row.name})
    return Reply(204, headers={"Warning": f'299 - "{row.name}: {row.no_effect}"'})


def _in_body(request: AdminRequest, path: PolicyPath) -> Any:
    if path.policy == DISPATCHER_PAUSE and not request.body:
        return True  # it is set by a request without a body
    if request.body.strip() == b"null" or (path.policy == SNAPSHOTS and not request.body):
        return UNSET  # as Java's client removes some of them
    return request.any_json()


def _in_body_or_query(request: AdminRequest, path: PolicyPath) -> Any:
    parameter = request.http.query_params.get(path.segment)  # messageTTL is sent this way
    if parameter is None or request.body:
        return _in_body(request, path)
    try:
        return msgspec.json.decode(parameter)
    except (msgspec.DecodeError, RecursionError) as error:
        raise HttpError(400, f"{path.segment} cannot be read") from error


def make_deleter(path: PolicyPath, change: Change) -> Handler:
    """Return the handler that unsets one policy."""

    async def drop(request: AdminRequest) -> None:
        await change(request, path.policy, lambda _: UNSET)

    return drop


DESCRIBE, ALTER = Operation.DESCRIBE_SETTINGS, Operation.ALTER_SETTINGS


def namespace_policy_routes() -> list[AdminRoute]:
    """Return the routes of all policies, below a namespace's path."""
    kind, change = ResourceKind.NAMESPACE, set_namespace_policy
    remove_offload = make_deleter(OFFLOAD, change)
    routes = [
        AdminRoute("POST DELETE", "/" + QUOTA, set_namespace_quota, kind, ALTER),
        AdminRoute("DELETE", "/removeOffloadPolicies", remove_offload, kind, ALTER),
        AdminRoute(
            "GET", "/allowedClusters", make_namespace_getter(ALLOWED_CLUSTERS), kind, DESCRIBE
        ),
        AdminRoute("POST", "/allowedClusters", set_allowed_clusters, kind, ALTER),
        AdminRoute(
            "DELETE", "/allowedClusters", make_deleter(ALLOWED_CLUSTERS, change), kind, ALTER
        ),
    ]
    for path in NAMESPACE_PATHS:
        routes += _policy_routes(
            path, kind, make_namespace_getter(path), change, make_setter(path, change, _in_body)
        )
    return routes


async def set_allowed_clusters(request: AdminRequest) -> object:
    """Keep that a namespace may be in the one cluster; others are refused."""
    value = request.json(list[str])
    here = request.gateway.settings.cluster
    if not value or set(value) != {here}:
        raise InvalidSetting(f"allowedClusters: there is one cluster, {here}")
    await set_namespace_policy(request, ALLOWED_CLUSTERS.policy, lambda _: [here])
    return _warn_without_effect(POLICIES[ALLOWED_CLUSTERS.policy])


async def set_replication_clusters(request: AdminRequest) -> object:
    """Keep that a topic is in the one cluster; others are refused."""
    value = request.json(list[str])
    if value != [request.gateway.settings.cluster]:
        raise InvalidSetting("replication: there is one cluster")
    await set_topic_policy(request, REPLICATION.policy, lambda _: value)
    return _warn_without_effect(POLICIES[REPLICATION.policy])


def topic_policy_routes() -> list[AdminRoute]:
    """Return the routes of all policies, below a topic's path."""
    kind, change = ResourceKind.TOPIC, set_topic_policy
    routes = [
        AdminRoute("POST DELETE", "/" + QUOTA, set_topic_quota, kind, ALTER),
        AdminRoute("DELETE", "/policies", delete_topic_policies, kind, ALTER),
        AdminRoute("GET", "/{subscription}/dispatchRate", get_named_dispatch_rate, kind, DESCRIBE),
        AdminRoute(
            "POST DELETE", "/{subscription}/dispatchRate", set_named_dispatch_rate, kind, ALTER
        ),
    ]
    one = "/" + REPLICATION.segment
    get, drop = make_topic_getter(REPLICATION), make_deleter(REPLICATION, change)
    routes += [
        AdminRoute("GET", one, get, kind, DESCRIBE),
        AdminRoute("POST", one, set_replication_clusters, kind, ALTER),
        AdminRoute("DELETE", one, drop, kind, ALTER),
    ]
    for path in TOPIC_PATHS:
        sets = make_setter(path, change, _in_body_or_query)
        routes += _policy_routes(path, kind, make_topic_getter(path), change, sets)
    return routes


def _policy_routes(
    path: PolicyPath, kind: ResourceKind, gets: Handler, change: Change, sets: Handler
) -> tuple[AdminRoute, ...]:
    at = f"/{path.segment}"
    return (
        AdminRoute("GET", at, gets, kind, DESCRIBE),
        AdminRoute("POST PUT", at, sets, kind, ALTER),
        AdminRoute("DELETE", at, make_deleter(path, change), kind, ALTER),
    )
