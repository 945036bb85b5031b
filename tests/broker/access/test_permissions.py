"""The authorizer of permissions: grants of topics and namespaces, and what is not guarded."""

from __future__ import annotations

import msgspec
import pytest

from tests.broker.topics.test_namespaces import SHOP, House
from trilogue.broker.access.authorizer import (
    ANONYMOUS,
    Operation,
    Principal,
    Resource,
    ResourceKind,
)
from trilogue.broker.access.permissions import Permissions, read_name
from trilogue.broker.topics.namespaces import Namespace, Tenant
from trilogue.broker.topics.policies import PERMISSIONS

ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")
WRITE, READ = Operation.WRITE, Operation.READ
ORDERS = "persistent://acme/shop/orders"


@pytest.fixture
def house():
    house = House()
    house.carry_out(house.namespaces.plan_put_tenant("acme", Tenant(("root",)), new=True))
    granted = Namespace(permissions={"alice": ["produce"]})
    house.carry_out(house.namespaces.plan_create(SHOP, granted))
    return house


@pytest.fixture
def permissions(house):
    return Permissions(house.namespaces, house.cluster, {WRITE, READ})


def topic(name="orders", home="acme/shop"):
    return Resource(ResourceKind.TOPIC, f"{home}/{name}")


def test_a_grant_of_a_namespace_is_one_of_its_topics(permissions):
    assert permissions.allowed(ALICE, WRITE, topic())
    assert permissions.allowed(ALICE, WRITE, topic("not there yet"))
    assert not permissions.allowed(ALICE, READ, topic())
    assert not permissions.allowed(BOB, WRITE, topic())
    assert not permissions.allowed(ALICE, WRITE, topic(home="acme/other"))
    assert not permissions.allowed(ALICE, WRITE, topic(home="none/such"))


def test_a_topic_may_grant_more(house, permissions):
    orders = house.create_topic(ORDERS)
    settings = {PERMISSIONS: msgspec.json.encode({"bob": ["consume"]}).decode()}
    house.carry_out(house.cluster.plan_alter(orders.name, settings))

    assert permissions.allowed(BOB, READ, topic())
    assert not permissions.allowed(BOB, WRITE, topic())
    assert not permissions.allowed(BOB, READ, topic("another"))


def test_the_administrators_of_a_tenant_may_do_everything_in_it(permissions):
    root = Principal("User", "root")

    assert permissions.allowed(root, READ, topic())
    assert not permissions.allowed(root, READ, topic(home="public/default"))


def test_who_did_not_have_to_say_who_it_is_is_not_asked_about(permissions):
    assert permissions.allowed(ANONYMOUS, WRITE, topic())


def test_only_what_is_guarded_is_refused(house):
    writes = Permissions(house.namespaces, house.cluster, {WRITE})

    assert writes.allowed(BOB, READ, topic())
    assert not writes.allowed(BOB, WRITE, topic())
    for kind in ResourceKind:
        if kind is not ResourceKind.TOPIC:
            assert writes.allowed(BOB, WRITE, Resource(kind, "it"))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("acme/shop/orders", ("acme", "shop", "orders")),
        ("acme/eu/shop/orders", ("acme", "eu/shop", "orders")),
    ],
)
def test_names_are_read_as_they_are_written(text, parts):
    name = read_name(text)

    assert (name.tenant, name.namespace, name.name) == parts
    assert str(name) == text
