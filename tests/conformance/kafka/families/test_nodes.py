"""The cluster, its directories, its leaders and replicas: each client that has words for them.

There is one node, unless the tests run on several (TRILOGUE_TEST_NODES, TRILOGUE_TEST_CLUSTER).
"""

from __future__ import annotations

import pytest

from tests.conformance.clients.administrators import CONFLUENT, Administrator, able
from tests.conformance.kafka.families.families import partitions_of, produce, refusal
from tests.server import count_nodes

BYTES = 100_000


def sorted_nodes(cluster: dict[str, list[list[object]]]) -> list[list[object]]:
    return sorted(list(each) for each in cluster["nodes"])


@pytest.mark.parametrize("admin", able("cluster"))
def test_every_client_sees_the_same_cluster(address: str, admin: Administrator):
    response, other = admin.request("cluster", address), CONFLUENT.cluster(address)

    nodes = sorted_nodes(response)
    assert len(nodes) == count_nodes()
    assert address in {f"{node[1]}:{node[2]}" for node in nodes}
    assert [response["id"], nodes] == [other["id"], sorted_nodes(other)]
    assert {response["controller"], other["controller"]} <= {node[0] for node in nodes}


@pytest.mark.parametrize("admin", able("log_dirs"))
def test_log_dirs_contain_the_size_of_each_partition(
    address: str, topic: str, admin: Administrator
):
    CONFLUENT.create(address, topic, 2)
    produce(address, topic, {0: [b"x" * BYTES]})
    sizes: dict[str, int] = {}

    for leader in {each.leader for each in partitions_of(address, topic).values()}:
        (found,) = admin.request("log_dirs", address, node=leader).values()
        sizes |= found

    assert BYTES <= sizes[f"{topic}-0"] < 2 * BYTES
    assert sizes[f"{topic}-1"] == 0


@pytest.mark.parametrize("admin", able("elect"))
def test_a_leader_that_leads_is_not_elected(address: str, topic: str, admin: Administrator):
    """84, which kafka-python and franz-go take for what was wanted."""
    CONFLUENT.create(address, topic, 1)

    def elect() -> object:
        return admin.request("elect", address, topic=topic, partition=0)

    match admin.name:
        case "kafka-python":
            assert elect() is None
        case "franz-go":
            assert "electionnotneeded" in refusal(elect)
        case _:
            assert "ELECTIONNOTNEEDED" in str(elect()).upper().replace("_", "")


@pytest.mark.parametrize("admin", able("reassign", "reassignments"))
def test_a_partition_stays_where_it_is(address: str, topic: str, admin: Administrator):
    """A move to the nodes where it is has been done already, a move elsewhere is refused."""
    CONFLUENT.create(address, topic, 1)
    here = partitions_of(address, topic)[0].replicas

    admin.request("reassign", address, topic=topic, partition=0, nodes=here)
    moving = admin.request("reassignments", address)

    assert moving == {}
    assert "invalidreplica" in refusal(
        lambda: admin.request(
            "reassign", address, topic=topic, partition=0, nodes=[each + 7 for each in here]
        )
    )
