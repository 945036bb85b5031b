"""One connection: how long answers are waited for, and what is done with those nobody can read."""

from __future__ import annotations

import asyncio

import pytest

from tests.client.scripted_kafka import (
    FETCH,
    METADATA,
    SILENCE,
    TOPIC,
    ScriptedKafkaCluster,
    on_cluster,
)
from trilogue.client.errors import ConnectionLost
from trilogue.client.kafka import KafkaClient
from trilogue.client.kafka.connection import KafkaConnection
from trilogue.wire.kafka.metadata import MetadataRequest

ASKED = MetadataRequest(topics=[])


async def connected(cluster: ScriptedKafkaCluster) -> KafkaConnection:
    connection = KafkaConnection("test", 0.2)
    await connection.open("127.0.0.1", cluster.ports[0])
    return connection


@on_cluster
async def test_what_was_waited_for_long_does_not_make_others_wait(
    cluster: ScriptedKafkaCluster, client: KafkaClient
):
    """A join may take minutes; a heartbeat behind it that nobody answers costs its own time."""
    connection = await connected(cluster)
    assert connection._watch is not None
    connection._watch.cancel()
    connection._look()  # as its timer does: of what opening it asked, nothing is left
    await connection.request(ASKED, timeout_s=300)
    cluster.next_up[METADATA].append(SILENCE)
    async with asyncio.timeout(5):
        with pytest.raises(ConnectionLost, match="API 3 in time"):
            await connection.request(ASKED)


@on_cluster
async def test_who_stands_behind_what_takes_long_has_its_own_time_from_then_on(
    cluster: ScriptedKafkaCluster, client: KafkaClient
):
    connection = await connected(cluster)
    cluster.next_up[METADATA].extend([SILENCE] * 2)
    first = connection.start(3, 9, ASKED, 300)
    second = asyncio.ensure_future(connection.request(ASKED))
    await asyncio.sleep(0.3)  # longer than the second may take by itself
    assert not first.done()
    assert not second.done()
    connection.close()
    with pytest.raises(ConnectionLost):
        await first
    with pytest.raises(ConnectionLost):
        await second


@on_cluster
async def test_an_answer_that_cannot_be_read_is_a_lost_connection(
    cluster: ScriptedKafkaCluster, client: KafkaClient
):
    """Whoever asks again after a lost connection does so after this, too: no task ends of it."""
    connection = await connected(cluster)
    usual = cluster.answer

    def garbage(body: bytes, node: int) -> bytes | str | None:
        answer = usual(body, node)
        return answer[:-3] if isinstance(answer, bytes) else answer

    cluster.answer = garbage  # type: ignore[method-assign]
    with pytest.raises(ConnectionLost, match="API 3 cannot be read"):
        await connection.request(ASKED)


@on_cluster
async def test_a_consumer_goes_on_after_an_answer_that_cannot_be_read(
    cluster: ScriptedKafkaCluster, client: KafkaClient
):
    async with await client.producer() as producer:
        await producer.send(TOPIC, b"a", partition=0)
    usual = cluster.answer
    cut: list[int] = []

    def garbage(body: bytes, node: int) -> bytes | str | None:
        answer = usual(body, node)
        if body[:2] in {b"\0\x01", b"\0\x02"} and body[1] not in cut and isinstance(answer, bytes):
            cut.append(body[1])
            return answer[:-3]
        return answer

    cluster.answer = garbage  # type: ignore[method-assign]
    consumer = await client.consumer(reset_to=-2, retry_pause_s=0.01)
    await consumer.assign([(TOPIC, 0)])
    message = await consumer.get(5)

    assert message is not None
    assert message.value == b"a"
    assert sorted(cut) == [1, 2]
    assert cluster.all(FETCH)
