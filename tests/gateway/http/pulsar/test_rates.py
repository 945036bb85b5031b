"""Rates of namespaces and topics, set over HTTP, hold for real clients of all protocols.

Only lower bounds of times are checked: a slow machine makes no client faster than a rate.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator

import pulsar
import pytest
from confluent_kafka import Consumer, Producer

from tests.gateway.http.admin_client import Admin
from trilogue.client.tubemq import Message
from trilogue.client.tubemq.sync import TubeClient

RATE = 20  # messages a second; as many at once after a pause
COUNT = 35
LEAST_S = (COUNT - 1 - RATE) / RATE  # the last one waits for all others
PUBLISH = {"publishThrottlingRateInMsg": RATE, "publishThrottlingRateInByte": -1}
DISPATCH = {"dispatchThrottlingRateInMsg": RATE, "dispatchThrottlingRateInByte": -1}
STANDSTILL = {"publishThrottlingRateInMsg": -1, "publishThrottlingRateInByte": 1}
LIMIT_S = 30.0


@pytest.fixture(scope="module")
def client(admin: Admin) -> Iterator[pulsar.Client]:
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    made = pulsar.Client(f"pulsar://{admin.server.doors['pulsar']}", logger=quiet)
    yield made
    made.close()


@pytest.fixture
def topic(admin: Admin, request: pytest.FixtureRequest) -> str:
    """A topic in the test's own namespace."""
    name = f"{admin.namespace(re.sub(r'[^a-zA-Z-]', '-', request.node.name)[-60:])}/t"
    admin.do("PUT", f"persistent/{name}")
    return name


def write(client: pulsar.Client, topic: str, count: int) -> None:
    producer = client.create_producer(f"persistent://{topic}", batching_enabled=False)
    for number in range(count):  # all at once: one by one may be slower than a rate
        producer.send_async(b"%d" % number, lambda *_: None)
    producer.flush()
    producer.close()


def seconds(work: Callable[[], object]) -> float:
    began_s = time.monotonic()
    work()
    return time.monotonic() - began_s


def kafka_producer(admin: Admin, **options: object) -> Producer:
    return Producer({"bootstrap.servers": admin.server.doors["kafka"], **options})


def kafka_consumer(admin: Admin, topic: str, group: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": admin.server.doors["kafka"],
            "group.id": group,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    return consumer


def poll_all(consumer: Consumer, count: int) -> None:
    left = count
    while left:
        message = consumer.poll(LIMIT_S)
        assert message is not None
        assert message.error() is None
        left -= 1


def receive_all(consumer: pulsar.Consumer, count: int) -> None:
    for _ in range(count):
        consumer.acknowledge(consumer.receive(int(LIMIT_S * 1_000)))


def test_producers_are_not_faster_than_the_publish_rate(
    admin: Admin, client: pulsar.Client, topic: str
):
    home = topic.removesuffix("/t")
    admin.do("POST", f"namespaces/{home}/publishRate", PUBLISH)

    assert seconds(lambda: write(client, topic, COUNT)) >= LEAST_S
    assert admin.get(f"persistent/{topic}/stats")["publishRateLimitedTimes"] > 0
    assert admin.get(f"namespaces/{home}")["publishMaxMessageRate"] == {"standalone": PUBLISH}


def test_the_rates_that_apply_are_reported_as_a_real_broker_does(admin: Admin, topic: str):
    home = topic.removesuffix("/t")
    at = f"persistent/{topic}"
    admin.do("POST", f"namespaces/{home}/publishRate", PUBLISH)

    assert admin("GET", f"{at}/publishRate") == (204, None)
    assert admin.get(f"{at}/publishRate?applied=true") == PUBLISH
    assert admin.get(f"{at}/dispatchRate?applied=true")["dispatchThrottlingRateInMsg"] == 0


def test_a_rate_that_is_removed_ends_the_wait_of_an_open_producer(
    admin: Admin, client: pulsar.Client, topic: str
):
    admin.do("POST", f"persistent/{topic}/publishRate", STANDSTILL)
    producer = client.create_producer(
        topic, batching_enabled=False, send_timeout_millis=int(LIMIT_S * 1_000)
    )
    producer.send(b"x" * 1_000)  # 1,000 s of the rate

    admin.do("DELETE", f"persistent/{topic}/publishRate")

    producer.send(b"y")
    producer.close()


def test_consumers_are_not_faster_than_the_dispatch_rate(
    admin: Admin, client: pulsar.Client, topic: str
):
    home = topic.removesuffix("/t")
    write(client, topic, COUNT)
    admin.do("POST", f"namespaces/{home}/dispatchRate", DISPATCH)
    first = pulsar.InitialPosition.Earliest
    consumers: list[pulsar.Consumer] = []

    def read() -> None:
        consumers.extend(
            client.subscribe(topic, name, initial_position=first) for name in ("a", "b")
        )
        for each in consumers:
            receive_all(each, COUNT)

    took_s = seconds(read)

    assert took_s >= (2 * COUNT - 2 - RATE) / RATE, "all subscriptions share it"
    admin.do("DELETE", f"namespaces/{home}/dispatchRate")
    write(client, topic, COUNT)
    for consumer in consumers:
        receive_all(consumer, COUNT)
        consumer.close()


def test_each_subscription_has_its_own_dispatch_rate(
    admin: Admin, client: pulsar.Client, topic: str
):
    write(client, topic, COUNT)
    admin.do("POST", f"persistent/{topic}/subscriptionDispatchRate", DISPATCH)
    first = pulsar.InitialPosition.Earliest

    def read() -> None:
        consumer = client.subscribe(topic, "s", initial_position=first)
        receive_all(consumer, COUNT)
        consumer.close()

    assert seconds(read) >= LEAST_S


def test_a_subscription_that_is_named_has_its_own_dispatch_rate(
    admin: Admin, client: pulsar.Client, topic: str
):
    write(client, topic, COUNT)
    at = f"persistent/{topic}/s/dispatchRate"
    slow = {"dispatchThrottlingRateInMsg": 1, "ratePeriodInSecond": 86_400}
    admin.do("POST", at, slow)
    first = pulsar.InitialPosition.Earliest
    limited, other = (
        client.subscribe(topic, name, initial_position=first) for name in ("s", "other")
    )

    receive_all(other, COUNT)
    received = 0  # one step may go above the rate; then it waits
    with contextlib.suppress(pulsar.Timeout):
        while received < COUNT:
            limited.receive(500)
            received += 1
    assert received < COUNT
    assert admin.get(at)["dispatchThrottlingRateInMsg"] == 1
    assert admin("GET", f"persistent/{topic}/other/dispatchRate") == (200, None)
    admin.do("DELETE", at)
    receive_all(limited, COUNT - received)
    assert admin("GET", at) == (200, None)
    limited.close()
    other.close()


@pytest.mark.full
def test_a_kafka_producer_is_throttled_by_the_rate_of_the_namespace(admin: Admin, topic: str):
    home = topic.removesuffix("/t")
    throttled_ms: list[float] = []
    producer = kafka_producer(
        admin,
        **{"linger.ms": 0, "throttle_cb": lambda event: throttled_ms.append(event.throttle_time)},
    )
    producer.list_topics(topic, LIMIT_S)

    def produce(count: int) -> None:
        for _ in range(count):
            producer.produce(topic, b"x")
            assert producer.flush(LIMIT_S) == 0

    produce(3)  # the same request goes a faster way by now
    admin.do("POST", f"namespaces/{home}/publishRate", PUBLISH)
    assert seconds(lambda: produce(COUNT)) >= LEAST_S

    admin.do("POST", f"namespaces/{home}/publishRate", STANDSTILL)
    produce(1)
    producer.poll(1)
    assert throttled_ms  # also of a machine that is slower than the rate before
    admin.do("DELETE", f"namespaces/{home}/publishRate")
    produce(1)


@pytest.mark.full
@pytest.mark.parametrize("policy", ["dispatchRate", "subscriptionDispatchRate"])
def test_a_kafka_consumer_is_not_faster_than_the_dispatch_rate(
    admin: Admin, client: pulsar.Client, topic: str, policy: str
):
    write(client, topic, COUNT)
    admin.do("POST", f"persistent/{topic}/{policy}", DISPATCH)
    consumer = kafka_consumer(admin, topic, f"rates-{policy}")

    assert seconds(lambda: poll_all(consumer, COUNT)) >= LEAST_S
    admin.do("DELETE", f"persistent/{topic}/{policy}")
    write(client, topic, COUNT)
    poll_all(consumer, COUNT)
    consumer.close()


@pytest.mark.full
def test_publish_rate_is_shared_by_pulsar_and_kafka_producers(
    admin: Admin, client: pulsar.Client, topic: str
):
    throttled_ms: list[float] = []
    producer = kafka_producer(
        admin, throttle_cb=lambda event: throttled_ms.append(event.throttle_time)
    )
    producer.list_topics(topic, LIMIT_S)
    admin.do("POST", f"persistent/{topic}/publishRate", STANDSTILL)
    other = client.create_producer(topic, batching_enabled=False)

    other.send(b"x" * 1_000)
    producer.produce(topic, b"x")
    assert producer.flush(LIMIT_S) == 0
    producer.poll(1)

    assert throttled_ms
    admin.do("DELETE", f"persistent/{topic}/publishRate")
    other.close()


@pytest.mark.full
def test_tubemq_clients_are_not_faster_than_the_rates(admin: Admin):
    topic = "tube-rates"
    admin.do("PUT", f"persistent/public/default/{topic}/partitions", 1)
    admin.do("POST", f"persistent/public/default/{topic}/publishRate", PUBLISH)
    admin.do("POST", f"persistent/public/default/{topic}/dispatchRate", DISPATCH)

    def get_all(consumer) -> None:
        left = COUNT
        while left:
            batch = consumer.get(LIMIT_S)
            consumer.confirm(batch)
            left -= len(batch)

    with TubeClient(admin.server.doors["tubemq-master"]) as tube, tube.producer(topic) as producer:
        sent_s = seconds(lambda: [producer.send(Message(topic, b"x")) for _ in range(COUNT)])
        with tube.consumer({topic: set()}, group="rates") as consumer:
            read_s = seconds(lambda: get_all(consumer))

    assert sent_s >= LEAST_S
    assert read_s >= LEAST_S
