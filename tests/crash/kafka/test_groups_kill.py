"""Classic and KIP-848 groups of several libraries while their broker is killed.

No acked message is lost, each group reads each message at least once, committed offsets never move
backwards, and each group is stable again after each restart; the time to that is reported.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.brokers import Trilogue
from tests.conformance.clients.kafka_programs import JAVA_4
from tests.crash.faults import CutDisk, kill
from tests.crash.kafka.group_load import PacedLoad
from tests.crash.kafka.mixed_groups import MixedGroups
from tests.crash.ledger import Ledger
from tests.crash.load import create_topic, full_read, running

TOPIC, PARTITIONS = "t", 4
ACKS_WITHIN = 60.0
SETTINGS = {
    "journal.file-size": "1MiB",
    "journal.file-age": "1s",
    "groups.initial-delay": "200ms",
    "groups.consumer-heartbeat": "500ms",
    "groups.consumer-session-timeout": "6s",
}
ROUNDS, LONG_ROUNDS = 1, 10

Report = Callable[[object], None]
End = Callable[[Trilogue], None]


def run(
    server: Trilogue,
    end: End,
    chance: random.Random,
    report: Report,
    *,
    rounds: int,
    with_java: bool,
) -> None:
    """Both groups read at once; end the server `rounds` times, and judge."""
    server.start()
    address = server.address
    ledger = Ledger(chance.randbytes(8))
    create_topic(address, TOPIC, PARTITIONS)
    load = PacedLoad(address, TOPIC, PARTITIONS, ledger, number=1, seed=chance.randrange(10**6))
    groups = MixedGroups(address, TOPIC, PARTITIONS, ledger, with_java=with_java)
    settled: list[float] = []
    with running([load, *groups.parts]):
        groups.settle()
        for _ in range(rounds):
            ledger.wait_for_acks(200 + chance.randrange(300), ACKS_WITHIN)
            end(server)
            server.start()
            settled.append(groups.settle())
        ledger.wait_for_acks(200, ACKS_WITHIN)
        load.stop()
        groups.wait_until_read(ACKS_WITHIN)

    verdict = ledger.verdict(full_read(address, TOPIC, PARTITIONS))
    looks = [each.looks for each in groups.watches]
    report(
        f"{rounds} ends: {verdict}; commits {groups.commits}; looks {looks};"
        f" settled after {max(settled):.2f} s at most"
    )
    assert verdict.bad == {}, verdict.examples
    groups.assert_good()
    assert min(looks) > rounds
    assert min(groups.commits) > 0


@pytest.mark.timeout(300)
def test_groups_of_both_kinds_come_through_kills(
    trilogue: Trilogue, chance: random.Random, report: Report
):
    trilogue.settings.update(SETTINGS)
    run(trilogue, kill, chance, report, rounds=ROUNDS, with_java=False)


@pytest.mark.long
@pytest.mark.java
@pytest.mark.timeout(600)
def test_groups_with_members_of_three_libraries_come_through_kills(
    trilogue: Trilogue, chance: random.Random, report: Report
):
    JAVA_4.require()
    trilogue.settings.update(SETTINGS)
    run(trilogue, kill, chance, report, rounds=LONG_ROUNDS, with_java=True)
    JAVA_4.stop()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_groups_of_both_kinds_come_through_power_cuts(
    disk: CutDisk, chance: random.Random, report: Report
):
    server = Trilogue(disk.root / "data", SETTINGS)
    try:
        run(server, disk.cut_off, chance, report, rounds=5, with_java=False)
    finally:
        server.kill9()
