"""Power cuts: what was not synced is gone at the next mount, and nothing acked is among it.

The same run on a real Kafka with its default flush loses acked messages: the check can fail.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import pytest
from tools.servers.kafka import RealKafka

from tests.brokers import Broker, Trilogue
from tests.crash.faults import CutDisk
from tests.crash.ledger import Ledger, Verdict
from tests.crash.load import create_topic, judge, mixed_load, running
from tests.crash.parts import PATIENCE
from tests.tools import require_jars

PARTITIONS = 4
CUTS = 20
BUSY = {  # many files are closed, flushed, merged and removed between two cuts
    "journal.file-size": "256KiB",
    "segments.grace": "1s",
    "retention.check-every": "1s",
}

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]


def run(broker: Broker, disk: CutDisk, chance: random.Random, cuts: int) -> Verdict:
    """Cut the power under load, `cuts` times."""
    broker.start()
    ledger = Ledger(chance.randbytes(8))
    create_topic(broker.address, "ledger", PARTITIONS)
    loads = mixed_load(broker.address, "ledger", PARTITIONS, ledger, seed=chance.randrange(10**6))
    with running(loads):
        for _ in range(cuts):
            ledger.wait_for_acks(2000 + chance.randrange(3000), PATIENCE)
            disk.cut_under(broker)
        ledger.wait_for_acks(2000, PATIENCE)
    return judge(broker.address, "ledger", PARTITIONS, ledger)


@pytest.mark.parametrize("settings", [{}, BUSY], ids=["quiet", "busy"])
def test_nothing_acked_is_lost_when_the_power_goes(
    disk: CutDisk,
    chance: random.Random,
    report: Callable[[object], None],
    settings: dict[str, object],
):
    """With the settings as they are, and with background work all the time."""
    server = Trilogue(disk.root / "data", settings)
    try:
        verdict = run(server, disk, chance, CUTS // 2)
        merges = server.output.count("merge.done")
    finally:
        server.kill9()

    report(f"{CUTS // 2} power cuts: {verdict}; {merges} merges since the last one")
    assert verdict.bad == {}, verdict.examples


@pytest.mark.java
def test_the_check_can_fail_a_server_that_does_not_sync_loses_acked_messages(
    disk: CutDisk, chance: random.Random, report: Callable[[object], None]
):
    require_jars("3.9.1")
    server = RealKafka(disk.root, version="3.9.1", heap="512m")
    try:
        verdict = run_once_without_producers(server, disk, chance)
    finally:
        server.kill9()

    report(f"real Kafka, default flush, one power cut: {verdict}")
    assert verdict.lost > 0


def run_once_without_producers(server: Broker, disk: CutDisk, chance: random.Random) -> Verdict:
    """One cut after the producers are done: they cannot send again what was lost.

    The sync before keeps its configuration and topics: this is about records.
    """
    server.start()
    ledger = Ledger(chance.randbytes(8))
    create_topic(server.address, "ledger", PARTITIONS)
    os.sync()
    loads = mixed_load(server.address, "ledger", PARTITIONS, ledger, seed=chance.randrange(10**6))
    with running(loads):
        ledger.wait_for_acks(10_000, PATIENCE)
    disk.cut()
    server.kill9()
    disk.reboot()
    server.start()
    return judge(server.address, "ledger", PARTITIONS, ledger)
