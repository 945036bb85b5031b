"""ElectLeaders: every partition has its preferred leader, so no election is needed."""

from __future__ import annotations

import pytest

from tests.gateway.kafka.rig import Rig, versions
from tests.gateway.loop import on_loop
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.wire.kafka.cluster.elections import ElectionTopic, ElectLeadersRequest


def elect(*topics: tuple[str, list[int]], kind: int = 0) -> ElectLeadersRequest:
    requested = [ElectionTopic(topic=name, partitions=rows) for name, rows in topics]
    return ElectLeadersRequest(election_type=kind, topic_partitions=requested)


def codes(response) -> list[tuple[str, list[tuple[int, int]]]]:
    return [
        (each.topic, [(row.partition_id, row.error_code) for row in each.partition_result])
        for each in response.replica_election_results
    ]


@pytest.mark.parametrize("version", versions(43))
@on_loop
async def test_an_election_is_not_needed_or_the_partition_is_unknown(version):
    """KIP-460: ELECTION_NOT_NEEDED (84), for the preferred leader and for an unclean one."""
    async with Rig() as rig:
        rig.topic("t", 2)
        peer = rig.peer()

        for kind in (0, 1) if version else (0,):
            requested = elect(("t", [0, 9]), ("nope", [0]), ("b ad", [0]), ("t", [1]), kind=kind)
            response = await peer.request(requested, version)

            assert response.error_code == 0
            assert codes(response) == [
                ("t", [(0, 84), (9, 3)]),
                ("nope", [(0, 3)]),
                ("b ad", [(0, 3)]),
                ("t", [(1, 84)]),
            ]
            for topic in response.replica_election_results:
                assert all(row.error_message for row in topic.partition_result)


@on_loop
async def test_election_of_all_topics_names_them_and_elects_nothing():
    async with Rig() as rig:
        rig.topic("t", 2)
        rig.topic("u")
        peer = rig.peer()

        response = await peer.request(ElectLeadersRequest(topic_partitions=None), 2)

        assert (response.error_code, codes(response)) == (0, [("t", []), ("u", [])])
        assert codes(await peer.request(elect(), 2)) == []


@on_loop
async def test_an_unknown_kind_of_election_is_refused():
    async with Rig() as rig:
        rig.topic("t")
        peer = rig.peer()

        response = await peer.request(elect(("t", [0]), kind=2), 1)
        assert (response.error_code, codes(response)) == (42, [("t", [(0, 42)])])
        everything = ElectLeadersRequest(election_type=2, topic_partitions=None)
        assert (await peer.request(everything, 2)).error_code == 42
        assert (await peer.request(everything, 0)).error_code == 0  # has no election types


@on_loop
async def test_election_requires_alter_on_the_cluster():
    async with Rig() as rig:
        rig.topic("t")
        rig.rules.deny(Operation.ALTER, ResourceKind.CLUSTER, "cluster")

        response = await rig.peer().request(elect(("t", [0])), 2)

        assert (response.error_code, codes(response)) == (31, [("t", [(0, 31)])])
