"""Sessions that our Kafka client renews on their connections (KIP-368), at any server."""

from __future__ import annotations

import asyncio

import pytest

from trilogue.client.kafka import Acks, KafkaClient
from trilogue.client.kafka.connection import KafkaConnection

RENEWALS = 4


class Renewals:
    """Counts the connections that are opened, and the logins that renew a session."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened = self.renewed = 0
        self.tasks: set[object] = set()  # those that renew a session
        open_connection, renew = KafkaConnection.open, KafkaConnection._renew_session

        async def count_open(connection: KafkaConnection, host: str, port: int) -> None:
            self.opened += 1
            await open_connection(connection, host, port)

        async def count_renewal(connection: KafkaConnection) -> None:
            self.tasks.add(asyncio.current_task())
            await renew(connection)
            self.renewed += connection.is_open

        monkeypatch.setattr(KafkaConnection, "open", count_open)
        monkeypatch.setattr(KafkaConnection, "_renew_session", count_renewal)


async def check_renewals(client: KafkaClient, topic: str, acks: Acks, counts: Renewals) -> None:
    """Write and read while sessions are renewed: nothing is lost, and no connection is opened."""
    producer = await client.producer(acks=Acks.ALL, create_topics=True)
    sent, received = [b"first"], []
    await producer.send(topic, b"first")
    producer = await client.producer(acks=acks)
    consumer = await client.consumer(topic, group=topic, reset_to="earliest")
    received.append((await consumer.get(30)).value)
    sent.append(b"second")
    await producer.send(topic, b"second")
    opened, renewed = counts.opened, counts.renewed
    while counts.renewed < renewed + RENEWALS:
        sent.append(b"%d" % len(sent))
        await producer.send(topic, sent[-1])
        received += [message.value for message in await consumer.poll(0.05)]
    while len(received) < len(sent):
        received += [message.value for message in await consumer.poll(10)]

    assert received == sent
    assert counts.opened == opened
