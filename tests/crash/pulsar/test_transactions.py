"""Read, transform, write in transactions of Go's client while the broker is killed: exactly once.

A worker acks what it read and sends its result in one transaction. Where a request fails it goes on
with what it is sent next: a transaction whose outcome it does not know was either committed, then
its input is not sent again, or it is aborted by its time-out.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import brokers
from tests.brokers import TrilogueForPulsar
from tests.conformance.clients.pulsar import ClientError, Connection, Out, Receiver, connect
from tests.conformance.clients.pulsar_libraries import GO_CLIENT
from tests.conformance.pulsar.pulsar_admin import Admin
from tests.waiting import wait_until

SETTINGS = {"journal.file-age": "1s"}  # many flushes, so that kills meet them
TIMEOUT_MS = 3_000
BATCH = 5
FAILED_S = 0.2


@pytest.fixture
def server(tmp_path: Path) -> Iterator[TrilogueForPulsar]:
    made = brokers.TrilogueForPulsar(tmp_path / "data", SETTINGS)
    made.start()
    yield made
    made.kill9()


class Worker(threading.Thread):
    """Moves messages from `source` to `target`, BATCH in one transaction."""

    def __init__(self, connection: Connection, chance: random.Random) -> None:
        super().__init__(daemon=True)
        self.stopped = threading.Event()
        self.outcomes: Counter[str] = Counter()
        self._connection = connection
        self._chance = chance
        self._consumer = self._subscribe()
        self._producer = connection.producer("target", send_timeout_ms=0)

    def _subscribe(self) -> Receiver:
        return self._connection.consumer(
            "source", "s", type="shared", earliest=True, nack_ms=100, queue=2 * BATCH
        )

    def run(self) -> None:
        while not self.stopped.is_set():
            try:
                self._move()
            except ClientError:
                self.outcomes["failed"] += 1
                time.sleep(FAILED_S)

    def _move(self) -> None:
        reads = self._consumer.receive_up_to(BATCH, 0.2)
        if not reads:
            return
        try:
            transaction = self._connection.begin(TIMEOUT_MS)
            values = [Out(read.value) for read in reads]
            self._producer.send(*values, transaction=transaction)
            self._consumer.ack(*reads, transaction=transaction)
            if self._chance.random() < 0.2:
                transaction.abort()
                self.outcomes["aborted"] += 1
            else:
                transaction.commit()
                self.outcomes["committed"] += 1
        except ClientError:
            self._consumer.nack(*reads)
            raise


def backlog(admin: Admin) -> int:
    """How many messages of the source are not acked."""
    subscriptions: Any = admin.stats("source")["subscriptions"]
    return int(subscriptions["s"]["msgBacklog"])


@pytest.mark.full
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("count", "kills"),
    [
        pytest.param(400, 3, id="quick"),
        pytest.param(3_000, 15, id="long", marks=pytest.mark.long),
    ],
)
def test_messages_moved_in_transactions_arrive_exactly_once(
    server: TrilogueForPulsar, chance: random.Random, count: int, kills: int
):
    url = f"pulsar://{server.address}"
    Admin(server.http).deduplicate("public/default")  # of messages that a client sends again
    sender = connect(GO_CLIENT, url)
    wanted = [b"%d" % number for number in range(count)]
    # Not batched: without batch index acks Go's client acks batches whole, in one transaction.
    sender.producer("source").send(*map(Out, wanted))
    clients = [connect(GO_CLIENT, url, transactions=True, timeout_ms=5_000) for _ in range(2)]
    workers = [Worker(each, random.Random(chance.random())) for each in clients]
    for each in workers:
        each.start()

    for _ in range(kills):
        time.sleep(chance.uniform(0.3, 2.0))
        server.kill9()
        server.start()
    admin = Admin(server.http)
    wait_until(lambda: backlog(admin) == 0, lambda: backlog(admin), 200)
    for each in workers:
        each.stopped.set()
        each.join()

    found = [read.value for read in sender.consumer("target", "r", earliest=True).receive(count)]
    assert Counter(found) == Counter(wanted)
    outcomes = sum((each.outcomes for each in workers), Counter())
    assert outcomes["committed"] >= count / BATCH / 2
    assert outcomes["aborted"] > 0
    for each in (sender, *clients):
        each.close()
