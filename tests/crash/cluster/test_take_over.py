"""Lose, freeze and stop nodes of a cluster with `ack=shared` under the load of three protocols.

Standbys serve as the nodes that are gone. What was acknowledged is there once, in order, and every
protocol's clients go on at the new addresses by themselves.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence

import pytest
from tools.servers.probe import free_port

from tests.conformance.pulsar.pulsar_admin import Admin
from tests.crash import load
from tests.crash.ledger import Ledger, Verdict
from tests.crash.load import SIZES, ConfluentLoad, create_topic, running
from tests.crash.pulsar import pulsar_load
from tests.crash.pulsar.pulsar_load import PulsarLoad
from tests.crash.tubemq.tubemq_load import ALONE, PLACES, ClientLoad
from tests.node.cluster.shared_cluster import SharedCluster
from tests.server import Server
from tests.waiting import wait_until
from trilogue.client.tubemq import Message, Producer
from trilogue.node.errors import STORAGE_FAILED

PARTITIONS = 3
ACKS = 30
WAIT_S = 90.0
PROTOCOLS = ("kafka", "pulsar", "tubemq")


def fixed_addresses() -> dict[str, str]:
    """Return where a standby will listen: clients know it from the beginning."""
    names = ("kafka", "pulsar", "tubemq_master")
    return {each: f"127.0.0.1:{free_port()}" for each in names}


class SerialLoad(ClientLoad):
    """Our TubeMQ client, one message at a time: others may overtake one that is rerouted."""

    async def send(self, producer: Producer) -> None:
        place = self.random.choice(self.places)
        size = self.random.choice(SIZES)
        origin, value = self.ledger.next_value(self.number, place, size)
        sent = await producer.send(Message(PLACES[place][0], value))
        self.ledger.ack(origin, sent.offset)


class Loads:
    """A producer of each protocol, with a ledger each."""

    def __init__(
        self, nodes: Sequence[Server], standbys: Sequence[Mapping[str, str]], chance: random.Random
    ) -> None:
        def addresses(listener: str) -> str:
            known = [each.doors[listener] for each in nodes]
            return ",".join(known + [each[listener.replace("-", "_")] for each in standbys])

        self.ledgers = {each: Ledger(chance.randbytes(8)) for each in PROTOCOLS}
        kafka = addresses("kafka")
        create_topic(kafka, "ledger", PARTITIONS)
        for place in ALONE:
            create_topic(kafka, PLACES[place][0], 1)
        admin = Admin(nodes[0].http)
        admin.deduplicate("public/default", on=True)
        admin.make_partitioned("events", PARTITIONS)
        seed = chance.randrange(10**6)
        self.threads: list[threading.Thread] = [
            ConfluentLoad(kafka, "ledger", PARTITIONS, self.ledgers["kafka"], number=1, seed=seed),
            PulsarLoad(
                addresses("pulsar"),
                "events",
                PARTITIONS,
                self.ledgers["pulsar"],
                number=1,
                seed=seed,
            ),
            SerialLoad(addresses("tubemq-master"), self.ledgers["tubemq"], number=1, seed=seed),
        ]

    def wait_for_acks(self, count: int) -> float:
        """Wait until each protocol's producer got some more; return the seconds it took."""
        began = time.monotonic()
        for ledger in self.ledgers.values():
            ledger.wait_for_acks(count, WAIT_S)
        return time.monotonic() - began

    def verdicts(self, node: Server) -> dict[str, Verdict]:
        """Return what each protocol's readers find; a good one is a text of counts."""
        kafka = load.judge(node.kafka, "ledger", PARTITIONS, self.ledgers["kafka"])
        pulsar, _ = pulsar_load.judge(
            node.doors["pulsar"], "events", PARTITIONS, self.ledgers["pulsar"]
        )
        reads = {at: load.full_read(node.kafka, PLACES[at][0], 1)[0] for at in ALONE}
        return {"kafka": kafka, "pulsar": pulsar, "tubemq": self.ledgers["tubemq"].verdict(reads)}


def lose(cluster: SharedCluster, node: Server) -> None:
    """A machine is gone, and its disk."""
    cluster.lose(node)


def freeze(_cluster: SharedCluster, node: Server) -> None:
    """A process stands still, and its connections stay open."""
    node.signal(signal.SIGSTOP)


def stop(_cluster: SharedCluster, node: Server) -> None:
    """A node is stopped in order, and gives its lease up."""
    assert node.stop() == 0, node.output


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "ends",
    [
        pytest.param((lose, stop), id="lost, stopped"),
        pytest.param((lose, freeze, stop), id="also frozen", marks=pytest.mark.long),
    ],
)
def test_standbys_serve_as_nodes_that_end(
    cluster: SharedCluster,
    chance: random.Random,
    report: Callable[[object], None],
    ends: Sequence[Callable[[SharedCluster, Server], None]],
):
    addresses = [fixed_addresses() for _ in ends]
    nodes = [cluster.launch(each, f"node-{each}") for each in range(1, cluster.size + 1)]
    for node in nodes:
        node.wait_ready(WAIT_S)
    loads = Loads(nodes, addresses, chance)
    waits_s: list[float] = []
    with running(loads.threads):
        for number, end in enumerate(ends):
            standby = cluster.launch_standby(f"standby-{number}", **addresses[number])
            wait_until(lambda standby=standby: "cluster.waiting" in standby.output)
            loads.wait_for_acks(ACKS)
            end(cluster, nodes[number])
            waits_s.append(loads.wait_for_acks(ACKS))
            standby.wait_ready(WAIT_S)
            if end is freeze:
                nodes[number].signal(signal.SIGCONT)
                assert nodes[number].wait() == STORAGE_FAILED, nodes[number].output
            nodes[number] = standby
    verdicts = loads.verdicts(nodes[0])
    report(f"{verdicts}; {ACKS} acks each after {', '.join(f'{each:.1f}' for each in waits_s)} s")
    assert [each.bad for each in verdicts.values()] == [{}] * len(PROTOCOLS), verdicts
    assert all(each.acked >= 2 * ACKS for each in verdicts.values())
    for node in nodes:
        assert node.stop() == 0, node.output
