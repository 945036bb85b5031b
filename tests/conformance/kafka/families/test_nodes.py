"""The cluster, its directories, its leaders and replicas: each client that has words for them."""

from __future__ import annotations

import pytest

from tests.conformance.clients.administrators import CONFLUENT, Administrator, able
from tests.conformance.kafka.families.families import produce, refusal

BYTES = 100_000


def node_of(address: str) -> int:
    ((node, *_),) = CONFLUENT.cluster(address)["nodes"]
    return int(node)


@pytest.mark.parametrize("admin", able("cluster"))
def test_every_client_sees_the_same_cluster(address: str, admin: Administrator):
    response, other = admin.request("cluster", address), CONFLUENT.cluster(address)

    (node,) = response["nodes"]
    assert f"{node[1]}:{node[2]}" == address
    assert [response["id"], response["controller"], node] == [
        other["id"],
        other["controller"],
        *other["nodes"],
    ]


@pytest.mark.parametrize("admin", able("log_dirs"))
def test_log_dirs_contain_the_size_of_each_partition(
    address: str, topic: str, admin: Administrator
):
    CONFLUENT.create(address, topic, 2)
    produce(address, topic, {0: [b"x" * BYTES]})

    response = admin.request("log_dirs", address, node=node_of(address))

    (sizes,) = response.values()
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
    """There is one node: a move to it is done at once, a move elsewhere refused."""
    CONFLUENT.create(address, topic, 1)
    here = node_of(address)

    admin.request("reassign", address, topic=topic, partition=0, nodes=[here])
    moving = admin.request("reassignments", address)

    assert moving == {}
    assert "invalidreplica" in refusal(
        lambda: admin.request("reassign", address, topic=topic, partition=0, nodes=[here + 7])
    )
