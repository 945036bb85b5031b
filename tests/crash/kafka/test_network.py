"""A network that resets connections, loses packets and partitions, under Kafka's clients.

Server and clients are in a network namespace of their own, and iptables acts on its loopback:
connections are reset, one of twenty packets is lost, no packet arrives for ten seconds. Idempotent
producers lose and duplicate nothing, groups skip nothing, committed offsets never move backwards.
"""

from __future__ import annotations

import random
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from tools.servers.network import OwnNetwork, may_have_one

from tests.brokers import Trilogue
from tests.crash.kafka.own_load import OwnTail, own_load
from tests.crash.ledger import Ledger
from tests.crash.load import create_topic, full_read, mixed_load, running
from tests.tools import require, require_program

TOPIC, PARTITIONS = "ledger", 4
ACKS_WITHIN = 120.0
ANSWER_S = 5.0  # a reset reaches one end only: the other waits, two minutes if it is aiokafka
LOSS = ("-m", "statistic", "--mode", "random", "--probability", "0.05", "-j", "DROP")
RESET = ("-j", "REJECT", "--reject-with", "tcp-reset")
PARTED = ("-j", "DROP")

Report = Callable[[object], None]


@pytest.fixture
def network() -> Iterator[OwnNetwork]:
    require("root", found=may_have_one())
    require_program("iptables")
    made = OwnNetwork()
    yield made
    made.close()


class Cable:
    """What happens to all that goes to the server or comes from it, while it does."""

    def __init__(self, address: str) -> None:
        self.port = address.rsplit(":", 1)[1]

    @contextmanager
    def does(self, rule: tuple[str, ...]) -> Iterator[None]:
        """From inside the network."""
        ends = [("--dport", self.port), ("--sport", self.port)]
        rules = [["INPUT", "-i", "lo", "-p", "tcp", *end, *rule] for end in ends]
        for each in rules:
            iptables("-I", *each)
        try:
            yield
        finally:
            for each in rules:
                iptables("-D", *each)


def iptables(*arguments: str) -> None:
    done = subprocess.run(
        ["iptables", "-w", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("resets", "loss_s", "parted_s"),
    [(3, 1.5, 1.5), pytest.param(20, 20, 10, marks=pytest.mark.long)],
)
def test_a_broken_network_costs_nothing_that_was_acked(
    *,
    trilogue: Trilogue,
    network: OwnNetwork,
    chance: random.Random,
    report: Report,
    resets: int,
    loss_s: float,
    parted_s: float,
):
    with network.inside():
        trilogue.start()
        address = trilogue.address
        create_topic(address, TOPIC, PARTITIONS)
        ledger = Ledger(chance.randbytes(8))
        ours = own_load(address, TOPIC, PARTITIONS, ledger, seed=1, answer_s=ANSWER_S)
        theirs = mixed_load(
            address, TOPIC, PARTITIONS, ledger, seed=chance.randrange(10**6), answer_s=ANSWER_S
        )
        for number, load in enumerate(theirs[:-1], 11):
            load.number = number
        tails = [load for load in ours if isinstance(load, OwnTail)]
        cable, calm = Cable(address), threading.Event()
        with running([*ours, *theirs]):
            ledger.wait_for_acks(500, ACKS_WITHIN)
            for _ in range(resets):
                with cable.does(RESET):
                    calm.wait(0.1)
                ledger.wait_for_acks(50, ACKS_WITHIN)
            for rule, seconds in ((LOSS, loss_s), (PARTED, parted_s)):
                with cable.does(rule):
                    calm.wait(seconds)
                ledger.wait_for_acks(200, ACKS_WITHIN)
            for load in [*ours, *theirs]:
                if load not in tails:
                    load.stop()
            ends: dict[int, int] = {}
            for origin, offset in ledger.acked.items():
                ends[origin.partition] = max(ends.get(origin.partition, 0), offset + 1)
            for tail in tails:
                tail.wait_until(ends, ACKS_WITHIN)
        verdict = ledger.verdict(full_read(address, TOPIC, PARTITIONS))

    producers = {origin.producer for origin in ledger.acked}
    report(f"{verdict}; commits {[tail.commits for tail in tails]}")
    assert verdict.bad == {}, verdict.examples
    assert producers == {1, 2, 11, 12, 13}
    assert [tail.went_back for tail in tails] == [[], []]
    assert [tail.missed for tail in tails] == [[], []]
