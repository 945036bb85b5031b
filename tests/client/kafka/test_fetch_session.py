"""Fetch sessions: full and incremental requests (KIP-227)."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.client.kafka.scripted import (
    FETCH,
    HANG_UP,
    TOPIC,
    ScriptedKafkaCluster,
    on_cluster,
)
from tests.waiting import run_ready_tasks
from trilogue.client.kafka import EARLIEST, LATEST, Consumer, KafkaClient
from trilogue.client.kafka.consumer.fetch_session import LAST_EPOCH, FetchPosition, FetchSession
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.fetch import FetchTopic, ForgottenTopic

A, B = ("t", 0), ("t", 1)


def request_fields(topics: list[FetchTopic]) -> dict[tuple[str, int], int]:
    return {
        (topic.topic, one.partition): one.fetch_offset
        for topic in topics
        for one in topic.partitions
    }


def gone(topics: list[ForgottenTopic]) -> list[tuple[str, int]]:
    return [(topic.topic, number) for topic in topics for number in topic.partitions]


def test_incremental_fetch_contains_only_changed_partitions():
    """A full request opens the session; then the topics are empty but for changes, and
    what is to be forgotten is named."""
    session = FetchSession()
    full, _ = session.build_next({A: FetchPosition(0, 9), B: FetchPosition(0, 9)}, by_id=False)
    opened = session.id, session.epoch
    session.on_response(0, 7)
    changed, none = session.build_next(
        {A: FetchPosition(5, 9), B: FetchPosition(0, 9)}, by_id=False
    )
    session.on_response(0, 7)
    nothing, forgotten = session.build_next({A: FetchPosition(5, 9)}, by_id=False)

    assert opened == (0, 0)
    assert request_fields(full) == {A: 0, B: 0}
    assert (request_fields(changed), gone(none)) == ({A: 5}, [])
    assert (request_fields(nothing), gone(forgotten)) == ({}, [B])
    assert (session.id, session.epoch) == (7, 2)


def test_a_session_that_is_gone_is_opened_again():
    """Errors 70 (unknown id) and 71 (wrong epoch): then a full request, to a new session (or to
    one that takes the place of the old: the same id with epoch 0)."""
    for code, left in ((70, 0), (71, 7), (106, 7)):
        session = FetchSession()
        session.build_next({A: FetchPosition(0, 9)}, by_id=False)
        session.on_response(0, 7)
        session.build_next({A: FetchPosition(0, 9)}, by_id=False)

        assert not session.on_response(code, 0)
        assert (session.id, session.epoch) == (left, 0)
        assert request_fields(session.build_next({A: FetchPosition(0, 9)}, by_id=False)[0]) == {
            A: 0
        }


def test_a_server_without_sessions_gets_everything_each_time():
    session = FetchSession()
    for _ in range(3):
        assert request_fields(session.build_next({A: FetchPosition(0, 9)}, by_id=False)[0]) == {
            A: 0
        }
        session.on_response(0, 0)
        assert (session.id, session.epoch) == (0, 0)


def test_after_the_last_epoch_comes_1():
    session = FetchSession()
    session.build_next({A: FetchPosition(0, 9)}, by_id=False)
    session.on_response(0, 7)
    session.epoch = LAST_EPOCH
    session.on_response(0, 7)

    assert session.epoch == 1


def test_topics_by_id_are_other_topics_for_a_session():
    session = FetchSession()
    session.build_next({A: FetchPosition(0, 9)}, by_id=False)
    session.on_response(0, 7)
    named, forgotten = session.build_next({(b"\1" * 16, 0): FetchPosition(0, 9)}, by_id=True)

    assert (session.id, session.epoch, forgotten) == (7, 0, [])
    assert named[0].topic_id == b"\1" * 16


async def reading(client: KafkaClient, **options: Any) -> Consumer:
    consumer = await client.consumer(reset_to=EARLIEST, retry_pause_s=0.01, **options)
    await consumer.assign([(TOPIC, number) for number in range(3)])
    return consumer


def delayed(_request: Any, answer: Any) -> Any:
    """Nothing new: repeated requests are not answered at once."""
    answer.responses = []
    return answer


@on_cluster
async def test_a_consumer_goes_on_in_its_session(
    cluster: ScriptedKafkaCluster, client: KafkaClient
):
    producer = await client.producer()
    for number in range(3):
        await producer.send(TOPIC, b"%d" % number, partition=number)
    consumer = await reading(client)
    got = [await consumer.get(60) for _ in range(3)]
    first, second, *_ = await cluster.saw(FETCH, 3)

    assert sorted(one.value or b"" for one in got if one) == [b"0", b"1", b"2"]
    assert (first.session_id, first.session_epoch) == (0, 0)
    assert len(first.topics[0].partitions) == 3
    assert (second.session_id, second.session_epoch) == (77, 1)
    assert {one.fetch_offset for topic in second.topics for one in topic.partitions} == {1}
    consumer.pause((TOPIC, 0))
    await cluster.saw(FETCH, len(cluster.all(FETCH)) + 2)
    forgotten = [one for one in cluster.all(FETCH) if one.forgotten_topics_data]
    assert forgotten[0].forgotten_topics_data[0].partitions == [0]
    await consumer.close()
    while cluster.all(FETCH)[-1].session_epoch != -1:  # the last fetch closes the session
        await cluster.saw(FETCH, len(cluster.all(FETCH)) + 1)


@on_cluster
async def test_a_consumer_whose_session_is_gone_reads_on(
    cluster: ScriptedKafkaCluster, client: KafkaClient
):
    def gone_with(code: int) -> Any:
        def change(_request: Any, answer: Any) -> Any:
            answer.error_code, answer.session_id, answer.responses = code, 0, []
            return answer

        return change

    producer = await client.producer()
    consumer = await reading(client)
    for code in (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH):
        cluster.next_up[FETCH].append(gone_with(code))
        await producer.send(TOPIC, code.name, partition=0)
        message = await consumer.get(60)
        assert message is not None
        assert message.value == code.name.encode()
    cluster.next_up[FETCH].append(HANG_UP)
    await producer.send(TOPIC, b"last", partition=2)
    message = await consumer.get(60)

    assert message is not None
    assert message.value == b"last"
    assert sum(one.session_epoch == 0 for one in cluster.all(FETCH)) == 4


@on_cluster
async def test_fetch_sent_before_a_seek_is_dropped(
    cluster: ScriptedKafkaCluster, client: KafkaClient
):
    producer = await client.producer()
    for value in (b"a", b"b", b"c"):
        await producer.send(TOPIC, value, partition=0)
    consumer = await client.consumer(reset_to=EARLIEST)
    moved = False

    def seek(_request: Any, answer: Any) -> Any:
        nonlocal moved
        if not moved:
            moved = True
            consumer.seek((TOPIC, 0), 2)
        return answer

    cluster.next_up[FETCH].append(seek)
    await consumer.assign([(TOPIC, 0)])
    message = await consumer.get(60)

    assert message is not None
    assert message.value == b"c"


@on_cluster
async def test_a_seek_during_the_connection_of_the_first_fetch_is_kept(
    cluster: ScriptedKafkaCluster, client: KafkaClient
):
    """No fetch is sent without an offset: its refusal would move the reader to `reset_to`."""
    producer = await client.producer()
    for value in (b"a", b"b"):
        await producer.send(TOPIC, value, partition=0)
    consumer = await client.consumer(reset_to=LATEST)

    def seek(_request: Any, answer: Any) -> Any:
        consumer.seek((TOPIC, 0), EARLIEST)
        return answer

    cluster.next_up["ApiVersionsRequest"].append(seek)
    await consumer.assign([(TOPIC, 0)])
    message = await consumer.get(60)

    assert message is not None
    assert message.value == b"a"
    offsets = [request_fields(each.topics).get((TOPIC, 0)) for each in cluster.all(FETCH)]
    assert 0 in offsets
    assert -1 not in offsets


@on_cluster
async def test_no_more_is_fetched_ahead_than_there_is_room_for(
    cluster: ScriptedKafkaCluster, client: KafkaClient
):
    producer = await client.producer()
    for _ in range(3):
        await producer.send(TOPIC, bytes(600), partition=0)
    consumer = await client.consumer(reset_to=EARLIEST, max_buffered_bytes=1000)
    await consumer.assign([(TOPIC, 0)])
    await cluster.saw(FETCH)
    await asyncio.sleep(0.05)  # by design: in this time a second fetch would come
    assert len(cluster.all(FETCH)) == 1
    assert len(await consumer.poll(5)) == 3
    await cluster.saw(FETCH, 2)


async def reading_with_a_full_buffer(client: KafkaClient) -> Consumer:
    """A consumer of partitions 0 and 1 whose buffer is full of messages of 0."""
    producer = await client.producer()
    for _ in range(3):
        await producer.send(TOPIC, bytes(600), partition=0)
    consumer = await client.consumer(reset_to=EARLIEST, max_buffered_bytes=1000)
    await consumer.assign([(TOPIC, 0)])
    assert len(await consumer.poll(60, 1)) == 1
    await producer.send(TOPIC, b"b", partition=1)
    await consumer.assign([(TOPIC, 0), (TOPIC, 1)])
    assert await consumer.position((TOPIC, 1)) == 0
    for _ in range(5):  # what follows a found position
        await run_ready_tasks()
    return consumer


@on_cluster
async def test_messages_of_a_paused_partition_make_room_for_others(
    cluster: ScriptedKafkaCluster, client: KafkaClient
):
    consumer = await reading_with_a_full_buffer(client)
    assert len(cluster.all(FETCH)) == 1
    consumer.pause((TOPIC, 0))
    assert [one.value for one in await consumer.poll(60)] == [b"b"]
    consumer.resume((TOPIC, 0))
    assert [one.offset for one in await consumer.poll(60)] == [1, 2]


@on_cluster
async def test_a_partition_that_is_given_up_makes_room_for_others(
    cluster: ScriptedKafkaCluster, client: KafkaClient
):
    consumer = await reading_with_a_full_buffer(client)
    assert len(cluster.all(FETCH)) == 1
    await consumer.assign([(TOPIC, 1)])
    assert [one.value for one in await consumer.poll(60)] == [b"b"]
