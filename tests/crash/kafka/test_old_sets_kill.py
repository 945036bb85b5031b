"""Message sets of old clients (Produce v0 to v2), under kill -9 and power cuts.

The topics store the sets as they are, recompressed by `compression.type`, or with the broker's
append time: no acked message is lost, duplicated or reordered, and old and present consumers read
the same.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, TopicPartition

from tests.brokers import Trilogue
from tests.crash.faults import CutDisk, kill
from tests.crash.kafka.old_load import NAMES, STAMPED, SetLoad, judge, make_topics, old_load
from tests.crash.ledger import Ledger
from tests.crash.load import end_under_load, reader, running
from tests.crash.parts import PATIENCE

SETTINGS = {"journal.file-size": "1MiB", "journal.file-age": "1s"}  # many flushes: kills meet them

Report = Callable[[object], None]
End = Callable[[Trilogue], None]


def run(
    server: Trilogue, end: End, chance: random.Random, report: Report, *, rounds: int, acks: int
) -> None:
    """End the server `rounds` times under load, and judge."""
    server.start()
    ledger = Ledger(chance.randbytes(8))
    make_topics(server.address)
    began_ms = int(time.time() * 1000)
    loads = old_load(server.address, ledger, seed=chance.randrange(10**6))
    with running(loads):
        end_under_load(server, end, ledger, chance, rounds=rounds, acks=acks)

    verdict = judge(server.address, ledger)
    by_hand = [load for load in loads if isinstance(load, SetLoad)]
    report(f"{rounds} ends: {verdict}; {sum(each.sets for each in by_hand)} sets by hand")
    assert verdict.bad == {}, verdict.examples
    assert [each.refused for each in by_hand] == [[], []]
    assert {origin.producer for origin in ledger.acked} == {1, 2, 3, 4}
    check_times(server.address, began_ms)


def check_times(address: str, began_ms: int) -> None:
    """The topics that want the broker's times have them, from its first life to its last."""
    for number, name in enumerate(NAMES):
        consumer = reader(address)
        _, high = consumer.get_watermark_offsets(TopicPartition(name, 0), PATIENCE)
        for offset in (0, high - 1):
            consumer.assign([TopicPartition(name, 0, offset)])
            (first, *_) = consumer.consume(1, PATIENCE)
            kind, time_ms = first.timestamp()
            if number in STAMPED:
                assert kind == TIMESTAMP_LOG_APPEND_TIME
                assert began_ms <= time_ms <= time.time() * 1000
            else:
                assert kind in {TIMESTAMP_CREATE_TIME, 0}
        consumer.close()


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("rounds", "acks"), [(3, 600), pytest.param(10, 10_000, marks=pytest.mark.long)]
)
def test_nothing_acked_of_old_message_sets_is_lost_or_there_twice(
    trilogue: Trilogue, chance: random.Random, report: Report, rounds: int, acks: int
):
    trilogue.settings.update(SETTINGS)
    run(trilogue, kill, chance, report, rounds=rounds, acks=acks)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_nothing_acked_of_old_message_sets_is_lost_when_the_power_goes(
    disk: CutDisk, chance: random.Random, report: Report
):
    server = Trilogue(disk.root / "data", SETTINGS)
    try:
        run(server, disk.cut_off, chance, report, rounds=8, acks=2_000)
    finally:
        server.kill9()
