"""DescribeAcls, CreateAcls, DeleteAcls: there are no rules, and each request is refused."""

from __future__ import annotations

import pytest

from tests.gateway.kafka.rig import Rig, versions
from tests.gateway.loop import on_loop
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.wire.kafka.security.acls import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)


@pytest.mark.parametrize("version", versions(29))
@on_loop
async def test_rules_are_refused_as_by_a_kafka_without_an_authorizer(version):
    """54 SECURITY_DISABLED for each, as 3.9.1 and 4.3.1."""
    async with Rig() as rig:
        peer = rig.peer()

        reported = await peer.request(DescribeAclsRequest(), version)
        made = await peer.request(CreateAclsRequest(creations=[AclCreation()] * 3), version)
        gone = await peer.request(DeleteAclsRequest(filters=[DeleteAclsFilter()] * 2), version)

        assert (reported.error_code, reported.resources) == (54, [])
        assert "every client may" in reported.error_message
        assert [each.error_code for each in made.results] == [54] * 3
        assert [(each.error_code, each.matching_acls) for each in gone.filter_results] == [
            (54, []),
            (54, []),
        ]


@on_loop
async def test_who_may_not_gets_an_error():
    async with Rig() as rig:
        rig.rules.deny(Operation.ALTER, ResourceKind.CLUSTER, "cluster")
        rig.rules.deny(Operation.DESCRIBE, ResourceKind.CLUSTER, "cluster")
        peer = rig.peer()

        made = await peer.request(CreateAclsRequest(creations=[AclCreation()]), 3)
        gone = await peer.request(DeleteAclsRequest(filters=[DeleteAclsFilter()]), 3)

        assert (await peer.request(DescribeAclsRequest(), 3)).error_code == 31
        assert made.results[0].error_code == gone.filter_results[0].error_code == 31
