"""TubeMQ's own Java client sends: the same rules on ours and on the real server."""

from __future__ import annotations

import pytest

from tests.brokers import TubeBroker
from tests.conformance.clients.tubemq import Client, ClientError, Out, connect

pytestmark = pytest.mark.java
MIB = 1 << 20
SUCCESS = 200
NO_TOPIC, NO_BODY, NOT_PUBLISHED, NO_PARTITION, TOO_LONG = 441, 442, 443, 444, 445


def numbers(topic: str, first: int, last: int, **words: object) -> list[Out]:
    return [Out(topic, b"%d" % number, **words) for number in range(first, last)]  # type: ignore[arg-type]


def some(topic: str) -> list[Out]:
    return [
        Out(topic, b"plain"),
        Out(topic, b"typed", type="kind", time="202611211200"),
        Out(topic, b"\x00\xff" * 300, attributes={"a": "1", "b": "zwei ü"}),
        Out(topic, b"both", attributes={"k": "v"}, type="other", time="199912312359"),
        Out(topic, b"x" * 20_000),
        Out(topic, b"y" * MIB),
    ]


@pytest.mark.parametrize("at_once", [False, True], ids=["sync", "async"])
def test_messages_come_back_as_they_were(tube: TubeBroker, tube_client: Client, at_once: bool):
    """Bodies, attributes, types and times."""
    topic = tube.topic()
    sent = some(topic)
    producer = tube_client.producer(topic)
    results = producer.sent(*sent, at_once=at_once)

    reads = tube_client.pull(f"of_{topic}", {topic: []}).receive(len(sent))

    by_body = {read.body: read for read in reads}
    assert set(by_body) == {out.body for out in sent}
    for out in sent:
        read = by_body[out.body]
        assert read.own_attributes == out.attributes
        assert (read.type, read.time) == (out.type, out.time)
    assert {read.id for read in reads} == {result.id for result in results}


def test_sends_that_wait_for_each_other_keep_their_order(tube: TubeBroker, tube_client: Client):
    topic = tube.topic()
    producer = tube_client.producer(topic)
    results = producer.sent(*numbers(topic, 0, 100))

    reads = tube_client.pull(f"of_{topic}", {topic: []}).receive(100)

    assert [int(read.body) for read in reads] == [*range(100)]
    assert len({result.id for result in results}) == 100
    offsets = [result.offset for result in results]
    assert offsets == sorted(set(offsets))


def test_two_thousand_sends_on_their_way_are_all_taken(tube: TubeBroker, tube_client: Client):
    topic = tube.topic()
    producer = tube_client.producer(topic)

    results = producer.sent(*numbers(topic, 0, 2000), at_once=True)

    reads = tube_client.pull(f"of_{topic}", {topic: []}).receive(2000)
    assert {int(read.body) for read in reads} == {*range(2000)}
    assert len({result.id for result in results}) == 2000


def test_partitions_take_turns(tube: TubeBroker, tube_client: Client):
    topic = tube.topic(4)
    producer = tube_client.producer(topic)
    results = producer.sent(*numbers(topic, 0, 40))

    reads = tube_client.pull(f"of_{topic}", {topic: []}).receive(40)

    by_partition = {f"1:{topic}:{number}" for number in range(4)}
    assert {read.partition for read in reads} == by_partition
    assert {result.partition for result in results} == {0, 1, 2, 3}
    for partition in by_partition:
        bodies = [int(read.body) for read in reads if read.partition == partition]
        assert bodies == sorted(bodies)


def test_client_refuses_invalid_messages(tube: TubeBroker, tube_client: Client):
    topic = tube.topic()
    producer = tube_client.producer(topic)

    results = producer.send(
        Out(topic, b""), Out(topic, b"z" * (MIB + 1)), Out("", b"nowhere"), Out(topic, b"good")
    )

    assert [result.code for result in results] == [NO_BODY, TOO_LONG, NO_TOPIC, SUCCESS]


def test_an_unknown_topic_has_nowhere_to_go(tube: TubeBroker, tube_client: Client):
    topic = tube.topic()
    producer = tube_client.producer(topic, "nobody_made_this")
    assert producer.accepts(topic)
    assert not producer.accepts("nobody_made_this")

    results = producer.send(Out("nobody_made_this", b"lost"), Out(topic, b"kept"))

    assert [result.code for result in results] == [NO_PARTITION, SUCCESS]


def test_send_to_an_unpublished_topic_is_refused(tube: TubeBroker, tube_client: Client):
    topic, other = tube.topic(), tube.topic()
    producer = tube_client.producer(topic)
    (refused,) = producer.send(Out(other, b"too early"))
    assert refused.code == NOT_PUBLISHED

    assert producer.publish(other) == {other}

    producer.sent(Out(other, b"now"), Out(topic, b"as before"))


def test_a_producer_wants_a_master(tube_client: Client):
    elsewhere = connect(tube_client.driver, "127.0.0.1:1", attempts=1)

    with pytest.raises(ClientError, match="Create Producer failure"):
        elsewhere.producer("orders")
