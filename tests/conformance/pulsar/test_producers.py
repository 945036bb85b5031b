"""Names, access, sequences and schemas of producers: for every Pulsar library."""

from __future__ import annotations

import pytest

from tests.conformance.clients.base import Deadline
from tests.conformance.clients.pulsar import ClientError, Connection, Out, PulsarLibrary
from tests.conformance.clients.pulsar_libraries import JAVA, each
from tests.conformance.conftest import unique
from tests.conformance.pulsar.pulsar_admin import Admin
from tests.conformance.pulsar.test_clients import LIBRARIES, numbers, values

RECORD = {
    "type": "record",
    "name": "Person",
    "fields": [
        {"name": "age", "type": ["null", "int"], "default": None},
        {"name": "name", "type": ["null", "string"], "default": None},
    ],
}
OTHER = {
    "type": "record",
    "name": "Person",
    "fields": [{"name": "age", "type": "string"}, {"name": "height", "type": "int"}],
}
PEOPLE = [{"age": 3 * number, "name": f"n{number}"} for number in range(5)]


@LIBRARIES
def test_producers_without_a_name_get_names_of_their_own(connection: Connection, topic: str):
    names = {connection.producer(topic).name for _ in range(3)}

    assert len(names) == 3
    assert all(names)


@LIBRARIES
def test_an_exclusive_producer_keeps_others_out(connection: Connection, topic: str):
    first = connection.producer(topic, access="exclusive")
    first.send(Out(b"1"))

    with pytest.raises(ClientError, match=r"(?i)fenced|exclusive|busy"):
        connection.producer(topic, access="exclusive")
    with pytest.raises(ClientError, match=r"(?i)fenced|exclusive|busy"):
        connection.producer(topic)

    first.close()
    connection.producer(topic, access="exclusive").send(Out(b"2"))
    assert values(connection.reader(topic).receive(2)) == [1, 2]


@LIBRARIES
def test_a_producer_waits_for_its_turn(connection: Connection, topic: str):
    first = connection.producer(topic, access="wait")
    first.send(Out(b"1"))
    waiting = connection.start("producer", topic=topic, access="wait")
    with pytest.raises(TimeoutError):
        waiting.result(1.0)

    first.close()

    second = connection.made_producer(waiting)
    second.send(Out(b"2"))
    assert values(connection.reader(topic).receive(2)) == [1, 2]


@pytest.mark.parametrize("library", each(can="fencing"))
def test_a_producer_can_push_others_out(connection: Connection, topic: str):
    first = connection.producer(topic, access="exclusive", send_timeout_ms=30_000)
    first.send(Out(b"1"))

    second = connection.producer(topic, access="fencing")

    second.send(Out(b"2"))
    with pytest.raises(ClientError):
        first.send(Out(b"late"))
    assert values(connection.reader(topic).receive(2)) == [1, 2]


@pytest.mark.parametrize("batching", [False, True], ids=["single", "batched"])
@LIBRARIES
def test_resent_sequence_ids_are_not_stored_again(
    connection: Connection, library: PulsarLibrary, admin: Admin, batching: bool
):
    """A new producer of the same name resends old sequence ids: only the new ones are stored."""
    if batching and library is not JAVA:
        pytest.skip("names the first sequence id of a batch alone")
    namespace = f"public/{unique('dedup').replace('.', '-')}"
    admin.make_namespace(namespace)
    admin.deduplicate(namespace)
    topic = f"persistent://{namespace}/t"
    producer = connection.producer(topic, name="p", batching=batching)
    producer.send(*(Out(b"%d" % n, sequence=n) for n in range(10)))
    producer.close()

    again = connection.producer(topic, name="p", batching=batching)
    if library is JAVA:  # the others do not return it, or not always
        assert again.sequence == 9
    again.send(*(Out(b"%d" % n, sequence=n) for n in range(5, 10)))
    again.send(*(Out(b"%d" % n, sequence=n) for n in range(10, 15)))

    reader = connection.reader(topic)
    assert values(reader.receive(15)) == [*range(15)]
    assert reader.nothing_comes()


@LIBRARIES
def test_without_the_policy_everything_is_stored(connection: Connection, topic: str):
    for _ in range(2):
        producer = connection.producer(topic, name="p")
        producer.send(*(Out(b"%d" % n, sequence=n) for n in range(3)))
        producer.close()

    assert values(connection.reader(topic).receive(6)) == [0, 1, 2, 0, 1, 2]


@LIBRARIES
def test_properties_of_producers_and_consumers_are_kept(
    connection: Connection, admin: Admin, topic: str
):
    connection.producer(topic, name="p", properties={"who": "writer"})
    connection.consumer(topic, "s", properties={"who": "reader"}, name="c")

    stats = admin.stats(topic)

    (publisher,) = stats["publishers"]  # type: ignore[misc]
    (consumer,) = stats["subscriptions"]["s"]["consumers"]  # type: ignore[index]
    assert (publisher["producerName"], publisher["metadata"]) == ("p", {"who": "writer"})
    assert (consumer["consumerName"], consumer["metadata"]) == ("c", {"who": "reader"})


@LIBRARIES
@pytest.mark.parametrize("batching", [False, True], ids=["single", "batched"])
@pytest.mark.parametrize("kind", ["json", "avro"])
def test_records_come_back_by_their_schema(
    connection: Connection, library: PulsarLibrary, topic: str, kind: str, batching: bool
):
    if kind in library.cannot:
        pytest.skip("no words for it")
    schema = {"type": kind, "definition": RECORD}
    consumer = connection.consumer(topic, "s", earliest=True, schema=schema)
    producer = connection.producer(topic, schema=schema, batching=batching)

    producer.send(*(Out(record=person) for person in PEOPLE))

    assert [read.record for read in consumer.receive(5)] == PEOPLE


@LIBRARIES
def test_a_schema_that_does_not_fit_is_refused(connection: Connection, topic: str):
    connection.producer(topic, schema={"type": "json", "definition": RECORD})

    with pytest.raises(ClientError, match=r"(?i)incompatible|schema"):
        connection.producer(topic, schema={"type": "json", "definition": OTHER})
    with pytest.raises(ClientError, match=r"(?i)incompatible|schema"):
        connection.producer(topic, schema={"type": "string"})


@pytest.mark.parametrize("library", each(of=[JAVA]))
@pytest.mark.parametrize("kind", ["json", "avro"])
def test_java_learns_the_schema_of_a_topic(connection: Connection, topic: str, kind: str):
    """AUTO_CONSUME fetches the schema of each version it receives."""
    producer = connection.producer(topic, schema={"type": kind, "definition": RECORD})
    producer.send(*(Out(record=person) for person in PEOPLE))

    consumer = connection.consumer(topic, "s", earliest=True, schema={"type": "auto"})

    assert [read.record for read in consumer.receive(5)] == PEOPLE


@pytest.mark.parametrize("library", each(of=[JAVA]))
def test_unacked_message_is_redelivered_after_the_ack_timeout(connection: Connection, topic: str):
    """The client requests redelivery: our broker counts and redelivers."""
    consumer = connection.consumer(topic, "s", type="shared", earliest=True, ack_timeout_ms=4_000)
    connection.producer(topic).send(*numbers(0, 2))
    reads = consumer.receive(2)
    consumer.ack(reads[0])

    again = consumer.receive(1)

    assert [(read.value, read.redelivery) for read in again] == [(b"1", 1)]


@LIBRARIES
def test_a_partitioned_topic_can_grow(connection: Connection, admin: Admin, topic: str):
    admin.make_partitioned(topic, 1)
    connection.producer(topic).send(*numbers(0, 3))

    admin.grow(topic, 3)

    producer = connection.producer(topic)
    producer.send(*numbers(3, 12))
    reader = connection.consumer(topic, "s", earliest=True)
    reads = reader.receive(12)
    assert sorted(values(reads)) == [*range(12)]
    assert len({read.topic for read in reads}) == 3
    deadline = Deadline("partitions")
    while len(connection.partitions(topic)) != 3:
        deadline.check()
