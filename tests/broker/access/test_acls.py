"""ACLs: Kafka's rules on canonical names, stored in meta, with the views that lists need."""

from __future__ import annotations

import pytest

from tests.broker.topics.test_namespaces import House
from trilogue.broker.access.acl_authorizer import AclAuthorizer
from trilogue.broker.access.acls import ANY_USER, Acl, AclStore, Pattern, parse_principal
from trilogue.broker.access.audit import AuditLog
from trilogue.broker.access.authorizer import (
    ANONYMOUS,
    CLUSTER,
    Operation,
    Principal,
    Resource,
    ResourceKind,
)
from trilogue.broker.access.client_access import ClientAccess
from trilogue.broker.errors import InvalidRequest
from trilogue.log.errors import CorruptLog

ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")
TOPIC, GROUP, NAMESPACE = ResourceKind.TOPIC, ResourceKind.GROUP, ResourceKind.NAMESPACE
READ, WRITE, DESCRIBE, ALL = Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALL
ORDERS = "public/default/orders"


def acl(
    name=ORDERS,
    *,
    kind=TOPIC,
    prefixed=False,
    principal=ALICE,
    host="*",
    operation=READ,
    allow=True,
):
    pattern = Pattern.PREFIXED if prefixed else Pattern.LITERAL
    return Acl(kind, pattern, name, principal, host, operation, allow)


@pytest.fixture
def house():
    return House()


@pytest.fixture
def authorizer(house):
    return AclAuthorizer(
        house.broker.acls,
        [Principal("User", "root")],
        tenant_admins=lambda tenant: ("carol",) if tenant == "acme" else (),
    )


@pytest.fixture
def add(house):
    return lambda *acls: house.carry_out(house.broker.acls.plan_create(acls))


def allowed(authorizer, operation, name=ORDERS, *, kind=TOPIC, principal=ALICE, host="10.0.0.1"):
    return authorizer.allowed(principal, operation, Resource(kind, name), host)


def test_nothing_is_allowed_without_an_acl(authorizer):
    assert not allowed(authorizer, READ)
    assert not authorizer.allowed(ANONYMOUS, DESCRIBE, CLUSTER)
    assert not authorizer.allowed_on_any(ALICE, WRITE, TOPIC)


def test_without_an_acl_everyone_is_allowed_where_the_setting_is(house, add):
    authorizer = AclAuthorizer(house.broker.acls, allow_without_acl=True)
    assert allowed(authorizer, WRITE)
    assert authorizer.allowed(ANONYMOUS, Operation.ALTER, CLUSTER)
    assert authorizer.allowed_on_any(BOB, WRITE, TOPIC)
    assert allowed(authorizer, READ, "public/default", kind=NAMESPACE)

    add(acl(principal=BOB))

    assert not allowed(authorizer, READ)
    assert not allowed(authorizer, DESCRIBE)
    assert allowed(authorizer, READ, principal=BOB)
    assert allowed(authorizer, READ, ORDERS + "-2")
    assert not allowed(authorizer, ALL, "public/default", kind=NAMESPACE)  # has the topic
    assert allowed(authorizer, ALL, "public/other", kind=NAMESPACE)
    assert authorizer.allowed_on_any(ALICE, WRITE, TOPIC)

    add(acl(name="*", operation=ALL, allow=False))

    assert not authorizer.allowed_on_any(ALICE, WRITE, TOPIC)
    assert not allowed(authorizer, READ, "public/default", kind=NAMESPACE)


def test_super_users_may_do_everything(authorizer, add):
    add(acl(principal=ANY_USER, operation=ALL, allow=False))

    root = Principal("User", "root")
    assert allowed(authorizer, WRITE, principal=root)
    assert authorizer.allowed_on_any(root, WRITE, TOPIC)


@pytest.mark.parametrize("granted", [READ, WRITE, Operation.DELETE, Operation.ALTER, ALL])
def test_permission_for_an_operation_implies_describe(authorizer, add, granted):
    add(acl(operation=granted))

    assert allowed(authorizer, DESCRIBE)
    assert allowed(authorizer, WRITE) == (granted in {WRITE, ALL})
    assert not allowed(authorizer, DESCRIBE, "public/default/other")


def test_altering_settings_implies_describing_them(authorizer, add):
    add(acl(operation=Operation.ALTER_SETTINGS))

    assert allowed(authorizer, Operation.DESCRIBE_SETTINGS)
    assert not allowed(authorizer, DESCRIBE)


def test_a_denial_is_stronger_and_implies_nothing(authorizer, add):
    add(acl(operation=ALL), acl(operation=READ, allow=False, principal=ANY_USER))

    assert not allowed(authorizer, READ)
    assert allowed(authorizer, DESCRIBE)
    assert allowed(authorizer, WRITE)


def test_patterns_are_names_beginnings_and_everything(authorizer, add):
    add(acl("public/default/or", prefixed=True), acl("*", operation=WRITE, principal=BOB))

    assert allowed(authorizer, READ)
    assert allowed(authorizer, READ, "public/default/or")
    assert not allowed(authorizer, READ, "public/default/o")
    assert not allowed(authorizer, READ, "acme/default/orders")
    assert allowed(authorizer, WRITE, "acme/shop/x", principal=BOB)
    assert not allowed(authorizer, WRITE, "x", kind=GROUP, principal=BOB)


def test_the_host_is_the_address_of_the_client(authorizer, add):
    add(acl(host="10.0.0.1"))

    assert allowed(authorizer, READ)
    assert not allowed(authorizer, READ, host="10.0.0.2")


def test_a_namespace_needs_a_pattern_that_covers_it(authorizer, add):
    add(
        acl("acme/shop/", prefixed=True, operation=ALL),
        acl("acme/office/orders", operation=ALL),
        acl("acme/sh", prefixed=True, operation=ALL, principal=BOB),
    )

    assert allowed(authorizer, Operation.ALTER, "acme/shop", kind=NAMESPACE)
    assert not allowed(authorizer, Operation.ALTER, "acme/office", kind=NAMESPACE)
    assert not allowed(authorizer, Operation.ALTER, "acme", kind=NAMESPACE)
    assert allowed(authorizer, Operation.ALTER, "acme/shop", kind=NAMESPACE, principal=BOB)
    assert not allowed(authorizer, Operation.ALTER, "acme/shopping", kind=NAMESPACE)


def test_administrators_of_a_tenant_may_do_everything_in_it_unless_denied(authorizer, add):
    carol = Principal("User", "carol")
    add(acl("acme/shop/secret", principal=carol, allow=False, operation=ALL))

    assert allowed(authorizer, WRITE, "acme/shop/orders", principal=carol)
    assert allowed(authorizer, Operation.CREATE, "acme", kind=NAMESPACE, principal=carol)
    assert not allowed(authorizer, WRITE, "acme/shop/secret", principal=carol)
    assert not allowed(authorizer, WRITE, "other/shop/orders", principal=carol)


def test_acls_outlive_a_restart_and_deletion_removes_them(house, add):
    rows = {
        acl(),
        acl('a"b,[c]', kind=GROUP, principal=Principal("User", "CN=a:b,O=c")),
        acl("x", prefixed=True, operation=ALL, allow=False, host="::1"),
    }
    add(*rows)

    again = AclStore(house.meta.state.settings)
    assert set(again) == rows

    house.carry_out(house.broker.acls.plan_delete([acl(), acl("not there")]))
    assert set(AclStore(house.meta.state.settings)) == rows - {acl()}
    assert not list(house.broker.acls.find(TOPIC, ORDERS))


@pytest.mark.parametrize("bad", [acl(""), acl("a\nb"), acl("x" * 5_000), acl("*", prefixed=True)])
def test_names_that_nothing_has_are_refused(house, bad):
    with pytest.raises(InvalidRequest):
        house.broker.acls.plan_create([bad])


def test_a_row_that_cannot_be_read_stops_the_start():
    with pytest.raises(CorruptLog, match="ACL"):
        AclStore({'access/acls/["topic","literal"]': "1"})


def test_principals_are_written_with_their_kind():
    assert parse_principal("User:CN=x:y") == Principal("User", "CN=x:y")
    with pytest.raises(InvalidRequest):
        parse_principal("alice")


def test_a_change_holds_at_the_next_request_and_refusals_are_audited(house, authorizer, add):
    lines: list[dict[str, object]] = []
    audit = AuditLog(lines.append, lambda: 1_000)
    access = ClientAccess(authorizer, audit, protocol="kafka", host="10.0.0.1", principal=ALICE)

    assert not access.is_allowed(READ, TOPIC, ORDERS)
    assert not access.can_see(WRITE, TOPIC, ORDERS)
    add(acl())
    assert access.is_allowed(READ, TOPIC, ORDERS)
    house.carry_out(house.broker.acls.plan_delete([acl()]))
    assert not access.can_see(READ, TOPIC, ORDERS)
    access.set_principal(Principal("User", "root"))
    assert access.is_allowed(READ, TOPIC, ORDERS)

    assert lines == [
        {
            "time": 1_000,
            "event": "refused",
            "principal": "User:alice",
            "protocol": "kafka",
            "address": "10.0.0.1",
            "operation": "read",
            "resource": f"topic {ORDERS}",
        }
    ]


def test_a_flood_of_refusals_is_counted():
    lines: list[dict[str, object]] = []
    now = [1_000]
    audit = AuditLog(lines.append, lambda: now[0], lines_per_s=2)
    for _ in range(5):
        audit.refused(ALICE, "kafka", "h", READ, CLUSTER)
    assert len(lines) == 2

    now[0] = 2_000
    audit.refused(ALICE, "kafka", "h", READ, CLUSTER)
    assert lines[2] == {"time": 2_000, "event": "dropped", "lines": 3}
    assert audit.refusals == 6


def test_a_flood_of_refusals_hides_no_act_and_no_failed_login():
    lines: list[dict[str, object]] = []
    audit = AuditLog(lines.append, lambda: 1_000, lines_per_s=2)
    for _ in range(5):
        audit.refused(ALICE, "kafka", "h", READ, CLUSTER)

    for _ in range(3):
        audit.done(ALICE, "kafka", "h", "delete topic", CLUSTER)
    audit.login_failed("mallory", "pulsar", "h", method="token", reason="expired")

    assert [each["event"] for each in lines] == 2 * ["refused"] + 3 * ["done"] + ["login.failed"]
