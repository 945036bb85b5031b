"""A server with several nodes is restarted, or its nodes one by one, while clients go on."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.cluster.test_spread_slots import assert_good
from tests.crash.cluster.test_take_over import ACKS, WAIT_S, Loads
from tests.crash.kafka.mixed_groups import check_members_go_on
from tests.crash.load import running
from tests.crash.test_kill_nodes import is_gone, pids_of_nodes
from tests.node_ports import NodePorts, find_node_ports
from tests.server import Server, start_server
from tests.waiting import wait_until

NODES, PARTITIONS = 3, 4
ROUNDS = 2
LISTENERS = ("kafka", "pulsar", "tubemq-master", "tubemq-broker", "http")

Report = Callable[[object], None]

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture
def ports() -> NodePorts:
    return find_node_ports(NODES, *LISTENERS)


def start(tmp_path: Path, ports: NodePorts) -> Server:
    return start_server(tmp_path / "data", listen=ports.listen, nodes=NODES)


def start_loads(server: Server, ports: NodePorts, chance: random.Random) -> Loads:
    others = [
        {name.replace("-", "_"): ports.addresses(name).split(",")[at] for name in LISTENERS}
        for at in range(1, NODES)
    ]
    return Loads([server], others, chance)


def end_each(server: Server, number: signal.Signals, advance: Callable[[], object]) -> list[float]:
    """End one node after the other, which the supervisor starts again; seconds of each."""
    took_s = []
    for pid in pids_of_nodes(server):
        began_s = time.monotonic()
        os.kill(pid, number)
        wait_until(lambda pid=pid: is_gone(server, pid), "a node is started again", WAIT_S)
        advance()
        took_s.append(round(time.monotonic() - began_s, 1))
    return took_s


def test_producers_of_three_protocols_go_on_through_restarts(
    tmp_path: Path, chance: random.Random, report: Report, ports: NodePorts
):
    server = start(tmp_path, ports)
    loads = start_loads(server, ports, chance)
    waits_s: list[float] = []
    with running(loads.threads):
        for _ in range(ROUNDS):
            loads.wait_for_acks(ACKS)
            began_s = time.monotonic()
            assert server.stop() == 0, server.output
            server = start(tmp_path, ports)
            loads.wait_for_acks(ACKS)
            waits_s.append(time.monotonic() - began_s)
    assert_good(loads, server, report, waits_s)
    assert server.stop() == 0, server.output


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
def test_producers_of_three_protocols_go_on_while_nodes_end_one_by_one(
    *,
    tmp_path: Path,
    chance: random.Random,
    report: Report,
    ports: NodePorts,
    number: signal.Signals,
):
    server = start(tmp_path, ports)
    loads = start_loads(server, ports, chance)
    with running(loads.threads):
        loads.wait_for_acks(ACKS)
        waits_s = end_each(server, number, lambda: loads.wait_for_acks(ACKS))
    assert_good(loads, server, report, waits_s)
    assert server.stop() == 0, server.output


@pytest.mark.java
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
def test_members_of_kafkas_groups_go_on_while_nodes_end_one_by_one(
    *,
    tmp_path: Path,
    chance: random.Random,
    report: Report,
    ports: NodePorts,
    number: signal.Signals,
):
    server = start(tmp_path, ports)
    check_members_go_on(
        ports.addresses("kafka"),
        chance,
        report,
        lambda advance: f"seconds of each: {end_each(server, number, advance)}",
    )
    assert server.stop() == 0, server.output
