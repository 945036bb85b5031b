"""Power cuts under Pulsar's own client: no message with a receipt and no durable ack is lost.

tests/crash/test_power_cut.py is the same for Kafka's clients, and explains the cut.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from tests.brokers import TrilogueForPulsar
from tests.conformance.pulsar.pulsar_admin import Admin
from tests.crash.faults import CutDisk
from tests.crash.ledger import Ledger
from tests.crash.load import running
from tests.crash.parts import PATIENCE
from tests.crash.pulsar.pulsar_load import client, closing, judge, pulsar_load
from tests.crash.pulsar.test_cursors import (
    backlog,
    number_of,
    one_by_one,
    rest,
    send,
    subscribe,
    wait_until,
)
from tests.crash.test_power_cut import BUSY

PARTITIONS = 4
CUTS = 6

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]


@pytest.fixture
def server(disk: CutDisk) -> Iterator[TrilogueForPulsar]:
    made = TrilogueForPulsar(disk.root / "data", BUSY)
    made.start()
    yield made
    made.kill9()


def test_nothing_with_a_receipt_is_lost_when_the_power_goes(
    server: TrilogueForPulsar,
    disk: CutDisk,
    chance: random.Random,
    report: Callable[[object], None],
):
    admin = Admin(server.http)
    admin.deduplicate("public/default")
    admin.make_partitioned("ledger", PARTITIONS)
    ledger = Ledger(chance.randbytes(8))
    seed = chance.randrange(10**6)
    with running(pulsar_load(server.address, "ledger", PARTITIONS, ledger, seed=seed)):
        for _ in range(CUTS):
            ledger.wait_for_acks(2_000 + chance.randrange(3_000), PATIENCE)
            disk.cut_under(server)
        ledger.wait_for_acks(2_000, PATIENCE)

    verdict, _ = judge(server.address, "ledger", PARTITIONS, ledger)
    report(f"{CUTS} power cuts: {verdict}")
    assert verdict.bad == {}, verdict.examples


def test_acks_that_were_durable_stay_when_the_power_goes(
    server: TrilogueForPulsar, disk: CutDisk, chance: random.Random
):
    count = 3_000
    kept = set(range(count))
    with closing(client(server.address)) as opened:
        consumer = subscribe(opened, "orders")
        send(opened, "orders", count, batching=True)
        for message in one_by_one(consumer, count):
            if chance.random() < 0.6:
                consumer.acknowledge(message)
                kept.discard(number_of(message))
        wait_until("acks", lambda: backlog(server, "orders", "s") == len(kept))
        send(opened, "other", 1, batching=False)
    for _ in range(3):
        disk.cut_under(server)
        with closing(client(server.address)) as opened:
            consumer = subscribe(opened, "orders")
            found = rest(consumer)
            assert sorted(map(number_of, found)) == sorted(kept)
            for message in found[::3]:
                consumer.acknowledge(message)
                kept.discard(number_of(message))
            wait_until("acks", lambda: backlog(server, "orders", "s") == len(kept))
            send(opened, "other", 1, batching=False)
