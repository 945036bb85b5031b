"""A cluster is restarted node by node while clients of three protocols go on.

As docs/how-to/serve-on-several-machines.md has it: each node is drained, stopped, and started again
at its addresses; without the drain its partitions pause for as long as its restart takes.
"""

from __future__ import annotations

import random
import threading
import time

import pytest

from tests.conformance.clients.base import Deadline
from tests.conformance.clients.pulsar import Process
from tests.conformance.clients.tubemq import connect
from tests.crash.cluster.test_live_clients import Advance, Report, addresses
from tests.crash.cluster.test_live_tubemq import (
    AT_ONCE,
    PullTail,
    PushTail,
    Sender,
    driver,
)
from tests.crash.cluster.test_spread_slots import assert_good
from tests.crash.cluster.test_take_over import ACKS, WAIT_S, Loads
from tests.crash.kafka.mixed_groups import check_members_go_on
from tests.crash.load import create_topic, full_read, running
from tests.node.cluster.shared_cluster import SharedCluster
from tests.server import Server, run_trilogue

__all__ = ["driver"]  # a fixture
PARTITIONS = 4

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.parametrize("drains", [True, False], ids=["drained", "stopped"]),
]


def restart_each(
    cluster: SharedCluster, nodes: list[Server], advance: Advance, *, drains: bool
) -> str:
    """Restart one node after the other; return the seconds that each took with its clients."""
    took_s = []
    for at, node in enumerate(nodes):
        began_s = time.monotonic()
        if drains:
            drain = ("nodes", "drain", str(at + 1), "--cluster", cluster.url)
            drained = run_trilogue(*drain, timeout=WAIT_S)
            assert drained.returncode == 0, drained.stderr
        assert node.stop() == 0, node.output
        nodes[at] = cluster.launch(at + 1, f"node-{at + 1}", node.doors).wait_ready(WAIT_S)
        advance()
        took_s.append(f"{time.monotonic() - began_s:.1f}")
    spread = run_trilogue("nodes", "rebalance", "--cluster", cluster.url, timeout=WAIT_S)
    assert spread.returncode == 0, spread.stderr
    advance()
    return f"{'drained' if drains else 'stopped'}, seconds of each: {', '.join(took_s)}"


def stop(nodes: list[Server]) -> None:
    for node in nodes:
        assert node.stop() == 0, node.output


def test_producers_of_three_protocols_see_no_error(
    cluster: SharedCluster,
    nodes: list[Server],
    chance: random.Random,
    report: Report,
    *,
    drains: bool,
):
    loads = Loads(nodes, [], chance)
    waits_s: list[float] = []
    with running(loads.threads):
        loads.wait_for_acks(ACKS)
        report(
            restart_each(
                cluster, nodes, lambda: waits_s.append(loads.wait_for_acks(ACKS)), drains=drains
            )
        )
    assert_good(loads, nodes[0], report, waits_s)
    stop(nodes)


@pytest.mark.java
def test_members_of_kafkas_groups_go_on(
    cluster: SharedCluster,
    nodes: list[Server],
    chance: random.Random,
    report: Report,
    *,
    drains: bool,
):
    check_members_go_on(
        addresses(nodes),
        chance,
        report,
        lambda advance: restart_each(cluster, nodes, advance, drains=drains),
    )
    stop(nodes)


@pytest.mark.java
def test_tubemqs_java_clients_go_on(
    cluster: SharedCluster, nodes: list[Server], driver: Process, report: Report, *, drains: bool
):
    create_topic(nodes[0].kafka, "tubes", PARTITIONS)
    client = connect(driver, addresses(nodes, "tubemq-master"))
    producer = client.producer("tubes")
    producer.wait_for("tubes")
    sender = Sender(producer)
    pull = PullTail(client.pull("pulling", {"tubes": []}))
    push = PushTail(client.push("pushing", {"tubes": []}))

    def advance() -> None:
        sender.send(AT_ONCE)
        deadline = Deadline("both groups have all messages", WAIT_S)
        while not (sender.acked <= pull.seen.keys() and sender.acked <= push.seen.keys()):
            left = [len(sender.acked - each.seen.keys()) for each in (pull, push)]
            deadline.check(left)
            threading.Event().wait(0.05)

    with running(list[threading.Thread]([pull, push])):
        advance()
        took = restart_each(cluster, nodes, advance, drains=drains)
    read = full_read(nodes[0].kafka, "tubes", PARTITIONS)
    there = {value or b"" for got in read.values() for _, value in got}
    users_saw = (dict(sender.refused), dict(pull.refused))
    report(f"{len(sender.acked)} accepted; {took}; refused: {users_saw}")
    assert sender.acked <= there
    assert pull.went_back == []
    stop(nodes)
