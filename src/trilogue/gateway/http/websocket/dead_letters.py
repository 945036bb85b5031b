"""The dead letters of one consumer: messages that were delivered too often go to another topic."""

from __future__ import annotations

from typing import Final

from trilogue.client.pulsar.client import PulsarClient
from trilogue.client.pulsar.message import Message, MessageId
from trilogue.client.pulsar.producer.producer import Producer
from trilogue.client.pulsar.topic_names import without_partition
from trilogue.gateway.http.websocket.session import SocketQuery

KEPT_MAX: Final = 1_000  # messages that may become dead letters
KEPT_BYTES: Final = 256 << 10  # of their values; another one goes after one more delivery
DELIVERIES: Final = 10  # unless the query has `maxRedeliverCount`
REAL_TOPIC, ORIGIN_ID = "REAL_TOPIC", "ORIGIN_MESSAGE_ID"


class DeadLetters:
    """Keeps messages at their last delivery, and sends those that are returned.

    Without a topic for them it keeps none.
    """

    def __init__(self, client: PulsarClient, topic: str, most: int) -> None:
        self._client = client
        self._topic = topic
        self._most = most
        self._kept: dict[MessageId, Message] = {}
        self._kept_bytes = 0
        self._producer: Producer | None = None

    @classmethod
    def of_query(
        cls, client: PulsarClient, topic: str, subscription: str, query: SocketQuery
    ) -> DeadLetters:
        """Return those of a consumer's query."""
        chosen = query.text("deadLetterTopic")
        most = query.number("maxRedeliverCount", DELIVERIES if chosen else 0)
        if not most:
            return cls(client, "", 0)
        return cls(client, chosen or f"{topic}-{subscription}-DLQ", most)

    async def add(self, message: Message) -> bool:
        """Keep a message at its last delivery, or send one that had it; return whether it went."""
        if not self._topic or message.redelivery_count < self._most:
            return False
        if message.redelivery_count > self._most:
            self.remove(message.id)
            await self._send(message)
            return True
        self._keep(message)
        return False

    def _keep(self, message: Message) -> None:
        self.remove(message.id)
        size = len(message.value or b"")
        if size > KEPT_BYTES:
            return
        self._kept[message.id] = message
        self._kept_bytes += size
        while len(self._kept) > KEPT_MAX or self._kept_bytes > KEPT_BYTES:
            self.remove(next(iter(self._kept)))

    def remove(self, message_id: MessageId) -> Message | None:
        """Forget a message that is acknowledged; return it if it was kept."""
        message = self._kept.pop(message_id, None)
        if message is not None:
            self._kept_bytes -= len(message.value or b"")
        return message

    async def send(self, message_id: MessageId) -> bool:
        """Send a message that was returned at its last delivery; False: it may be sent again."""
        message = self.remove(message_id)
        if message is None:
            return False
        await self._send(message)
        return True

    async def _send(self, message: Message) -> None:
        if self._producer is None:
            self._producer = await self._client.producer(self._topic, batching=None)
        ledger, entry = message.id.place[:2]
        origin = f"{ledger}:{entry}:{message.id.partition}"
        await self._producer.send(
            message.value,
            key=message.key,
            event_time_ms=message.event_time_ms,
            properties={
                REAL_TOPIC: without_partition(message.topic),
                ORIGIN_ID: origin,
                **message.properties,
            },
        )
