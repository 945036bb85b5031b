"""UnregisterBroker: the one node stays."""

from __future__ import annotations

import pytest

from tests.gateway.kafka.rig import Rig
from tests.gateway.loop import on_loop
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.wire.kafka.cluster.unregister_broker import UnregisterBrokerRequest


@pytest.mark.parametrize(("node", "code"), [(1, 42), (77, 102), (-1, 102)])
@on_loop
async def test_the_one_node_cannot_be_forgotten_and_there_is_no_other(node, code):
    """102 BROKER_ID_NOT_REGISTERED, as 3.9.1 and 4.3.1."""
    async with Rig() as rig:
        answer = await rig.peer().request(UnregisterBrokerRequest(broker_id=node), 0)

        assert answer.error_code == code
        assert str(node) in answer.error_message


@on_loop
async def test_unregister_broker_without_permission_is_denied():
    async with Rig() as rig:
        rig.rules.deny(Operation.ALTER, ResourceKind.CLUSTER, "cluster")

        assert (await rig.peer().request(UnregisterBrokerRequest(broker_id=77), 0)).error_code == 31
