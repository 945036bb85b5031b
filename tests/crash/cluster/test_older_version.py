"""Nodes of an older version are replaced one by one by the present one, under clients.

The older versions are commits of this repository. Without its history, as in an archive of the
sources, the tests are skipped.
"""

from __future__ import annotations

import io
import json
import random
import subprocess
import tarfile
import threading
from pathlib import Path

import pytest

from tests.crash.cluster.test_live_clients import Report, addresses
from tests.crash.cluster.test_rolling_restart import restart_each, stop
from tests.crash.cluster.test_spread_slots import assert_good
from tests.crash.cluster.test_take_over import ACKS, WAIT_S, Loads
from tests.crash.kafka.group_load import PacedLoad
from tests.crash.kafka.mixed_groups import MixedGroups
from tests.crash.ledger import Ledger
from tests.crash.load import create_topic, full_read, running
from tests.crash.transactions.history import History
from tests.crash.transactions.transaction_load import Worker, read_everything
from tests.node.cluster.shared_cluster import SharedCluster
from tests.node_ports import find_node_ports
from tests.server import Server, run_trilogue, start_server
from tests.waiting import wait_until
from trilogue import __version__

WITHOUT_LINKS = "05a95270"  # of 2026-11-28: transactions of a cluster stay with one node
WITH_LINKS = "85c45443"  # of 2026-11-30, 100 commits before the present one at that time
ROOT = Path(__file__).parents[3]
LISTENERS = ("kafka", "pulsar", "tubemq-master", "tubemq-broker", "http")
NODES = 3

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


from_version = pytest.mark.parametrize("older", [WITHOUT_LINKS, WITH_LINKS], indirect=True)


@pytest.fixture
def older(tmp_path: Path, request: pytest.FixtureRequest) -> dict[str, str]:
    """The environment in which `trilogue` is the older version; it is not compiled."""
    archived = subprocess.run(
        ["git", "-C", ROOT, "archive", request.param, "src"], capture_output=True, check=False
    )
    if archived.returncode:
        pytest.skip(f"no commit {request.param} here")
    with tarfile.open(fileobj=io.BytesIO(archived.stdout)) as sources:
        sources.extractall(tmp_path / "older", filter="data")
    return {"PYTHONPATH": str(tmp_path / "older" / "src")}


def start_older(cluster: SharedCluster, older: dict[str, str]) -> list[Server]:
    """Start all nodes in the older version."""
    cluster.spread_after = "0s"
    names = {each: f"node-{each}" for each in range(1, NODES + 1)}
    nodes = [cluster.launch(each, name, environment=older) for each, name in names.items()]
    return [node.wait_ready(WAIT_S) for node in nodes]


def find_versions(node: Server) -> list[object]:
    """Return what each node tells of its version; the older one tells nothing of it."""
    described = run_trilogue("nodes", "describe", "--json", "--server", node.kafka)
    assert described.returncode == 0, described
    return [each.get("version") for each in json.loads(described.stdout)]


@from_version
@pytest.mark.parametrize("drains", [True, False], ids=["drained", "stopped"])
def test_nodes_of_a_cluster_are_upgraded_one_by_one(
    *,
    cluster: SharedCluster,
    older: dict[str, str],
    chance: random.Random,
    report: Report,
    drains: bool,
):
    nodes = start_older(cluster, older)
    assert find_versions(nodes[0]) == [None] * NODES
    loads = Loads(nodes, [], chance)
    with running(loads.threads):
        loads.wait_for_acks(ACKS)
        took = restart_each(cluster, nodes, lambda: loads.wait_for_acks(ACKS), drains=drains)
    assert find_versions(nodes[0]) == [__version__] * NODES
    report(took)
    assert_good(loads, nodes[0], report, [])
    stop(nodes)


@pytest.mark.parametrize("older", [WITH_LINKS], indirect=True)
def test_groups_and_transactions_go_on_while_nodes_are_upgraded(
    cluster: SharedCluster, older: dict[str, str], chance: random.Random, report: Report
):
    """Their states go from older nodes to present ones, and back while slots are drained."""
    nodes = start_older(cluster, older)
    address, partitions = addresses(nodes), 4
    for topic in ("t", "transactions"):
        create_topic(address, topic, partitions)
    ledger = Ledger(chance.randbytes(8))
    load = PacedLoad(address, "t", partitions, ledger, number=1, seed=chance.randrange(10**6))
    groups = MixedGroups(address, "t", partitions, ledger, with_java=False)
    history, lock = History(), threading.Lock()
    place = (address, "transactions", partitions, history)
    workers = [Worker(*place, lock, number=each, seed=chance.randrange(10**6)) for each in range(3)]

    def advance() -> None:
        before = [each.committed for each in workers]
        groups.settle()
        ledger.wait_for_acks(200, WAIT_S)
        wait_until(
            lambda: all(each.committed > before[at] for at, each in enumerate(workers)),
            "each producer commits",
            WAIT_S,
        )

    with running([load, *groups.parts, *workers]):
        advance()
        took = restart_each(cluster, nodes, advance, drains=True)
        load.stop()
        read_s = groups.wait_until_read(WAIT_S)
    history.final = read_everything(address, "transactions", partitions)
    verdict = ledger.verdict(full_read(address, "t", partitions))
    report(f"{verdict}; {took}; all read after {read_s:.1f}; users saw: {groups.problems}")
    report(history.summary())
    assert verdict.bad == {}, verdict.examples
    groups.assert_good()
    assert history.anomalies() == {}
    assert [problem for each in workers for problem in each.broken] == []
    stop(nodes)


@from_version
def test_a_directory_of_several_nodes_is_upgraded(
    tmp_path: Path, older: dict[str, str], chance: random.Random, report: Report
):
    ports = find_node_ports(NODES, *LISTENERS)
    listen, data = ports.listen, tmp_path / "data"
    server = start_server(data, listen=listen, nodes=NODES, environment=older)
    others = [
        {name.replace("-", "_"): ports.addresses(name).split(",")[at] for name in LISTENERS}
        for at in range(1, NODES)
    ]
    loads = Loads([server], others, chance)
    with running(loads.threads):
        loads.wait_for_acks(ACKS)
        assert server.stop() == 0, server.output
        server = start_server(data, listen=listen, nodes=NODES)
        loads.wait_for_acks(ACKS)
    assert_good(loads, server, report, [])
    assert server.stop() == 0, server.output
