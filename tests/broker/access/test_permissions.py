"""The authorizer of some operations on topics, and Pulsar's permissions as a view of ACLs."""

from __future__ import annotations

import pytest

from trilogue.broker.access.acl_authorizer import AclAuthorizer
from trilogue.broker.access.acls import ANY_HOST, Acl, AclStore, Pattern
from trilogue.broker.access.authorizer import (
    ANONYMOUS,
    Operation,
    Principal,
    Resource,
    ResourceKind,
)
from trilogue.broker.access.granted_actions import GrantedActions, without_operation
from trilogue.broker.access.permissions import Permissions
from trilogue.broker.names import NamespaceName, TopicName

ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")
WRITE, READ = Operation.WRITE, Operation.READ
SHOP = NamespaceName("acme", "shop")
ORDERS = TopicName(*SHOP, "orders")


@pytest.fixture
def acls():
    store = AclStore({})
    grant(store, SHOP, "alice", ["produce"])
    return store


@pytest.fixture
def permissions(acls):
    authorizer = AclAuthorizer(acls, tenant_admins=lambda _tenant: ("root",))
    return Permissions(authorizer, {WRITE, READ})


def grant(acls, place, role, actions):
    acls.plan_create(GrantedActions(acls, place).acls_to_grant(role, actions)).apply()


def add(acls, **fields):
    row = {
        "kind": ResourceKind.TOPIC,
        "pattern": Pattern.LITERAL,
        "name": str(ORDERS),
        "principal": BOB,
        "host": ANY_HOST,
        "operation": READ,
        "allow": True,
        **fields,
    }
    acls.plan_create([Acl(**row)]).apply()


def topic(name="orders", home="acme/shop"):
    return Resource(ResourceKind.TOPIC, f"{home}/{name}")


def test_a_grant_of_a_namespace_is_one_of_its_topics(permissions):
    assert permissions.allowed(ALICE, WRITE, topic())
    assert permissions.allowed(ALICE, WRITE, topic("not there yet"))
    assert not permissions.allowed(ALICE, READ, topic())
    assert not permissions.allowed(BOB, WRITE, topic())
    assert not permissions.allowed(ALICE, WRITE, topic(home="acme/shopping"))


def test_a_topic_may_grant_more(acls, permissions):
    grant(acls, ORDERS, "bob", ["consume"])

    assert permissions.allowed(BOB, READ, topic())
    assert not permissions.allowed(BOB, WRITE, topic())
    assert not permissions.allowed(BOB, READ, topic("orders2"))


def test_the_administrators_of_a_tenant_may_do_everything_in_it(permissions):
    assert permissions.allowed(Principal("User", "root"), READ, topic())


def test_a_client_that_did_not_have_to_log_in_may_do_everything(permissions):
    assert permissions.allowed(ANONYMOUS, WRITE, topic())


def test_only_guarded_operations_are_refused(acls):
    writes = Permissions(AclAuthorizer(acls), {WRITE})

    assert writes.allowed(BOB, READ, topic())
    assert not writes.allowed(BOB, WRITE, topic())
    for kind in ResourceKind:
        if kind is not ResourceKind.TOPIC:
            assert writes.allowed(BOB, WRITE, Resource(kind, "it"))


def test_the_view_lists_what_was_granted_and_revokes_it(acls):
    view = GrantedActions(acls, SHOP)
    grant(acls, SHOP, "alice", ["consume", "functions"])

    assert view.by_role() == {"alice": ["consume", "produce"]}
    assert GrantedActions(acls, ORDERS).by_role() == {}
    assert without_operation(["consume", "sinks", "functions"]) == ["functions", "sinks"]
    acls.plan_delete(view.acls_to_revoke("bob")).apply()
    assert len(acls) == 2
    acls.plan_delete(view.acls_to_revoke("alice")).apply()
    assert len(acls) == 0


@pytest.mark.parametrize(
    ("fields", "listed"),
    [
        ({}, {"bob": ["consume"]}),
        ({"operation": Operation.ALL}, {"bob": ["consume", "produce"]}),
        ({"principal": Principal("User", "*")}, {"*": ["consume"]}),
        ({"allow": False}, {}),
        ({"host": "10.0.0.7"}, {}),
        ({"operation": Operation.DESCRIBE}, {}),
        ({"pattern": Pattern.PREFIXED}, {}),
        ({"name": "*"}, {}),
    ],
)
def test_the_view_of_a_topic_has_what_actions_express(acls, fields, listed):
    add(acls, **fields)

    assert GrantedActions(acls, ORDERS).by_role() == listed
