"""Readers, seeks and tables by the Python client as it comes from PyPI."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pulsar as lib
import pytest

from tests.brokers import PulsarBroker
from tests.conformance.pulsar.pulsar_consumers import (
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


@pytest.fixture
def client(pulsar: PulsarBroker) -> Iterator[lib.Client]:
    made = connect(pulsar)
    yield made
    made.close()


@pytest.mark.parametrize("batched", [False, True], ids=["single", "batched"])
def test_a_seek_to_a_message(client, topic, batched):
    consumer = subscribe(client, topic)
    send(client, topic, *numbers(0, 10), batched=batched)
    found = receive(consumer, 10)

    consumer.seek(found[4].message_id())
    assert numbers(5, 10) == data(receive(consumer, 5))
    consumer.seek(lib.MessageId.earliest)
    assert numbers(0, 10) == data(receive(consumer, 10))
    consumer.seek(lib.MessageId.latest)
    assert nothing_comes(consumer)


def test_a_seek_that_includes_the_message(client, topic):
    consumer = subscribe(client, topic, start_message_id_inclusive=True)
    send(client, topic, *numbers(0, 10))
    found = receive(consumer, 10)

    consumer.seek(found[4].message_id())

    assert numbers(4, 10) == data(receive(consumer, 6))


def test_a_seek_to_a_time(client, topic):
    consumer = subscribe(client, topic)
    send(client, topic, *numbers(0, 3))
    threading.Event().wait(0.05)
    time_ms = int(time.time() * 1_000)
    send(client, topic, *numbers(3, 6))
    receive(consumer, 6)

    consumer.seek(time_ms)
    assert numbers(3, 6) == data(receive(consumer, 3))
    consumer.seek(time_ms - 60_000)
    assert numbers(0, 6) == data(receive(consumer, 6))


@pytest.mark.parametrize("batched", [False, True], ids=["single", "batched"])
@pytest.mark.parametrize("inclusive", [False, True], ids=["after", "with"])
def test_a_reader_begins_after_a_message_or_with_it(client, topic, batched, inclusive):
    ids = send(client, topic, *numbers(0, 10), batched=batched)

    reader = client.create_reader(topic, ids[4], start_message_id_inclusive=inclusive)
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(WAIT_MS))

    assert numbers(4 if inclusive else 5, 10) == data(found)


def test_a_reader_knows_whether_there_is_more(client, topic):
    reader = client.create_reader(topic, lib.MessageId.earliest)
    assert not reader.has_message_available()
    send(client, topic, *numbers(0, 3))

    assert reader.has_message_available()
    assert numbers(0, 3) == data([reader.read_next(WAIT_MS) for _ in range(3)])
    assert not reader.has_message_available()
    reader.seek(lib.MessageId.earliest)
    assert reader.read_next(WAIT_MS).data() == b"0"


def test_a_reader_of_what_comes_from_now_on(client, topic):
    send(client, topic, b"before")
    reader = client.create_reader(topic, lib.MessageId.latest)
    assert not reader.has_message_available()

    send(client, topic, b"after")

    assert reader.read_next(WAIT_MS).data() == b"after"


def test_the_last_message_id(client, topic):
    consumer = subscribe(client, topic)
    *_, last = send(client, topic, *numbers(0, 5))
    assert last == consumer.get_last_message_id()

    send(client, topic, *numbers(0, 5), batched=True)
    found = consumer.get_last_message_id()

    assert (last.ledger_id(), 4) == (found.ledger_id(), found.batch_index())
    assert found.entry_id() > last.entry_id()


def test_compacted_topics_are_read_by_readers(client, topic):
    send(client, topic, *numbers(0, 3), partition_key="k")

    reader = client.create_reader(topic, lib.MessageId.earliest, is_read_compacted=True)

    assert reader.read_next(WAIT_MS).data() == b"0"


def test_a_table_view_has_the_last_value_of_each_key(client, topic):
    producer = client.create_producer(topic, batching_enabled=False)
    for number in range(20):
        producer.send(b"%d" % number, partition_key=f"k{number % 4}")
    view = client.create_table_view(topic)

    assert {key: view.get(key) for key in ("k0", "k1", "k2", "k3")} == {
        "k0": b"16",
        "k1": b"17",
        "k2": b"18",
        "k3": b"19",
    }
    producer.send(b"20", partition_key="k0")
    assert eventually(lambda: view.get("k0") == b"20")
    view.close()
