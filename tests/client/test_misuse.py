"""Mistakes of the first hour with the three clients: an error at once, that says what to do.

None of these may wait for ever: a client in another event loop, in a forked process, at the port
of another protocol; values and addresses of a wrong type.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest

from tests.server import Server
from trilogue.client import kafka, pulsar, tubemq
from trilogue.client.errors import ClientError, InvalidOption, InvalidOptionType, ServerUnreachable
from trilogue.client.kafka import sync as kafka_sync
from trilogue.client.pulsar import sync as pulsar_sync
from trilogue.client.tubemq import sync as tube_sync

LIMIT_S = 120
TOPIC = "first"
OTHER_LOOP = r"make a client in each asyncio\.run"
CLIENTS = [kafka.KafkaClient, pulsar.PulsarClient, tubemq.TubeClient]


class Client(NamedTuple):
    """One of the three clients, with calls that all of them have."""

    address: str
    asynchronous: Callable[..., Any]
    synchronous: Callable[..., Any]
    producer: Callable[[Any], Any]
    consumer: Callable[[Any], Any]
    send: Callable[[Any, Any], Any]
    receive: Callable[[Any], Any]


@pytest.fixture(scope="module")
def topic(server: Server) -> Server:
    with kafka_sync.KafkaClient(server.kafka) as client:
        client.admin.create_topic(TOPIC)
    return server


@pytest.fixture(params=["kafka", "pulsar", "tubemq"])
def client(request: pytest.FixtureRequest, topic: Server) -> Client:
    if request.param == "kafka":
        return Client(
            topic.kafka, kafka.KafkaClient, kafka_sync.KafkaClient,
            lambda made: made.producer(), lambda made: made.consumer(TOPIC, group="g"),
            lambda producer, value: producer.send(TOPIC, value), lambda reader: reader.get(),
        )  # fmt: skip
    if request.param == "pulsar":
        return Client(
            topic.pulsar, pulsar.PulsarClient, pulsar_sync.PulsarClient,
            lambda made: made.producer(TOPIC), lambda made: made.subscribe(TOPIC, "s"),
            lambda producer, value: producer.send(value), lambda reader: reader.receive(),
        )  # fmt: skip
    return Client(
        topic.doors["tubemq-master"], tubemq.TubeClient, tube_sync.TubeClient,
        lambda made: made.producer(TOPIC), lambda made: made.consumer(TOPIC, group="g"),
        lambda producer, value: producer.send(tubemq.Message(TOPIC, value)),
        lambda reader: reader.get(),
    )  # fmt: skip


def in_time(work: Callable[[], Any]) -> Any:
    """Call it in a thread, so that what waits for ever fails the test."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as problem:  # noqa: BLE001 - raised below
            found.append(problem)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(LIMIT_S)
    assert found, "the call waits for ever"
    if isinstance(found[0], BaseException):
        raise found[0]
    return found[0]


def test_a_client_raises_in_another_event_loop(client: Client):
    made = client.asynchronous(client.address)

    async def first() -> tuple[Any, Any]:
        producer = await client.producer(made)
        consumer = await client.consumer(made)
        await client.send(producer, b"a")
        return producer, consumer

    async def call(work: Callable[[], Awaitable[Any]]) -> None:
        with pytest.raises(ClientError, match=OTHER_LOOP):
            await work()

    with asyncio.Runner() as runner:
        producer, consumer = runner.run(first())
        for work in (
            lambda: client.producer(made),
            lambda: client.consumer(made),
            lambda: client.send(producer, b"b"),
            lambda: client.receive(consumer),
            producer.flush,
            producer.close,
            consumer.close,
            made.close,
        ):
            in_time(lambda work=work: asyncio.run(call(work)))
        runner.run(made.close())


def test_administration_raises_in_another_event_loop(topic: Server):
    made = kafka.KafkaClient(topic.kafka)

    async def list_again() -> None:
        with pytest.raises(ClientError, match=OTHER_LOOP):
            await made.admin.list_topics()

    with asyncio.Runner() as runner:
        runner.run(made.admin.list_topics())
        in_time(lambda: asyncio.run(list_again()))
        runner.run(made.close())


def test_a_synchronous_client_raises_in_a_forked_process(client: Client):
    with client.synchronous(client.address) as made, client.producer(made) as producer:
        client.send(producer, b"a")
        reading, writing = os.pipe()
        child = os.fork()
        if not child:  # only what a fork may do: no pytest, no exception out of here
            os.close(reading)
            try:
                client.send(producer, b"b")
                os.write(writing, b"sent")
            except ClientError as problem:
                producer.close()
                made.close()
                os.write(writing, str(problem).encode())
            finally:
                os._exit(0)
        os.close(writing)
        try:
            with os.fdopen(reading, "rb") as pipe:
                report = in_time(pipe.read)
        finally:
            os.kill(child, 9)
            os.waitpid(child, 0)

        assert b"make a client in each process" in report
        client.send(producer, b"c")  # the parent's goes on


@pytest.mark.parametrize("value", [5, 1.5, {"a": 1}, ["a"]], ids=["int", "float", "dict", "list"])
def test_a_value_without_bytes_of_its_own_is_refused(client: Client, value: Any):
    """bytes(5) would be five zeros."""
    with (
        client.synchronous(client.address) as made,
        client.producer(made) as producer,
        pytest.raises(InvalidOptionType, match="is bytes or a text"),
    ):
        client.send(producer, value)


def test_a_text_is_sent_as_utf_8(client: Client):
    with client.synchronous(client.address) as made, client.producer(made) as producer:
        client.send(producer, "Tromsø")
        client.send(producer, bytearray(b"bytes"))

    assert tubemq.Message(TOPIC, "Tromsø").body == "Tromsø".encode()


def test_names_and_values_of_attributes_and_properties_are_texts(topic: Server):
    number: Any = {"n": 5}
    with pulsar_sync.PulsarClient(topic.pulsar) as client:
        producer = client.producer(TOPIC)
        with pytest.raises(InvalidOptionType, match=r"properties=\{'n': 5\}"):
            producer.send(b"a", properties={"n": 5})
        with pytest.raises(InvalidOptionType, match="key=5"):
            producer.send(b"a", key=5)
    with pytest.raises(InvalidOptionType, match=r"attributes=\{'n': 5\}"):
        tubemq.Message(TOPIC, b"a", number).attribute_text()


@pytest.mark.parametrize("name", [5, None, b"orders"], ids=["int", "None", "bytes"])
def test_a_topic_is_a_text(topic: Server, name: Any):
    with (
        kafka_sync.KafkaClient(topic.kafka) as kafka_client,
        kafka_client.producer() as producer,
        pytest.raises(InvalidOptionType, match="a topic is a text"),
    ):
        producer.send(name, b"a")
    with pulsar_sync.PulsarClient(topic.pulsar) as pulsar_client:
        for call in (pulsar_client.producer, pulsar_client.reader):
            with pytest.raises(InvalidOptionType, match="a topic is a text"):
                call(name)
    with tube_sync.TubeClient(topic.tubemq) as client:
        with pytest.raises(InvalidOptionType, match="a topic is a text"):
            client.producer(name)
        with pytest.raises(InvalidOptionType, match="a topic is a text"):
            client.consumer([name], group="g")
    with pytest.raises(InvalidOptionType, match="a topic is a text"):
        tubemq.Message(name, b"a")


def test_bytes_in_the_place_of_a_tubemq_message_are_refused(topic: Server):
    bare: Any = b"a"
    with tube_sync.TubeClient(topic.tubemq) as client:
        producer = client.producer(TOPIC)
        with pytest.raises(InvalidOptionType, match=r"a Message\(topic, body\)"):
            producer.send(bare)


def test_a_header_of_kafka_may_be_a_text_and_no_number(topic: Server):
    number: Any = {"n": 5}
    with kafka_sync.KafkaClient(topic.kafka) as client, client.producer() as producer:
        producer.send(TOPIC, b"a", headers={"from": "web"})
        with pytest.raises(InvalidOptionType, match="header n=5"):
            producer.send(TOPIC, b"a", headers=number)


def test_one_refused_message_leaves_the_futures_of_the_others(topic: Server):
    refused: Any = 5
    with pulsar_sync.PulsarClient(topic.pulsar) as client:
        producer = client.producer(TOPIC)
        futures = producer.submit_many([(b"a", {}), (refused, {}), (b"b", {})])
        producer.flush()

    assert isinstance(futures[1].exception(LIMIT_S), InvalidOptionType)
    assert futures[0].result(LIMIT_S) < futures[2].result(LIMIT_S)


@pytest.mark.parametrize("address", ["", "host:port", "host:99999", ":9092"])
@pytest.mark.parametrize("make", CLIENTS)
def test_an_address_that_is_none_is_refused_when_the_client_is_made(make: Any, address: str):
    with pytest.raises(InvalidOption):
        make(address)


@pytest.mark.parametrize("address", [None, 9092, ["127.0.0.1:9092"]], ids=["None", "int", "list"])
@pytest.mark.parametrize("make", CLIENTS)
def test_an_address_is_a_text(make: Any, address: Any):
    with pytest.raises(InvalidOptionType, match="is a text"):
        make(address)


@pytest.mark.parametrize("make", [kafka.KafkaClient, tubemq.TubeClient])
def test_an_address_with_a_scheme_is_refused(make: Any):
    with pytest.raises(InvalidOption, match="without a scheme"):
        make("pulsar://127.0.0.1:6650")


@pytest.mark.parametrize("listener", ["kafka", "pulsar", "tubemq-broker"])
def test_a_tubemq_client_at_another_listener_does_not_wait(topic: Server, listener: str):
    """Its registration would be tried for half a minute."""
    with tube_sync.TubeClient(topic.doors[listener], register_timeout_s=10 * LIMIT_S) as client:
        expected = tubemq.NotMaster if listener == "tubemq-broker" else ServerUnreachable
        with pytest.raises(expected, match=r"a client needs a master|check that the server"):
            in_time(lambda: client.producer(TOPIC))
