"""What Pulsar consumers have acked is not delivered again, whatever ended the server.

An ack has no answer here, so a test knows that one is durable by the receipt of a message that was
sent after the broker had taken the ack: facts and entries stand in the journal in their order.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pulsar
import pytest

from tests.brokers import TrilogueForPulsar
from tests.conformance.pulsar.pulsar_admin import Admin
from tests.crash.faults import kill, stop
from tests.crash.pulsar.pulsar_load import client, closing
from tests.waiting import wait_until

SHARED, EXCLUSIVE = pulsar.ConsumerType.Shared, pulsar.ConsumerType.Exclusive
EARLIEST = pulsar.InitialPosition.Earliest
WITHIN_S = 60.0
QUIET_MS = 1_500  # nothing more comes

Ends = Callable[[TrilogueForPulsar], object]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[TrilogueForPulsar]:
    made = TrilogueForPulsar(tmp_path / "data", {"journal.file-age": "500ms"})
    made.start()
    yield made
    made.kill9()


def backlog(server: TrilogueForPulsar, topic: str, subscription: str) -> int:
    stats = Admin(server.http).stats(topic)
    return stats["subscriptions"][subscription]["msgBacklog"]


def send(opened: pulsar.Client, topic: str, count: int, *, batching: bool) -> None:
    producer = opened.create_producer(
        topic,
        batching_enabled=batching,
        batching_max_messages=50,
        block_if_queue_full=True,
        batching_max_publish_delay_ms=2,
    )
    for number in range(count):
        producer.send_async(str(number).encode(), None)
    producer.flush()
    producer.close()


def one_by_one(consumer: pulsar.Consumer, count: int) -> Iterator[pulsar.Message]:
    """Who takes 50,000 and acks none gets no more."""
    for _ in range(count):
        yield consumer.receive(int(WITHIN_S * 1_000))


def receive(consumer: pulsar.Consumer, count: int) -> list[pulsar.Message]:
    return list(one_by_one(consumer, count))


def rest(consumer: pulsar.Consumer, count: int = 0) -> list[pulsar.Message]:
    """All that comes until nothing does, and `count` messages however long they take."""
    found = receive(consumer, count)
    while True:
        try:
            found.append(consumer.receive(QUIET_MS))
        except pulsar.Timeout:
            return found


def number_of(message: pulsar.Message) -> int:
    return int(message.data())


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("end", "batching", "count"),
    [
        pytest.param(kill, True, 3_000, id="kill9, batches"),
        pytest.param(stop, False, 3_000, id="sigterm, singles"),
        pytest.param(kill, False, 60_000, id="kill9, many singles", marks=pytest.mark.long),
        pytest.param(stop, True, 60_000, id="sigterm, many batches", marks=pytest.mark.long),
    ],
)
def test_thousands_of_holes_are_still_there(
    server: TrilogueForPulsar, chance: random.Random, end: Ends, batching: bool, count: int
):
    """Each message acked or not at random; flushes come in between, and a second life acks more."""
    kept = set(range(count))
    with closing(client(server.address)) as opened:
        consumer = subscribe(opened, "orders")
        send(opened, "orders", count, batching=batching)
        for message in one_by_one(consumer, count):
            if chance.random() < 0.6:
                consumer.acknowledge(message)
                kept.discard(number_of(message))
        wait_until(lambda: backlog(server, "orders", "s") == len(kept), "acks")
        send(opened, "other", 1, batching=False)
    for _ in range(2):
        end(server)
        server.start()
        assert backlog(server, "orders", "s") == len(kept)
        with closing(client(server.address)) as opened:
            consumer = subscribe(opened, "orders")
            found = rest(consumer, len(kept))
            assert sorted(map(number_of, found)) == sorted(kept)
            for message in found[::2]:
                consumer.acknowledge(message)
                kept.discard(number_of(message))
            wait_until(lambda: backlog(server, "orders", "s") == len(kept), "acks")
            send(opened, "other", 1, batching=False)


def subscribe(opened: pulsar.Client, topic: str, **more: object) -> pulsar.Consumer:
    return opened.subscribe(
        topic,
        "s",
        consumer_type=SHARED,
        initial_position=EARLIEST,
        batch_index_ack_enabled=True,
        receiver_queue_size=5_000,
        **more,
    )


def test_a_cumulative_ack_and_a_seek_are_still_there(server: TrilogueForPulsar):
    with closing(client(server.address)) as opened:
        consumer = opened.subscribe("orders", "s", EXCLUSIVE, initial_position=EARLIEST)
        send(opened, "orders", 100, batching=False)
        messages = receive(consumer, 100)
        consumer.acknowledge_cumulative(messages[59])
        wait_until(lambda: backlog(server, "orders", "s") == 40, "acks")
        send(opened, "other", 1, batching=False)
        kill(server)
        server.start()
        other = opened.subscribe("orders", "t", EXCLUSIVE, initial_position=EARLIEST)
        receive(other, 100)
    with closing(client(server.address)) as opened:
        consumer = opened.subscribe("orders", "s", EXCLUSIVE, initial_position=EARLIEST)
        assert [number_of(each) for each in rest(consumer, 40)] == list(range(60, 100))
        consumer.seek(messages[9].message_id())  # its answer: it is durable
        kill(server)
        server.start()
    with closing(client(server.address)) as opened:
        consumer = opened.subscribe("orders", "s", EXCLUSIVE, initial_position=EARLIEST)
        assert [number_of(each) for each in rest(consumer, 90)][-90:] == list(range(10, 100))


def test_a_subscription_is_there_and_holds_messages_right_after_its_answer(
    server: TrilogueForPulsar,
):
    """A subscription is created or deleted; a kill after the response changes nothing."""
    for number in range(5):
        with closing(client(server.address)) as opened:
            opened.subscribe("orders", f"s{number}", SHARED)
            kill(server)
        server.start()
    with closing(client(server.address)) as opened:
        send(opened, "orders", 3, batching=False)
        for number in range(5):
            consumer = opened.subscribe("orders", f"s{number}", SHARED)
            assert [number_of(each) for each in receive(consumer, 3)] == [0, 1, 2]
            if number % 2:
                consumer.unsubscribe()
    kill(server)
    server.start()
    subscriptions = Admin(server.http).stats("orders")["subscriptions"]
    assert sorted(subscriptions) == ["s0", "s2", "s4"]


def test_acks_under_kills_bring_nothing_back_that_was_durable(
    server: TrilogueForPulsar, chance: random.Random
):
    """A consumer that acks everything while the server is killed: little comes twice, all comes."""
    count = 4_000
    seen: list[int] = []
    with closing(client(server.address)) as opened:
        consumer = subscribe(opened, "orders")
        send(opened, "orders", count, batching=True)
        for _ in range(3):
            for message in receive(consumer, count // 4 - chance.randrange(200)):
                consumer.acknowledge(message)
                seen.append(number_of(message))
            kill(server)
            server.start()
        while backlog(server, "orders", "s"):
            for message in rest(consumer):
                consumer.acknowledge(message)
                seen.append(number_of(message))
    assert set(seen) == set(range(count))
