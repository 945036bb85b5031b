"""The Kafka client with a server that is down or silent, and with errors in its own tasks.

No call may wait for ever: each raises within its time-out and names the cause.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tools.servers.probe import free_port

from tests.client.harness import HangingUp, run_on_idle_clock
from tests.client.kafka.scripted import (
    METADATA,
    OFFSETS,
    PRODUCE,
    SILENCE,
    TOPIC,
    ScriptedKafkaCluster,
    on_cluster,
)
from trilogue.client.errors import ClientError, ServerUnreachable
from trilogue.client.kafka import EARLIEST, KafkaClient, KafkaError, TimedOut
from trilogue.client.kafka.producer.batch import ProducerBatch
from trilogue.wire.kafka.errors import ErrorCode

Call = Callable[[KafkaClient], Awaitable[Any]]
LIMIT_S = 0.4


async def send(client: KafkaClient) -> None:
    producer = await client.producer(max_wait_s=LIMIT_S)
    await producer.send(TOPIC, b"a")


async def get(client: KafkaClient) -> None:
    await (await client.consumer(TOPIC, group="g")).get(LIMIT_S)


async def poll(client: KafkaClient) -> None:
    await (await client.consumer(TOPIC, group="g")).poll(LIMIT_S)


async def iterate(client: KafkaClient) -> None:
    async for _ in await client.consumer(TOPIC, group="g"):
        pass


async def assign(client: KafkaClient) -> None:
    await (await client.consumer()).assign([(TOPIC, 0)])


async def commit(client: KafkaClient) -> None:
    await (await client.consumer(group="g")).commit({(TOPIC, 0): 1})


async def committed(client: KafkaClient) -> None:
    await (await client.consumer(group="g")).committed([(TOPIC, 0)])


async def create_topic(client: KafkaClient) -> None:
    await client.admin.create_topic("new")


async def list_topics(client: KafkaClient) -> None:
    await client.admin.list_topics()


async def list_groups(client: KafkaClient) -> None:
    await client.admin.list_groups()


async def group_offsets(client: KafkaClient) -> None:
    await client.admin.group_offsets("g")


async def list_offsets(client: KafkaClient) -> None:
    await client.admin.list_offsets({(TOPIC, 0): EARLIEST})


@pytest.mark.parametrize(
    "call",
    [
        send, get, poll, iterate, assign, commit, committed, create_topic, list_topics,
        list_groups, group_offsets, list_offsets,
    ],
)  # fmt: skip
def test_every_call_raises_within_its_time_out_where_no_server_runs(call: Call):
    async def work() -> float:
        address = f"127.0.0.1:{free_port()}"
        async with KafkaClient(address, request_timeout_s=LIMIT_S) as client:
            started = time.monotonic()
            with pytest.raises(ServerUnreachable, match="check that the server is running") as met:
                await call(client)
            assert address in str(met.value)
            assert isinstance(met.value, TimeoutError)
            return time.monotonic() - started

    assert run_on_idle_clock(work()) < 30  # a slow machine has room


async def send_with_defaults(client: KafkaClient) -> None:
    await (await client.producer()).send(TOPIC, b"a")


@pytest.mark.parametrize("call", [send_with_defaults, iterate, list_topics])
def test_servers_that_were_never_reached_are_not_waited_for(call: Call):
    """The time-out of a request is for servers that were there: ten minutes of it are not used."""

    async def work() -> None:
        address = f"127.0.0.1:{free_port()}"
        async with KafkaClient(address, request_timeout_s=600) as client, asyncio.timeout(60):
            with pytest.raises(ServerUnreachable, match="check that the server is running"):
                await call(client)

    run_on_idle_clock(work())


def hang_up_for_good(cluster: ScriptedKafkaCluster) -> None:
    for server in cluster._servers:
        server.close()
    peers: list[HangingUp] = list(cluster.peers)
    for peer in peers:
        peer.hang_up()


@on_cluster
async def test_calls_raise_where_the_server_went_down(
    cluster: ScriptedKafkaCluster, client: KafkaClient
):
    producer = await client.producer(delivery_timeout_s=0.5)
    await producer.send(TOPIC, b"a", partition=0)
    consumer = await client.consumer(reset_to="earliest", max_wait_s=0.05)
    await consumer.assign([(TOPIC, 0)])
    assert (await consumer.get(60)).value == b"a"
    hang_up_for_good(cluster)

    with pytest.raises(ServerUnreachable, match="not stored within the delivery time-out"):
        await producer.send(TOPIC, b"b", partition=0)
    with pytest.raises(ServerUnreachable):
        await consumer.get(0.3)
    with pytest.raises(ServerUnreachable):
        await consumer.poll(0.3)


@on_cluster
async def test_nothing_new_in_time_is_timed_out_where_the_server_is_up(
    cluster: ScriptedKafkaCluster, client: KafkaClient
):
    consumer = await client.consumer(max_wait_s=0.05)
    await consumer.assign([(TOPIC, 0)])

    with pytest.raises(TimedOut, match=r"no message within 0.2 s") as met:
        await consumer.get(0.2)
    assert not isinstance(met.value, ServerUnreachable)
    assert await consumer.poll(0.1) == []


@on_cluster
async def test_a_position_that_cannot_be_found_out_is_timed_out(
    cluster: ScriptedKafkaCluster, client: KafkaClient
):
    client.cluster.timeout_s = 0.3
    cluster.next_up[OFFSETS].extend([SILENCE] * 100)
    consumer = await client.consumer()
    await consumer.assign([(TOPIC, 0)])

    with pytest.raises(TimedOut, match="no position within"):
        await consumer.position((TOPIC, 0))


@on_cluster
async def test_the_delivery_time_out_fires_for_a_request_that_is_not_answered(
    cluster: ScriptedKafkaCluster, client: KafkaClient
):
    """Although the answer may come until the request time-out (5 min) is over."""
    client.cluster.timeout_s = 300.0
    cluster.next_up[PRODUCE].append(SILENCE)
    producer = await client.producer(delivery_timeout_s=0.2, close_timeout_s=0.1)

    async with asyncio.timeout(60):
        with pytest.raises(TimedOut, match="not stored within the delivery time-out"):
            await producer.send(TOPIC, b"a", partition=0)
        await producer.flush()  # nothing is left to wait for


@pytest.mark.parametrize("create_topics", [False, True])
def test_a_missing_topic_raises_at_once_with_the_next_step(*, create_topics: bool):
    @on_cluster
    async def run(cluster: ScriptedKafkaCluster, client: KafkaClient) -> None:
        cluster.creates_topics = False
        producer = await client.producer(create_topics=create_topics, max_wait_s=300.0)
        async with asyncio.timeout(60):
            with pytest.raises(KafkaError, match=r"create it with admin.create_topic") as met:
                await producer.send("missing", b"a")
        assert met.value.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run()


@on_cluster
async def test_a_subscription_to_a_missing_topic_raises_with_the_first_poll(
    cluster: ScriptedKafkaCluster, client: KafkaClient
):
    consumer = await client.consumer("missing", group="g")

    met = []
    for _ in range(2):  # this cluster has no coordinator, which the first error may be about
        with pytest.raises(ClientError) as error:
            await consumer.get(60)
        met.append(str(error.value))
    assert any("there is no such topic: create it" in one for one in met)


@on_cluster
async def test_a_batch_that_cannot_be_encoded_fails_its_messages_only(
    cluster: ScriptedKafkaCluster, client: KafkaClient, monkeypatch: pytest.MonkeyPatch
):
    seal = ProducerBatch.seal

    def broken(batch: ProducerBatch, codec: int) -> None:
        if batch.partition == 0:
            raise RuntimeError("no codec")
        seal(batch, codec)

    monkeypatch.setattr(ProducerBatch, "seal", broken)
    producer = await client.producer()
    async with asyncio.timeout(60):
        with pytest.raises(ClientError, match=r"could not be encoded.*no codec"):
            await producer.send(TOPIC, b"a", partition=0)
        assert (await producer.send(TOPIC, b"b", partition=1)).offset == 0


@pytest.mark.parametrize(
    "step", ["_send_round", "_request", "_take_answer", "_identify", "_connect", "_version"]
)
def test_an_unexpected_error_in_the_sender_fails_the_messages(
    step: str, monkeypatch: pytest.MonkeyPatch
):
    @on_cluster
    async def run(_cluster: ScriptedKafkaCluster, client: KafkaClient) -> None:
        producer = await client.producer(delivery_timeout_s=60, close_timeout_s=0.1)

        def broken(*_: Any, **__: Any) -> Any:
            raise RuntimeError("broken")

        async def broken_task(*_: Any, **__: Any) -> Any:
            raise RuntimeError("broken")

        is_task = step in {"_identify", "_connect"}
        monkeypatch.setattr(producer._sender, step, broken_task if is_task else broken)
        async with asyncio.timeout(60):
            with pytest.raises(ClientError, match="broken"):
                await producer.send(TOPIC, b"a", partition=0)

    run()


@on_cluster
async def test_an_answer_that_breaks_the_decoder_is_a_lost_connection(
    cluster: ScriptedKafkaCluster, client: KafkaClient, monkeypatch: pytest.MonkeyPatch
):
    connection = await client.cluster.any_connection()

    def broken(*_: Any) -> Any:
        raise RuntimeError("broken")

    monkeypatch.setattr(connection, "_decode", broken)
    with pytest.raises(ClientError, match=r"the answer to Metadata cannot be read.*broken"):
        await client.cluster.request_metadata([TOPIC])


@on_cluster
async def test_an_unexpected_error_in_a_task_of_a_consumer_is_raised_by_every_call(
    cluster: ScriptedKafkaCluster, client: KafkaClient, monkeypatch: pytest.MonkeyPatch
):
    consumer = await client.consumer(reset_to=EARLIEST)

    async def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("broken")

    monkeypatch.setattr(consumer._fetcher, "_fetch", broken)
    await consumer.assign([(TOPIC, 0)])
    for _ in range(2):
        with pytest.raises(ClientError, match=r"the consumer failed.*broken"):
            await consumer.get(60)
    await consumer.close()


@on_cluster
async def test_a_silent_server_costs_no_more_than_the_request_time_out(
    cluster: ScriptedKafkaCluster, client: KafkaClient
):
    client.cluster.timeout_s = 0.3
    cluster.next_up[METADATA].extend([SILENCE] * 1_000)

    async with asyncio.timeout(60):
        with pytest.raises(ServerUnreachable):
            await client.cluster.topic_names()
