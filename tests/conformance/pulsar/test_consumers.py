"""Consumers by the Python client as it comes from PyPI: each kind of subscription, each way to ack,
to give back and to end."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from datetime import timedelta

import pulsar as lib
import pytest

from tests.brokers import PulsarBroker
from tests.conformance.pulsar.pulsar_admin import Admin
from tests.conformance.pulsar.pulsar_consumers import (
    EARLIEST,
    QUIET_MS,
    WAIT_MS,
    connect,
    data,
    eventually,
    nothing_comes,
    numbers,
    receive,
    send,
    subscribe,
)

KINDS = [
    lib.ConsumerType.Exclusive,
    lib.ConsumerType.Shared,
    lib.ConsumerType.Failover,
    lib.ConsumerType.KeyShared,
]


@pytest.fixture
def client(pulsar: PulsarBroker) -> Iterator[lib.Client]:
    made = connect(pulsar)
    yield made
    made.close()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("batched", [False, True], ids=["single", "batched"])
def test_every_kind_of_subscription_gets_everything_once(client, topic, kind, batched):
    consumer = subscribe(client, topic, kind)
    send(client, topic, *numbers(0, 300), batched=batched)

    found = receive(consumer, 300)
    for message in found:
        consumer.acknowledge(message)

    assert numbers(0, 300) == data(found)
    assert nothing_comes(consumer)


def test_an_exclusive_subscription_has_one_consumer(client, topic):
    subscribe(client, topic)

    with pytest.raises(lib.ConsumerBusy):
        subscribe(client, topic)


def test_types_do_not_mix(client, topic):
    subscribe(client, topic, lib.ConsumerType.Shared)

    with pytest.raises(lib.ConsumerBusy):
        subscribe(client, topic, lib.ConsumerType.Failover)


def test_shared_consumers_have_each_message_once(client, topic):
    consumers = [subscribe(client, topic, lib.ConsumerType.Shared) for _ in range(3)]
    send(client, topic, *numbers(0, 300))

    found = {}
    for at, consumer in enumerate(consumers):
        while True:
            try:
                message = consumer.receive(QUIET_MS)
            except lib.Timeout:
                break
            found.setdefault(message.data(), []).append(at)

    assert sorted(found) == sorted(numbers(0, 300))
    assert all(len(each) == 1 for each in found.values())
    assert {0, 1, 2} == {at for each in found.values() for at in each}


def test_messages_of_a_closed_consumer_are_redelivered_to_another(client, topic):
    first = subscribe(client, topic, lib.ConsumerType.Shared)
    send(client, topic, *numbers(0, 20))
    had = receive(first, 20)
    first.acknowledge(had[3])
    second = subscribe(client, topic, lib.ConsumerType.Shared)

    first.close()

    expected = [each for each in numbers(0, 20) if each != b"3"]
    assert expected == data(receive(second, 19))


def test_a_failover_consumer_takes_over_what_was_not_acked_in_order(client, topic):
    first = subscribe(client, topic, lib.ConsumerType.Failover, consumer_name="a")
    second = subscribe(client, topic, lib.ConsumerType.Failover, consumer_name="b")
    send(client, topic, *numbers(0, 20))
    had = receive(first, 20)
    first.acknowledge_cumulative(had[9])
    assert nothing_comes(second)

    first.close()

    assert numbers(10, 20) == data(receive(second, 10))


def test_keys_stay_in_order_while_consumers_come_and_go(client, topic):
    """Each key's messages are read in the order they were sent, by whomever, once acked."""
    seen: dict[str, list[int]] = {}
    lock = threading.Lock()
    done = threading.Event()

    def read(consumer: lib.Consumer, until: threading.Event) -> None:
        while not until.is_set():
            try:
                message = consumer.receive(50)
            except lib.Timeout:
                continue
            with lock:
                values = seen.setdefault(message.partition_key(), [])
                value = int(message.data())
                if value not in values:  # it may come again where its consumer was closed
                    values.append(value)
            consumer.acknowledge(message)

    def start() -> tuple[lib.Consumer, threading.Event, threading.Thread]:
        consumer = subscribe(client, topic, lib.ConsumerType.KeyShared, receiver_queue_size=20)
        until = threading.Event()
        thread = threading.Thread(target=read, args=(consumer, until))
        thread.start()
        return consumer, until, thread

    running = [start()]
    producer = client.create_producer(topic, batching_enabled=False)
    for number in range(600):
        producer.send_async(b"%d" % number, lambda *_: None, partition_key=f"k{number % 17}")
        if number % 150 == 75:
            producer.flush()
            running.append(start())
        elif number % 150 == 149:
            producer.flush()
            consumer, until, thread = running.pop(0)
            until.set()
            thread.join()
            consumer.close()
    producer.flush()

    assert eventually(lambda: sum(map(len, seen.values())) >= 600)
    done.set()
    for _, until, thread in running:
        until.set()
        thread.join()
    assert all(values == sorted(values) for values in seen.values())
    assert sum(map(len, seen.values())) == 600


def test_a_durable_subscription_goes_on_after_the_last_ack(client, topic):
    consumer = subscribe(client, topic)
    send(client, topic, *numbers(0, 10))
    for message in receive(consumer, 4):
        consumer.acknowledge(message)
    consumer.close()

    consumer = subscribe(client, topic)

    assert numbers(4, 10) == data(receive(consumer, 6))


def test_acks_survive_a_restart(own_pulsar: PulsarBroker, topic):
    client = connect(own_pulsar)
    consumer = subscribe(client, topic, lib.ConsumerType.Shared)
    send(client, topic, *numbers(0, 10))
    found = receive(consumer, 10)
    for at in (0, 1, 4, 7):
        consumer.acknowledge(found[at])
    consumer.close()
    client.close()

    own_pulsar.stop()
    own_pulsar.start()
    client = connect(own_pulsar)
    consumer = subscribe(client, topic, lib.ConsumerType.Shared)

    assert data(receive(consumer, 6)) == [b"2", b"3", b"5", b"6", b"8", b"9"]
    client.close()


def test_new_subscriptions_begin_at_either_end(client, topic):
    send(client, topic, *numbers(0, 3))
    early = subscribe(client, topic, name="early")
    late = subscribe(client, topic, name="late", initial_position=lib.InitialPosition.Latest)
    send(client, topic, *numbers(3, 5))

    assert numbers(0, 5) == data(receive(early, 5))
    assert numbers(3, 5) == data(receive(late, 2))


def test_a_message_that_is_not_processed_comes_again_with_a_count(client, topic):
    consumer = subscribe(
        client, topic, lib.ConsumerType.Shared, negative_ack_redelivery_delay_ms=50
    )
    send(client, topic, b"0", b"1")
    first, second = receive(consumer, 2)
    consumer.acknowledge(second)

    for count in (1, 2):
        consumer.negative_acknowledge(first)
        (first,) = receive(consumer, 1)
        assert (b"0", count) == (first.data(), first.redelivery_count())


def test_all_that_is_not_acked_comes_again_on_demand(client, topic):
    consumer = subscribe(client, topic)
    send(client, topic, *numbers(0, 5))
    found = receive(consumer, 5)
    consumer.acknowledge(found[0])

    consumer.redeliver_unacknowledged_messages()

    assert numbers(1, 5) == data(receive(consumer, 4))


@pytest.mark.parametrize("kind", [lib.ConsumerType.Exclusive, lib.ConsumerType.Shared])
def test_messages_of_a_batch_are_acked_one_by_one(client, topic, kind):
    consumer = subscribe(client, topic, kind, batch_index_ack_enabled=True)
    send(client, topic, *numbers(0, 10), batched=True)
    found = receive(consumer, 10)
    for at in (0, 3, 9):
        consumer.acknowledge(found[at])
    consumer.close()

    consumer = subscribe(client, topic, kind, batch_index_ack_enabled=True)

    expected = [each for each in numbers(0, 10) if each not in {b"0", b"3", b"9"}]
    assert expected == data(receive(consumer, 7))


def test_a_cumulative_ack_inside_of_a_batch(client, topic):
    consumer = subscribe(client, topic, batch_index_ack_enabled=True)
    send(client, topic, *numbers(0, 10), batched=True)
    consumer.acknowledge_cumulative(receive(consumer, 6)[5])
    consumer.close()

    consumer = subscribe(client, topic, batch_index_ack_enabled=True)

    assert numbers(6, 10) == data(receive(consumer, 4))


def test_a_queue_of_size_nought_requests_each_message(client, topic):
    consumer = subscribe(client, topic, lib.ConsumerType.Shared, receiver_queue_size=0)
    send(client, topic, *numbers(0, 5))

    found = data([consumer.receive() for _ in range(2)])  # it takes no time-out
    consumer.close()
    other = subscribe(client, topic, lib.ConsumerType.Shared)

    assert numbers(0, 2) == found
    assert numbers(0, 5) == data(receive(other, 5))


def test_unsubscribing_deletes_the_subscription(client, topic, admin: Admin):
    consumer = subscribe(client, topic)
    send(client, topic, *numbers(0, 3))
    receive(consumer, 3)

    consumer.unsubscribe()
    consumer = subscribe(client, topic)

    assert numbers(0, 3) == data(receive(consumer, 3))


def test_messages_that_fail_too_often_go_to_a_dead_letter_topic(client, topic):
    policy = lib.ConsumerDeadLetterPolicy(
        max_redeliver_count=2,
        dead_letter_topic=f"{topic}-dead",
        initial_subscription_name="watch",
    )
    consumer = subscribe(
        client,
        topic,
        lib.ConsumerType.Shared,
        negative_ack_redelivery_delay_ms=50,
        dead_letter_policy=policy,
    )
    send(client, topic, b"good", b"bad")

    tries = 0
    dead = subscribe(client, f"{topic}-dead", lib.ConsumerType.Shared, name="watch")
    while tries < 3:
        message = consumer.receive(WAIT_MS)
        if message.data() == b"good":
            consumer.acknowledge(message)
        else:
            tries += 1
            consumer.negative_acknowledge(message)

    (found,) = receive(dead, 1)
    assert found.data() == b"bad"
    assert nothing_comes(consumer)


def test_several_topics_and_patterns_are_one_consumer(client, topic):
    names = [f"{topic}-{each}" for each in "abc"]
    for name in names:
        send(client, name, name.encode())
    several = client.subscribe(names[:2], "several", initial_position=EARLIEST)
    pattern = client.subscribe(
        re.compile(f"persistent://public/default/{re.escape(topic)}-.*"),
        "pattern",
        initial_position=EARLIEST,
    )

    assert sorted(name.encode() for name in names[:2]) == sorted(data(receive(several, 2)))
    assert sorted(name.encode() for name in names) == sorted(data(receive(pattern, 3)))


def test_a_partitioned_topic_is_one_consumer(client, topic, admin: Admin):
    admin.make_partitioned(topic, 3)
    producer = client.create_producer(topic, batching_enabled=False)
    consumer = subscribe(client, topic, lib.ConsumerType.Shared)
    for number in range(30):
        producer.send(b"%d" % number, partition_key=f"k{number}")

    found = receive(consumer, 30)
    for message in found:
        consumer.acknowledge(message)

    assert sorted(numbers(0, 30)) == sorted(data(found))


def test_a_message_is_delivered_when_it_is_due(client, topic):
    consumer = subscribe(client, topic, lib.ConsumerType.Shared)
    producer = client.create_producer(topic)
    began = time.monotonic()
    producer.send(b"later", deliver_after=timedelta(milliseconds=1_500))
    producer.send(b"now")

    waits_s = {}
    for _ in range(2):
        message = consumer.receive(WAIT_MS)
        waits_s[message.data()] = time.monotonic() - began

    assert waits_s.keys() == {b"now", b"later"}
    assert waits_s[b"later"] > 1.4


def test_a_listener_is_called_for_each_message(client, topic):
    found: list[bytes] = []

    def received(consumer: lib.Consumer, message: lib.Message) -> None:
        found.append(message.data())
        consumer.acknowledge(message)

    subscribe(client, topic, lib.ConsumerType.Shared, message_listener=received)
    send(client, topic, *numbers(0, 50))

    assert eventually(lambda: len(found) == 50)


def test_messages_are_received_in_batches(client, topic):
    policy = lib.ConsumerBatchReceivePolicy(20, -1, 1_000)
    consumer = subscribe(client, topic, batch_receive_policy=policy)
    send(client, topic, *numbers(0, 20))

    assert numbers(0, 20) == data(consumer.batch_receive())


def test_a_consumer_that_came_before_its_messages_gets_them_as_they_come(client, topic):
    consumer = subscribe(client, topic)
    producer = client.create_producer(topic, batching_enabled=False)

    for number in range(50):
        producer.send(b"%d" % number)
        assert b"%d" % number == consumer.receive(WAIT_MS).data()
