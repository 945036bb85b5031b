"""The reader: reads a topic from a message id on, without a durable subscription."""

from __future__ import annotations

from trilogue.client.errors import ClientError
from trilogue.client.pulsar.consumer.chunk_assembler import BegunMessage
from trilogue.client.pulsar.consumer.consumer import Consumer
from trilogue.client.pulsar.message import Message


class Reader(Consumer):
    """Made by `PulsarClient.reader`; what was read is acknowledged by reading on."""

    async def receive(self, timeout_s: float | None = None) -> Message:
        """The next message; there is nothing to acknowledge."""
        message = await super().receive(timeout_s)
        message.owner.ack_through(message.id)
        return message

    async def receive_many(self, most: int, timeout_s: float | None = None) -> list[Message]:
        """The messages that are there, at most so many."""
        found = await super().receive_many(most, timeout_s)
        for message in {one.owner: one for one in found}.values():
            message.owner.ack_through(message.id)
        return found

    def begun_messages(self) -> list[BegunMessage]:
        """Return the messages in chunks that have begun, and that `receive` has not returned."""
        return [each for part in self._parts.values() for each in part.begun_messages()]

    async def unsubscribe(self) -> None:
        """A reader has no subscription of its own."""
        raise ClientError("a reader is closed, it has nothing to unsubscribe from")
