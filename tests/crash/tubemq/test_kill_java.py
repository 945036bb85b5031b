"""Kill the broker under TubeMQ's own Java client: no acknowledged message is lost or moved.

The client does not retry its sends by callback, and those of one producer leave in order.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path

import pytest

from tests.brokers import TrilogueForTubeMQ
from tests.conformance.clients.pulsar import ClientError
from tests.conformance.clients.tubemq import Client, Out, Producer, connect, driver_process
from tests.crash.ledger import Ledger, Origin, decode
from tests.crash.load import SIZES, end_under_load, running
from tests.crash.parts import Part
from tests.crash.tubemq.test_kill import SETTINGS, kill
from tests.crash.tubemq.tubemq_load import PLACES, ClientTail, full_read, judge, make_topics

pytestmark = [pytest.mark.long, pytest.mark.java, pytest.mark.timeout(300)]
KILLS = 8
BATCH = 100

Report = Callable[[object], None]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[TrilogueForTubeMQ]:
    made = TrilogueForTubeMQ(tmp_path / "data", SETTINGS)
    made.start()
    make_topics(made)
    yield made
    made.kill9()


@pytest.fixture
def client(server: TrilogueForTubeMQ) -> Iterator[Client]:
    driver = driver_process()
    yield connect(driver, server.address)
    driver.stop()


class JavaLoad(Part):
    """A producer that sends a hundred messages at once, waits for all, and goes on."""

    def __init__(self, producer: Producer, ledger: Ledger, *, number: int, place: int) -> None:
        super().__init__()
        self.producer, self.ledger, self.number, self.place = producer, ledger, number, place
        self.random = random.Random(number)
        self.refused = 0

    def run(self) -> None:
        while not self.stopping.wait(0.01):
            made = [
                self.ledger.next_value(self.number, self.place, self.random.choice(SIZES))
                for _ in range(BATCH)
            ]
            outs = [Out(PLACES[self.place][0], value) for _, value in made]
            self.take(
                [origin for origin, _ in made], self.producer.start_sending(*outs, at_once=True)
            )

    def take(self, origins: list[Origin], sending: Future[object]) -> None:
        for origin, result in zip(origins, self.producer.results(sending), strict=True):
            if result.ok:
                self.ledger.ack(origin, result.offset)
            else:
                self.refused += 1


class JavaTail(Part):
    """A pull consumer: what it has seen must be there in the end."""

    def __init__(self, client: Client) -> None:
        super().__init__()
        self.consumer = client.pull("java-tail", {topic: [] for topic, _ in PLACES[:2]})
        self.seen: list[bytes] = []

    def run(self) -> None:
        while not self.stopping.is_set():
            with suppress(ClientError):
                got = self.consumer.get()
                self.seen += [read.body for read in got.messages]
                if got.context:
                    self.consumer.confirm(got)
            time.sleep(0.005)  # by design: the pace of the reader


def test_messages_acknowledged_to_the_java_client_are_not_lost_or_moved(
    server: TrilogueForTubeMQ, client: Client, chance: random.Random, report: Report
):
    ledger = Ledger(chance.randbytes(8))
    topics = [PLACES[place][0] for place in (0, 1)]
    producers = [client.producer(topic) for topic in topics]
    for producer, topic in zip(producers, topics, strict=True):
        producer.wait_for(topic)
    loads = [JavaLoad(each, ledger, number=at, place=at) for at, each in enumerate(producers)]
    tail, java_tail = ClientTail(server.address, ledger), JavaTail(client)
    with running([*loads, tail, java_tail]):
        end_under_load(server, kill, ledger, chance, rounds=KILLS, acks=1_000)

    verdict = judge(server, ledger)
    there = {value for got in full_read(server).values() for _, value in got}
    refused = sum(load.refused for load in loads)
    report(f"{KILLS} kills: {verdict}; {refused} not taken; {len(java_tail.seen)} seen by Java")
    assert verdict.bad == {}, verdict.examples
    assert tail.went_back == []
    assert all(decode(ledger.run, value) is not None for value in java_tail.seen)
    assert java_tail.seen
    assert set(java_tail.seen) <= there
