"""AlterPartitionReassignments, ListPartitionReassignments: every replica is on the one node."""

from __future__ import annotations

import pytest

from tests.gateway.kafka.rig import Rig, versions
from tests.gateway.loop import on_loop
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.meta.operations import AssignSlots
from trilogue.wire.kafka.cluster.reassignments import (
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
)
from trilogue.wire.kafka.metadata.metadata import MetadataRequest, MetadataRequestTopic


def move(*topics: tuple[str, dict[int, list[int] | None]], **how: bool):
    return AlterPartitionReassignmentsRequest(
        topics=[
            ReassignableTopic(
                name=name,
                partitions=[
                    ReassignablePartition(partition_index=index, replicas=nodes)
                    for index, nodes in rows.items()
                ],
            )
            for name, rows in topics
        ],
        **how,
    )


def codes(response) -> list[tuple[str, list[tuple[int, int]]]]:
    return [
        (each.name, [(row.partition_index, row.error_code) for row in each.partitions])
        for each in response.responses
    ]


@pytest.mark.parametrize("version", versions(45))
@on_loop
async def test_only_the_current_assignment_is_accepted(version):
    """KIP-455: 39 for an impossible assignment, 85 if there is nothing to cancel."""
    nodes = {0: [1], 1: None, 2: [2], 3: [], 4: [1, 1], 5: [1, 2], 6: [-1], 9: [1], 10: None}
    async with Rig() as rig:
        rig.topic("t", 7)

        response = await rig.peer().request(
            move(("t", nodes), ("nope", {0: [1], 1: None})), version
        )

        assert (response.error_code, response.error_message) == (0, None)
        impossible = [(index, 39) for index in (2, 3, 4, 5, 6)]
        assert codes(response) == [
            ("t", [(0, 0), (1, 85), *impossible, (9, 3), (10, 3)]),
            ("nope", [(0, 3), (1, 3)]),
        ]
        rows = {row.partition_index: row.error_message for row in response.responses[0].partitions}
        assert rows[0] is None
        assert all(rows[index] for index in (2, 3, 4, 5, 6, 9))


@on_loop
async def test_the_replicas_that_metadata_lists_are_the_current_assignment():
    """With `ack=shared` every node has all that is acknowledged; the leader is listed first."""
    rig = Rig()
    rig.meta.write_now([AssignSlots((1, 2, 3))])
    rig.meta.state.node_id = 1
    async with rig:
        rig.broker.cluster.ownership.is_kept_elsewhere = True
        topic = rig.topic("t", 3)
        peer = rig.peer()
        metadata = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
        (listed,) = (await peer.request(metadata, 9)).topics
        present = {each.partition_index: each.replica_nodes for each in listed.partitions}
        assert {len(each) for each in present.values()} == {3}
        assert {each[0] for each in present.values()} == {1, 2, 3}

        response = await peer.request(move(("t", present)), 1)
        assert codes(response) == [("t", [(each, 0) for each in range(len(topic.partitions))])]
        others = {each: nodes[::-1] for each, nodes in present.items()}
        response = await peer.request(move(("t", others)), 1)
        assert codes(response) == [("t", [(each, 39) for each in range(len(topic.partitions))])]


@on_loop
async def test_allow_replication_factor_change_is_echoed():
    async with Rig() as rig:
        rig.topic("t")
        peer = rig.peer()

        for allowed in (True, False):
            requested = move(("t", {0: [1]}), allow_replication_factor_change=allowed)
            response = await peer.request(requested, 1)
            assert response.allow_replication_factor_change is allowed
            assert codes(response) == [("t", [(0, 0)])]


@on_loop
async def test_nothing_is_ever_on_the_move():
    async with Rig() as rig:
        rig.topic("t")
        peer = rig.peer()

        named = [ListPartitionReassignmentsTopics(name="t", partition_indexes=[0, 9])]
        for topics in (None, [], named):
            response = await peer.request(ListPartitionReassignmentsRequest(topics=topics), 0)
            assert (response.error_code, response.error_message, response.topics) == (0, None, [])


@on_loop
async def test_reassignments_without_permission_are_denied():
    async with Rig() as rig:
        rig.topic("t")
        rig.rules.deny(Operation.ALTER, ResourceKind.CLUSTER, "cluster")
        rig.rules.deny(Operation.DESCRIBE, ResourceKind.CLUSTER, "cluster")
        peer = rig.peer()

        response = await peer.request(move(("t", {0: [1]})), 0)
        assert (response.error_code, response.responses) == (31, [])
        assert (await peer.request(ListPartitionReassignmentsRequest(), 0)).error_code == 31
