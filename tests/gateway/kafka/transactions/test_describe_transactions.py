"""DescribeTransactions: there are none."""

from __future__ import annotations

from tests.gateway.kafka.rig import Rig
from tests.gateway.loop import on_loop
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.wire.kafka.transactions.describe_transactions import DescribeTransactionsRequest


@on_loop
async def test_no_transactional_id_is_known():
    """KIP-664: TRANSACTIONAL_ID_NOT_FOUND; the empty one is no id."""
    async with Rig() as rig:
        rig.rules.deny(Operation.DESCRIBE, ResourceKind.TRANSACTION, "secret")

        response = await rig.peer().request(
            DescribeTransactionsRequest(transactional_ids=["a", "", "secret"]), 0
        )

        found = [(each.transactional_id, each.error_code) for each in response.transaction_states]
        assert found == [("a", 105), ("", 42), ("secret", 53)]
