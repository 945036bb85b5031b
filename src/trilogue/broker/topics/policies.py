"""Policies of topics: the values that a namespace or a topic may have, and what they mean.

A policy is looked up at the topic, then at its namespace, then the broker's default holds:

    topic  >  namespace  >  default here

`POLICIES` is the one table. A row has the accepted values, the levels at which it may be set, and
the test that fails if the policy is ignored. A policy that the broker does not enforce is in the
table too, without levels and with the reason: it is refused. docs/reference/pulsar-policies.md is
generated from the table.

`Policies` is the result for one topic, resolved once whenever a level changes and stored at its
partitions (`Partition.policies`), so that enforcing a policy is reading a field.

Values are plain JSON. They are in meta as text: those of a namespace in its setting
(broker/topics/namespaces.py), those of a topic in its row's settings, under `pulsar.` and the
row's name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Annotated, Any, Literal

import msgspec

from trilogue.broker.errors import InvalidSetting
from trilogue.broker.quotas.topic_rates import Rate

PREFIX = "pulsar."  # of the keys under which a topic's row keeps its own policies
TERMINATED = "pulsar.terminated"  # which partitions take no more messages: a JSON list
PROPERTIES = "pulsar.properties"  # a topic's own notes: a JSON object
PERMISSIONS = "pulsar.permissions"  # role -> what it may do with one topic

Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Size = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]  # bytes
Threshold = Annotated[int, msgspec.Meta(ge=-1, le=2**63 - 1)]  # -1: never
Amount = Annotated[int, msgspec.Meta(ge=-1, le=2**63 - 1)]  # -1: no limit
Messages = Annotated[int, msgspec.Meta(ge=-1, le=2**31 - 1)]  # a period; -1 and 0: no limit
Json = Any

EVERY_TYPE = frozenset({"Exclusive", "Shared", "Failover", "Key_Shared"})


class CompatibilityStrategy(Enum):
    """How a new schema has to go with those before it."""

    UNDEFINED = "UNDEFINED"
    ALWAYS_INCOMPATIBLE = "ALWAYS_INCOMPATIBLE"
    ALWAYS_COMPATIBLE = "ALWAYS_COMPATIBLE"
    BACKWARD = "BACKWARD"
    FORWARD = "FORWARD"
    FULL = "FULL"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"


class BacklogQuotaPolicy(Enum):
    """What happens when a backlog is above its quota."""

    REQUEST_HOLD = "producer_request_hold"
    EXCEPTION = "producer_exception"
    EVICTION = "consumer_backlog_eviction"


class RetentionPolicy(msgspec.Struct, frozen=True):
    """How long messages stay after all subscriptions acked them; -1: for ever, any size."""

    minutes: int
    megabytes: int


class BacklogQuota(msgspec.Struct, frozen=True):
    """How much a subscription may leave unacked; -1: no limit of this kind."""

    limit_bytes: int
    limit_s: int
    overflow: BacklogQuotaPolicy


class InactiveTopicPolicy(msgspec.Struct, frozen=True):
    """When a topic without clients is deleted: after this time, and with which subscriptions."""

    after_s: int
    with_subscriptions: bool = False  # that have no backlog; else with none at all


class AutoCreation(msgspec.Struct, frozen=True):
    """Whether requests create topics, and with how many partitions (0: unnumbered)."""

    allowed: bool = True
    partitions: int = 0


class Policies(msgspec.Struct, frozen=True):
    """The resolved policies of one topic."""

    deduplication: bool = False
    retention: RetentionPolicy | None = None  # None: the topic's settings hold, as for Kafka
    ttl_s: int = 0  # 0: unacked messages wait for ever
    size_quota: BacklogQuota | None = None  # of a subscription's backlog in bytes
    age_quota: BacklogQuota | None = None  # of its oldest message's age
    max_unacked_per_consumer: int = 50_000  # 0: no limit, as for the next five
    max_unacked_per_subscription: int = 200_000
    max_producers: int = 0
    max_consumers: int = 0
    max_consumers_per_subscription: int = 0
    max_subscriptions: int = 0
    schema_compatibility: CompatibilityStrategy = CompatibilityStrategy.FULL
    schema_validation_enforced: bool = False
    schema_auto_update: bool = True
    auto_creation: AutoCreation = msgspec.field(default_factory=AutoCreation)
    auto_subscription: bool = True
    subscription_types: frozenset[str] = EVERY_TYPE
    encryption_required: bool = False
    role_prefixes: bool = False  # a subscription's name starts with its client's role
    delayed_delivery: bool = True
    max_message_size: int = 0  # 0: the listener's limit
    publish_rate: Rate | None = None  # of each partition, as the next two
    dispatch_rate: Rate | None = None  # of all subscriptions together
    subscription_dispatch_rate: Rate | None = None
    named_dispatch_rates: Mapping[str, Rate] = msgspec.field(default_factory=dict)
    subscribe_rate: Rate | None = None  # of one consumer, by its address and name
    max_topics: int = 0  # partitions in the namespace; 0: no limit
    subscription_expiry_min: int = 0  # 0: subscriptions without consumers stay
    inactive_topics: InactiveTopicPolicy | None = None  # None: topics stay
    compaction_threshold: int = 0  # bytes since the last compaction; 0: only on request


DEFAULT_POLICIES = Policies()


# ── values as they are sent and stored ──────────────────────────────────────────────────────────


class RetentionValue(msgspec.Struct, rename="camel"):
    """Retention as the administration API has it."""

    retention_time_in_minutes: Amount = 0
    megabytes: Amount = msgspec.field(default=0, name="retentionSizeInMB")


class QuotaValue(msgspec.Struct, rename="camel"):
    """One kind of backlog quota; `limit` is the old word for `limitSize`."""

    policy: Literal["producer_request_hold", "producer_exception", "consumer_backlog_eviction"]
    limit: Amount | None = None
    limit_size: Amount | None = None
    limit_time: Amount = -1

    def __post_init__(self) -> None:
        """Keep both names of the limit equal."""
        if self.limit_size is None:
            self.limit_size = -1 if self.limit is None else self.limit
        self.limit = self.limit_size


class QuotaMap(
    msgspec.Struct,
    rename={"storage": "destination_storage", "age": "message_age"},
    omit_defaults=True,
):
    """Both kinds."""

    storage: QuotaValue | None = None
    age: QuotaValue | None = None


class AutoCreationValue(msgspec.Struct, rename="camel"):
    """What automatic creation creates."""

    allow_auto_topic_creation: bool = True
    topic_type: Literal["partitioned", "non-partitioned", ""] | None = None
    default_num_partitions: Annotated[int, msgspec.Meta(le=10_000)] | None = None


class AutoSubscriptionValue(msgspec.Struct, rename="camel"):
    """Whether a consumer creates its subscription."""

    allow_auto_subscription_creation: bool = True


class DelayedValue(msgspec.Struct, rename="camel"):
    """Whether messages may be delivered later than they were published."""

    active: bool = True
    tick_time: Amount = 1_000
    max_delivery_delay_in_millis: Amount = 0


class PublishRateValue(msgspec.Struct, rename="camel"):
    """How much a partition takes in a second."""

    publish_throttling_rate_in_msg: Messages = -1
    publish_throttling_rate_in_byte: Amount = -1


class DispatchRateValue(msgspec.Struct, rename="camel"):
    """How much consumers are sent of a partition in a period."""

    dispatch_throttling_rate_in_msg: Messages = -1
    dispatch_throttling_rate_in_byte: Amount = -1
    relative_to_publish_rate: bool = False
    rate_period_in_second: Annotated[int, msgspec.Meta(ge=0, le=86_400)] = 1


NamedDispatchRates = Annotated[
    dict[Annotated[str, msgspec.Meta(max_length=1_000)], DispatchRateValue],
    msgspec.Meta(max_length=1_000),
]


class SubscribeRateValue(msgspec.Struct, rename="camel"):
    """How often one consumer may subscribe in a period; -1 and 0: no limit."""

    subscribe_throttling_rate_per_consumer: Messages = -1
    rate_period_in_second: Annotated[int, msgspec.Meta(ge=0, le=86_400)] = 30


class InactiveTopicValue(msgspec.Struct, rename="camel"):
    """Whether and when inactive topics are deleted."""

    inactive_topic_delete_mode: Literal[
        "delete_when_no_subscriptions", "delete_when_subscriptions_caught_up"
    ] = "delete_when_no_subscriptions"
    max_inactive_duration_seconds: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] = 60
    delete_while_inactive: bool = False


class BookieAffinityValue(msgspec.Struct, rename="camel", omit_defaults=True):
    """The groups of bookies that would have a namespace's messages."""

    bookkeeper_affinity_group_primary: str | None = None
    bookkeeper_affinity_group_secondary: str | None = None


Word = Annotated[str, msgspec.Meta(max_length=1000)]
OffloadValue = Annotated[
    dict[
        Annotated[str, msgspec.Meta(max_length=100)],
        bool | int | float | Word | dict[Word, Word] | None,
    ],
    msgspec.Meta(max_length=64),
]
"""The fields of Pulsar's OffloadPolicies that are set, by their JSON names."""
OFFLOAD_DRIVERS = frozenset(
    {"S3", "aws-s3", "google-cloud-storage", "filesystem", "azureblob", "aliyun-oss"}
)
OFFLOAD_CREDENTIAL = "s3ManagedLedgerOffloadCredentialSecret"


class PersistenceValue(msgspec.Struct, rename="camel"):
    """The number of copies; there is one."""

    bookkeeper_ensemble: int = 1
    bookkeeper_write_quorum: int = 1
    bookkeeper_ack_quorum: int = 1
    managed_ledger_max_mark_delete_rate: float = 0.0


def _retention(value: RetentionValue) -> dict[str, object]:
    minutes, megabytes = value.retention_time_in_minutes, value.megabytes
    if (
        (minutes == 0) != (megabytes == 0)
        and -1 not in (minutes, megabytes)
        and 0 in (minutes, megabytes)
    ):
        raise InvalidSetting(
            "retention: time and size are both 0 (nothing is kept once it is acked) or neither"
        )
    return {"retention": RetentionPolicy(minutes, megabytes)}


def _quota(value: QuotaMap) -> dict[str, object]:
    found: dict[str, object] = {}
    if value.storage is not None:
        limit = value.storage.limit_size
        assert limit is not None
        found["size_quota"] = BacklogQuota(limit, -1, BacklogQuotaPolicy(value.storage.policy))
    if value.age is not None:
        found["age_quota"] = BacklogQuota(
            -1, value.age.limit_time, BacklogQuotaPolicy(value.age.policy)
        )
    return found


def _auto_creation(value: AutoCreationValue) -> dict[str, object]:
    count = value.default_num_partitions
    problem = ""
    if value.topic_type != "partitioned":
        if count is not None and value.allow_auto_topic_creation:
            problem = "is not allowed to be set when the type is non-partition."
        count = 0
    elif count is None:
        problem = "cannot be null when the type is partitioned."
    elif count < 1:
        problem = "cannot be less than 1 for partition type."
    if problem:
        raise InvalidSetting(
            "Invalid configuration for autoTopicCreationOverride. the detail is "
            f"[defaultNumPartitions] {problem}"
        )
    return {"auto_creation": AutoCreation(value.allow_auto_topic_creation, count or 0)}


def _types(value: list[Literal["Exclusive", "Shared", "Failover", "Key_Shared"]]) -> Json:
    return {"subscription_types": frozenset(value) or EVERY_TYPE}


def _delayed(value: DelayedValue) -> dict[str, object]:
    if value.max_delivery_delay_in_millis > 0:
        raise InvalidSetting("delayedDelivery: a longest delay is not enforced")
    return {"delayed_delivery": value.active}


def _publish_rate(value: PublishRateValue) -> dict[str, object]:
    rate = Rate(
        max(0, value.publish_throttling_rate_in_msg), max(0, value.publish_throttling_rate_in_byte)
    )
    return {"publish_rate": rate} if rate != Rate() else {}  # as in Pulsar: not set


def _dispatch_rate(field_name: str) -> Callable[[DispatchRateValue], dict[str, object]]:
    """Return the meaning of a dispatch rate: the field of `Policies` that it sets."""

    def meaning(value: DispatchRateValue) -> dict[str, object]:
        messages = max(0, value.dispatch_throttling_rate_in_msg)
        size = max(0, value.dispatch_throttling_rate_in_byte)
        if not messages and not size:
            return {}
        period_s = max(1, value.rate_period_in_second)
        return {field_name: Rate(messages, size, period_s, value.relative_to_publish_rate)}

    return meaning


def _named_dispatch_rates(values: Mapping[str, DispatchRateValue]) -> dict[str, object]:
    """Return the rates of subscriptions by name; one without a limit has none, as in Pulsar."""
    rates = {name: _dispatch_rate(name)(value).get(name, Rate()) for name, value in values.items()}
    return {"named_dispatch_rates": rates}


def _subscribe_rate(value: SubscribeRateValue) -> dict[str, object]:
    times = value.subscribe_throttling_rate_per_consumer
    if times <= 0:
        return {}
    return {"subscribe_rate": Rate(times, 0, max(1, value.rate_period_in_second))}


def _inactive_topics(value: InactiveTopicValue) -> dict[str, object]:
    if not value.delete_while_inactive:
        return {"inactive_topics": None}
    mode = value.inactive_topic_delete_mode
    policy = InactiveTopicPolicy(
        value.max_inactive_duration_seconds, mode == "delete_when_subscriptions_caught_up"
    )
    return {"inactive_topics": policy}


def _no_fields(_value: object) -> dict[str, object]:
    """Return nothing: nothing here would act on the policy."""
    return {}


def _offload(value: dict[str, object]) -> dict[str, object]:
    """Check the driver as Pulsar does; no secret is stored that nothing would use."""
    if value.get("managedLedgerOffloadDriver") not in OFFLOAD_DRIVERS:
        raise InvalidSetting(
            f"The driver is not supported, support value: {', '.join(sorted(OFFLOAD_DRIVERS))}"
        )
    if value.get(OFFLOAD_CREDENTIAL):
        raise InvalidSetting(f"offloadPolicies: {OFFLOAD_CREDENTIAL} is not kept: {_TIERS}")
    return {}


def _persistence(value: PersistenceValue) -> dict[str, object]:
    copies = value.bookkeeper_ensemble, value.bookkeeper_write_quorum, value.bookkeeper_ack_quorum
    if copies != (1, 1, 1):
        raise InvalidSetting("persistence: there is one durable copy, on one node")
    return {}  # acks are in each commit of the journal, so their own rate limits nothing


class PolicyLevel(Enum):
    """The levels at which a policy may be set."""

    NAMESPACE = "namespace"
    TOPIC = "topic"


BOTH = frozenset(PolicyLevel)
NAMESPACE_ONLY = frozenset({PolicyLevel.NAMESPACE})
TOPIC_ONLY = frozenset({PolicyLevel.TOPIC})
NOWHERE: frozenset[PolicyLevel] = frozenset()


class Policy(msgspec.Struct, frozen=True):
    """One row: the type of the value, its meaning, the levels, and the test that enforces it.

    `meaning` is a field of Policies, or a function from the value to such fields. `test` names the
    test that fails if the policy is ignored; a `refused` row has the reason instead. `no_effect` is
    the reason for which nothing here would act on a policy that is kept. `invalid` is Pulsar's own
    text for a value that is not possible.
    """

    name: str
    kind: Any
    meaning: Any
    levels: frozenset[PolicyLevel]
    test: str = ""
    refused: str = ""
    no_effect: str = ""
    invalid: str = ""

    def check(self, value: Json) -> Json:
        """Return the value to store; InvalidSetting."""
        if self.refused:
            raise InvalidSetting(f"{self.name}: {self.refused}")
        try:
            read = msgspec.convert(value, self.kind, strict=False)
        except msgspec.ValidationError as error:
            raise InvalidSetting(self.invalid or f"{self.name}: {error}") from error
        self.fields_of(read)
        return msgspec.to_builtins(read)

    def fields_of(self, read: Any) -> dict[str, Any]:
        """Return the fields of `Policies` that a decoded value sets."""
        if callable(self.meaning):
            found: dict[str, Any] = self.meaning(read)
            return found
        return {self.meaning: read}


def _row(
    name: str, kind: Any, meaning: Any, test: str, levels: frozenset[PolicyLevel] = BOTH
) -> Policy:
    return Policy(name, kind, meaning, levels, test=test)


def _without_effect(
    name: str,
    kind: Any,
    why: str,
    levels: frozenset[PolicyLevel] = BOTH,
    invalid: str = "",
) -> Policy:
    test = "test_a_policy_without_effect_is_kept_and_its_reply_has_a_warning"
    return Policy(name, kind, _no_fields, levels, test=test, no_effect=why, invalid=invalid)


def _refused(name: str, why: str) -> Policy:
    return Policy(name, None, None, NOWHERE, refused=why)


_GEO = "there is one cluster"
_TIERS = "segments go to object storage by the node's own settings"

POLICIES: dict[str, Policy] = {
    row.name: row
    for row in (
        _row("deduplication", bool, "deduplication", "test_a_repeated_send_is_stored_once"),
        _row("retention", RetentionValue, _retention, "test_retention_of_a_policy_is_obeyed"),
        _row("messageTTL", Count, "ttl_s", "test_messages_expire_for_subscriptions"),
        _row("backlogQuota", QuotaMap, _quota, "test_a_backlog_quota_is_obeyed"),
        _row("maxUnackedMessagesOnConsumer", Count, "max_unacked_per_consumer",
             "test_a_consumer_with_too_much_unacked_waits"),
        _row("maxUnackedMessagesOnSubscription", Count, "max_unacked_per_subscription",
             "test_a_subscription_with_too_much_unacked_waits"),
        _row("maxProducers", Count, "max_producers", "test_producers_of_a_topic_are_limited"),
        _row("maxConsumers", Count, "max_consumers", "test_consumers_of_a_topic_are_limited"),
        _row("maxConsumersPerSubscription", Count, "max_consumers_per_subscription",
             "test_consumers_of_a_subscription_are_limited"),
        _row("maxSubscriptionsPerTopic", Count, "max_subscriptions",
             "test_subscriptions_of_a_topic_are_limited"),
        _row("schemaCompatibilityStrategy", CompatibilityStrategy, "schema_compatibility",
             "test_a_schema_that_does_not_fit_is_refused"),
        _row("schemaValidationEnforced", bool, "schema_validation_enforced",
             "test_a_producer_without_schema_is_refused_where_one_is_demanded"),
        _row("isAllowAutoUpdateSchema", bool, "schema_auto_update",
             "test_no_producer_changes_a_schema_where_it_may_not", NAMESPACE_ONLY),
        _row("autoTopicCreation", AutoCreationValue, _auto_creation,
             "test_auto_creation_follows_the_policy_of_the_namespace", NAMESPACE_ONLY),
        _row("autoSubscriptionCreation", AutoSubscriptionValue,
             lambda value: {"auto_subscription": value.allow_auto_subscription_creation},
             "test_a_subscription_is_made_by_mentioning_it_only_where_allowed"),
        _row("subscriptionTypesEnabled", list[
             Literal["Exclusive", "Shared", "Failover", "Key_Shared"]], _types,
             "test_types_of_subscriptions_that_are_not_enabled_are_refused"),
        _row("encryptionRequired", bool, "encryption_required",
             "test_a_producer_that_does_not_encrypt_is_refused_where_it_must", NAMESPACE_ONLY),
        _row("subscriptionAuthMode", Literal["None", "Prefix"],
             lambda value: {"role_prefixes": value == "Prefix"},
             "test_a_subscription_has_the_role_before_its_name_where_it_must", NAMESPACE_ONLY),
        _row("delayedDelivery", DelayedValue, _delayed,
             "test_a_message_waits_for_its_time"),
        _row("maxMessageSize", Count, "max_message_size",
             "test_messages_above_the_topics_size_are_refused", TOPIC_ONLY),
        _row("publishRate", PublishRateValue, _publish_rate,
             "test_producers_are_not_faster_than_the_publish_rate"),
        _row("persistence", PersistenceValue, _persistence,
             "test_more_copies_than_there_are_is_refused"),
        _row("dispatchRate", DispatchRateValue, _dispatch_rate("dispatch_rate"),
             "test_consumers_are_not_faster_than_the_dispatch_rate"),
        _row("subscriptionDispatchRate", DispatchRateValue,
             _dispatch_rate("subscription_dispatch_rate"),
             "test_each_subscription_has_its_own_dispatch_rate"),
        _row("namedDispatchRates", NamedDispatchRates, _named_dispatch_rates,
             "test_a_subscription_that_is_named_has_its_own_dispatch_rate", TOPIC_ONLY),
        _row("subscribeRate", SubscribeRateValue, _subscribe_rate,
             "test_a_consumer_subscribes_no_more_often_than_the_subscribe_rate"),
        Policy("maxTopicsPerNamespace", Count, "max_topics", NAMESPACE_ONLY,
               test="test_topics_of_a_namespace_are_limited",
               invalid="maxTopicsPerNamespace must be 0 or more"),
        Policy("subscriptionExpirationTime", Count, "subscription_expiry_min", NAMESPACE_ONLY,
               test="test_subscriptions_without_consumers_expire",
               invalid="Invalid value for subscription expiration time"),
        _row("inactiveTopicPolicies", InactiveTopicValue, _inactive_topics,
             "test_an_inactive_topic_is_deleted_after_its_time"),
        _row("compactionThreshold", Size, "compaction_threshold",
             "test_a_topic_is_compacted_above_the_threshold"),
        _without_effect("replicatorDispatchRate", DispatchRateValue, _GEO),
        _without_effect("deduplicationSnapshotInterval", Count, "what producers wrote last is "
                        "kept with every flush"),
        _without_effect("bookieAffinityGroup", BookieAffinityValue, "there are no bookies",
                        NAMESPACE_ONLY),
        _without_effect("dispatcherPauseOnAckStatePersistent", bool, "acks are durable before "
                        "they are answered"),
        _without_effect("replicationClusters", list[str], _GEO, TOPIC_ONLY),
        _without_effect("allowedClusters", list[str], _GEO, NAMESPACE_ONLY),
        _refused("replication", _GEO),
        _refused("replicatedSubscription", _GEO),
        msgspec.structs.replace(
            _without_effect("offloadPolicies", OffloadValue, _TIERS), meaning=_offload
        ),
        _without_effect("offloadThreshold", Threshold, _TIERS, NAMESPACE_ONLY,
                        "Invalid value for offloadThreshold"),
        _without_effect("offloadThresholdInSeconds", Threshold, _TIERS, NAMESPACE_ONLY,
                        "Invalid value for offloadThresholdInSecond"),
        _without_effect("offloadDeletionLagMs", Size, _TIERS, NAMESPACE_ONLY),
        _refused("antiAffinity", "there is one node"),
        _refused("entryFilters", "no foreign code runs here"),
        _refused("migrated", _GEO),
        _refused("resourcegroup", "there are no resource groups"),
        _refused("shadowTopics", "there are no shadow topics"),
    )
}  # fmt: skip

_FIELDS = frozenset(Policies.__struct_fields__)


def check_policy(name: str, level: PolicyLevel, value: Json) -> Json:
    """Return the value to store; InvalidSetting."""
    row = POLICIES.get(name)
    if row is None:
        raise InvalidSetting(f"there is no policy {name[:60]!r}")
    checked = row.check(value)
    if level not in row.levels:
        where = " or ".join(sorted(each.value for each in row.levels))
        raise InvalidSetting(f"{name}: may be set for a {where} only")
    return checked


def resolve_policies(
    topic: Mapping[str, Json], namespace: Mapping[str, Json], default: Policies = DEFAULT_POLICIES
) -> Policies:
    """Return the policies of a topic from its own values and those of its namespace.

    A backlog quota and a list of types replace each other as a whole per kind, as in Apache Pulsar.
    """
    if not topic and not namespace:
        return default
    found: dict[str, Any] = {}
    for level in (namespace, topic):
        for name, value in level.items():
            row = POLICIES.get(name)
            if row is not None and not row.refused:
                values = row.fields_of(msgspec.convert(value, row.kind))
                if (
                    values.get("schema_compatibility") is not CompatibilityStrategy.UNDEFINED
                ):  # not set
                    found |= values
    known = {name: value for name, value in found.items() if name in _FIELDS}
    return msgspec.structs.replace(default, **known)


def read_topic_policies(settings: Mapping[str, str]) -> dict[str, Json]:
    """Return the policies in the settings of a topic's row."""
    return {
        key.removeprefix(PREFIX): msgspec.json.decode(text)
        for key, text in settings.items()
        if key.startswith(PREFIX) and key.removeprefix(PREFIX) in POLICIES
    }


def terminated_partitions(settings: Mapping[str, str]) -> frozenset[int]:
    """Return the numbers of a topic's terminated partitions."""
    text = settings.get(TERMINATED)
    return frozenset(msgspec.json.decode(text, type=list[int])) if text else frozenset()
