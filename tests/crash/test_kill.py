"""Killed or stopped under load: nothing acked is lost, repeated, moved or changed; back at once.

checks.md's word for it: lost = duplicated = reordered = wrong offset = vanished = 0.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest
from tests.brokers import Broker
from tests.crash.ledger import Ledger
from tests.crash.load import create_topic, judge, mixed_load, running

PARTITIONS = 4
BACK_WITHIN = {"trilogue": 3.0, "kafka": 60.0}  # seconds from the start to the first ack
ACKS_WITHIN = 60.0

Tell = Callable[[object], None]


def kill(broker: Broker) -> None:
    broker.kill9()


def stop(broker: Broker) -> None:
    code = broker.stop()
    assert code == 0 or broker.name == "kafka", f"exit code {code}:\n{broker.output}"


def run(
    broker: Broker,
    end: Callable[[Broker], None],
    chance: random.Random,
    *,
    rounds: int,
    acks_a_round: int,
) -> tuple[Ledger, list[float]]:
    """End the server `rounds` times under load; the ledger and the times to the first ack."""
    ledger = Ledger(chance.randbytes(8))
    create_topic(broker.address, "ledger", PARTITIONS)
    loads = mixed_load(broker.address, "ledger", PARTITIONS, ledger, seed=chance.randrange(10**6))
    back: list[float] = []
    with running(loads):
        for _ in range(rounds):
            ledger.wait_for_acks(acks_a_round + chance.randrange(acks_a_round), ACKS_WITHIN)
            end(broker)
            began = time.monotonic()
            broker.start()
            back.append(ledger.wait_for_acks(1, ACKS_WITHIN) - began)
        ledger.wait_for_acks(acks_a_round, ACKS_WITHIN)
    return ledger, back


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("end", "rounds", "acks"),
    [
        pytest.param(kill, 4, 4000, id="kill9"),
        pytest.param(stop, 3, 3000, id="sigterm"),
        pytest.param(kill, 12, 20_000, id="kill9-long", marks=pytest.mark.long),
        pytest.param(stop, 6, 20_000, id="sigterm-long", marks=pytest.mark.long),
    ],
)
def test_nothing_acked_is_lost_repeated_or_moved(
    *,
    broker: Broker,
    chance: random.Random,
    tell: Tell,
    end: Callable[[Broker], None],
    rounds: int,
    acks: int,
):
    ledger, back = run(broker, end, chance, rounds=rounds, acks_a_round=acks)

    verdict = judge(broker.address, "ledger", PARTITIONS, ledger)
    tell(f"{verdict}; first ack after {', '.join(f'{seconds:.2f}' for seconds in back)} s")
    assert verdict.bad == {}, verdict.examples
    assert verdict.acked >= rounds * acks
    assert max(back) <= BACK_WITHIN[broker.name]
