"""A server with several nodes is restarted while producers of three protocols go on."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.cluster.test_spread_slots import assert_good
from tests.crash.cluster.test_take_over import ACKS, Loads
from tests.crash.load import running
from tests.node_ports import find_node_ports
from tests.server import start_server

NODES = 3
ROUNDS = 2
LISTENERS = ("kafka", "pulsar", "tubemq-master", "tubemq-broker", "http")


@pytest.mark.long
@pytest.mark.timeout(600)
def test_producers_of_three_protocols_go_on_through_restarts(
    tmp_path: Path, chance: random.Random, report: Callable[[object], None]
):
    ports = find_node_ports(NODES, *LISTENERS)
    listen = ports.listen
    server = start_server(tmp_path / "data", listen=listen, nodes=NODES)
    others = [
        {name.replace("-", "_"): ports.addresses(name).split(",")[at] for name in LISTENERS}
        for at in range(1, NODES)
    ]
    loads = Loads([server], others, chance)
    waits_s: list[float] = []
    with running(loads.threads):
        for _ in range(ROUNDS):
            loads.wait_for_acks(ACKS)
            began_s = time.monotonic()
            assert server.stop() == 0, server.output
            server = start_server(tmp_path / "data", listen=listen, nodes=NODES)
            loads.wait_for_acks(ACKS)
            waits_s.append(time.monotonic() - began_s)
    assert_good(loads, server, report, waits_s)
    assert server.stop() == 0, server.output
