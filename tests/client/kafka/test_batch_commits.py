"""Several prepared transactions in one decision, which only Trilogue has."""

from __future__ import annotations

import asyncio

import pytest

from tests.client.kafka.cases import Service
from tests.client.kafka.cases_transactions import read
from tests.server import Server
from trilogue.client.kafka import READ_COMMITTED, KafkaClient, KafkaError, PreparedTransaction, sync


async def prepare(client: KafkaClient, topic: str, *names: str) -> list[PreparedTransaction]:
    """Return a transaction of each name, with a message in each partition."""
    prepared = []
    for name in names:
        producer = await client.producer(transactional_id=f"{topic}-{name}")
        async with producer, producer.transaction() as transaction:
            for partition in (0, 1):
                await producer.submit(topic, name.encode(), partition=partition)
            prepared.append(await transaction.prepare())
    return prepared


def test_a_batch_commits_once(server: Server):
    async def work() -> None:
        topic = "batches"
        async with Service(server.kafka, topic).made(2) as client:
            tasks = await prepare(client, topic, "a", "b")
            assert await client.admin.last_batch(topic) is None

            batch = await client.admin.commit_transactions(tasks, application_id=topic, batch_id=0)

            assert (batch.application_id, batch.batch_id) == (topic, 0)
            assert await client.admin.last_batch(topic) == batch
            assert await read(client, topic, 4, READ_COMMITTED) == [b"a", b"a", b"b", b"b"]

            again = await prepare(client, topic, "c")  # by a driver that was started again
            repeated = await client.admin.commit_transactions(
                [*tasks, *again], application_id=topic, batch_id=0
            )
            assert repeated == batch
            await client.admin.commit_transactions(
                await prepare(client, topic, "d"), application_id=topic, batch_id=1
            )
            values = await read(client, topic, 6, READ_COMMITTED)
            assert sorted(set(values)) == [b"a", b"b", b"d"]  # c was aborted

    asyncio.run(asyncio.wait_for(work(), 60))


def test_one_that_cannot_commit_keeps_the_others_from_it(server: Server):
    with sync.KafkaClient(server.kafka) as client:
        client.admin.create_topic("refused")
        prepared = []
        for name in ("good", "fenced"):
            producer = client.producer(transactional_id=name)
            with producer, producer.transaction() as transaction:
                producer.submit("refused", b"x")
                prepared.append(transaction.prepare())
        with client.producer(transactional_id="fenced") as other, other.transaction():
            pass
        with pytest.raises(KafkaError, match="PRODUCER_FENCED"):
            client.admin.commit_transactions(prepared, application_id="app", batch_id=1)
        assert client.admin.last_batch("app") is None
        client.admin.end_transaction(prepared[0], commit=False)
