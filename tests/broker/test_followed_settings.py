"""What one of two brokers of a cluster changes in its settings holds at the other one, too."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from tests.broker.topics.test_namespaces import SHOP, House
from trilogue.broker.access.acl_authorizer import AclAuthorizer
from trilogue.broker.access.acls import Acl, Pattern
from trilogue.broker.access.authorizer import Operation, Principal, Resource, ResourceKind
from trilogue.broker.access.delegation_tokens import DelegationTokenLimits
from trilogue.broker.access.users import User
from trilogue.broker.broker import Broker
from trilogue.broker.metadata_change import MetadataChange
from trilogue.broker.names import parse_kafka
from trilogue.broker.quotas.quotas import QuotaEntity, QuotaKind
from trilogue.broker.schemas.compatibility import Definition
from trilogue.broker.topics.namespaces import Namespace, Tenant
from trilogue.broker.tubemq.group_rules import ClusterRecord, ConsumeRecord, TubeGroupRecord

ALICE = Principal("User", "alice")
ORDERS = parse_kafka("orders")
TOPIC, READ = ResourceKind.TOPIC, Operation.READ
FIRST_DAY_MS = 1_700_000_000_000


def acl(name: str, *, prefixed: bool = False) -> Acl:
    pattern = Pattern.PREFIXED if prefixed else Pattern.LITERAL
    return Acl(TOPIC, pattern, name, ALICE, "*", READ, True)


class Pair:
    """Two brokers over one meta; the second one gets the settings that the first one writes."""

    def __init__(self) -> None:
        self.first = House()
        self.first.create_topic("orders")
        self.second = self.first.again()
        for house in (self.first, self.second):
            tokens = house.broker.delegation_tokens
            tokens.enable(lambda: b"s" * 16, DelegationTokenLimits())

    def write(self, change: MetadataChange) -> None:
        settings = self.first.meta.state.settings
        before = dict(settings)
        self.first.carry_out(change)
        for key in sorted({*before, *settings}):
            if before.get(key) != settings.get(key):
                self.second.broker.apply_setting(key, settings.get(key))


@pytest.fixture
def pair() -> Pair:
    return Pair()


def change_users(broker: Broker, pair: Pair) -> None:
    for change in (
        lambda: broker.users.plan_put(User("alice", 5)),
        lambda: broker.users.plan_put(User("bob", 5)),
        lambda: broker.users.plan_put(User("alice", 9, tokens_from_ms=7)),
        lambda: broker.users.plan_delete("bob", 11),
        lambda: broker.users.plan_revoke_tokens("carol", 12),
    ):
        pair.write(change())


def change_acls(broker: Broker, pair: Pair) -> None:
    for change in (
        lambda: broker.acls.plan_create([acl("a"), acl("b/", prefixed=True), acl("c")]),
        lambda: broker.acls.plan_create([acl("b/long", prefixed=True)]),
        lambda: broker.acls.plan_delete([acl("b/", prefixed=True), acl("c")]),
    ):
        pair.write(change())


def change_tokens(broker: Broker, pair: Pair) -> None:
    tokens = broker.delegation_tokens
    made = [
        tokens.make_token(ALICE, ALICE, [], lifetime_ms=0, now_ms=FIRST_DAY_MS) for _ in range(3)
    ]
    for token in made:
        pair.write(tokens.plan_create(token))
    pair.write(tokens.plan_replace(tokens.expire(made[0], 1, FIRST_DAY_MS)))
    pair.write(tokens.plan_remove(made[1:2]))


def change_namespaces(broker: Broker, pair: Pair) -> None:
    namespaces = broker.namespaces
    for change in (
        lambda: namespaces.plan_put_tenant("acme", Tenant(("boss",)), new=True),
        lambda: namespaces.plan_put_tenant("gone", Tenant(), new=True),
        lambda: namespaces.plan_create(SHOP, Namespace(policies={"messageTTL": 5})),
        lambda: namespaces.plan_alter(SHOP, Namespace(policies={"messageTTL": 6})),
        lambda: namespaces.plan_delete_tenant("gone"),
    ):
        pair.write(change())


def change_schemas(broker: Broker, pair: Pair) -> None:
    topic = broker.cluster.topic(ORDERS)
    for kind in ("STRING", "BYTES"):
        known = broker.schemas.current(topic)
        pair.write(broker.schemas.plan_add(topic, Definition(kind, b"", ()), known))
    pair.write(broker.schemas.plan_delete(topic))


def purge_schemas(broker: Broker, pair: Pair) -> None:
    change_schemas(broker, pair)
    pair.write(broker.schemas.plan_purge(broker.cluster.topic(ORDERS)))


def change_quotas(broker: Broker, pair: Pair) -> None:
    user, client = QuotaEntity(user="alice"), QuotaEntity(client="app")
    pair.write(
        broker.quotas.plan_alter(
            [(user, {QuotaKind.PRODUCED: 5.0}), (client, {QuotaKind.FETCHED: 6.0})]
        )
    )
    pair.write(broker.quotas.plan_alter([(client, {QuotaKind.FETCHED: None})]))


def change_broker_values(broker: Broker, pair: Pair) -> None:
    values = broker.values
    pair.write(values.plan_alter({"message.max.bytes": "2000000"}, all_nodes=True))
    pair.write(values.plan_alter({"log.retention.ms": "777"}, all_nodes=True))


def change_group_values(broker: Broker, pair: Pair) -> None:
    values = broker.group_values
    pair.write(values.plan_alter("g", {"consumer.session.timeout.ms": "46000"}))
    pair.write(values.plan_alter("h", {"consumer.session.timeout.ms": "47000"}))
    pair.write(values.plan_alter("g", {}))


def change_rules(broker: Broker, pair: Pair) -> None:
    rules = broker.rules
    for change in (
        lambda: rules.plan_cluster(ClusterRecord(message_mib_max=2)),
        lambda: rules.plan_group("g", TubeGroupRecord(checks_rate=True, rate=3)),
        lambda: rules.plan_consume("g", ORDERS, ConsumeRecord(may=False, reason="r")),
        lambda: rules.plan_consume("h", ORDERS, ConsumeRecord(may=False, reason="r")),
        lambda: rules.plan_consume("h", ORDERS, None),
    ):
        pair.write(change())


def topic_values(broker: Broker) -> object:
    partition = broker.cluster.topic(ORDERS).partitions[0]
    return partition.settings, partition.policies


def schema_versions(broker: Broker) -> object:
    return broker.schemas.versions(broker.cluster.topic(ORDERS))


CASES: dict[str, tuple[Callable[[Broker, Pair], None], Callable[[Broker], object]]] = {
    "users": (
        change_users,
        lambda broker: [list(broker.users), broker.users.tokens_from_ms("carol")],
    ),
    "acls": (change_acls, lambda broker: list(broker.acls)),
    "tokens": (change_tokens, lambda broker: list(broker.delegation_tokens)),
    "namespaces": (
        change_namespaces,
        lambda broker: [broker.namespaces.tenants, broker.namespaces.namespace_policies(SHOP)],
    ),
    "schemas": (change_schemas, schema_versions),
    "purge": (purge_schemas, schema_versions),
    "quotas": (change_quotas, lambda broker: list(broker.quotas)),
    "broker values": (
        change_broker_values,
        lambda broker: [broker.values.overrides(all_nodes=True), topic_values(broker)],
    ),
    "group values": (
        change_group_values,
        lambda broker: [
            broker.group_values.names,
            broker.group_values.number("h", "consumer.session.timeout.ms"),
        ],
    ),
    "rules": (
        change_rules,
        lambda broker: [
            broker.rules.cluster, broker.rules.groups, list(broker.rules.every_consume())
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_setting_of_one_broker_holds_at_the_other_as_after_its_restart(pair: Pair, case: str):
    change, view = CASES[case]
    before = msgspec.json.encode(str(view(pair.second.broker)))

    change(pair.first.broker, pair)

    assert view(pair.second.broker) == view(pair.first.broker)
    assert view(pair.first.again().broker) == view(pair.second.broker)
    if case != "purge":
        assert msgspec.json.encode(str(view(pair.second.broker))) != before


def test_session_listeners_are_called_for_changes_of_other_brokers(pair: Pair):
    heard: list[str] = []
    other = pair.second.broker
    other.users.listeners.append(heard.append)
    other.delegation_tokens.listeners.append(lambda _: heard.append("token"))
    other.acls.listeners.append(lambda: heard.append("acls"))

    change_users(pair.first.broker, pair)
    change_tokens(pair.first.broker, pair)
    change_acls(pair.first.broker, pair)

    assert heard[:5] == ["alice", "bob", "alice", "bob", "carol"]
    assert heard[5:7] == ["token", "token"]
    assert heard[7:] == ["acls"] * 6


def test_an_authorizer_decides_by_acls_of_another_broker_at_once(pair: Pair):
    authorizer = AclAuthorizer(pair.second.broker.acls, [], tenant_admins=lambda _: ())
    orders = Resource(TOPIC, "public/default/orders")

    def is_allowed() -> bool:
        return authorizer.allowed(ALICE, READ, orders)

    assert not is_allowed()
    allow = acl("public/default/", prefixed=True)
    pair.write(pair.first.broker.acls.plan_create([allow]))
    assert is_allowed()
    pair.write(pair.first.broker.acls.plan_delete([allow]))
    assert not is_allowed()


def test_settings_without_a_reader_stay_in_meta(pair: Pair):
    pair.second.broker.apply_setting("access/secured", "1")
    pair.second.broker.apply_setting("tubemq/secret", "x")
