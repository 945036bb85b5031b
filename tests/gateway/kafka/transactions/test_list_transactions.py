"""ListTransactions: there are none, and unknown states of a filter are returned."""

from __future__ import annotations

import pytest

from tests.gateway.kafka.rig import Rig, versions
from tests.gateway.loop import on_loop
from trilogue.wire.kafka.transactions.list_transactions import ListTransactionsRequest


@pytest.mark.parametrize("version", versions(66))
@on_loop
async def test_every_version_lists_none(version):
    async with Rig() as rig:
        requested = ListTransactionsRequest(
            state_filters=["Ongoing", "Foo", "ongoing", "Empty", "Foo", "PrepareEpochFence", "Dead"]
        )

        response = await rig.peer().request(requested, version)

        assert (response.error_code, response.transaction_states) == (0, [])
        assert response.unknown_state_filters == ["Foo", "ongoing"]


@on_loop
async def test_a_pattern_that_cannot_be_read_is_reported():
    """KIP-1152, as Kafka 4.3.1: 128, before any other check."""
    async with Rig() as rig:
        peer = rig.peer()
        bad = ListTransactionsRequest(transactional_id_pattern="[", state_filters=["Foo"])

        refused = await peer.request(bad, 2)
        fine = await peer.request(ListTransactionsRequest(transactional_id_pattern="a.*"), 2)

        assert (refused.error_code, refused.unknown_state_filters) == (128, [])
        assert fine.error_code == 0
