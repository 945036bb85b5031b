"""Nodes of a cluster with `ack=shared` that are cut off, half of them lost, or paused for a moment.

What was acknowledged is there once, in order, and every protocol's clients go on by themselves.
"""

from __future__ import annotations

import contextlib
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tools.servers.probe import free_port

from tests.crash.cluster.test_spread_slots import assert_good
from tests.crash.cluster.test_take_over import ACKS, WAIT_S, Loads
from tests.crash.load import create_topic, running
from tests.crash.transactions.history import History
from tests.crash.transactions.transaction_load import Worker, read_everything
from tests.node.cluster.shared_cluster import SharedCluster
from tests.postgres import PostgresServer
from tests.relay import Relay
from tests.server import Server
from tests.waiting import wait_until
from trilogue.node.cluster.links import ANSWER_S
from trilogue.node.errors import STORAGE_FAILED

LEASE_S = 3.0  # of SharedCluster
TOPIC, PARTITIONS = "transactions", 6

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

Report = Callable[[object], None]


class Cable(Relay):
    """A TCP relay; while it is cut nothing passes, and no connection ends."""

    def __init__(self, target: int) -> None:
        self._is_whole = threading.Event()
        self._is_whole.set()
        super().__init__(target)

    @contextlib.contextmanager
    def cut(self) -> Iterator[None]:
        self._is_whole.clear()
        try:
            yield
        finally:
            self._is_whole.set()

    def wait_until_open(self) -> None:
        self._is_whole.wait()


@pytest.fixture
def cables() -> Iterator[list[Cable]]:
    made: list[Cable] = []
    yield made
    for each in made:
        each.close()


def start_connected(cluster: SharedCluster, cables: list[Cable]) -> list[Server]:
    """Start nodes that reach each other by cables only."""
    nodes = []
    for node_id in range(1, cluster.size + 1):
        port = free_port()
        cables.append(Cable(port))
        at = {
            "cluster__listen": f"127.0.0.1:{port}",
            "cluster__advertise": f"127.0.0.1:{cables[-1].port}",
        }
        nodes.append(cluster.launch(node_id, f"node-{node_id}", **at))
    return [node.wait_ready(WAIT_S) for node in nodes]


def test_transactions_wait_for_nodes_that_do_not_reach_each_other(
    cluster: SharedCluster, cables: list[Cable], chance: random.Random, report: Report
):
    nodes = start_connected(cluster, cables)
    loads = Loads(nodes, [], chance)
    history, lock = History(), threading.Lock()
    create_topic(nodes[0].kafka, TOPIC, PARTITIONS)
    place = (nodes[0].kafka, TOPIC, PARTITIONS, history)
    workers = [Worker(*place, lock, number=each, seed=chance.randrange(10**6)) for each in range(3)]

    def wait_for_commits(count: int) -> None:
        before = [each.committed for each in workers]
        wait_until(
            lambda: all(each.committed >= before[at] + count for at, each in enumerate(workers)),
            timeout_s=WAIT_S,
        )

    with running([*loads.threads, *workers]):
        wait_for_commits(3)
        with contextlib.ExitStack() as parted:
            for each in cables:
                parted.enter_context(each.cut())
            ends = time.monotonic() + 2 * ANSWER_S  # links are given up meanwhile
            waits_s = [loads.wait_for_acks(ACKS)]
            create_topic(nodes[1].kafka, "made-meanwhile", PARTITIONS)
            waits_s.append(loads.wait_for_acks(ACKS))
            time.sleep(max(0.0, ends - time.monotonic()))  # by design: longer than the limit
        wait_for_commits(3)
        waits_s.append(loads.wait_for_acks(ACKS))
    history.final = read_everything(nodes[0].kafka, TOPIC, PARTITIONS)
    report(history.summary())
    assert history.anomalies() == {}
    assert [problem for each in workers for problem in each.broken] == []
    assert_good(loads, nodes[0], report, waits_s)
    for node in nodes:
        assert node.stop() == 0, node.output


def test_a_node_that_loses_sight_of_postgresql_is_replaced_and_ends(
    cluster: SharedCluster,
    postgres: PostgresServer,
    cables: list[Cable],
    chance: random.Random,
    report: Report,
):
    cluster.spread_after = "0s"
    cables.append(Cable(postgres.port))
    url = cluster.url.replace(f":{postgres.port}/", f":{cables[0].port}/")
    started = [cluster.launch(1, "node-1", arguments=["--cluster", url])]
    started += [cluster.launch(each, f"node-{each}") for each in (2, 3)]
    nodes = [node.wait_ready(WAIT_S) for node in started]
    loads = Loads(nodes, [], chance)
    with running(loads.threads):
        loads.wait_for_acks(ACKS)
        with cables[0].cut():
            wait_until(lambda: cluster.count("slots WHERE node_id = 1") == 0, timeout_s=WAIT_S)
            waits_s = [loads.wait_for_acks(ACKS)]
        assert nodes[0].wait() == STORAGE_FAILED, nodes[0].output
        waits_s.append(loads.wait_for_acks(ACKS))
    assert_good(loads, nodes[1], report, waits_s)
    for node in nodes[1:]:
        assert node.stop() == 0, node.output


def test_half_of_the_nodes_are_lost_at_once(
    tmp_path: Path, postgres: PostgresServer, chance: random.Random, report: Report
):
    cluster = SharedCluster(tmp_path, postgres, 4)
    cluster.spread_after = "0s"
    try:
        nodes = cluster.start_all(WAIT_S)
        loads = Loads(nodes, [], chance)
        with running(loads.threads):
            loads.wait_for_acks(ACKS)
            for node in nodes[:2]:
                cluster.lose(node)
            gone = "slots WHERE node_id IN (1, 2)"
            wait_until(lambda: cluster.count(gone) == 0, timeout_s=WAIT_S)
            waits_s = [loads.wait_for_acks(ACKS)]
        assert_good(loads, nodes[2], report, waits_s)
        for node in nodes[2:]:
            assert node.stop() == 0, node.output
    finally:
        cluster.kill_all()


def test_a_node_that_wakes_within_its_lease_goes_on(
    cluster: SharedCluster, chance: random.Random, report: Report
):
    nodes = [
        cluster.launch(each, f"node-{each}", cluster__lease="60s")
        for each in range(1, cluster.size + 1)
    ]
    for node in nodes:
        node.wait_ready(WAIT_S)
    loads = Loads(nodes, [], chance)
    with running(loads.threads):
        loads.wait_for_acks(ACKS)
        nodes[0].signal(signal.SIGSTOP)
        time.sleep(3 * LEASE_S)  # by design: three of the leases of other tests
        nodes[0].signal(signal.SIGCONT)
        waits_s = [loads.wait_for_acks(ACKS)]
        assert cluster.count("slots WHERE node_id = 1") > 0
    assert_good(loads, nodes[1], report, waits_s)
    for node in nodes:
        assert node.stop() == 0, node.output
