"""What producers of PyPI's pulsar-client (C++ inside) may count on."""

from __future__ import annotations

import threading
import urllib.request
from collections.abc import Iterator
from contextlib import suppress

import pulsar as library
import pytest

from tests.brokers import PulsarBroker
from tests.conformance.pulsar.pulsar_admin import Admin

Mode = library.ProducerAccessMode
QUIET = library.ConsoleLogger(library.LoggerLevel.Error)
PATIENCE_S = 90


@pytest.fixture
def client(pulsar: PulsarBroker) -> Iterator[library.Client]:
    made = connect(pulsar)
    yield made
    made.close()


def connect(broker: PulsarBroker) -> library.Client:
    return library.Client(
        f"pulsar://{broker.address}", operation_timeout_seconds=PATIENCE_S, logger=QUIET
    )


def read(client: library.Client, topic: str, count: int) -> list[bytes]:
    reader = client.create_reader(topic, library.MessageId.earliest)
    found = [reader.read_next(PATIENCE_S * 1_000).data() for _ in range(count)]
    assert not reader.has_message_available()
    reader.close()
    return found


def test_names_are_given_once_and_kept_for_one(client, topic):
    first = client.create_producer(topic)
    second = client.create_producer(topic)
    assert first.producer_name() != second.producer_name()

    client.create_producer(topic, producer_name="mine")
    with pytest.raises(library.ProducerBusy):
        client.create_producer(topic, producer_name="mine")


def test_one_connection_has_hundreds_of_producers(client, topic):
    """The gate of 500 producers in a second is a benchmark; here they all work."""
    producers = [client.create_producer(f"{topic}-{number % 50}") for number in range(200)]

    for producer in producers:
        producer.send(b"x")

    assert len({producer.producer_name() for producer in producers}) == 200


def test_send_receipts_are_in_order_and_have_stored_message_ids(client, topic):
    producer = client.create_producer(topic, batching_enabled=False)
    done = threading.Event()
    ids: list[tuple[int, int]] = []

    def confirmed(result, message_id):
        assert result == library.Result.Ok
        ids.append((message_id.ledger_id(), message_id.entry_id()))
        if len(ids) == 500:
            done.set()

    for number in range(500):
        producer.send_async(b"%d" % number, confirmed)
    assert done.wait(PATIENCE_S)

    assert ids == sorted(ids)
    assert len(set(ids)) == 500
    assert read(client, topic, 500) == [b"%d" % number for number in range(500)]


def test_a_large_message_goes_in_chunks(client, topic):
    producer = client.create_producer(topic, chunking_enabled=True, batching_enabled=False)
    large = bytes(range(256)) * 50_000

    producer.send(large)

    assert read(client, topic, 1) == [large]


def test_client_refuses_a_message_above_the_limit_of_the_broker(client, topic):
    producer = client.create_producer(topic, batching_enabled=False)

    with pytest.raises(library.MessageTooBig):
        producer.send(b"x" * ((5 << 20) + 1))
    producer.send(b"x" * ((5 << 20) - 1_000))


def test_sent_messages_are_counted(pulsar, client, topic):
    if pulsar.name != "trilogue":
        pytest.skip("metrics of ours")
    before = counted(pulsar)
    producer = client.create_producer(topic, batching_enabled=False)
    for _ in range(3):
        producer.send(b"x")

    after = counted(pulsar)

    name = "trilogue_pulsar_messages_in_total"
    assert after[name] - before[name] == 3
    assert after["trilogue_pulsar_producers"] == before["trilogue_pulsar_producers"] + 1
    assert after['trilogue_requests_total{api="PRODUCER",door="pulsar"}'] >= 1
    assert after['trilogue_connections{door="pulsar"}'] >= 1


def counted(pulsar: PulsarBroker) -> dict[str, float]:
    with urllib.request.urlopen(f"{pulsar.http}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in pairs}


def test_exclusive_producers_keep_others_out(client, topic):
    holder = client.create_producer(topic, access_mode=Mode.Exclusive)

    with pytest.raises(library.ProducerFenced):
        client.create_producer(topic, access_mode=Mode.Exclusive)
    with pytest.raises(library.ProducerBusy):
        client.create_producer(topic)
    holder.send(b"mine")
    holder.close()

    client.create_producer(topic).send(b"ours")


def test_wait_for_exclusive_producer_follows_the_holder(client, topic):
    holder = client.create_producer(topic, access_mode=Mode.Exclusive)
    made: list[library.Producer] = []

    def wait() -> None:
        made.append(client.create_producer(topic, access_mode=Mode.WaitForExclusive))

    waiting = threading.Thread(target=wait)
    waiting.start()
    holder.send(b"first")
    holder.close()
    waiting.join(PATIENCE_S)

    made[0].send(b"second")
    assert read(client, topic, 2) == [b"first", b"second"]


def test_fencing_takes_the_topic_from_its_holder(client, topic):
    holder = client.create_producer(topic, access_mode=Mode.Exclusive, send_timeout_millis=5_000)
    taker = client.create_producer(topic, access_mode=Mode.ExclusiveWithFencing)

    taker.send(b"mine")
    with pytest.raises(library.PulsarException):
        holder.send(b"not any more")

    assert read(client, topic, 1) == [b"mine"]


def test_a_terminated_topic_takes_no_more(client, admin: Admin, topic):
    producer = client.create_producer(topic, send_timeout_millis=PATIENCE_S * 1_000)
    producer.send(b"last")
    admin.terminate(topic)

    with pytest.raises(library.PulsarException):
        producer.send(b"too late")
    assert read(client, topic, 1) == [b"last"]


def test_an_unloaded_topic_is_found_again(client, admin: Admin, topic):
    """Pulsar protocol, CloseProducer from the broker: look up again; the TCP connection stays."""
    producer = client.create_producer(topic, batching_enabled=False)
    producer.send(b"before")

    admin.request("PUT", f"{admin.path(topic)}/unload")
    producer.send(b"after")

    assert read(client, topic, 2) == [b"before", b"after"]


def test_a_producer_goes_on_after_a_restart_without_loss_or_repeats(own_pulsar, topic):
    """Unacknowledged messages are sent again; receipts of what was durable are not lost."""
    client = connect(own_pulsar)
    producer = client.create_producer(topic, batching_enabled=False, send_timeout_millis=0)
    name = producer.producer_name()
    for number in range(50):
        producer.send(b"%d" % number)

    own_pulsar.kill9()
    done = threading.Event()
    producer.send_async(b"50", lambda *_: done.set())
    own_pulsar.start()

    assert done.wait(PATIENCE_S)
    assert read(client, topic, 51) == [b"%d" % number for number in range(51)]
    assert producer.producer_name() == name
    assert client.create_producer(topic).producer_name() != name
    client.close()


def test_stop_acknowledges_messages_in_flight(own_pulsar, topic):
    client = connect(own_pulsar)
    producer = client.create_producer(
        topic, batching_enabled=False, send_timeout_millis=0, max_pending_messages=3_000
    )
    confirmed: list[object] = []
    done = threading.Event()

    def count(result, _message_id):
        confirmed.append(result)
        if len(confirmed) == 2_000:
            done.set()

    for number in range(1_000):
        producer.send_async(b"%d" % number, count)
    assert own_pulsar.stop() == 0
    for number in range(1_000, 2_000):
        producer.send_async(b"%d" % number, count)
    own_pulsar.start()

    assert done.wait(PATIENCE_S)
    assert set(confirmed) == {library.Result.Ok}
    assert read(client, topic, 2_000) == [b"%d" % number for number in range(2_000)]
    client.close()


def test_an_epoch_is_not_given_twice_after_a_restart(own_pulsar, topic):
    """PIP-68: the one that was fenced before the restart is fenced after it."""
    client = connect(own_pulsar)
    holder = client.create_producer(topic, access_mode=Mode.Exclusive, send_timeout_millis=5_000)
    holder.send(b"first")

    own_pulsar.kill9()
    own_pulsar.start()
    other = connect(own_pulsar)
    taker = other.create_producer(topic, access_mode=Mode.ExclusiveWithFencing)
    taker.send(b"taken")

    with pytest.raises(library.PulsarException):
        holder.send(b"fenced")
    assert read(other, topic, 2) == [b"first", b"taken"]
    with suppress(library.AlreadyClosed):  # of a fenced producer the client's close may raise it
        client.close()
    other.close()
