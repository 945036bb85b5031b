"""Nodes with `ack=shared` on hosts of their own, whose network is parted, cut and loses packets.

Each node has a network namespace with one interface; all are at one bridge, where PostgreSQL and
the clients are too. What was acknowledged is there once, in order, and every protocol's clients go
on by themselves, once their own time-outs have ended requests to a host that does not answer.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tools.servers.network import OwnNetwork, may_have_one

from tests.crash.cluster.conftest import SIZE
from tests.crash.cluster.test_spread_slots import assert_good
from tests.crash.cluster.test_take_over import ACKS, WAIT_S, Loads
from tests.crash.load import running
from tests.node.cluster.shared_cluster import LISTEN, SharedCluster
from tests.postgres import PostgresServer, running_postgres
from tests.server import Server
from tests.tools import require, require_program
from tests.waiting import wait_until
from trilogue.node.cluster.links import ANSWER_S
from trilogue.node.errors import STORAGE_FAILED

NETWORK, HERE = "10.77.0.0/24", "10.77.0.1"
PORTS = {name: 9000 + number for number, name in enumerate(LISTEN)}
LINK_PORT = 7000
LEASE_S = 3.0  # of SharedCluster
LOSSES = "--match statistic --mode random --probability 0.05"

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


def run(*commands: str) -> None:
    for each in commands:
        subprocess.run(each.split(), check=True, timeout=WAIT_S)


class Host:
    """A network namespace, and its interface at the bridge of this thread's namespace."""

    def __init__(self, number: int) -> None:
        self.network = OwnNetwork()
        self.address, self._port = f"10.77.0.{10 + number}", f"host-{number}"
        place = f"/proc/{os.getpid()}/fd/{self.network.descriptor}"
        run(
            f"ip link add {self._port} type veth peer name eth0 netns {place}",
            f"ip link set {self._port} master bridge up",
        )
        with self.network.inside():
            run(f"ip address add {self.address}/24 dev eth0", "ip link set eth0 up")

    def apart(self) -> contextlib.AbstractContextManager[None]:
        """Hosts that are apart do not reach each other; all reach what is at the bridge."""
        return self._changed("type bridge_slave isolated on", "type bridge_slave isolated off")

    def unplugged(self) -> contextlib.AbstractContextManager[None]:
        """What is sent to the host, and what it sends, is lost."""
        return self._changed("down", "up")

    @contextlib.contextmanager
    def _changed(self, begin: str, end: str) -> Iterator[None]:
        run(f"ip link set {self._port} {begin}")
        try:
            yield
        finally:
            run(f"ip link set {self._port} {end}")

    @contextlib.contextmanager
    def dropping(self, chain: str, packets: str) -> Iterator[None]:
        """Drop packets that come in (INPUT) or go out (OUTPUT)."""
        rule = f"{chain} {packets} --jump DROP"
        with self.network.inside():
            run(f"iptables --append {rule}")
        try:
            yield
        finally:
            with self.network.inside():
                run(f"iptables --delete {rule}")


@pytest.fixture
def _in_a_network() -> Iterator[None]:
    """The test, PostgreSQL and the clients are in a namespace that has the bridge."""
    require("root", found=may_have_one())
    require_program("ip")
    require_program("iptables")
    here = OwnNetwork()
    with here.inside():
        run(
            "ip link add bridge type bridge",
            f"ip address add {HERE}/24 dev bridge",
            "ip link set bridge up",
        )
        yield
    here.close()


@pytest.fixture
def postgres(_in_a_network: None) -> Iterator[PostgresServer]:
    with running_postgres("listen_addresses=*") as server:
        with (server.data / "pg_hba.conf").open("a") as rules:
            rules.write(f"host all all {NETWORK} trust\n")
        server.run("SELECT pg_reload_conf()")
        yield server


@pytest.fixture
def hosts(_in_a_network: None) -> Iterator[list[Host]]:
    made = [Host(number) for number in range(1, SIZE + 1)]
    yield made
    for each in made:
        each.network.close()


@pytest.fixture
def cluster(tmp_path: Path, postgres: PostgresServer) -> Iterator[SharedCluster]:
    made = SharedCluster(tmp_path, postgres, SIZE)
    made.url = made.url.replace("@127.0.0.1:", f"@{HERE}:")
    made.spread_after = "0s"
    yield made
    made.kill_all()


def launch(cluster: SharedCluster, host: Host, node_id: int) -> Server:
    with host.network.inside():
        return cluster.launch(
            node_id,
            f"node-{node_id}",
            {name: f"{host.address}:{port}" for name, port in PORTS.items()},
            ["--insecure"],
            cluster__listen=f"{host.address}:{LINK_PORT}",
        )


@pytest.fixture
def nodes(cluster: SharedCluster, hosts: list[Host]) -> list[Server]:
    launched = [launch(cluster, host, number) for number, host in enumerate(hosts, 1)]
    return [node.wait_ready(WAIT_S) for node in launched]


def test_clients_go_on_while_nodes_are_apart(
    nodes: list[Server],
    hosts: list[Host],
    chance: random.Random,
    report: Callable[[object], None],
):
    loads = Loads(nodes, [], chance)
    waits_s = []
    with running(loads.threads):
        loads.wait_for_acks(ACKS)
        with contextlib.ExitStack() as parted:
            for each in hosts:
                parted.enter_context(each.apart())
            time.sleep(2 * ANSWER_S)  # by design: links are given up meanwhile
            waits_s.append(loads.wait_for_acks(ACKS))
        waits_s.append(loads.wait_for_acks(ACKS))
        with contextlib.ExitStack() as lossy:
            for each in hosts:
                lossy.enter_context(each.dropping("INPUT", LOSSES))
            time.sleep(2 * LEASE_S)  # by design: this is how long it lasts
            waits_s.append(loads.wait_for_acks(ACKS))
    assert_good(loads, nodes[0], report, waits_s)
    for node in nodes:
        assert node.stop() == 0, node.output


@pytest.mark.parametrize("blind", [False, True], ids=["unplugged", "sends nothing to PostgreSQL"])
def test_a_host_that_is_cut_off_is_replaced_and_its_node_ends(
    cluster: SharedCluster,
    postgres: PostgresServer,
    nodes: list[Server],
    hosts: list[Host],
    chance: random.Random,
    *,
    report: Callable[[object], None],
    blind: bool,
):
    loads = Loads(nodes, [], chance)
    to_postgres = f"--protocol tcp --dport {postgres.port}"
    waits_s = []
    with running(loads.threads):
        for number in chance.sample(range(1, SIZE + 1), 2):
            host = hosts[number - 1]
            loads.wait_for_acks(ACKS)
            with host.dropping("OUTPUT", to_postgres) if blind else host.unplugged():
                gone = f"slots WHERE node_id = {number}"
                wait_until(lambda gone=gone: cluster.count(gone) == 0, timeout_s=WAIT_S)
                waits_s.append(loads.wait_for_acks(ACKS))
            cut = nodes[number - 1]
            assert cut.wait() == STORAGE_FAILED, cut.output
            nodes[number - 1] = launch(cluster, host, number).wait_ready(WAIT_S)
            waits_s.append(loads.wait_for_acks(ACKS))
    assert_good(loads, nodes[0], report, waits_s)
    for node in nodes:
        assert node.stop() == 0, node.output


def test_a_host_that_is_back_within_the_lease_goes_on(
    cluster: SharedCluster,
    nodes: list[Server],
    hosts: list[Host],
    chance: random.Random,
    report: Callable[[object], None],
):
    loads = Loads(nodes, [], chance)
    waits_s = []
    with running(loads.threads):
        for host in hosts:
            loads.wait_for_acks(ACKS)
            with host.unplugged():
                time.sleep(LEASE_S / 4)  # by design: less than the lease
            waits_s.append(loads.wait_for_acks(ACKS))
        assert [node.alive for node in nodes] == [True] * SIZE
    assert_good(loads, nodes[0], report, waits_s)
    for node in nodes:
        assert node.stop() == 0, node.output
