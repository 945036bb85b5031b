"""TubeMQ's own Java client goes on while nodes give slots away and one is lost.

Its Go client is not to be had through Go's module proxy (docs/reference/conformance.md).
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.conformance.clients.base import Deadline
from tests.conformance.clients.pulsar import ClientError, Process
from tests.conformance.clients.tubemq import (
    Consumer,
    Out,
    Producer,
    Pushed,
    connect,
    driver_process,
)
from tests.crash.cluster.test_live_clients import (
    PARTITIONS,
    WAIT_S,
    Report,
    addresses,
    interrupt,
    stop,
)
from tests.crash.load import create_topic, full_read, running
from tests.crash.parts import Part
from tests.node.cluster.shared_cluster import SharedCluster
from tests.server import Server

TOPIC = "tubes"
AT_ONCE = 100

pytestmark = [pytest.mark.long, pytest.mark.java, pytest.mark.timeout(900)]


@pytest.fixture
def driver() -> Iterator[Process]:
    made = driver_process()
    yield made
    made.stop()


class PullTail(Part):
    """A pull consumer. `went_back`: what came although its confirmation was accepted before."""

    def __init__(self, consumer: Consumer) -> None:
        super().__init__()
        self.consumer = consumer
        self.seen: Counter[bytes] = Counter()
        self.went_back: list[bytes] = []
        self.refused: Counter[int] = Counter()  # confirmations, by code
        self._confirmed: set[bytes] = set()

    def run(self) -> None:
        while not self.stopping.is_set():
            with suppress(ClientError):
                self.step()
            time.sleep(0.005)  # by design: the pace of the reader

    def step(self) -> None:
        got = self.consumer.get()
        bodies = [each.body for each in got.messages]
        self.seen.update(bodies)
        self.went_back += [each for each in bodies if each in self._confirmed]
        if not got.context:
            return
        confirmed = self.consumer.confirm(got)
        if confirmed.ok:
            self._confirmed.update(bodies)
        else:
            self.refused[confirmed.code] += 1


class PushTail(Part):
    """A push consumer, which confirms what its listener has taken."""

    def __init__(self, consumer: Pushed) -> None:
        super().__init__()
        self.consumer = consumer
        self.seen: Counter[bytes] = Counter()

    def run(self) -> None:
        while not self.stopping.is_set():
            self.seen.update(each.body for each in self.consumer.taken_up_to(AT_ONCE, 0.2))


class Sender:
    """Sends until everything is accepted; each attempt has a body of its own."""

    def __init__(self, producer: Producer) -> None:
        self.producer = producer
        self.acked: set[bytes] = set()
        self.refused: Counter[int] = Counter()
        self._numbers = itertools.count()

    def send(self, count: int) -> None:
        deadline = Deadline(f"{count} messages are accepted", WAIT_S)
        while count:
            deadline.check(self.refused)
            bodies = [b"%d" % next(self._numbers) for _ in range(count)]
            results = self.producer.send(*(Out(TOPIC, each) for each in bodies))
            for body, result in zip(bodies, results, strict=True):
                if result.ok:
                    self.acked.add(body)
                    count -= 1
                else:
                    self.refused[result.code] += 1


def test_java_producers_and_both_kinds_of_consumers_go_on(
    cluster: SharedCluster, nodes: list[Server], driver: Process, report: Report
):
    """What was accepted is there and comes to both groups, and confirmed messages come once."""
    create_topic(nodes[0].kafka, TOPIC, PARTITIONS)
    client = connect(driver, addresses(nodes, "tubemq-master"))
    producer = client.producer(TOPIC)
    producer.wait_for(TOPIC)
    sender = Sender(producer)
    pulls = [PullTail(client.pull("pulling", {TOPIC: []})) for _ in range(2)]
    push = PushTail(client.push("pushing", {TOPIC: []}))

    def advance() -> None:
        sender.send(AT_ONCE)
        deadline = Deadline("both groups have all messages", WAIT_S)
        while True:
            pulled = pulls[0].seen.keys() | pulls[1].seen.keys()
            if sender.acked <= pulled and sender.acked <= push.seen.keys():
                return
            deadline.check(
                (sorted(sender.acked - pulled)[:5], len(sender.acked - push.seen.keys()))
            )
            threading.Event().wait(0.05)

    with running(list[threading.Thread]([*pulls, push])):
        advance()
        took = interrupt(cluster, nodes, advance)
    there = {
        value or b""
        for got in full_read(nodes[0].kafka, TOPIC, PARTITIONS).values()
        for _, value in got
    }
    again = sum(count - 1 for each in (*pulls, push) for count in each.seen.values())
    refused = [dict(sender.refused), *(dict(each.refused) for each in pulls)]
    report(f"{len(sender.acked)} accepted: {took}; {again} came again; refused: {refused}")
    assert sender.acked <= there
    assert [each.went_back for each in pulls] == [[], []]
    stop(nodes)
