"""Sending where rules meet: ids that are used up, batches that are split, ends, odd arguments."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.client.kafka.scripted import (
    IDS,
    METADATA,
    PRODUCE,
    SILENCE,
    TOPIC,
    ScriptedKafkaCluster,
    on_cluster,
    refusing,
)
from tests.waiting import run_ready_tasks
from trilogue.client.errors import ClientError
from trilogue.client.kafka import ClosedError, KafkaClient
from trilogue.client.kafka.producer.accumulator import LAST_EPOCH
from trilogue.client.kafka.producer.batch import ProducerIdentity
from trilogue.wire.kafka.errors import ErrorCode

QUICK = {"retry_pause_s": 0.01}


@on_cluster
async def test_sending_waits_for_the_requested_producer_id(
    cluster: ScriptedKafkaCluster, client: KafkaClient
):
    producer = await client.producer(linger_s=5.0, **QUICK)
    for number in (0, 1):
        await producer.submit(TOPIC, b"a", partition=number)
    await producer.flush()
    queue = producer._accumulator.queues[TOPIC, 0]
    queue.identity = ProducerIdentity(queue.identity.producer_id, LAST_EPOCH)
    queue.renumber = True
    for number in (0, 1):
        await producer.submit(TOPIC, b"b", partition=number)
    await producer.flush()

    assert len(cluster.all(IDS)) == 2
    assert {header.producer_id for header in cluster.sent()[2:]} == {1001}


@on_cluster
async def test_batch_with_unknown_outcome_keeps_its_sequence_when_the_next_is_split(
    cluster: ScriptedKafkaCluster, client: KafkaClient
):
    """REQUEST_TIMED_OUT leaves open whether it is stored: under a new epoch it could be twice."""
    producer = await client.producer(linger_s=5.0, **QUICK)
    cluster.next_up[PRODUCE].extend(
        [
            refusing({0: ErrorCode.REQUEST_TIMED_OUT}),
            refusing({0: ErrorCode.MESSAGE_TOO_LARGE}),
        ]
    )
    queue = None
    for values in ((b"a",), (b"b", b"c")):
        for value in values:
            await producer.submit(TOPIC, value, partition=0)
        queue = producer._accumulator.queues[TOPIC, 0]
        queue.open = None
        producer._sender.ready(queue)
        await run_ready_tasks()
    await producer.flush()

    first, *_ = [header for header in cluster.sent() if header.base_sequence == 0]
    again = [h for h in cluster.sent() if h.max_timestamp == first.max_timestamp]
    assert {(one.producer_epoch, one.base_sequence) for one in again[:1]} == {(0, 0)}
    tried = cluster.sent()
    assert (tried[2].producer_epoch, tried[2].base_sequence, tried[2].record_count) == (0, 0, 1)


@on_cluster
async def test_first_send_to_a_topic_raises_closed_error_on_concurrent_close(
    cluster: ScriptedKafkaCluster, client: KafkaClient
):
    producer = await client.producer()
    closing: list[asyncio.Task[None]] = []

    def close(_request: Any, answer: Any) -> Any:
        closing.append(asyncio.ensure_future(producer.close()))
        return answer

    cluster.next_up[METADATA].append(close)
    async with asyncio.timeout(60):
        with pytest.raises(ClosedError):
            await producer.send(TOPIC, b"a")
    await closing[0]
    assert producer.bytes_waiting == 0


@on_cluster
async def test_record_that_cannot_be_encoded_reserves_nothing(
    cluster: ScriptedKafkaCluster, client: KafkaClient
):
    producer = await client.producer()
    with pytest.raises(ClientError, match="no time"):
        await producer.submit(TOPIC, b"a", partition=0, timestamp_ms=1 << 62)
    with pytest.raises(TypeError):
        await producer.submit(TOPIC, b"a", partition=0, headers={"h": 5})
    with pytest.raises(TypeError):
        await producer.submit(TOPIC, b"a", partition=0, headers={"h": ["x"]})
    assert producer.bytes_waiting == 0
    await producer.send(TOPIC, b"b", partition=0)

    assert [header.record_count for header in cluster.sent()] == [1]


@on_cluster
async def test_a_number_is_no_message(cluster: ScriptedKafkaCluster, client: KafkaClient):
    """bytes(5) would be five zeros."""
    producer = await client.producer()
    with pytest.raises(TypeError):
        await producer.send(TOPIC, 5)
    assert await producer.send(TOPIC, bytearray(b"a"))


@on_cluster(nodes=2)
async def test_lingering_batch_is_sent_in_time_beside_a_silent_node(
    cluster: ScriptedKafkaCluster, client: KafkaClient
):
    client.cluster.timeout_s = 300.0  # to wait for the silent node would be seen
    producer = await client.producer(linger_s=0.01, close_timeout_s=0.01)
    cluster.next_up[PRODUCE].append(SILENCE)
    await producer.submit(TOPIC, b"a", partition=0)
    await cluster.saw(PRODUCE)
    async with asyncio.timeout(60):
        assert (await producer.send(TOPIC, b"b", partition=1)).partition == 1
