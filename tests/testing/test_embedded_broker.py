"""The broker inside a test, by foreign clients: three protocols, faults, a clock, restarts."""

from __future__ import annotations

import asyncio
import gc
import socket
import sys
import time
import warnings
from importlib.machinery import SourceFileLoader

import httpx
import pulsar
import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.gateway.kafka.rig import batch as record_batch
from trilogue.client.tubemq import Message
from trilogue.client.tubemq.errors import TubeError
from trilogue.client.tubemq.sync import TubeClient
from trilogue.testing import EmbeddedBroker, start_broker
from trilogue.wire.kafka.codec.compile import encoder
from trilogue.wire.kafka.codec.header import RequestHeader, encode_request_header
from trilogue.wire.kafka.codec.schema import table
from trilogue.wire.kafka.metadata.metadata import MetadataRequest, MetadataRequestTopic
from trilogue.wire.kafka.produce import PartitionProduceData, ProduceRequest, TopicProduceData

WAIT_S = 90


@pytest.fixture(scope="module")
def shared():
    with start_broker() as broker:
        yield broker


@pytest.fixture
def broker(shared):
    yield shared
    shared.clear_faults()


def send(broker, topic, *values, **options):
    """The errors of these messages, None where one is acknowledged."""
    errors = []
    producer = Producer({"bootstrap.servers": broker.kafka, "linger.ms": 0, **options})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(WAIT_S) == 0
    return errors


def texts(broker, topic):
    return [message.value for message in broker.messages(topic)]


def probe(broker, path):
    return httpx.get(f"{broker.http}/{path}", timeout=WAIT_S)


def test_clients_of_three_protocols_write_to_one_topic(broker):
    assert send(broker, "mixed", b"kafka") == [None]
    client = pulsar.Client(broker.pulsar)
    try:
        client.create_producer("mixed-partition-0").send(b"pulsar")
    finally:
        client.close()
    with TubeClient(broker.tubemq) as tubemq:
        tubemq.producer("mixed").send(Message("mixed", b"tubemq"))

    assert texts(broker, "mixed") == [b"kafka", b"pulsar", b"tubemq"]
    assert {each.protocol for each in broker.requests} == {"kafka", "pulsar", "tubemq"}
    assert broker.wait_for_request("SEND", topic="mixed").protocol == "pulsar"
    assert broker.wait_for_request("sendMessageP2B", topic="mixed").client_id


def test_an_error_is_retried_by_the_producer_and_stored_once(broker):
    fault = broker.add_fault(
        "error", request="Produce", topic="retried", error="NOT_LEADER_OR_FOLLOWER", count=2
    )

    assert send(broker, "retried", b"one") == [None]

    assert fault.applied == 2
    assert texts(broker, "retried") == [b"one"]


def test_a_final_error_reaches_the_application(broker):
    broker.add_fault("error", request="Produce", topic="denied", error="TOPIC_AUTHORIZATION_FAILED")

    (error,) = send(broker, "denied", b"one")

    assert error.name() == "TOPIC_AUTHORIZATION_FAILED"
    assert texts(broker, "denied") == []


def test_a_lost_response_is_stored_once_by_an_idempotent_producer(broker):
    broker.add_fault("drop-response", request="Produce", topic="lost", seconds=0.05)

    assert send(broker, "lost", b"one", **{"enable.idempotence": True}) == [None]

    assert texts(broker, "lost") == [b"one"]


def test_a_cut_connection_is_opened_again(broker):
    fault = broker.add_fault("cut", request="Produce", topic="cut")

    assert send(broker, "cut", b"one") == [None]

    assert fault.applied == 1
    connections = [
        each.connection
        for each in broker.requests
        if each.name == "Produce" and "cut" in each.topics
    ]
    assert len(set(connections)) == 2


def test_a_broker_that_crashes_at_a_request_comes_back_for_the_next_try(broker):
    assert send(broker, "crashed", b"one") == [None]
    fault = broker.add_fault("crash", request="Produce", topic="crashed")

    assert send(broker, "crashed", b"two") == [None]

    assert fault.applied == 1
    assert texts(broker, "crashed") == [b"one", b"two"]


def test_a_disk_that_fills_at_a_request_is_full_for_all_protocols(broker):
    assert send(broker, "full", b"zero") == [None]
    client = pulsar.Client(broker.pulsar)
    try:
        producer = client.create_producer("full-partition-0")
        producer.send(b"one")
        broker.add_fault("full-disk", request="Produce", topic="full")
        (error,) = send(broker, "full", b"two", retries=0)
        assert error.name() == "KAFKA_STORAGE_ERROR"
        assert send(broker, "full", b"three", retries=0)[0].name() == "KAFKA_STORAGE_ERROR"
        impatient = pulsar.Client(broker.pulsar, operation_timeout_seconds=1)
        with pytest.raises(pulsar.PulsarException):
            impatient.create_producer("full-partition-0")
        impatient.close()
        with TubeClient(broker.tubemq) as tubemq, pytest.raises(TubeError) as refused:
            tubemq.producer("full").send(Message("full", b"tubemq"))
        assert refused.value.code == 503
        assert texts(broker, "full") == [b"zero", b"one"]
        assert probe(broker, "readyz").status_code == 503
        assert "the disk is full" in probe(broker, "readyz").text
        assert probe(broker, "livez").status_code == 200

        broker.free_disk()
        assert probe(broker, "readyz").status_code == 200
        producer.send(b"four")
    finally:
        client.close()
    assert texts(broker, "full") == [b"zero", b"one", b"four"]


def test_a_full_disk_is_freed_when_its_time_is_over(broker):
    broker.add_fault("full-disk", request="Produce", topic="freed", seconds=1000)
    assert send(broker, "freed", b"one", retries=0)[0].name() == "KAFKA_STORAGE_ERROR"

    broker.clock.advance(1001)

    assert send(broker, "freed", b"two") == [None]
    assert texts(broker, "freed") == [b"two"]


def test_a_rule_with_a_name_that_does_not_exist_is_refused(broker):
    with pytest.raises(ValueError, match="Produce"):
        broker.add_fault("cut", request="Produze")
    with pytest.raises(ValueError, match="NOT_LEADER_OR_FOLLOWER"):
        broker.add_fault("error", request="Produce", error="NOT_LEADER")


class Pipeline:
    """A Kafka connection that sends several requests at once, and reads what comes back."""

    def __init__(self, broker):
        host, _, port = broker.kafka.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), WAIT_S)
        self._stream = self._socket.makefile("rb")

    def send(self, *requests):
        """Send requests with the correlation ids 0, 1, 2."""
        frames = bytearray()
        for number, request in enumerate(requests):
            frame = bytearray()
            header = RequestHeader(table(type(request)).key, VERSION, number, "pipeline")
            encode_request_header(frame, header)
            encoder(type(request), VERSION)(request, frame)
            frames += len(frame).to_bytes(4, "big") + frame
        self._socket.sendall(frames)

    def read(self):
        """Return the next response without its correlation id, and that; None at the end."""
        size = self._stream.read(4)
        if not size:
            return None
        frame = self._stream.read(int.from_bytes(size, "big"))
        return int.from_bytes(frame[:4], "big"), frame[4:]

    def close(self):
        self._stream.close()
        self._socket.close()


VERSION = 8


@pytest.fixture
def pipeline(broker):
    connection = Pipeline(broker)
    yield connection
    connection.close()


def produce(topic, acks):
    data = PartitionProduceData(index=0, records=record_batch("v"))
    return ProduceRequest(
        acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )


def test_an_error_takes_its_place_among_the_responses(broker, pipeline):
    """Java's producer would wait for its delivery timeout if one came before its turn."""
    assert send(broker, "ordered", b"one") == [None]
    broker.add_fault("error", request="Produce", topic="ordered", error="NOT_LEADER_OR_FOLLOWER")

    pipeline.send(MetadataRequest(topics=None), produce("ordered", 1), produce("ordered", 1))

    order, bodies = zip(*(pipeline.read() for _ in range(3)), strict=True)
    assert order == (0, 1, 2)
    assert b"ordered" in bodies[0]
    assert len(bodies[1]) == len(bodies[2])
    assert texts(broker, "ordered") == [b"one", b"v"]


def test_no_response_is_awaited_or_sent_for_acks_0(broker, pipeline):
    assert send(broker, "silent", b"one") == [None]
    error = {"error": "NOT_LEADER_OR_FOLLOWER", "topic": "silent"}
    broker.add_fault("error", request="Metadata", **error)
    broker.add_fault("error", request="Produce", skip=1, **error)
    one = [MetadataRequestTopic(name="silent")]

    pipeline.send(produce("silent", 0), MetadataRequest(topics=one))
    assert pipeline.read()[0] == 1

    pipeline.send(produce("silent", 0))
    assert pipeline.read() is None
    assert texts(broker, "silent") == [b"one", b"v"]


def test_a_delay_holds_a_request_back(broker):
    broker.add_fault("delay", request="Produce", topic="slow", seconds=0.5)
    began = time.monotonic()

    assert send(broker, "slow", b"one") == [None]

    assert time.monotonic() - began >= 0.5


def test_an_admin_request_gets_the_error_for_each_topic(broker):
    broker.add_fault("error", request="CreateTopics", error="POLICY_VIOLATION")
    admin = AdminClient({"bootstrap.servers": broker.kafka})

    with pytest.raises(KafkaException, match="POLICY_VIOLATION"):
        admin.create_topics([NewTopic("no", 1)])["no"].result(WAIT_S)


def test_a_pulsar_producer_is_refused_by_rule(broker):
    fault = broker.add_fault("error", request="PRODUCER", topic="busy", error="ProducerBusy")
    client = pulsar.Client(broker.pulsar)
    try:
        with pytest.raises(pulsar.ProducerBusy):
            client.create_producer("busy")
        client.create_producer("busy").send(b"one")
    finally:
        client.close()

    assert fault.applied == 1
    assert texts(broker, "busy") == [b"one"]


def test_a_crash_keeps_what_was_acknowledged_and_the_addresses():
    with start_broker() as broker:
        addresses = broker.kafka, broker.pulsar, broker.tubemq
        assert send(broker, "kept", b"one", b"two") == [None, None]

        broker.crash()
        assert send(broker, "kept", b"three") == [None]
        broker.restart()

        assert texts(broker, "kept") == [b"one", b"two", b"three"]
        assert addresses == (broker.kafka, broker.pulsar, broker.tubemq)


def test_data_of_a_named_directory_stays(tmp_path):
    with start_broker(tmp_path / "data") as broker:
        assert send(broker, "kept", b"one") == [None]
    with start_broker(tmp_path / "data") as broker:
        assert texts(broker, "kept") == [b"one"]


def test_time_that_a_test_lets_pass_ends_a_session():
    with start_broker() as broker:
        assert send(broker, "t", b"one") == [None]
        consumer = Consumer(
            {
                "bootstrap.servers": broker.kafka,
                "group.id": "g",
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 600_000,
                "heartbeat.interval.ms": 300_000,
                "max.poll.interval.ms": 900_000,
            }
        )
        consumer.subscribe(["t"])
        assert consumer.poll(WAIT_S).value() == b"one"
        admin = AdminClient({"bootstrap.servers": broker.kafka})

        def members():
            described = admin.describe_consumer_groups(["g"])["g"].result(WAIT_S)
            return len(described.members)

        assert members() == 1
        broker.clock.advance(601)
        assert members() == 0
        consumer.close()


def test_messages_have_the_time_of_the_clock():
    with start_broker() as broker:
        broker.clock.advance(86_400)
        client = pulsar.Client(broker.pulsar)
        try:
            client.create_producer("t").send(b"one")
            reader = client.create_reader("t", pulsar.MessageId.earliest)
            assert reader.read_next(WAIT_S * 1000).data() == b"one"
        finally:
            client.close()
        requests = [each.name for each in broker.requests]
        assert {"CONNECT", "PRODUCER", "SEND", "SUBSCRIBE", "FLOW"} <= set(requests)


def test_several_brokers_run_at_once(trilogue_brokers):
    one, other = trilogue_brokers(), trilogue_brokers()

    assert send(one, "t", b"one") == [None]
    assert send(other, "t", b"other") == [None]

    assert (texts(one, "t"), texts(other, "t")) == ([b"one"], [b"other"])


def test_a_request_that_does_not_come_is_named_with_those_that_came(broker):
    send(broker, "named", b"one")

    with pytest.raises(TimeoutError, match=r"kafka Produce"):
        broker.wait_for_request("EndTxn", timeout_s=0.05)


def stop_while_clients_connect(iterations):
    """Stop a broker whose loop has run so often since clients connected; return the clients."""
    clients: list[socket.socket] = []
    broker = EmbeddedBroker()
    close = broker._close

    async def connect_and_close() -> None:
        node = broker._node
        assert node is not None
        for address in (broker.kafka, broker.tubemq, *node.gateways.addresses.values()):
            host, _, port = address.rpartition(":")
            clients.append(socket.create_connection((host, int(port)), WAIT_S))
        for _ in range(iterations):
            await asyncio.sleep(0)
        await close()

    broker._close = connect_and_close
    try:
        broker.start()
        assert probe(broker, "livez").status_code == 200  # the HTTP server is loaded
    finally:
        broker.stop()
    return clients


@pytest.mark.parametrize("iterations", range(5))
def test_a_broker_that_stops_while_clients_connect_leaves_nothing_open(iterations):
    """Their connections are in the backlog, accepted, begun or built by then."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        clients = stop_while_clients_connect(iterations)
        gc.collect()
    for client in clients:
        client.close()

    assert [str(each.message) for each in caught if "unclosed" in str(each.message)] == []


def test_pytest_does_not_compile_the_brokers_modules():
    """Its finder would: with the plugin, all modules of this package count as tests."""
    loader = sys.modules[EmbeddedBroker.__module__].__spec__.loader

    assert type(loader) is SourceFileLoader
