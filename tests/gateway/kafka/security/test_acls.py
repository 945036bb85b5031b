"""DescribeAcls, CreateAcls, DeleteAcls: the list that all gateways obey, in Kafka's words."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gateway.kafka.rig import Rig, versions
from tests.gateway.loop import on_loop
from trilogue.broker.access.acls import Acl, Pattern
from trilogue.broker.access.authorizer import (
    AllowAll,
    Operation,
    Principal,
    ResourceKind,
)
from trilogue.wire.kafka.security.acls import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)

ALICE = "User:alice"
TOPIC, GROUP, CLUSTER = 2, 3, 4
READ, WRITE = 3, 4
ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
DENY, ALLOW = 2, 3


def creation(name="orders", **given: Any) -> AclCreation:
    fields = {
        "resource_type": TOPIC,
        "resource_name": name,
        "resource_pattern_type": LITERAL,
        "principal": ALICE,
        "host": "*",
        "operation": READ,
        "permission_type": ALLOW,
    }
    return AclCreation(**{**fields, **given})


def everything(**given: Any) -> dict[str, Any]:
    fields = {
        "resource_type_filter": ANY,
        "resource_name_filter": None,
        "pattern_type_filter": ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
    }
    return {**fields, **given}


async def create(peer: Any, *creations: AclCreation) -> list[int]:
    answer = await peer.request(CreateAclsRequest(creations=list(creations)), 3)
    return [each.error_code for each in answer.results]


async def describe(peer: Any, version: int = 3, **given: Any) -> list[tuple[str, int, str]]:
    answer = await peer.request(DescribeAclsRequest(**everything(**given)), version)
    assert answer.error_code == 0, answer.error_message
    return sorted(
        (found.resource_name, found.pattern_type, acl.principal)
        for found in answer.resources
        for acl in found.acls
    )


@pytest.mark.parametrize("version", versions(29))
@on_loop
async def test_a_node_without_an_authorizer_refuses_as_kafka_does(version):
    """54 SECURITY_DISABLED for each, as 3.9.1 and 4.3.1."""
    rig = Rig()
    rules: Any = AllowAll()
    rig.rules = rules
    async with rig:
        peer = rig.peer()

        reported = await peer.request(DescribeAclsRequest(), version)
        made = await peer.request(CreateAclsRequest(creations=[AclCreation()] * 3), version)
        gone = await peer.request(DeleteAclsRequest(filters=[DeleteAclsFilter()] * 2), version)

        assert (reported.error_code, reported.resources) == (54, [])
        assert "every client may" in reported.error_message
        assert [each.error_code for each in made.results] == [54] * 3
        assert [each.error_code for each in gone.filter_results] == [54] * 2


@on_loop
async def test_acl_requests_without_permission_are_denied():
    async with Rig() as rig:
        rig.rules.deny(Operation.ALTER, ResourceKind.CLUSTER, "cluster")
        rig.rules.deny(Operation.DESCRIBE, ResourceKind.CLUSTER, "cluster")
        peer = rig.peer()

        gone = await peer.request(DeleteAclsRequest(filters=[DeleteAclsFilter()]), 3)

        assert await create(peer, AclCreation()) == [31]
        assert (await peer.request(DescribeAclsRequest(), 3)).error_code == 31
        assert gone.filter_results[0].error_code == 31


@pytest.mark.parametrize(
    ("given", "stored", "shown"),
    [
        ({}, (Pattern.LITERAL, "public/default/orders"), ("orders", LITERAL)),
        (
            {"resource_pattern_type": PREFIXED, "name": "or"},
            (Pattern.PREFIXED, "public/default/or"),
            ("or", PREFIXED),
        ),
        ({"name": "*"}, (Pattern.PREFIXED, "public/default/"), ("*", LITERAL)),
        ({"name": "**"}, (Pattern.LITERAL, "*"), ("**", LITERAL)),
        (
            {"resource_pattern_type": PREFIXED, "name": "acme/shop/"},
            (Pattern.PREFIXED, "acme/shop/"),
            ("acme/shop/", PREFIXED),
        ),
        (
            {"resource_type": GROUP, "name": "*"},
            (Pattern.LITERAL, "*"),
            ("*", LITERAL),
        ),
        (
            {"resource_type": CLUSTER, "name": "kafka-cluster"},
            (Pattern.LITERAL, "cluster"),
            ("kafka-cluster", LITERAL),
        ),
    ],
)
@on_loop
async def test_names_are_stored_as_canonical_ones_and_shown_as_they_came(given, stored, shown):
    async with Rig() as rig:
        peer = rig.peer()
        assert await create(peer, creation(**given)) == [0]

        (acl,) = rig.broker.acls
        assert (acl.pattern, acl.name) == stored
        for version in versions(29):
            found = await describe(peer, version)
            if version == 0 and shown[1] == PREFIXED:
                assert not found, "it knows literal patterns only"
            else:
                assert found == [(*shown, ALICE)]


@pytest.mark.parametrize(
    "given",
    [
        {"resource_type": ANY},
        {"resource_type": 99},
        {"resource_pattern_type": MATCH},
        {"operation": ANY},
        {"permission_type": ANY},
        {"principal": "alice"},
        {"name": ""},
        {"resource_type": CLUSTER, "name": "mine"},
        {"host": ""},
    ],
)
@on_loop
async def test_invalid_acl_is_refused_and_others_are_created(given):
    async with Rig() as rig:
        peer = rig.peer()
        assert await create(peer, creation(**given), creation("other")) == [42, 0]
        assert len(rig.broker.acls) == 1


@on_loop
async def test_filters_select_described_and_deleted_acls():
    async with Rig() as rig:
        peer = rig.peer()
        await create(
            peer,
            creation("orders"),
            creation("or", resource_pattern_type=PREFIXED, principal="User:bob"),
            creation("*", principal="User:carol"),
            creation("readers", resource_type=GROUP, permission_type=DENY, host="10.0.0.1"),
        )
        assert len(await describe(peer)) == 4
        assert await describe(peer, resource_name_filter="orders", pattern_type_filter=LITERAL) == [
            ("orders", LITERAL, ALICE)
        ]
        matching = await describe(
            peer,
            resource_type_filter=TOPIC,
            resource_name_filter="orders",
            pattern_type_filter=MATCH,
        )
        assert [name for name, _, _ in matching] == ["*", "or", "orders"]
        assert [name for name, _, _ in await describe(peer, host_filter="10.0.0.1")] == ["readers"]
        assert [name for name, _, _ in await describe(peer, permission_type=DENY)] == ["readers"]
        assert await describe(peer, operation=WRITE) == []

        request = DeleteAclsRequest(
            filters=[
                DeleteAclsFilter(**everything(principal_filter="User:bob")),
                DeleteAclsFilter(**everything(operation=99)),
            ]
        )
        answer = await peer.request(request, 3)
        first, second = answer.filter_results
        assert [each.resource_name for each in first.matching_acls] == ["or"]
        assert second.error_code == 42
        assert len(await describe(peer)) == 3


@on_loop
async def test_each_change_is_a_line_of_the_audit_log():
    async with Rig() as rig:
        lines: list[dict[str, object]] = []
        rig.gateway.authenticator.audit._emit = lines.append
        await create(rig.peer(), creation(permission_type=DENY))

        (line,) = lines
        assert line["event"] == "done"
        assert line["operation"] == "create ACL"
        assert line["resource"] == "topic public/default/orders"
        assert (line["to"], line["acl"]) == (ALICE, "deny read")
        (acl,) = rig.broker.acls
        assert acl == Acl(
            ResourceKind.TOPIC,
            Pattern.LITERAL,
            "public/default/orders",
            Principal("User", "alice"),
            "*",
            Operation.READ,
            False,
        )
