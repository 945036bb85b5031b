"""Kill or stop the broker under load: no acked message is lost, duplicated, reordered or changed.

The time from the start to the first ack is reported and has no bound but the wait for the acks.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.brokers import Broker
from tests.crash.ledger import Ledger
from tests.crash.load import create_topic, end_under_load, judge, mixed_load, running

PARTITIONS = 4

Report = Callable[[object], None]


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
    with running(loads):
        first_acks_s = end_under_load(broker, end, ledger, chance, rounds=rounds, acks=acks_a_round)
    return ledger, first_acks_s


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
    report: Report,
    end: Callable[[Broker], None],
    rounds: int,
    acks: int,
):
    ledger, first_acks_s = run(broker, end, chance, rounds=rounds, acks_a_round=acks)

    verdict = judge(broker.address, "ledger", PARTITIONS, ledger)
    report(
        f"{verdict}; first ack after {', '.join(f'{seconds:.2f}' for seconds in first_acks_s)} s"
    )
    assert verdict.bad == {}, verdict.examples
    assert verdict.acked >= rounds * acks
