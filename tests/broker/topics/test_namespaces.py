"""Tenants, namespaces and policies: what may be made, changed, forgotten, and what it comes to."""

from __future__ import annotations

import pytest

from tests.broker.fakes import FakeLog, FakeTimers
from trilogue.broker.broker import Broker
from trilogue.broker.errors import (
    ConcurrentChange,
    InUse,
    InvalidName,
    InvalidSetting,
    NamespaceExists,
    NotServed,
    PartitionRequired,
    PolicyViolation,
    UnknownNamespace,
    UnknownTopic,
)
from trilogue.broker.metadata_change import MetadataChange
from trilogue.broker.names import NamespaceName, parse_namespace, parse_pulsar
from trilogue.broker.topics.lookup import (
    check_auto_create,
    find_partition,
    numbered_partition_count,
    partition_index,
)
from trilogue.broker.topics.namespaces import Namespace, Tenant
from trilogue.broker.topics.policies import (
    DEFAULT_POLICIES,
    POLICIES,
    AutoCreation,
    BacklogQuota,
    BacklogQuotaPolicy,
    CompatibilityStrategy,
    Policies,
    PolicyLevel,
    RetentionPolicy,
    check_policy,
    resolve_policies,
)
from trilogue.broker.topics.topic import Topic
from trilogue.log.errors import CorruptLog
from trilogue.meta.memory import MemoryMeta
from trilogue.meta.operations import PutSetting

SHOP = NamespaceName("acme", "shop")


class House:
    """A broker over a meta in memory, which `again` starts again."""

    def __init__(self, meta: MemoryMeta | None = None, log: FakeLog | None = None) -> None:
        self.meta = meta or MemoryMeta(b"c" * 16, 1, 5)
        self.log = log or FakeLog()
        timers = FakeTimers()
        self.topic_ids = len(self.meta.state.topics)
        self.broker = Broker(
            self.meta.state,
            allocate=self.meta.allocate,
            timers=timers,
            now_ms=timers.now_ms,
            new_topic_id=self._new_topic_id,
            new_member_suffix=lambda: "x",
        )
        self.broker.attach(self.log, self.log)
        self.namespaces = self.broker.namespaces
        self.cluster = self.broker.cluster

    def _new_topic_id(self) -> bytes:
        self.topic_ids += 1
        return self.topic_ids.to_bytes(16, "big")

    def again(self) -> House:
        return House(self.meta, self.log)

    def carry_out(self, commit: MetadataChange) -> object:
        try:
            self.meta.write_now(commit.ops(), commit.preconditions)
        except Exception as error:
            raise commit.abandon(error) from error
        return commit.apply()

    def create_namespace(self, name: NamespaceName = SHOP, **policies: object) -> None:
        if name.tenant not in self.namespaces.tenants:
            self.carry_out(self.namespaces.plan_put_tenant(name.tenant, Tenant(), new=True))
        self.carry_out(self.namespaces.plan_create(name, Namespace(policies=policies)))

    def set_policies(self, name: NamespaceName = SHOP, **policies: object) -> None:
        self.carry_out(self.namespaces.plan_alter(name, Namespace(policies=policies)))

    def create_topic(self, spelled: str, **fields: object) -> Topic:
        new = self.cluster.check_create(parse_pulsar(spelled).topic, **fields)
        return self.carry_out(self.cluster.plan_create(new))


# -- tenants and namespaces -----------------------------------------------------------------------


def test_bare_names_have_a_place_from_the_first_moment():
    house = House()

    assert house.namespaces.tenants == ["public"]
    assert house.namespaces.namespace_names("public") == [NamespaceName("public", "default")]
    assert house.namespaces.exists(parse_namespace("public/default"))


def test_tenants_and_namespaces_survive_a_restart():
    house = House()
    house.create_namespace(messageTTL=5)
    house.carry_out(
        house.namespaces.plan_put_tenant("acme", Tenant(("boss",), ("standalone",)), new=False)
    )

    again = house.again()

    assert again.namespaces.tenants == ["acme", "public"]
    assert again.namespaces.tenant("acme").admin_roles == ("boss",)
    assert again.namespaces.namespace_names("acme") == [SHOP]
    assert again.namespaces.namespace_policies(SHOP).ttl_s == 5


def test_administrators_of_any_tenant_are_known():
    house = House()
    put = house.namespaces.plan_put_tenant
    assert not house.namespaces.has_admin("boss")

    house.carry_out(put("acme", Tenant(("boss", "vice")), new=True))
    house.carry_out(put("shop", Tenant(("boss",)), new=True))
    assert house.namespaces.has_admin("boss")
    assert house.again().namespaces.has_admin("vice")

    house.carry_out(put("acme", Tenant(), new=False))
    assert house.namespaces.has_admin("boss")
    assert not house.namespaces.has_admin("vice")
    house.carry_out(house.namespaces.plan_delete_tenant("shop"))
    assert not house.namespaces.has_admin("boss")


def test_an_old_name_with_a_cluster_is_a_namespace_too():
    house = House()
    old = parse_namespace("acme/eu/shop")

    house.create_namespace(old, messageTTL=7)

    assert house.again().namespaces.namespace_policies(old).ttl_s == 7


def test_existing_tenant_or_namespace_is_not_created_again():
    house = House()
    house.create_namespace()

    with pytest.raises(NamespaceExists):
        house.namespaces.plan_put_tenant("acme", Tenant(), new=True)
    with pytest.raises(NamespaceExists):
        house.namespaces.plan_create(SHOP, Namespace())
    with pytest.raises(NamespaceExists):
        house.namespaces.plan_create(NamespaceName("public", "default"), Namespace())


def test_unknown_tenant_or_namespace_raises_unknown_namespace():
    namespaces = House().namespaces

    with pytest.raises(UnknownNamespace):
        namespaces.plan_create(SHOP, Namespace())
    with pytest.raises(UnknownNamespace):
        namespaces.plan_put_tenant("acme", Tenant(), new=False)
    with pytest.raises(UnknownNamespace):
        namespaces.plan_delete_tenant("acme")
    with pytest.raises(UnknownNamespace):
        namespaces.plan_delete(SHOP)
    with pytest.raises(UnknownNamespace):
        namespaces.namespace(SHOP)
    with pytest.raises(InvalidName):
        namespaces.plan_put_tenant("a b", Tenant(), new=True)


def test_nothing_goes_while_something_is_in_it():
    house = House()
    house.create_namespace()
    topic = house.create_topic("acme/shop/orders")

    with pytest.raises(InUse):
        house.namespaces.plan_delete_tenant("acme")
    with pytest.raises(InUse):
        house.namespaces.plan_delete(SHOP)
    house.carry_out(house.cluster.plan_delete(topic.name))
    house.carry_out(house.namespaces.plan_delete(SHOP))
    house.carry_out(house.namespaces.plan_delete_tenant("acme"))

    assert not house.namespaces.exists(SHOP)
    assert house.again().namespaces.tenants == ["public"]


def test_the_place_of_bare_names_does_not_go():
    namespaces = House().namespaces

    with pytest.raises(InUse):
        namespaces.plan_delete(NamespaceName("public", "default"))
    with pytest.raises(InUse):
        namespaces.plan_delete_tenant("public")


def test_a_namespace_that_no_client_made_exists_while_a_topic_is_in_it():
    """Kafka clients make topics anywhere."""
    house = House()
    topic = house.create_topic("acme/shop/orders")

    assert house.again().namespaces.exists(SHOP)
    assert house.namespaces.namespace(SHOP) == Namespace()
    assert house.namespaces.tenants == ["acme", "public"]
    assert (house.namespaces.tenant("acme"), house.namespaces.namespace_names("acme")) == (
        Tenant(),
        [SHOP],
    )
    with pytest.raises(InUse):
        house.namespaces.plan_delete_tenant("acme")
    house.carry_out(house.cluster.plan_delete(topic.name))
    assert not house.namespaces.exists(SHOP)


def test_conflicting_namespace_change_raises_concurrent_change():
    house = House()
    house.create_namespace()
    first = house.namespaces.plan_alter(SHOP, Namespace(policies={"messageTTL": 1}))
    second = house.namespaces.plan_alter(SHOP, Namespace(policies={"messageTTL": 2}))

    house.carry_out(first)
    with pytest.raises(ConcurrentChange):
        house.carry_out(second)

    assert house.namespaces.namespace_policies(SHOP).ttl_s == 1


def test_unreadable_namespace_in_meta_stops_the_start():
    house = House()
    house.meta.write_now([PutSetting("namespace/acme/shop", "{not json")])

    with pytest.raises(CorruptLog, match="acme/shop"):
        house.again()


# -- policies -------------------------------------------------------------------------------------


def test_a_policy_is_looked_up_at_the_topic_then_its_namespace_then_the_broker():
    namespace = {"messageTTL": 5, "maxProducers": 3}

    found = resolve_policies({"messageTTL": 0}, namespace)

    assert (found.ttl_s, found.max_producers, found.max_consumers) == (0, 3, 0)
    assert resolve_policies({}, {}) is DEFAULT_POLICIES


MEANT = [
    ("deduplication", True, Policies(deduplication=True)),
    (
        "retention",
        {"retentionTimeInMinutes": 10, "retentionSizeInMB": -1},
        Policies(retention=RetentionPolicy(10, -1)),
    ),
    (
        "backlogQuota",
        {"destination_storage": {"limit": 9, "policy": "producer_exception"}},
        Policies(size_quota=BacklogQuota(9, -1, BacklogQuotaPolicy.EXCEPTION)),
    ),
    (
        "backlogQuota",
        {"message_age": {"limitTime": 9, "policy": "consumer_backlog_eviction"}},
        Policies(age_quota=BacklogQuota(-1, 9, BacklogQuotaPolicy.EVICTION)),
    ),
    (
        "autoTopicCreation",
        {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 4},
        Policies(auto_creation=AutoCreation(True, 4)),
    ),
    (
        "autoTopicCreation",
        {"allowAutoTopicCreation": False},
        Policies(auto_creation=AutoCreation(False, 0)),
    ),
    (
        "autoSubscriptionCreation",
        {"allowAutoSubscriptionCreation": False},
        Policies(auto_subscription=False),
    ),
    (
        "schemaCompatibilityStrategy",
        "BACKWARD",
        Policies(schema_compatibility=CompatibilityStrategy.BACKWARD),
    ),
    ("schemaCompatibilityStrategy", "UNDEFINED", Policies()),
    (
        "subscriptionTypesEnabled",
        ["Shared", "Failover"],
        Policies(subscription_types=frozenset({"Shared", "Failover"})),
    ),
    ("delayedDelivery", {"active": False, "tickTime": 1}, Policies(delayed_delivery=False)),
    ("maxUnackedMessagesOnConsumer", 0, Policies(max_unacked_per_consumer=0)),
    ("encryptionRequired", True, Policies(encryption_required=True)),
    ("subscriptionAuthMode", "Prefix", Policies(role_prefixes=True)),
    ("subscriptionAuthMode", "None", Policies()),
]


def test_undefined_strategy_of_a_topic_inherits_that_of_its_namespace():
    key = "schemaCompatibilityStrategy"

    found = resolve_policies({key: "UNDEFINED"}, {key: "BACKWARD"})

    assert found.schema_compatibility is CompatibilityStrategy.BACKWARD


@pytest.mark.parametrize(("name", "value", "meant"), MEANT)
def test_policy_value_resolves_to_its_meaning(name: str, value: object, meant: Policies):
    kept = check_policy(name, PolicyLevel.NAMESPACE, value)

    assert resolve_policies({}, {name: kept}) == meant
    assert check_policy(name, PolicyLevel.NAMESPACE, kept) == kept


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("no.such", 1),
        ("messageTTL", -1),
        ("messageTTL", "soon"),
        ("messageTTL", 2**31),
        ("messageTTL", None),
        ("retention", {"retentionTimeInMinutes": 10, "retentionSizeInMB": 0}),
        ("retention", {"retentionTimeInMinutes": -2}),
        ("retention", [1, 2]),
        ("backlogQuota", {"destination_storage": {"limit": 9, "policy": "nothing"}}),
        ("autoTopicCreation", {"topicType": "non-partitioned", "defaultNumPartitions": 2}),
        ("autoTopicCreation", {"topicType": "partitioned", "defaultNumPartitions": 0}),
        ("subscriptionTypesEnabled", ["Exclusive", "Anything"]),
        ("delayedDelivery", {"active": True, "maxDeliveryDelayInMillis": 5}),
    ],
)
def test_a_value_that_is_none_is_refused_and_named(name: str, value: object):
    with pytest.raises(InvalidSetting, match=name.replace(".", r"\.")):
        check_policy(name, PolicyLevel.NAMESPACE, value)


def test_more_copies_than_there_are_is_refused():
    one = {"bookkeeperEnsemble": 1, "bookkeeperWriteQuorum": 1, "bookkeeperAckQuorum": 1}

    check_policy("persistence", PolicyLevel.TOPIC, one)
    with pytest.raises(InvalidSetting, match="one durable copy"):
        check_policy("persistence", PolicyLevel.TOPIC, {**one, "bookkeeperEnsemble": 3})
    check_policy("persistence", PolicyLevel.TOPIC, {**one, "managedLedgerMaxMarkDeleteRate": 1.0})


@pytest.mark.parametrize("name", [row.name for row in POLICIES.values() if row.refused])
def test_policy_without_effect_is_refused_with_the_reason(name: str):
    with pytest.raises(InvalidSetting, match=POLICIES[name].refused):
        check_policy(name, PolicyLevel.NAMESPACE, True)


def test_a_policy_of_another_level_is_refused():
    with pytest.raises(InvalidSetting, match="topic only"):
        check_policy("maxMessageSize", PolicyLevel.NAMESPACE, 5)
    with pytest.raises(InvalidSetting, match="namespace only"):
        check_policy("encryptionRequired", PolicyLevel.TOPIC, True)


def test_partitions_apply_policies_of_namespace_and_topic_after_a_restart():
    house = House()
    house.create_namespace(messageTTL=5)
    topic = house.create_topic("acme/shop/orders", partition_count=2)
    other = house.create_topic("other")
    before = topic.partitions[1].policies.ttl_s
    settings = {"pulsar.maxProducers": "2"}
    house.carry_out(house.cluster.plan_alter(topic.name, settings))
    house.set_policies(messageTTL=9)

    again = house.again().cluster.topic(topic.name)

    assert before == 5
    for partition in (*topic.partitions, *again.partitions):
        assert (partition.policies.ttl_s, partition.policies.max_producers) == (9, 2)
    assert other.partitions[0].policies is DEFAULT_POLICIES


# -- topics by name -------------------------------------------------------------------------------


def test_a_name_stands_for_a_partition():
    house = House()
    bare = house.create_topic("bare", partitioned=False)
    many = house.create_topic("many", partition_count=3)

    assert find_partition(house.cluster, parse_pulsar("bare")) == (bare, bare.partitions[0])
    assert find_partition(house.cluster, parse_pulsar("many-partition-2"))[1] is many.partitions[2]
    assert (numbered_partition_count(bare), numbered_partition_count(many)) == (0, 3)
    assert partition_index(bare, bare.partitions[0]) == -1
    assert partition_index(many, many.partitions[2]) == 2


@pytest.mark.parametrize(
    ("spelled", "reason"),
    [
        ("many", PartitionRequired),
        ("many-partition-3", UnknownTopic),
        ("bare-partition-0", UnknownTopic),
        ("none", UnknownTopic),
        ("non-persistent://public/default/bare", NotServed),
    ],
)
def test_find_partition_raises_for_an_unresolvable_name(spelled: str, reason: type[Exception]):
    house = House()
    house.create_topic("bare", partitioned=False)
    house.create_topic("many", partition_count=3)

    with pytest.raises(reason):
        find_partition(house.cluster, parse_pulsar(spelled))


def test_auto_creation_follows_the_policy_of_the_namespace():
    house = House()
    house.create_namespace()
    bare = check_auto_create(house.broker, parse_pulsar("acme/shop/orders"))
    house.set_policies(autoTopicCreation={"topicType": "partitioned", "defaultNumPartitions": 4})
    many = check_auto_create(house.broker, parse_pulsar("acme/shop/orders-partition-3"))

    assert (bare.partitioned, bare.partition_count) == (False, 1)
    assert (many.partitioned, many.partition_count) == (True, 4)
    with pytest.raises(UnknownTopic):
        check_auto_create(house.broker, parse_pulsar("acme/shop/orders-partition-4"))
    house.set_policies(autoTopicCreation={"allowAutoTopicCreation": False})
    with pytest.raises(UnknownTopic):
        check_auto_create(house.broker, parse_pulsar("acme/shop/orders"))


def test_auto_creation_switch_of_the_listener_applies_without_a_namespace_policy():
    house = House()
    house.create_namespace()

    with pytest.raises(UnknownTopic):
        check_auto_create(house.broker, parse_pulsar("acme/shop/orders"), allowed=False)
    house.set_policies(autoTopicCreation={"allowAutoTopicCreation": True})
    assert check_auto_create(house.broker, parse_pulsar("acme/shop/orders"), allowed=False)


def test_nothing_is_made_by_mentioning_it_where_there_is_no_namespace():
    with pytest.raises(UnknownNamespace):
        check_auto_create(House().broker, parse_pulsar("acme/shop/orders"))


def test_topics_of_a_namespace_are_limited():
    house = House()
    house.create_namespace()
    house.set_policies(maxTopicsPerNamespace=3)
    check = house.cluster.check_create

    with pytest.raises(PolicyViolation):
        check(parse_pulsar("acme/shop/large").topic, partition_count=4)
    check(parse_pulsar("acme/shop/three").topic, partition_count=3)
    check(parse_pulsar("public/default/large").topic, partition_count=4)


def test_a_default_holds_where_no_namespace_has_its_own_and_after_a_restart():
    house = House()
    house.create_namespace()
    topic = house.create_topic("t")
    default = topic.partitions[0].policies.max_producers
    house.carry_out(house.namespaces.plan_set_default("maxProducersPerTopic", "3"))

    assert (default, topic.partitions[0].policies.max_producers) == (0, 3)
    assert house.again().namespaces.defaults.max_producers == 3
    house.set_policies(maxProducers=5)
    assert house.namespaces.namespace_policies(SHOP).max_producers == 5
    with pytest.raises(InvalidSetting):
        house.broker.namespaces.plan_set_default("maxProducersPerTopic", "x")
