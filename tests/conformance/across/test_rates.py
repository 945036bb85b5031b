"""Rates and quotas hold within 5 %, and clients without one are not slowed by them.

What is published is counted by the broker's clock: topics take the time of the append. What is
delivered is counted when it arrives, on the same machine. Counting begins after the burst of the
first second; a client has always more to send or to read than its rate allows.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pulsar
import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.conformance.clients import DEADLINE
from tests.conformance.kafka.test_quotas import set_quota
from tests.conformance.pulsar.pulsar_admin import Admin
from tests.server import Server, start_server

WINDOW_S = 20
SETTLE_S = 3  # the burst, and the first wait
RUN_S = WINDOW_S + 2 * SETTLE_S
SIZE = 5_000  # of a message, so that metadata, which counts, is little of it
BATCH = 4 * SIZE
RATE = 100  # messages a second
TOLERANCE = 0.05
FREE_RATE = 50
PUBLISH = ("publishThrottlingRateInMsg", "publishThrottlingRateInByte")
DISPATCH = ("dispatchThrottlingRateInMsg", "dispatchThrottlingRateInByte")

Send = Callable[[], None]

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("rates")
    with start_server(root / "data", listen={"pulsar": "127.0.0.1:0"}) as made:
        yield made


@pytest.fixture
def kafka(server: Server) -> str:
    return server.doors["kafka"]


@pytest.fixture
def pulsar_client(server: Server) -> Iterator[pulsar.Client]:
    client = pulsar.Client(
        f"pulsar://{server.doors['pulsar']}",
        logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull),
    )
    yield client
    client.close()


def create(kafka: str, topic: str) -> None:
    new = NewTopic(topic, 1, 1, config={"message.timestamp.type": "LogAppendTime"})
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_topics([new])[topic].result(DEADLINE)


def append_times(kafka: str, topic: str) -> list[tuple[float, int]]:
    """The time of the append of each message in seconds, and its size."""
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": "reader", "client.id": "reader"})
    partition = TopicPartition(topic, 0, 0)
    _, end = consumer.get_watermark_offsets(partition, DEADLINE)
    consumer.assign([partition])
    found = []
    while len(found) < end:
        message = consumer.poll(DEADLINE)
        assert message is not None
        assert not message.error()
        kind, stamp = message.timestamp()
        assert kind == TIMESTAMP_LOG_APPEND_TIME
        found.append((stamp / 1000, len(message.value())))
    consumer.close()
    return found


def rate_of(times: list[tuple[float, int]]) -> tuple[float, float]:
    """Messages and bytes a second, within the window after the burst."""
    first = times[0][0] + SETTLE_S
    inside = [size for at, size in times if first <= at < first + WINDOW_S]
    assert times[-1][0] >= first + WINDOW_S, "the run was shorter than the window"
    return len(inside) / WINDOW_S, sum(inside) / WINDOW_S


@contextmanager
def another_client(kafka: str, topic: str) -> Iterator[None]:
    """A producer without a quota that sends at an even pace; none of its messages may wait."""
    throttled: list[float] = []
    sent: list[int] = [0]
    producer = Producer(
        {
            "bootstrap.servers": kafka, "client.id": "free", "linger.ms": 0,
            "throttle_cb": lambda event: throttled.append(event.throttle_time),
        }
    )  # fmt: skip
    over = threading.Event()

    def produce() -> None:
        while not over.wait(1 / FREE_RATE):
            producer.produce(topic, b"x" * SIZE)
            sent[0] += 1
            producer.poll(0)

    create(kafka, topic)
    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        left = producer.flush(DEADLINE)
    assert left == 0
    assert len(append_times(kafka, topic)) == sent[0]
    assert not any(throttled)


def run_for(seconds: float, send: Send) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        send()


def kafka_sender(kafka: str, topic: str) -> tuple[Send, Callable[[], object]]:
    producer = Producer(
        {
            "bootstrap.servers": kafka, "client.id": topic, "batch.size": BATCH,
            "linger.ms": 5, "queue.buffering.max.messages": 50,
        }
    )  # fmt: skip

    def send() -> None:
        try:
            producer.produce(topic, b"x" * SIZE)
        except BufferError:
            producer.poll(0.02)

    return send, lambda: producer.flush(DEADLINE)


def pulsar_sender(client: pulsar.Client, topic: str) -> tuple[Send, Callable[[], object]]:
    producer = client.create_producer(topic, block_if_queue_full=True, max_pending_messages=20)

    def send() -> None:
        producer.send_async(b"x" * SIZE, lambda *_: None)

    return send, producer.close


def test_bytes_that_a_kafka_client_may_produce(kafka: str):
    topic = "produce-quota"
    create(kafka, topic)
    set_quota(kafka, "client-id", topic, "producer_byte_rate", RATE * SIZE)
    send, close = kafka_sender(kafka, topic)

    with another_client(kafka, "produce-free"):
        run_for(RUN_S, send)
    close()

    _, size = rate_of(append_times(kafka, topic))
    assert size == pytest.approx(RATE * SIZE, rel=TOLERANCE)


@pytest.mark.parametrize("limit", ["messages", "bytes"])
@pytest.mark.parametrize("library", ["kafka", "pulsar"])
def test_messages_that_a_topic_takes(
    server: Server, kafka: str, pulsar_client: pulsar.Client, library: str, limit: str
):
    topic = f"publish-rate-{library}-{limit}"
    create(kafka, topic)
    rate = (RATE, -1) if limit == "messages" else (-1, RATE * SIZE)
    set_rate(server, topic, "publishRate", dict(zip(PUBLISH, rate, strict=True)))
    if library == "kafka":
        send, close = kafka_sender(kafka, topic)
    else:
        send, close = pulsar_sender(pulsar_client, topic)

    with another_client(kafka, f"free-beside-{topic}"):
        run_for(RUN_S, send)
    close()

    messages, size = rate_of(append_times(kafka, topic))
    reached = messages if limit == "messages" else size / SIZE
    assert reached == pytest.approx(RATE, rel=TOLERANCE)


def set_rate(server: Server, topic: str, policy: str, rate: dict[str, int]) -> None:
    Admin(f"http://{server.doors['http']}").request(
        "POST", f"persistent/public/default/{topic}/{policy}", rate
    )


def fill(kafka: str, topic: str) -> None:
    create(kafka, topic)
    producer = Producer({"bootstrap.servers": kafka, "client.id": "filler", "batch.size": BATCH})
    for _ in range((RUN_S + 10) * RATE):
        producer.produce(topic, b"x" * SIZE)
    assert producer.flush(DEADLINE) == 0


@pytest.mark.parametrize("policy", ["dispatchRate", "subscriptionDispatchRate"])
@pytest.mark.parametrize("library", ["kafka", "pulsar"])
def test_messages_that_a_topic_delivers(
    server: Server, kafka: str, pulsar_client: pulsar.Client, library: str, policy: str
):
    topic = f"{policy}-{library}"
    fill(kafka, topic)
    set_rate(
        server,
        topic,
        policy,
        {**dict(zip(DISPATCH, (RATE, -1), strict=True)), "ratePeriodInSecond": 1},
    )
    arrivals: list[tuple[float, int]] = []
    if library == "kafka":
        consumer = Consumer({"bootstrap.servers": kafka, "group.id": topic, "client.id": topic})
        consumer.assign([TopicPartition(topic, 0, 0)])

        def receive() -> None:
            message = consumer.poll(1)
            if message is not None and not message.error():
                arrivals.append((time.monotonic(), SIZE))

        close = consumer.close
    else:
        reader = pulsar_client.subscribe(
            topic, "s", initial_position=pulsar.InitialPosition.Earliest
        )

        def receive() -> None:
            try:
                reader.acknowledge(reader.receive(1_000))
            except pulsar.Timeout:
                return
            arrivals.append((time.monotonic(), SIZE))

        close = reader.close

    with another_client(kafka, f"free-beside-{topic}"):
        run_for(RUN_S, receive)
    close()

    messages, _ = rate_of(arrivals)
    assert messages == pytest.approx(RATE, rel=TOLERANCE)


def test_bytes_that_a_kafka_client_may_consume(kafka: str):
    topic = "fetch-quota"
    fill(kafka, topic)
    set_quota(kafka, "client-id", topic, "consumer_byte_rate", RATE * SIZE)
    consumer = Consumer(
        {
            "bootstrap.servers": kafka, "group.id": topic, "client.id": topic,
            "fetch.message.max.bytes": 2 * BATCH,
        }
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, 0, 0)])
    arrivals: list[tuple[float, int]] = []

    def receive() -> None:
        message = consumer.poll(1)
        if message is not None and not message.error():
            arrivals.append((time.monotonic(), SIZE))

    with another_client(kafka, "fetch-free"):
        run_for(RUN_S, receive)
    consumer.close()

    _, size = rate_of(arrivals)
    assert size == pytest.approx(RATE * SIZE, rel=TOLERANCE)
