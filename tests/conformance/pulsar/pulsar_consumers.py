"""The Python client from PyPI, with as few words as tests of consumers want."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pulsar as lib

from tests.brokers import PulsarBroker

WAIT_MS = 60_000
QUIET_MS = 400
EARLIEST = lib.InitialPosition.Earliest


def connect(broker: PulsarBroker) -> lib.Client:
    logger = lib.ConsoleLogger(lib.LoggerLevel.Error)
    return lib.Client(f"pulsar://{broker.address}", logger=logger, operation_timeout_seconds=60)


def subscribe(
    client: lib.Client,
    topic: str,
    kind: lib.ConsumerType = lib.ConsumerType.Exclusive,
    name: str = "s",
    **how: object,
) -> lib.Consumer:
    how.setdefault("initial_position", EARLIEST)
    return client.subscribe(topic, name, consumer_type=kind, **how)


def send(
    client: lib.Client, topic: str, *values: bytes, batched: bool = False, **how: object
) -> list[lib.MessageId]:
    producer = client.create_producer(topic, batching_enabled=batched)
    ids: list[lib.MessageId] = []
    if batched:
        for value in values:
            producer.send_async(value, lambda _, each: ids.append(each), **how)
        producer.flush()
    else:
        ids = [producer.send(value, **how) for value in values]
    producer.close()
    return ids


def receive(consumer: lib.Consumer, count: int) -> list[lib.Message]:
    return [consumer.receive(WAIT_MS) for _ in range(count)]


def data(messages: list[lib.Message]) -> list[bytes]:
    return [message.data() for message in messages]


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


def nothing_comes(consumer: lib.Consumer) -> bool:
    try:
        consumer.receive(QUIET_MS)
    except lib.Timeout:
        return True
    return False


def eventually(true: Callable[[], bool]) -> bool:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if true():
            return True
        threading.Event().wait(0.02)
    return False
