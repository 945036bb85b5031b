"""Power cuts under TubeMQ's clients: no acked message is lost, no confirmed offset moves backwards.

tests/crash/test_power_cut.py is the same for Kafka's clients, and explains the cut.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from tests.brokers import TrilogueForTubeMQ
from tests.crash.faults import CutDisk
from tests.crash.ledger import Ledger
from tests.crash.load import running
from tests.crash.parts import PATIENCE
from tests.crash.test_power_cut import BUSY
from tests.crash.tubemq.tubemq_load import judge, make_topics, tube_load
from tests.crash.tubemq.tubemq_reader import reading

CUTS = 8
PLACE = {"group": "g", "topic": "ledger", "partition": 0}

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]


@pytest.fixture
def server(disk: CutDisk) -> Iterator[TrilogueForTubeMQ]:
    made = TrilogueForTubeMQ(disk.root / "data", {**BUSY, "tubemq.hold": "0"})
    made.start()
    make_topics(made)
    yield made
    made.kill9()


def test_nothing_answered_is_lost_when_the_power_goes(
    server: TrilogueForTubeMQ,
    disk: CutDisk,
    chance: random.Random,
    report: Callable[[object], None],
):
    ledger = Ledger(chance.randbytes(8))
    loads = tube_load(server, ledger, seed=chance.randrange(10**6))
    with running(loads):
        for _ in range(CUTS):
            ledger.wait_for_acks(2_000 + chance.randrange(3_000), PATIENCE)
            disk.cut_under(server)
        ledger.wait_for_acks(2_000, PATIENCE)

    verdict = judge(server, ledger)
    report(f"{CUTS} power cuts: {verdict}")
    assert verdict.bad == {}, verdict.examples
    assert loads[-1].went_back == []


def test_confirmed_positions_stay_and_others_come_again_when_the_power_goes(
    server: TrilogueForTubeMQ, disk: CutDisk, chance: random.Random
):
    """By a confirm, by an end with readStatus 0; what was handed out only is handed out again."""
    confirmed = written = 0
    for number in range(CUTS):
        with reading(server.doors["tubemq-broker"], f"c-{number}", **PLACE) as reader:
            for _ in range(20):
                reader.send(b"x" * chance.randrange(1, 2_000))
            written += 20
            assert reader.register() == confirmed
            got = reader.pack(consumed=False)
            assert [offset for offset, _ in got] == list(range(confirmed, written))
            match number % 3:
                case 0:
                    confirmed = reader.commit(consumed=True)
                    assert confirmed == written
                case 1:
                    reader.unregister(consumed=True)
                    confirmed = written
                case 2:
                    assert reader.commit(consumed=False) == confirmed
                    assert reader.pack(consumed=False) == got
        disk.cut_under(server)
    with reading(server.doors["tubemq-broker"], "c-last", **PLACE) as reader:
        assert reader.register() == confirmed
