"""Transactions of Pulsar's Java and Go clients, and Kafka's view of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.brokers import PulsarBroker
from tests.conformance.clients.pulsar import ClientError, Connection, PulsarLibrary, connect
from tests.conformance.clients.pulsar_libraries import GO_CLIENT, each
from tests.conformance.pulsar.pulsar_admin import Admin
from tests.conformance.pulsar.test_clients import numbers, values

LIBRARIES = pytest.mark.parametrize("library", each(can="transactions"))


@pytest.fixture
def connection(pulsar: PulsarBroker, library: PulsarLibrary) -> Iterator[Connection]:
    if library is GO_CLIENT and pulsar.name == "pulsar":
        pytest.skip("Go's client puts no TxnID into messages: a real broker shows aborted ones")
    made = connect(library, f"pulsar://{pulsar.address}", transactions=True)
    yield made
    made.close()


@LIBRARIES
@pytest.mark.parametrize("batching", [False, True], ids=["single", "batched"])
def test_messages_are_seen_when_their_transaction_commits(
    connection: Connection, topic: str, batching: bool
):
    consumer = connection.consumer(topic, "s", earliest=True)
    producer = connection.producer(topic, batching=batching, send_timeout_ms=0)
    committed, aborted = connection.begin(), connection.begin()
    producer.send(*numbers(0, 5), transaction=committed)
    producer.send(*numbers(5, 10), transaction=aborted)
    # Go's producer sends what comes after a transactional batch in that transaction too.
    connection.producer(topic).send(*numbers(10, 12))
    consumer.nothing_comes()

    aborted.abort()
    consumer.nothing_comes()
    committed.commit()

    # Java's client holds messages back until the partition is added, and sends the newest first.
    assert sorted(values(consumer.receive(7))) == [0, 1, 2, 3, 4, 10, 11]
    assert consumer.nothing_comes()


@LIBRARIES
@pytest.mark.parametrize("kind", ["exclusive", "shared", "key_shared"])
@pytest.mark.parametrize("batching", [False, True], ids=["single", "batched"])
def test_acks_take_effect_when_their_transaction_commits(
    connection: Connection, topic: str, batching: bool, kind: str
):
    words = {"earliest": True, "type": kind, "batch_index": True, "queue": 100}
    consumer = connection.consumer(topic, "s", **words)
    producer = connection.producer(topic, batching=batching, by_key=kind == "key_shared")
    producer.send(*numbers(0, 4, key="k"))
    reads = consumer.receive(4)
    aborted = connection.begin()
    consumer.ack(*reads, transaction=aborted)
    aborted.abort()

    again = consumer.receive(4)
    assert values(again) == [0, 1, 2, 3]
    committed = connection.begin()
    consumer.ack(*again, transaction=committed)
    committed.commit()

    assert consumer.nothing_comes()
    consumer.close()
    assert connection.consumer(topic, "s", **words).nothing_comes()


@pytest.mark.parametrize("library", each(can="cumulative transactions"))
@pytest.mark.parametrize("kind", ["exclusive", "shared", "key_shared"])
@pytest.mark.parametrize("batching", [False, True], ids=["single", "batched"])
def test_an_abort_counts_as_a_redelivery(
    connection: Connection, topic: str, batching: bool, kind: str
):
    """In shared subscriptions, of the entries that were acked; of a batch as a whole."""
    words = {"earliest": True, "type": kind, "batch_index": True, "queue": 100}
    consumer = connection.consumer(topic, "s", **words)
    producer = connection.producer(topic, batching=batching, by_key=kind == "key_shared")
    producer.send(*numbers(0, 4, key="k"))
    reads = consumer.receive(4)
    acked = {each.entry for each in reads[:2]}  # one entry, where the batch was not cut
    count = 4 if kind == "exclusive" else sum(each.entry in acked for each in reads)
    for number in range(3):
        assert {each.redelivery for each in reads} == {0 if kind == "exclusive" else number}
        aborted = connection.begin()
        consumer.ack(*reads[:2], transaction=aborted)
        aborted.abort()
        reads = consumer.receive(count)


@pytest.mark.parametrize("library", each(can="cumulative transactions"))
@pytest.mark.parametrize("kind", ["shared", "key_shared"])
def test_an_abort_gives_back_entries_in_their_order(connection: Connection, topic: str, kind: str):
    """One of which all was acked, and one of which a part was."""
    words = {"earliest": True, "type": kind, "batch_index": True, "queue": 100}
    consumer = connection.consumer(topic, "s", **words)
    producer = connection.producer(topic, batching=True, by_key=kind == "key_shared")
    producer.send(*numbers(0, 1, key="k"))
    producer.send(*numbers(1, 4, key="k"))
    reads = consumer.receive(4)
    aborted = connection.begin()
    consumer.ack(*reads[:2], transaction=aborted)
    aborted.abort()

    assert values(consumer.receive(4)) == [0, 1, 2, 3]


@LIBRARIES
def test_acks_of_an_open_transaction_keep_messages_from_others(connection: Connection, topic: str):
    consumer = connection.consumer(topic, "s", earliest=True, type="shared")
    connection.producer(topic).send(*numbers(0, 4))
    reads = consumer.receive(4)
    transaction = connection.begin()
    consumer.ack(*reads[:2], transaction=transaction)
    consumer.close()

    other = connection.consumer(topic, "s", earliest=True, type="shared")

    assert values(other.receive(2)) == [2, 3]
    assert other.nothing_comes()
    transaction.abort()
    assert values(other.receive(2)) == [0, 1]


@LIBRARIES
def test_a_message_is_acked_in_one_transaction(connection: Connection, topic: str):
    consumer = connection.consumer(topic, "s", earliest=True, type="shared")
    connection.producer(topic).send(*numbers(0, 1))
    (read,) = consumer.receive(1)
    first, second = connection.begin(), connection.begin()
    consumer.ack(read, transaction=first)

    with pytest.raises(ClientError, match=r"(?i)conflict|acked by another"):
        consumer.ack(read, transaction=second)

    first.commit()


@LIBRARIES
def test_a_transaction_that_takes_too_long_is_aborted(connection: Connection, topic: str):
    consumer = connection.consumer(topic, "s", earliest=True)
    producer = connection.producer(topic, send_timeout_ms=0)
    transaction = connection.begin(timeout_ms=3_000)
    producer.send(*numbers(0, 1), transaction=transaction)
    producer.send(*numbers(1, 2))

    assert values(consumer.receive(1)) == [1]
    with pytest.raises(ClientError):
        transaction.commit()


@pytest.mark.parametrize("library", each(can="cumulative transactions"))
def test_a_cumulative_ack_is_given_back_by_an_abort(
    pulsar: PulsarBroker, connection: Connection, topic: str
):
    if pulsar.name == "pulsar":
        pytest.skip("a real broker does not send them again by itself")
    consumer = connection.consumer(topic, "s", earliest=True)
    connection.producer(topic).send(*numbers(0, 4))
    reads = consumer.receive(4)
    aborted = connection.begin()
    consumer.ack(reads[2], cumulative=True, transaction=aborted)
    aborted.abort()

    again = consumer.receive(4)
    assert values(again) == [0, 1, 2, 3]
    committed = connection.begin()
    consumer.ack(again[2], cumulative=True, transaction=committed)
    committed.commit()

    consumer.close()
    assert values(connection.consumer(topic, "s", earliest=True).receive(1)) == [3]


@LIBRARIES
def test_partitions_of_a_topic_take_part_each(connection: Connection, admin: Admin, topic: str):
    admin.make_partitioned(topic, 3)
    consumer = connection.consumer(topic, "s", earliest=True, type="shared")
    producer = connection.producer(topic, send_timeout_ms=0)
    for first, action in ((0, "commit"), (6, "abort"), (12, "commit")):
        transaction = connection.begin()
        producer.send(*numbers(first, first + 6), transaction=transaction)
        transaction.call(action)

    reads = consumer.receive(12)
    assert sorted(values(reads)) == [*range(6), *range(12, 18)]
    assert {read.partition for read in reads} == {0, 1, 2}
    transaction = connection.begin()
    consumer.ack(*reads, transaction=transaction)
    transaction.commit()
    consumer.close()
    assert connection.consumer(topic, "s", earliest=True, type="shared").nothing_comes()
