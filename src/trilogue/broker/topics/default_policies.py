"""Policies for topics whose namespaces set none, changed while the broker runs.

They have the names of Pulsar's dynamic configuration (`brokers update-dynamic-config`).
Each that is set is a setting in meta:

    pulsar-default/maxProducersPerTopic      5
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from trilogue.broker.errors import InvalidSetting
from trilogue.broker.topics.policies import DEFAULT_POLICIES, Policies

KEY: Final = "pulsar-default/"
COUNT_MAX: Final = 2**31 - 1

# The fields of `Policies` by the names of Pulsar's configuration.
FIELDS: Final[dict[str, str]] = {
    "allowAutoSubscriptionCreation": "auto_subscription",
    "brokerDeduplicationEnabled": "deduplication",
    "brokerServiceCompactionThresholdInBytes": "compaction_threshold",
    "isSchemaValidationEnforced": "schema_validation_enforced",
    "maxConsumersPerSubscription": "max_consumers_per_subscription",
    "maxConsumersPerTopic": "max_consumers",
    "maxProducersPerTopic": "max_producers",
    "maxSubscriptionsPerTopic": "max_subscriptions",
    "maxTopicsPerNamespace": "max_topics",
    "maxUnackedMessagesPerConsumer": "max_unacked_per_consumer",
    "maxUnackedMessagesPerSubscription": "max_unacked_per_subscription",
    "subscriptionExpirationTimeMinutes": "subscription_expiry_min",
    "ttlDurationDefaultInSeconds": "ttl_s",
}


def parse_default(name: str, text: str) -> bool | int:
    """Return the value of a default; raises InvalidSetting for a name or value that is none."""
    field = FIELDS.get(name)
    if field is None:
        raise InvalidSetting("Can't update non-dynamic configuration")
    if isinstance(getattr(DEFAULT_POLICIES, field), bool):
        if text not in {"true", "false"}:
            raise InvalidSetting(f"Invalid dynamic-config value: {name} is true or false")
        return text == "true"
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= COUNT_MAX):
        raise InvalidSetting(f"Invalid dynamic-config value: {name} is a number from 0 on")
    return int(text)


def resolve_defaults(texts: dict[str, str], base: Policies) -> Policies:
    """Return the policies that hold where no namespace and no topic has its own."""
    if not texts:
        return base
    values: dict[str, Any] = {
        FIELDS[name]: parse_default(name, text) for name, text in texts.items()
    }
    return msgspec.structs.replace(base, **values)


def format_default(policies: Policies, name: str) -> str:
    """Return the value of a default as Pulsar's configuration has it."""
    value = getattr(policies, FIELDS[name])
    return str(value).lower() if isinstance(value, bool) else str(value)
