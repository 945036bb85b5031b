"""Many clients that request everything and read nothing, alone and in all protocols at once.

Memory of the server stays within its budget (connections.unsent-memory, with what every connection
may have), and well-behaved clients are answered within a second all the time, also one that reads
the same old data.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pulsar
import pytest

from tests.attacks.node import AttackedNode, Report, attack
from tests.attacks.peers import (
    PEEK,
    fetch,
    give_all_permits,
    read_most,
    send_gets,
)
from tests.brokers import make_topic
from tests.conformance.raw import batch_of
from tests.crash.hostile import Healthy, dial
from tests.crash.kafka.test_hostile import Line
from tests.crash.pulsar.pulsar_load import client, closing
from tests.crash.tubemq.tubemq_reader import TubeLine, TubeReader

MIB = 1 << 20
BATCH = 900_000
BATCHES = 66  # 57 MiB: more than one response
MOST_AT_ONCE = [40, pytest.param(200, marks=[pytest.mark.long, pytest.mark.timeout(300)])]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> AttackedNode:
    """A server that is stopped, with data of each protocol in segments alone."""
    made = AttackedNode(tmp_path_factory.mktemp("unread")).start()
    store_data(made)
    assert made.stop() == 0
    return made


def store_data(node: AttackedNode) -> None:
    for topic in ("cold", "tube"):
        make_topic(node.address, topic, 1)
    with Line(node.address) as line:
        batch = batch_of(bytes(BATCH))
        for _ in range(BATCHES):
            assert line.produce("cold", batch) == 0
    writer = TubeReader(node.doors["tubemq-broker"], "c", topic="tube")
    for _ in range(BATCHES):
        writer.send(bytes(1000 << 10))
    writer.line.close()
    with closing(client(node.doors["pulsar"])) as opened:
        producer = opened.create_producer("large", compression_type=pulsar.CompressionType.NONE)
        for _ in range(12):
            producer.send(bytes(5 * MIB - 2_000))


@pytest.fixture
def node(stored: AttackedNode) -> Iterator[AttackedNode]:
    stored.start()
    yield stored
    stored.kill9()


def reader_of_old_data(node: AttackedNode) -> Healthy:
    """Fetches one old batch after the other."""
    line, offsets = Line(node.address), iter(range(1 << 30))

    def request() -> None:
        assert len(line.request(fetch(next(offsets) % BATCHES, 1_000))) > BATCH

    return Healthy(node.pid, request, line.close)


@contextlib.contextmanager
def attack_readers(
    node: AttackedNode, report: Report, *, most_s: float = 8.0
) -> Iterator[contextlib.ExitStack]:
    """An attack beside a client that reads old data."""
    more = {"old data": reader_of_old_data(node)}
    with attack(node, report, most_s=most_s, more=more) as stack:
        yield stack


def fetch_old_data(node: AttackedNode, stack: contextlib.ExitStack, count: int) -> None:
    for _ in range(count):
        stack.enter_context(dial(node.address)).sendall(fetch(0) * 3)


def take_messages(node: AttackedNode, stack: contextlib.ExitStack, count: int) -> None:
    for number in range(count):
        give_all_permits(stack.enter_context(dial(node.doors["pulsar"])), f"slow-{number}")


def get_messages(node: AttackedNode, stack: contextlib.ExitStack, count: int) -> None:
    for number in range(count):
        send_gets(stack.enter_context(TubeLine(node.doors["tubemq-broker"])), number)


def peek_messages(node: AttackedNode, stack: contextlib.ExitStack, count: int) -> None:
    for _ in range(count):
        stack.enter_context(dial(node.doors["http"])).sendall(PEEK)


REQUESTS = [fetch_old_data, take_messages, get_messages, peek_messages]


@pytest.mark.parametrize("request_data", REQUESTS)
def test_120_clients_of_one_protocol(node: AttackedNode, report: Report, request_data):
    with attack_readers(node, report) as stack:
        request_data(node, stack, 120)


@pytest.mark.parametrize("count", MOST_AT_ONCE)
def test_clients_of_all_protocols_at_once(node: AttackedNode, report: Report, count: int):
    with attack_readers(node, report) as stack:
        for request_data in REQUESTS:
            request_data(node, stack, count)


def test_kafka_responses_that_are_read_up_to_the_last_part(node: AttackedNode, report: Report):
    """All of a response is kept until its last part was read: it is one buffer."""
    with attack_readers(node, report, most_s=4.0) as stack:
        peers = [stack.enter_context(dial(node.address)) for _ in range(60)]
        for peer in peers:
            peer.sendall(fetch(0))
        for peer in peers:
            read_most(peer)
