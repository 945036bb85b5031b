"""Our own Kafka client while its server is killed, stopped, frozen or without power (checks 1, 4).

Idempotent producers and groups of both kinds: nothing acked is lost, repeated, moved or changed,
nothing is passed over, and what was committed is not given again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest
from tests.brokers import Trilogue
from tests.crash.faults import CutDisk, kill, stop
from tests.crash.ledger import Ledger
from tests.crash.load import create_topic, judge, running
from tests.crash.own_load import OwnTail, own_load

PARTITIONS = 4
BACK_WITHIN = 10.0  # seconds from the start to the first ack; the server alone: test_kill.py
ACKS_WITHIN = 60.0
SETTINGS = {"journal.file-size": "1MiB", "journal.file-age": "1s"}  # many flushes: kills meet them

Tell = Callable[[object], None]
End = Callable[[Trilogue], None]


def run(
    server: Trilogue, end: End, chance: random.Random, tell: Tell, *, rounds: int, acks: int
) -> None:
    """End the server `rounds` times under load, and judge."""
    server.start()
    ledger = Ledger(chance.randbytes(8))
    create_topic(server.address, "ledger", PARTITIONS)
    loads = own_load(server.address, "ledger", PARTITIONS, ledger, seed=chance.randrange(10**6))
    tails = [load for load in loads if isinstance(load, OwnTail)]
    producers = [load for load in loads if load not in tails]
    back: list[float] = []
    with running(loads):
        for _ in range(rounds):
            ledger.wait_for_acks(acks + chance.randrange(acks), ACKS_WITHIN)
            end(server)
            began = time.monotonic()
            server.start()
            back.append(ledger.wait_for_acks(1, ACKS_WITHIN) - began)
        ledger.wait_for_acks(acks, ACKS_WITHIN)
        for load in producers:
            load.stop()
        ends: dict[int, int] = {}
        for origin, offset in ledger.acked.items():
            ends[origin.partition] = max(ends.get(origin.partition, 0), offset + 1)
        for tail in tails:
            tail.wait_until(ends, ACKS_WITHIN)

    verdict = judge(server.address, "ledger", PARTITIONS, ledger)
    commits = [tail.commits for tail in tails]
    tell(f"{rounds} ends: {verdict}; commits {commits}; first ack after {max(back):.2f} s at most")
    assert verdict.bad == {}, verdict.examples
    assert verdict.acked >= rounds * acks
    assert [tail.went_back for tail in tails] == [[], []], "what was committed came again"
    assert [tail.missed for tail in tails] == [[], []], "something was passed over"
    assert min(commits) > rounds
    assert max(back) <= BACK_WITHIN


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("end", "rounds", "acks"),
    [
        pytest.param(kill, 3, 1_000, id="kill9"),
        pytest.param(kill, 12, 20_000, id="kill9-long", marks=pytest.mark.long),
        pytest.param(stop, 6, 10_000, id="sigterm-long", marks=pytest.mark.long),
    ],
)
def test_nothing_our_client_was_told_is_lost_repeated_or_moved(
    *, trilogue: Trilogue, chance: random.Random, tell: Tell, end: End, rounds: int, acks: int
):
    trilogue.settings.update(SETTINGS)
    run(trilogue, end, chance, tell, rounds=rounds, acks=acks)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_nothing_our_client_was_told_is_lost_when_the_power_goes(
    disk: CutDisk, chance: random.Random, tell: Tell
):
    server = Trilogue(disk.root / "data", SETTINGS)
    try:
        run(server, disk.cut_off, chance, tell, rounds=6, acks=2_000)
    finally:
        server.kill9()
