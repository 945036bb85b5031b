"""Clients of Kafka's protocol that requests share: one for each login and address."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from typing import Final

from trilogue.client.kafka.admin import Admin
from trilogue.client.kafka.client import KafkaClient
from trilogue.client.kafka.producer.producer import Producer
from trilogue.gateway.http.node_clients import ClientIdentity, NodeClients
from trilogue.gateway.http.request_limits import HttpError

log = logging.getLogger(__name__)

CLIENTS_MAX: Final = 100
IDLE_S: Final = 60.0  # after which a client that no request uses is closed
SWEEP_S: Final = 10.0
CLIENT_ID: Final = "kafka-rest"
PRODUCER_BYTES: Final = 4 << 20  # of messages that are not stored yet
WAIT_S: Final = 10.0  # for the metadata of a topic, and for room
DELIVERY_S: Final = 30.0


class RestClient:
    """The client of one login, with one producer."""

    def __init__(self, client: KafkaClient) -> None:
        self.kafka = client
        self.uses = 0
        self.used_s = 0.0
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


class RestClients:
    """Clients by login; those that were not used for a while are closed."""

    def __init__(self, clients: NodeClients) -> None:
        self.node_clients = clients
        self._known: dict[ClientIdentity, RestClient] = {}  # the one used last is the last
        self._closing: set[asyncio.Task[None]] = set()
        self._sweeper: asyncio.TimerHandle | None = None

    @contextlib.asynccontextmanager
    async def use(self, identity: ClientIdentity) -> AsyncIterator[RestClient]:
        """Return the client of a login while a request uses it; raises HttpError 429 and 503."""
        found = self._known.pop(identity, None)
        if found is None:
            self._make_room()
            found = RestClient(self.node_clients.make_kafka(identity, CLIENT_ID))
        self._known[identity] = found
        found.uses += 1
        try:
            yield found
        finally:
            found.uses -= 1
            found.used_s = time.monotonic()
            if self._sweeper is None:
                self._sweeper = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)

    def _make_room(self) -> None:
        if len(self._known) < CLIENTS_MAX:
            return
        for identity, client in self._known.items():
            if not client.uses:
                self._close(identity)
                return
        raise HttpError(429, "requests of too many logins are in flight")

    def _sweep(self) -> None:
        self._sweeper = None
        end_s = time.monotonic() - IDLE_S
        for identity, client in list(self._known.items()):
            if not client.uses and client.used_s < end_s:
                self._close(identity)
        if self._known:
            self._sweeper = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)

    def _close(self, identity: ClientIdentity) -> None:
        client = self._known.pop(identity)
        task = asyncio.ensure_future(client.kafka.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
