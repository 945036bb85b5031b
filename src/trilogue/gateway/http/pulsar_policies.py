"""Policies over HTTP: one pair of handlers for all of them, of a namespace and of a topic.

The tables say which path means which policy of broker/policies.py, and what a GET says of one that
was not set. What a policy does not take, or what nobody would obey, is refused with 412 and the
reason from the table there; a DELETE of what was never set is answered as if it had been.

    GET     what was set here; with `applied=true` what holds: topic, namespace, broker
    POST PUT  set it     DELETE  let go of it
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import msgspec

from trilogue.broker.access import Operation, ResourceKind
from trilogue.broker.namespaces import Namespace
from trilogue.broker.policies import (
    BROKER_POLICIES,
    POLICIES,
    PREFIX,
    Level,
    check_policy,
    own_policies,
)
from trilogue.gateway.http.incoming import Problem
from trilogue.gateway.http.pulsar_asked import NOTHING_SET, Asked, Row

UNSET: Any = object()
Change = Callable[[Asked, str, Callable[[Any], Any]], Awaitable[None]]
Handler = Callable[[Asked], Any]


@dataclass(frozen=True, slots=True)
class Path:
    """What one path segment stands for; `unset` is what GET says before somebody sets it."""

    segment: str
    policy: str
    unset: Any = UNSET


def _same(*names: str) -> tuple[Path, ...]:
    return tuple(Path(name, name) for name in names)


NAMESPACE_PATHS = (
    *_same(
        "retention", "messageTTL", "deduplication", "persistence", "autoTopicCreation",
        "autoSubscriptionCreation", "maxConsumersPerSubscription", "maxSubscriptionsPerTopic",
        "delayedDelivery", "publishRate", "dispatchRate", "subscriptionDispatchRate",
        "subscribeRate", "replicatorDispatchRate", "compactionThreshold", "inactiveTopicPolicies",
        "subscriptionExpirationTime", "antiAffinity", "maxTopicsPerNamespace", "entryFilters",
        "resourcegroup", "migrated", "dispatcherPauseOnAckStatePersistent",
    ),
    Path("backlogQuotaMap", "backlogQuota", {}),
    Path("maxProducersPerTopic", "maxProducers"),
    Path("maxConsumersPerTopic", "maxConsumers"),
    Path("maxUnackedMessagesPerConsumer", "maxUnackedMessagesOnConsumer"),
    Path("maxUnackedMessagesPerSubscription", "maxUnackedMessagesOnSubscription"),
    Path("schemaCompatibilityStrategy", "schemaCompatibilityStrategy", "UNDEFINED"),
    Path("schemaValidationEnforced", "schemaValidationEnforced", False),
    Path("isAllowAutoUpdateSchema", "isAllowAutoUpdateSchema", True),
    Path("subscriptionTypesEnabled", "subscriptionTypesEnabled", []),
    Path("encryptionRequired", "encryptionRequired", False),
    Path("deduplicationSnapshotInterval", "deduplicationSnapshotInterval"),
    Path("offloadPolicies", "offloadPolicies"),
    Path("offloadThreshold", "offloadThreshold", -1),
    Path("offloadThresholdInSeconds", "offloadThresholdInSeconds", -1),
    Path("offloadDeletionLagMs", "offloadDeletionLagMs"),
    Path("subscriptionAuthMode", "subscriptionAuthMode", "None"),
    Path("bookieAffinity", "bookieAffinityGroup"),
)  # fmt: skip

TOPIC_PATHS = (
    *_same(
        "retention", "messageTTL", "persistence", "autoSubscriptionCreation", "maxProducers",
        "maxConsumers", "maxConsumersPerSubscription", "maxSubscriptionsPerTopic",
        "maxUnackedMessagesOnConsumer", "maxUnackedMessagesOnSubscription", "delayedDelivery",
        "publishRate", "maxMessageSize", "dispatchRate", "subscriptionDispatchRate",
        "subscribeRate", "replicatorDispatchRate", "compactionThreshold", "inactiveTopicPolicies",
        "deduplicationSnapshotInterval", "offloadPolicies", "entryFilters", "shadowTopics",
        "dispatcherPauseOnAckStatePersistent",
    ),
    Path("deduplicationEnabled", "deduplication"),
    Path("backlogQuotaMap", "backlogQuota", {}),
    Path("schemaCompatibilityStrategy", "schemaCompatibilityStrategy"),
    Path("schemaValidationEnforced", "schemaValidationEnforced"),
    Path("subscriptionTypesEnabled", "subscriptionTypesEnabled"),
)  # fmt: skip

QUOTA = "backlogQuota"
QUOTA_KINDS = ("destination_storage", "message_age")


def _own(path: Path, said: dict[str, Any]) -> object:
    value = said.get(path.policy, path.unset)
    return NOTHING_SET if value is UNSET else value


def _default(policy: str) -> object:
    """What holds of a policy where nobody set it, if that is one value."""
    meaning = POLICIES[policy].meaning
    if not isinstance(meaning, str):
        return NOTHING_SET
    value = getattr(BROKER_POLICIES, meaning)
    return value.value if isinstance(value, Enum) else value


# -- of a namespace


def get_of_namespace(path: Path) -> Callable[[Asked], object]:
    """Make the handler that tells one policy of a namespace."""

    def get(asked: Asked) -> object:
        return _own(path, asked.broker.namespaces.find(asked.namespace).policies)

    return get


async def change_namespace(asked: Asked, change: Callable[[Namespace], Namespace]) -> None:
    """Let a namespace be another one, made from what it is."""
    known, name = asked.broker.namespaces, asked.namespace
    await asked.carry_out(lambda: known.plan_alter(name, change(known.find(name))))


async def set_namespace_policy(
    asked: Asked, policy: str, changed_value: Callable[[Any], Any]
) -> None:
    """Let one policy of a namespace be what is made from what it was; UNSET is not set."""
    asked.broker.namespaces.find(asked.namespace)

    def changed(before: Namespace) -> Namespace:
        policies = dict(before.policies)
        value = changed_value(policies.pop(policy, UNSET))
        if value is not UNSET:
            policies[policy] = check_policy(policy, Level.NAMESPACE, value)
        return msgspec.structs.replace(before, policies=policies)

    await change_namespace(asked, changed)


async def set_namespace_quota(asked: Asked) -> None:
    """Set one kind of backlog quota, or let go of it."""
    await set_namespace_policy(asked, QUOTA, _changing_quota(asked))


def _quota_kind(asked: Asked) -> str:
    kind: str = asked.request.query_params.get("backlogQuotaType", QUOTA_KINDS[0])
    if kind not in QUOTA_KINDS:
        raise Problem(400, f"backlogQuotaType is one of {', '.join(QUOTA_KINDS)}")
    return kind


def _changing_quota(asked: Asked) -> Callable[[Any], Any]:
    """What makes the quotas that are asked for of those there were: the other kind stays."""
    kind = _quota_kind(asked)
    quota = None if asked.request.method == "DELETE" else asked.any_json()

    def changed(before: Any) -> Any:
        after = {} if before is UNSET else {k: each for k, each in before.items() if k != kind}
        if quota is not None:
            after[kind] = quota
        return after or UNSET

    return changed


# -- of a topic


def get_of_topic(path: Path) -> Callable[[Asked], object]:
    """Make the handler that tells one policy of a topic."""

    def get(asked: Asked) -> object:
        topic = asked.topic
        said = own_policies(topic.settings)
        if path.policy in said or not asked.flag("applied"):
            return _own(path, said)
        namespace = asked.broker.namespaces.find(topic.name.home).policies
        if path.policy in namespace:
            return namespace[path.policy]
        return _default(path.policy) if path.unset is UNSET else path.unset

    return get


async def set_topic_policy(asked: Asked, policy: str, changed_value: Callable[[Any], Any]) -> None:
    """Let one policy of a topic be what is made from what it was; UNSET is not set."""

    def change(settings: dict[str, str]) -> None:
        value = changed_value(own_policies(settings).get(policy, UNSET))
        settings.pop(PREFIX + policy, None)
        if value is not UNSET:
            checked = check_policy(policy, Level.TOPIC, value)
            settings[PREFIX + policy] = msgspec.json.encode(checked).decode()

    await asked.alter_topic(change)


async def set_topic_quota(asked: Asked) -> None:
    """Set one kind of backlog quota, or let go of it."""
    await set_topic_policy(asked, QUOTA, _changing_quota(asked))


# -- of either


def setting(path: Path, change: Change, read: Callable[[Asked, Path], Any]) -> Handler:
    """Make the handler that sets one policy."""

    async def set_policy(asked: Asked) -> None:
        value = read(asked, path)
        await change(asked, path.policy, lambda _: value)

    return set_policy


def _in_body(asked: Asked, _path: Path) -> Any:
    return asked.any_json()


def _in_body_or_query(asked: Asked, path: Path) -> Any:
    said = asked.request.query_params.get(path.segment)  # messageTTL comes so
    if said is None or asked.body:
        return asked.any_json()
    try:
        return msgspec.json.decode(said)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Problem(400, f"{path.segment} cannot be read") from error


def dropping(path: Path, change: Change) -> Handler:
    """Make the handler that lets go of one policy."""

    async def drop(asked: Asked) -> None:
        await change(asked, path.policy, lambda _: UNSET)

    return drop


DESCRIBE, ALTER = Operation.DESCRIBE_SETTINGS, Operation.ALTER_SETTINGS


def namespace_rows() -> list[Row]:
    """The rows of all policies, below a namespace's path."""
    kind, change = ResourceKind.NAMESPACE, set_namespace_policy
    rows = [Row("POST DELETE", "/" + QUOTA, set_namespace_quota, kind, ALTER)]
    for path in NAMESPACE_PATHS:
        rows += _rows(path, kind, get_of_namespace(path), change, setting(path, change, _in_body))
    return rows


def topic_rows() -> list[Row]:
    """The rows of all policies, below a topic's path."""
    kind, change = ResourceKind.TOPIC, set_topic_policy
    rows = [Row("POST DELETE", "/" + QUOTA, set_topic_quota, kind, ALTER)]
    for path in TOPIC_PATHS:
        sets = setting(path, change, _in_body_or_query)
        rows += _rows(path, kind, get_of_topic(path), change, sets)
    return rows


def _rows(
    path: Path, kind: ResourceKind, gets: Handler, change: Change, sets: Handler
) -> tuple[Row, ...]:
    at = f"/{path.segment}"
    return (
        Row("GET", at, gets, kind, DESCRIBE),
        Row("POST PUT", at, sets, kind, ALTER),
        Row("DELETE", at, dropping(path, change), kind, ALTER),
    )
