"""DescribeCluster: who is there, kinds of endpoints, what the caller may do."""

from __future__ import annotations

import pytest

from tests.gateway.kafka.rig import Rig, versions
from tests.gateway.loop import on_loop
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.wire.kafka.metadata.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
)

NOT_REQUESTED = -(2**31)


@pytest.mark.parametrize("version", versions(60))
@on_loop
async def test_every_version_describes_the_one_broker(version):
    async with Rig() as rig:
        response = await rig.peer().request(DescribeClusterRequest(), version)

        assert (response.error_code, response.error_message) == (0, None)
        assert response.controller_id == 1
        assert response.brokers == [
            DescribeClusterBroker(broker_id=1, host="broker.example", port=9092)
        ]
        assert len(response.cluster_id) == 22
        assert response.endpoint_type == 1
        assert response.cluster_authorized_operations == NOT_REQUESTED


@pytest.mark.parametrize(("kind", "code"), [(2, 114), (0, 115), (3, 115), (-1, 115)])
@on_loop
async def test_an_endpoint_of_brokers_is_no_other(kind, code):
    """KIP-919: MISMATCHED_ENDPOINT_TYPE for controllers, UNSUPPORTED_ENDPOINT_TYPE else."""
    async with Rig() as rig:
        response = await rig.peer().request(DescribeClusterRequest(endpoint_type=kind), 1)

        assert response.error_code == code
        assert response.error_message
        assert (response.brokers, response.controller_id) == ([], -1)


@on_loop
async def test_authorized_operations_are_returned_on_request():
    """As Kafka without access rules: 3.9.1 and 4.3.1 return 8096."""
    requested = DescribeClusterRequest(include_cluster_authorized_operations=True)
    async with Rig() as rig:
        peer = rig.peer()

        assert (await peer.request(requested, 1)).cluster_authorized_operations == 8096
        rig.rules.deny(Operation.ALTER, ResourceKind.CLUSTER, "cluster")
        assert (await peer.request(requested, 1)).cluster_authorized_operations == 8096 - (1 << 7)
        rig.rules.deny(Operation.DESCRIBE, ResourceKind.CLUSTER, "cluster")
        response = await peer.request(requested, 1)
        assert response.cluster_authorized_operations == 0
        assert len(response.brokers) == 1
