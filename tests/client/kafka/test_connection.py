"""One connection: time-outs of responses, and responses that cannot be read."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from tests.client.kafka.scripted import (
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
from trilogue.wire.kafka.metadata.metadata import MetadataRequest, MetadataRequestTopic

REQUESTED = MetadataRequest(topics=[])
METADATA_KEY = 3


async def connected(cluster: ScriptedKafkaCluster) -> KafkaConnection:
    connection = KafkaConnection("test", 0.2)
    await connection.open("127.0.0.1", cluster.ports[0])
    return connection


@on_cluster
async def test_timeout_of_a_later_request_starts_after_a_long_one(
    cluster: ScriptedKafkaCluster, client: KafkaClient
):
    """A join may take minutes; the time of an unanswered heartbeat behind it begins after it."""
    connection = await connected(cluster)
    assert connection._watch is not None
    connection._watch.cancel()
    connection._look()  # as its timer does: no request of the handshake is pending
    await connection.request(REQUESTED, timeout_s=300)
    cluster.next_up[METADATA].append(SILENCE)
    async with asyncio.timeout(60):
        with pytest.raises(ConnectionLost, match="did not answer Metadata"):
            await connection.request(REQUESTED)


@on_cluster
async def test_timeout_of_a_queued_request_starts_when_the_slow_one_before_it_ends(
    cluster: ScriptedKafkaCluster, client: KafkaClient
):
    connection = await connected(cluster)
    cluster.next_up[METADATA].extend([SILENCE] * 2)
    first = connection.start(3, 9, REQUESTED, 300)
    second = asyncio.ensure_future(connection.request(REQUESTED))
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
    """Callers retry after this as after a lost connection: no task ends."""
    connection = await connected(cluster)
    usual = cluster.answer

    def garbage(body: bytes, node: int) -> bytes | str | None:
        answer = usual(body, node)
        return answer[:-3] if isinstance(answer, bytes) else answer

    cluster.answer = garbage  # type: ignore[method-assign]
    with pytest.raises(ConnectionLost, match="the answer to Metadata cannot be read"):
        await connection.request(REQUESTED)


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
    message = await consumer.get(60)

    assert message is not None
    assert message.value == b"a"
    assert sorted(cut) == [1, 2]
    assert cluster.all(FETCH)


@on_cluster
async def test_a_server_that_takes_nothing_more_costs_its_time_and_no_more(
    cluster: ScriptedKafkaCluster, client: KafkaClient
):
    """What waits to be sent is given up with the connection: closing does not wait for it."""
    release = asyncio.Event()

    async def deaf(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await release.wait()
        writer.close()

    connection = await connected(cluster)
    served = connection.served
    server = await asyncio.start_server(deaf, "127.0.0.1", 0, limit=1)
    silent = KafkaConnection("test", 0.2)
    await silent._frames.open("127.0.0.1", server.sockets[0].getsockname()[1], 60.0)
    silent.served = served
    much = MetadataRequest(topics=[MetadataRequestTopic(name="t" * 200) for _ in range(100_000)])
    async with asyncio.timeout(60):
        answer = silent.start(METADATA_KEY, 9, much)
        assert silent.is_backed_up
        with pytest.raises(ConnectionLost, match="did not answer Metadata"):
            await answer
        await silent._frames.open("127.0.0.1", server.sockets[0].getsockname()[1], 60.0)
        silent.write(METADATA_KEY, 9, much)  # as acks=0 does: there is no response to time out
        await silent.drained()
        assert not silent.is_open
    release.set()
    server.close()


@on_cluster
async def test_connections_look_whether_the_server_is_still_there(
    cluster: ScriptedKafkaCluster, client: KafkaClient
):
    """A join may wait for minutes: only keepalive finds out that the server is gone."""
    connection = await connected(cluster)
    assert connection._frames._transport is not None
    raw: Any = connection._frames._transport.get_extra_info("socket")
    assert raw.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    if hasattr(socket, "TCP_KEEPIDLE"):
        assert raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60
