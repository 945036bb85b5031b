"""What the tests of the families share: ten clients as administrators, readers and writers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, PartitionMetadata

from tests.conformance.clients.base import DEADLINE, Deadline
from tests.conformance.clients.confluent import Confluent


def refusal(action: Callable[[], object]) -> str:
    """The client's text for a broker's error, reduced to letters: each spells the names its way."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 (seven libraries, seven families)
        action()
    return re.sub("[^a-z]", "", repr(caught.value).lower())


def eventually(look: Callable[[], object], expected: object) -> None:
    """A real broker hears of what was changed from its controller a little later."""
    deadline = Deadline(f"{expected!r}")
    while (seen := attempt(look)) != expected:
        deadline.check(seen)


def attempt(look: Callable[[], object]) -> object:
    try:
        return look()
    except Exception as error:  # noqa: BLE001 (seven libraries, seven families of errors)
        return error


def by_number(reported: object) -> dict[int, int]:
    """A mapping from partitions, whose numbers are texts where they came as JSON."""
    assert isinstance(reported, Mapping)
    return {int(partition): int(offset) for partition, offset in reported.items()}


def produce(address: str, topic: str, values: Mapping[int, list[bytes]], **more: object) -> None:
    """Values to partitions by librdkafka, at the times 1000, 2000 ... ms."""
    producer: Producer = Confluent.producer(address, {k: v for k, v in more.items() if v})
    for partition, those in values.items():
        for number, value in enumerate(those, start=1):
            producer.produce(topic, value, partition=partition, timestamp=number * 1000)
    assert producer.flush(DEADLINE) == 0, "not acked in time"


def partitions_of(address: str, topic: str) -> dict[int, PartitionMetadata]:
    """The partitions of a topic, with their leaders and replicas, by librdkafka."""
    admin = AdminClient({"bootstrap.servers": address})
    return admin.list_topics(topic, timeout=DEADLINE).topics[topic].partitions
