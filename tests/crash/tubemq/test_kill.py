"""Kill, stop or freeze the broker under TubeMQ's clients.

A TubeMQ client does not resend a message that may have arrived, so no message is duplicated either;
the messages of one producer are stored in its partition in the order in which they were sent.
"""

from __future__ import annotations

import random
import re
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from tests.brokers import TrilogueForTubeMQ
from tests.crash.faults import kill, stop
from tests.crash.ledger import Ledger
from tests.crash.load import ACKS_WITHIN, end_under_load, running
from tests.crash.tubemq.tubemq_load import TOPICS, judge, make_topics, tube_load

SETTINGS = {"journal.file-age": "1s", "tubemq.hold": "200ms"}  # many flushes: kills meet them

Report = Callable[[object], None]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[TrilogueForTubeMQ]:
    made = TrilogueForTubeMQ(tmp_path / "data", SETTINGS)
    made.start()
    make_topics(made)
    yield made
    made.kill9()


def run(
    server: TrilogueForTubeMQ,
    end: Callable[[TrilogueForTubeMQ], None],
    chance: random.Random,
    *,
    rounds: int,
    acks_a_round: int,
) -> tuple[Ledger, list[float]]:
    """End the server `rounds` times under load; the ledger and the times to the first answer."""
    ledger = Ledger(chance.randbytes(8))
    loads = tube_load(server, ledger, seed=chance.randrange(10**6))
    with running(loads):
        first_acks_s = end_under_load(server, end, ledger, chance, rounds=rounds, acks=acks_a_round)
        if end is stop:
            assert frames_read(server) <= 2, "an orderly end leaves nothing to recover"
    assert loads[-1].went_back == [], "what was confirmed came again"
    assert len(ledger.tailed) > 0
    return ledger, first_acks_s


def set_topic(server: TrilogueForTubeMQ, topic: str, name: str, value: str) -> None:
    admin = AdminClient({"bootstrap.servers": server.doors["kafka"], "log_level": 2})
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    wanted = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    (done,) = admin.incremental_alter_configs([wanted]).values()
    done.result(ACKS_WITHIN)


def frames_read(server: TrilogueForTubeMQ) -> int:
    """How many frames of the journal it had to read at its last start."""
    (reported,) = re.findall(r"log\.recovered.*?frames\D+(\d+)", server.output)
    return int(reported)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("end", "rounds", "acks"),
    [
        pytest.param(kill, 4, 1_000, id="kill9"),
        pytest.param(stop, 3, 600, id="sigterm"),
        pytest.param(kill, 15, 20_000, id="kill9-long", marks=pytest.mark.long),
        pytest.param(stop, 6, 20_000, id="sigterm-long", marks=pytest.mark.long),
    ],
)
def test_nothing_tubemq_clients_sent_is_lost_repeated_or_moved(
    *,
    server: TrilogueForTubeMQ,
    chance: random.Random,
    report: Report,
    end: Callable[[TrilogueForTubeMQ], None],
    rounds: int,
    acks: int,
):
    ledger, first_acks_s = run(server, end, chance, rounds=rounds, acks_a_round=acks)

    verdict = judge(server, ledger)
    report(f"{verdict}; first answer after {', '.join(f'{each:.2f}' for each in first_acks_s)} s")
    assert verdict.bad == {}, verdict.examples
    assert verdict.acked >= rounds * acks


def test_loss_of_messages_acknowledged_from_memory_leaves_no_gap(
    server: TrilogueForTubeMQ, chance: random.Random, report: Report
):
    """Topics with flush=interval: a kill takes the last interval's messages, and nothing else.

    What a reader has seen was on the disk, so it stays; what is left of a producer is in order.
    """
    for topic in TOPICS:
        set_topic(server, topic, "flush", "interval")
    ledger = Ledger(chance.randbytes(8))
    with running(tube_load(server, ledger, seed=chance.randrange(10**6))):
        for _ in range(2):
            ledger.wait_for_acks(1_000, ACKS_WITHIN)
            server.kill9()
            server.start()
        ledger.wait_for_acks(1_000, ACKS_WITHIN)

    verdict = judge(server, ledger)
    report(verdict)
    assert set(verdict.bad) <= {"lost"}, verdict.examples
    assert verdict.lost < verdict.acked // 2


@pytest.mark.parametrize("seconds", [2, pytest.param(15, marks=pytest.mark.long)])
def test_a_server_that_was_frozen_goes_on_as_if_nothing_had_been(
    server: TrilogueForTubeMQ, chance: random.Random, report: Report, seconds: int
):
    ledger = Ledger(chance.randbytes(8))
    with running(tube_load(server, ledger, seed=1)):
        ledger.wait_for_acks(500, ACKS_WITHIN)
        server.running.signal(signal.SIGSTOP)
        threading.Event().wait(seconds)
        server.running.signal(signal.SIGCONT)
        ledger.wait_for_acks(500, ACKS_WITHIN)

    verdict = judge(server, ledger)
    report(verdict)
    assert verdict.bad == {}, verdict.examples
