"""Slots of a cluster with `ack=shared` go from node to node under the load of three protocols.

A node is drained and gets slots again; another is lost with its disk, or stands still for longer
than its lease, and the living serve its slots. What was acknowledged is there once, in order, and
every protocol's clients go on by themselves.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Callable

import pytest

from tests.crash.cluster.test_take_over import ACKS, PROTOCOLS, WAIT_S, Loads
from tests.crash.load import running
from tests.node.cluster.shared_cluster import SharedCluster
from tests.server import Server, run_trilogue
from tests.waiting import wait_until
from trilogue.node.errors import STORAGE_FAILED


def assert_good(
    loads: Loads, node: Server, report: Callable[[object], None], waits_s: list[float]
) -> None:
    verdicts = loads.verdicts(node)
    report(f"{verdicts}; {ACKS} acks each after {', '.join(f'{each:.1f}' for each in waits_s)} s")
    assert [each.bad for each in verdicts.values()] == [{}] * len(PROTOCOLS), verdicts
    assert all(each.acked >= 2 * ACKS for each in verdicts.values())


@pytest.mark.timeout(600)
def test_nothing_acked_is_lost_while_nodes_are_drained(
    cluster: SharedCluster, chance: random.Random, report: Callable[[object], None]
):
    nodes = cluster.start_all(WAIT_S)
    loads = Loads(nodes, [], chance)
    waits_s: list[float] = []
    with running(loads.threads):
        loads.wait_for_acks(ACKS)
        for words in (("drain", "1"), ("move", "0", "1", "2", "3", "4", "5", "--to", "1")):
            moved = run_trilogue("nodes", *words, "--cluster", cluster.url, timeout=WAIT_S)
            assert moved.returncode == 0, moved.stderr
            waits_s.append(loads.wait_for_acks(ACKS))
    assert_good(loads, nodes[1], report, waits_s)
    for node in nodes:
        assert node.stop() == 0, node.output


@pytest.mark.timeout(600)
@pytest.mark.parametrize("ends", ["lost", pytest.param("frozen", marks=pytest.mark.long)])
def test_living_nodes_serve_the_slots_of_one_that_ends(
    cluster: SharedCluster,
    chance: random.Random,
    report: Callable[[object], None],
    ends: str,
):
    cluster.spread_after = "0s"
    nodes = cluster.start_all(WAIT_S)
    loads = Loads(nodes, [], chance)
    with running(loads.threads):
        loads.wait_for_acks(ACKS)
        if ends == "lost":
            cluster.lose(nodes[0])
        else:
            nodes[0].signal(signal.SIGSTOP)
        rows = "slots WHERE node_id = 1"
        wait_until(lambda: cluster.count(rows) == 0, timeout_s=WAIT_S)
        waits_s = [loads.wait_for_acks(ACKS)]
        if ends == "frozen":
            nodes[0].signal(signal.SIGCONT)
            assert nodes[0].wait() == STORAGE_FAILED, nodes[0].output
            waits_s.append(loads.wait_for_acks(ACKS))
    assert_good(loads, nodes[1], report, waits_s)
    for node in nodes[1:]:
        assert node.stop() == 0, node.output
