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
from trilogue.broker.topics.namespaces import Namespace
from trilogue.broker.topics.policies import (
    POLICIES,
    PREFIX,
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

NAMESPACE_PATHS = (
    *_same(
        "retention", "messageTTL", "deduplication", "persistence", "autoTopicCreation",
        "autoSubscriptionCreation", "maxConsumersPerSubscription", "maxSubscriptionsPerTopic",
        "delayedDelivery", "publishRate", "dispatchRate", "subscriptionDispatchRate",
        "subscribeRate", "replicatorDispatchRate", "compactionThreshold", "inactiveTopicPolicies",
        "subscriptionExpirationTime", "entryFilters", "resourcegroup", "migrated",
    ),
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
    PolicyPath("persistence/bookieAffinity", "bookieAffinityGroup"),
    PolicyPath("maxTopicsPerNamespace", "maxTopicsPerNamespace", 0),
    PolicyPath("antiAffinity", "antiAffinity", None),
    PolicyPath(DISPATCHER_PAUSE, DISPATCHER_PAUSE, False),
)  # fmt: skip

TOPIC_PATHS = (
    *_same(
        "retention", "messageTTL", "persistence", "autoSubscriptionCreation", "maxProducers",
        "maxConsumers", "maxConsumersPerSubscription", "maxSubscriptionsPerTopic",
        "maxUnackedMessagesOnConsumer", "maxUnackedMessagesOnSubscription", "delayedDelivery",
        "publishRate", "maxMessageSize", "dispatchRate", "subscriptionDispatchRate",
        "subscribeRate", "replicatorDispatchRate", "compactionThreshold", "inactiveTopicPolicies",
        "deduplicationSnapshotInterval", "offloadPolicies", "entryFilters", "shadowTopics",
    ),
    PolicyPath(DISPATCHER_PAUSE, DISPATCHER_PAUSE),
    PolicyPath("deduplicationEnabled", "deduplication"),
    PolicyPath("backlogQuotaMap", "backlogQuota", {}),
    PolicyPath("schemaCompatibilityStrategy", "schemaCompatibilityStrategy"),
    PolicyPath("schemaValidationEnforced", "schemaValidationEnforced"),
    PolicyPath("subscriptionTypesEnabled", "subscriptionTypesEnabled"),
)  # fmt: skip

REPLICATION = PolicyPath("replication", "replicationClusters")
OFFLOAD = PolicyPath("removeOffloadPolicies", "offloadPolicies")

NO_DISPATCH_RATE = {
    "dispatchThrottlingRateInMsg": 0,
    "dispatchThrottlingRateInByte": 0,
    "relativeToPublishRate": False,
    "ratePeriodInSecond": 1,
}
# What a real broker reports as its own values of policies that are no single value.
BROKER_DEFAULTS: dict[str, object] = {
    "dispatchRate": NO_DISPATCH_RATE,
    "subscriptionDispatchRate": NO_DISPATCH_RATE,
}
QUOTA = "backlogQuota"
QUOTA_KINDS = ("destination_storage", "message_age")


def _own(path: PolicyPath, policies: dict[str, Any]) -> object:
    value = policies.get(path.policy, path.unset)
    return NOTHING_SET if value is UNSET else value


def _broker_default(policy: str, defaults: Policies) -> object:
    """Return the broker's default of a policy, if it is one value."""
    meaning = POLICIES[policy].meaning
    if not isinstance(meaning, str):
        return BROKER_DEFAULTS.get(policy, NOTHING_SET)
    value = getattr(defaults, meaning)
    return value.value if isinstance(value, Enum) else value


# -- of a namespace


def make_namespace_getter(path: PolicyPath) -> Callable[[AdminRequest], object]:
    """Return the handler that returns one policy of a namespace."""

    def get(request: AdminRequest) -> object:
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
    await set_namespace_policy(request, QUOTA, _quota_change(request))


def _quota_kind(request: AdminRequest) -> str:
    kind: str = request.http.query_params.get("backlogQuotaType", QUOTA_KINDS[0])
    if kind not in QUOTA_KINDS:
        raise HttpError(400, f"backlogQuotaType is one of {', '.join(QUOTA_KINDS)}")
    return kind


def _quota_change(request: AdminRequest) -> Callable[[Any], Any]:
    """Return the change of the quotas for the request: the other kind stays."""
    kind = _quota_kind(request)
    quota = None if request.http.method == "DELETE" else request.any_json()

    def changed(before: Any) -> Any:
        after = {} if before is UNSET else {k: each for k, each in before.items() if k != kind}
        if quota is not None:
            after[kind] = quota
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
        namespace = request.broker.namespaces.namespace(topic.name.namespace_name).policies
        if path.policy in namespace:
            return namespace[path.policy]
        if path.unset is not UNSET:
            return path.unset
        return _broker_default(path.policy, request.broker.namespaces.defaults)

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


async def set_topic_quota(request: AdminRequest) -> None:
    """Set or unset one kind of backlog quota."""
    await set_topic_policy(request, QUOTA, _quota_change(request))


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
    if request.body.strip() == b"null":
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
    ]
    for path in NAMESPACE_PATHS:
        routes += _policy_routes(
            path, kind, make_namespace_getter(path), change, make_setter(path, change, _in_body)
        )
    return routes


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
    routes = [AdminRoute("POST DELETE", "/" + QUOTA, set_topic_quota, kind, ALTER)]
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
