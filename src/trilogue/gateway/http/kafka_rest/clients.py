"""The client of Kafka's protocol that requests of one login share."""

from __future__ import annotations

import asyncio
from typing import Final

from trilogue.client.kafka.admin import Admin
from trilogue.client.kafka.client import KafkaClient
from trilogue.client.kafka.producer.producer import Producer

CLIENT_ID: Final = "kafka-rest"
PRODUCER_BYTES: Final = 4 << 20  # of messages that are not stored yet
WAIT_S: Final = 10.0  # for the metadata of a topic, and for room
DELIVERY_S: Final = 30.0


class RestClient:
    """The client of one login, with one producer."""

    def __init__(self, client: KafkaClient) -> None:
        self.kafka = client
        self._producer: asyncio.Task[Producer] | None = None

    @property
    def admin(self) -> Admin:
        """The administrative requests of the client."""
        return self.kafka.admin

    async def producer(self) -> Producer:
        """Return the producer that all requests share."""
        if self._producer is None:
            making = self.kafka.producer(
                max_memory_bytes=PRODUCER_BYTES,
                max_wait_s=WAIT_S,
                delivery_timeout_s=DELIVERY_S,
            )
            self._producer = asyncio.ensure_future(making)
        return await asyncio.shield(self._producer)

    async def close(self) -> None:
        """Close the client's connections."""
        await self.kafka.close()
