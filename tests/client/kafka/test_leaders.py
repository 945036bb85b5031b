"""A partition without a leader: whatever wants it waits, and whatever does not goes on."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.client.kafka.scripted import FETCH, METADATA, TOPIC, ScriptedKafkaCluster, on_cluster
from trilogue.client.kafka import EARLIEST, KafkaClient, KafkaError
from trilogue.wire.kafka.errors import ErrorCode

LEADERLESS = 1
FETCH_KEY, NO_SESSIONS = 1, (4, 6)  # every request names all that is wanted


class Election:
    """Partition 1 of every topic has no leader until a test gives it one."""

    def __init__(self, cluster: ScriptedKafkaCluster) -> None:
        self.is_over = False
        self._usual = cluster.on_MetadataRequest
        cluster.on_MetadataRequest = self.answer  # type: ignore[method-assign]

    def answer(self, request: Any, code: int) -> Any:
        answer = self._usual(request, code)
        for topic in answer.topics:
            for row in topic.partitions:
                if row.partition_index == LEADERLESS and not self.is_over:
                    row.error_code, row.leader_id = ErrorCode.LEADER_NOT_AVAILABLE, -1
        return answer


@on_cluster(nodes=2)
async def test_others_are_written_and_read_while_one_partition_has_no_leader(
    cluster: ScriptedKafkaCluster, client: KafkaClient
):
    election = Election(cluster)
    cluster.served[FETCH_KEY] = NO_SESSIONS
    async with asyncio.timeout(60):
        producer = await client.producer()
        late = await producer.submit(TOPIC, b"late", partition=LEADERLESS)
        for number in (0, 2):
            await producer.send(TOPIC, b"now", partition=number)
        consumer = await client.consumer(reset_to=EARLIEST, max_wait_s=0.01)
        await consumer.assign([(TOPIC, number) for number in range(3)])
        got = [await consumer.get(60) for _ in range(2)]

        assert [one.value for one in got if one] == [b"now", b"now"]
        assert await producer.partitions(TOPIC) == 3
        assert await client.cluster.partitions(TOPIC) == [0, 1, 2]
        assert not late.done()
        election.is_over = True
        await late
        last = await consumer.get(60)
    assert last is not None
    assert (last.partition, last.value) == (LEADERLESS, b"late")


@on_cluster(nodes=2)
async def test_others_are_read_on_while_the_leader_of_one_is_gone(
    cluster: ScriptedKafkaCluster, client: KafkaClient
):
    """A moved partition is requested again; the leader of another one stays known."""
    cluster.served[FETCH_KEY] = NO_SESSIONS
    async with asyncio.timeout(60):
        producer = await client.producer()
        for number in range(3):
            await producer.send(TOPIC, b"first", partition=number)
        consumer = await client.consumer(reset_to=EARLIEST, max_wait_s=0.01)
        await consumer.assign([(TOPIC, number) for number in range(3)])
        for _ in range(3):
            await consumer.get(60)
        election = Election(cluster)
        client.cluster.invalidate_leader(TOPIC, LEADERLESS)
        await cluster.saw(METADATA, len(cluster.all(METADATA)) + 1)
        for number in (0, 2):
            await producer.send(TOPIC, b"second", partition=number)
        got = [await consumer.get(60) for _ in range(2)]

        assert [one.value for one in got if one] == [b"second", b"second"]
        election.is_over = True
        await producer.send(TOPIC, b"second", partition=LEADERLESS)
        last = await consumer.get(60)
    assert last is not None
    assert (last.partition, last.value) == (LEADERLESS, b"second")


@on_cluster
async def test_a_topic_that_is_gone_does_not_hide_the_others(
    cluster: ScriptedKafkaCluster, client: KafkaClient
):
    """One request is for both; the error of one of them comes first in the response."""
    cluster.topics["a"] = 1
    async with asyncio.timeout(60):
        producer = await client.producer()
        await producer.send(TOPIC, b"here", partition=0)
        consumer = await client.consumer(reset_to=EARLIEST, max_wait_s=0.01)
        await consumer.assign([("a", 0), (TOPIC, 0)])
        del cluster.topics["a"]
        client.cluster.invalidate_leader("a")
        client.cluster.invalidate_leader(TOPIC)
        message = None
        while message is None:
            try:
                message = await consumer.get(60)
            except KafkaError as problem:
                assert "topic a" in str(problem)  # noqa: PT017 - the loop goes on after it
    assert message.value == b"here"
    assert cluster.all(FETCH)
