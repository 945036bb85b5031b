"""Our own Kafka client while its broker is killed, stopped, or loses power.

Idempotent producers, and groups of both kinds: no acked message is lost, duplicated, moved or
changed, no message is skipped, and no message below a committed offset is delivered again.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.brokers import Trilogue
from tests.crash.faults import CutDisk, kill, stop
from tests.crash.kafka.own_load import OwnTail, own_load
from tests.crash.ledger import Ledger
from tests.crash.load import ACKS_WITHIN, create_topic, end_under_load, judge, running

PARTITIONS = 4
SETTINGS = {"journal.file-size": "1MiB", "journal.file-age": "1s"}  # many flushes: kills meet them

Report = Callable[[object], None]
End = Callable[[Trilogue], None]


def run(
    server: Trilogue, end: End, chance: random.Random, report: Report, *, rounds: int, acks: int
) -> None:
    """End the server `rounds` times under load, and judge."""
    server.start()
    ledger = Ledger(chance.randbytes(8))
    create_topic(server.address, "ledger", PARTITIONS)
    loads = own_load(server.address, "ledger", PARTITIONS, ledger, seed=chance.randrange(10**6))
    tails = [load for load in loads if isinstance(load, OwnTail)]
    producers = [load for load in loads if load not in tails]
    with running(loads):
        first_acks_s = end_under_load(server, end, ledger, chance, rounds=rounds, acks=acks)
        for load in producers:
            load.stop()
        ends: dict[int, int] = {}
        for origin, offset in ledger.acked.items():
            ends[origin.partition] = max(ends.get(origin.partition, 0), offset + 1)
        for tail in tails:
            tail.wait_until(ends, ACKS_WITHIN)

    verdict = judge(server.address, "ledger", PARTITIONS, ledger)
    commits = [tail.commits for tail in tails]
    report(
        f"{rounds} ends: {verdict}; commits {commits};"
        f" first ack after {max(first_acks_s):.2f} s at most"
    )
    assert verdict.bad == {}, verdict.examples
    assert verdict.acked >= rounds * acks
    assert [tail.went_back for tail in tails] == [[], []], "what was committed came again"
    assert [tail.missed for tail in tails] == [[], []], "something was passed over"
    assert min(commits) > rounds


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("end", "rounds", "acks"),
    [
        pytest.param(kill, 3, 1_000, id="kill9"),
        pytest.param(kill, 12, 20_000, id="kill9-long", marks=pytest.mark.long),
        pytest.param(stop, 6, 10_000, id="sigterm-long", marks=pytest.mark.long),
    ],
)
def test_records_acknowledged_to_our_client_are_not_lost_repeated_or_moved(
    *, trilogue: Trilogue, chance: random.Random, report: Report, end: End, rounds: int, acks: int
):
    trilogue.settings.update(SETTINGS)
    run(trilogue, end, chance, report, rounds=rounds, acks=acks)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_records_acknowledged_to_our_client_survive_a_power_cut(
    disk: CutDisk, chance: random.Random, report: Report
):
    server = Trilogue(disk.root / "data", SETTINGS)
    try:
        run(server, disk.cut_off, chance, report, rounds=6, acks=2_000)
    finally:
        server.kill9()
