"""ShareFetch and ShareAcknowledge: sessions, waits, acknowledgements, access (KIP-932)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.gateway.kafka.fetch.test_read_committed import A, data, marker, write
from tests.gateway.kafka.rig import Peer, Rig, batch, settle, versions
from tests.gateway.loop import on_loop
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.topics.partition import Partition
from trilogue.entry.control import Outcome
from trilogue.entry.walk import walk_headers
from trilogue.gateway.kafka.share import sessions
from trilogue.gateway.kafka.share.reading import ShareReader
from trilogue.gateway.kafka.share.sessions import (
    INITIAL_EPOCH,
    ShareSession,
    ShareSessionCache,
    ShareSessionKey,
    TopicPartitionKey,
)
from trilogue.gateway.steps import next_step
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.share.acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from trilogue.wire.kafka.share.fetch import (
    AcknowledgementBatch,
    ShareFetchPartition,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareFetchTopic,
    ShareForgottenTopic,
)

VERSIONS = pytest.mark.parametrize("version", versions(78))
ACCEPT, RELEASE, RENEW = 1, 2, 4
LATEST = 2


def acks(*ranges: tuple[int, int, int]) -> list[AcknowledgementBatch]:
    return [
        AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[kind])
        for first, last, kind in ranges
    ]


class OpenConnection:
    """A connection that does not close."""

    def __init__(self) -> None:
        self.closing: dict[object, Callable[[], None]] = {}


class Member:
    """A member of share group g that reads partition 0 of one topic."""

    def __init__(self, rig: Rig, topic_id: bytes, name: str = "m", version: int = LATEST) -> None:
        self.peer = rig.peer()
        self.topic_id = topic_id
        self.name = name
        self.version = version
        self.epoch = 0

    def make_fetch(self, *ranges: tuple[int, int, int], **fields: object) -> ShareFetchRequest:
        partition = ShareFetchPartition(partition_index=0, acknowledgement_batches=acks(*ranges))
        topics = [ShareFetchTopic(topic_id=self.topic_id, partitions=[partition])]
        given = {
            "group_id": "g", "member_id": self.name, "share_session_epoch": self.epoch,
            "max_wait_ms": 0, "max_bytes": 1 << 20, "max_records": 100, "topics": topics,
        }  # fmt: skip
        self.epoch += 1
        return ShareFetchRequest(**{**given, **fields})

    async def fetch(self, *ranges: tuple[int, int, int], **fields: object) -> ShareFetchResponse:
        return await self.peer.request(self.make_fetch(*ranges, **fields), self.version)

    def make_ack(self, *ranges: tuple[int, int, int], **fields: object) -> ShareAcknowledgeRequest:
        partition = AcknowledgePartition(partition_index=0, acknowledgement_batches=acks(*ranges))
        topics = [AcknowledgeTopic(topic_id=self.topic_id, partitions=[partition])]
        given = {
            "group_id": "g", "member_id": self.name, "share_session_epoch": self.epoch,
            "topics": topics,
        }  # fmt: skip
        self.epoch += 1
        return ShareAcknowledgeRequest(**{**given, **fields})


async def configure(rig: Rig, **settings: str) -> None:
    values = {f"share.{key.replace('_', '.')}": value for key, value in settings.items()}
    await rig.commit(rig.broker.group_values.plan_alter("g", values))


async def start(rig: Rig, *batches: bytes, **settings: str) -> bytes:
    """Make a topic with batches and a group that reads from its start."""
    topic = rig.topic("t")
    await write(rig, *batches)
    await configure(rig, auto_offset_reset="earliest", **settings)
    return topic.topic_id


def acquired(response: ShareFetchResponse) -> list[tuple[int, int, int]]:
    assert not response.error_code
    return [
        (each.first_offset, each.last_offset, each.delivery_count)
        for topic in response.responses
        for partition in topic.partitions
        for each in partition.acquired_records
    ]


def bases(response: ShareFetchResponse) -> list[int]:
    (topic,) = response.responses
    return [base for _, _, base, *_ in walk_headers(topic.partitions[0].records)]


async def leave(peer: Peer) -> None:
    peer.transport.abort()
    await settle()


@VERSIONS
@on_loop
async def test_records_are_acquired_and_acknowledged_with_the_next_fetch(version: int):
    async with Rig() as rig:
        topic_id = await start(rig, batch("a", "b"), batch("c"))
        member = Member(rig, topic_id, version=version)

        first = await member.fetch()
        assert (acquired(first), bases(first)) == ([(0, 2, 1)], [0, 2])
        assert first.acquisition_lock_timeout_ms == 30_000
        second = await member.fetch((0, 1, ACCEPT), (2, 2, RELEASE))

        assert (acquired(second), bases(second)) == ([(2, 2, 2)], [2])
        assert second.responses[0].partitions[0].acknowledge_error_code == 0


@on_loop
async def test_a_fetch_waits_for_records_and_for_those_that_others_give_back():
    async with Rig() as rig:
        topic_id = await start(rig)
        one, two = Member(rig, topic_id, "one"), Member(rig, topic_id, "two")
        await one.fetch()
        one.peer.send(one.make_fetch(max_wait_ms=60_000), LATEST)
        await settle()
        assert not one.peer.answered

        await write(rig, batch("a", "b"))
        await one.peer.wait()
        assert acquired(one.peer.answer()) == [(0, 1, 1)]
        await two.fetch()
        two.peer.send(two.make_fetch(max_wait_ms=60_000), LATEST)
        await settle()
        assert not two.peer.answered
        await one.peer.request(one.make_ack((0, 0, ACCEPT), (1, 1, RELEASE)), LATEST)
        await two.peer.wait()

        assert acquired(two.peer.answer()) == [(1, 1, 2)]


@on_loop
async def test_an_idle_fetch_ends_with_its_wait():
    async with Rig() as rig:
        member = Member(rig, await start(rig))
        await member.fetch()

        response = await member.fetch(max_wait_ms=500)

        assert (response.error_code, response.responses) == (0, [])


@on_loop
async def test_many_partitions_are_read_in_steps_and_after_that_those_that_moved(
    monkeypatch: pytest.MonkeyPatch,
):
    read: list[int] = []
    steps: list[None] = []
    acquire = ShareReader.acquire

    async def acquire_and_note(reader: ShareReader, partition: Partition, *rest: Any) -> Any:
        read.append(partition.partition_id)
        return await acquire(reader, partition, *rest)

    async def step_and_note() -> None:
        steps.append(None)
        await next_step()

    monkeypatch.setattr(ShareReader, "acquire", acquire_and_note)
    monkeypatch.setattr("trilogue.gateway.kafka.share.fetch.next_step", step_and_note)
    async with Rig() as rig:
        topic = rig.topic("t", partitions=120)
        ids = [each.partition_id for each in topic.partitions]
        member = Member(rig, topic.topic_id)
        partitions = [
            ShareFetchPartition(partition_index=index, acknowledgement_batches=[])
            for index in range(120)
        ]
        topics = [ShareFetchTopic(topic_id=topic.topic_id, partitions=partitions)]
        await member.fetch(topics=topics)
        assert (sorted(read), len(steps)) == (ids, 2)

        read.clear()
        member.peer.send(member.make_fetch(topics=[], max_wait_ms=60_000), LATEST)
        await settle()
        assert (len(read), member.peer.answered) == (120, 0)
        read.clear()
        await write(rig, batch("a", "b"))
        await member.peer.wait()

        assert (read, acquired(member.peer.answer())) == (ids[:1], [(0, 1, 1)])


@on_loop
async def test_only_the_first_batch_of_a_response_exceeds_its_bytes():
    async with Rig() as rig:
        large = "x" * 1_000
        topic_id = await start(rig, *[batch(large)] * 4)
        other = rig.topic("u")
        await write(rig, batch(large), topic=other)
        member = Member(rig, topic_id)
        both = [
            ShareFetchTopic(topic_id=each, partitions=[ShareFetchPartition(partition_index=0)])
            for each in (topic_id, other.topic_id)
        ]

        found = [acquired(await member.fetch(max_bytes=1_500, topics=both))]
        found += [acquired(await member.fetch(max_bytes=1_500)) for _ in range(2)]
        found += [acquired(await member.fetch(max_bytes=500))]
        found += [acquired(await member.fetch(max_bytes=2_500))]

        one = [(0, 0, 1)]
        assert (found[0], sorted(found[1:3])) == (one, [one, [(1, 1, 1)]])
        assert found[3:] == [[(2, 2, 1)], [(3, 3, 1)]]


@on_loop
async def test_a_group_without_settings_begins_at_the_end():
    async with Rig() as rig:
        topic_id = rig.topic("t").topic_id
        await write(rig, batch("before"))
        member = Member(rig, topic_id)
        assert acquired(await member.fetch()) == []

        await write(rig, batch("after"))

        assert acquired(await member.fetch()) == [(1, 1, 1)]


@on_loop
async def test_a_group_begins_some_time_ago():
    async with Rig() as rig:
        topic_id = rig.topic("t").topic_id
        hour_ms = 3_600_000
        await write(
            rig,
            batch("old", timestamp=rig.now_ms - 2 * hour_ms),
            batch("new", timestamp=rig.now_ms - hour_ms // 2),
        )
        await configure(rig, auto_offset_reset="by_duration:PT1H")

        assert acquired(await Member(rig, topic_id).fetch()) == [(1, 1, 1)]


@on_loop
async def test_sessions_are_checked():
    async with Rig() as rig:
        topic_id = await start(rig, batch("a"))
        member = Member(rig, topic_id)
        assert (await member.fetch(share_session_epoch=1)).error_code == 122
        assert (await member.fetch(share_session_epoch=-1)).error_code == 122
        await member.fetch(share_session_epoch=0)
        assert (await member.fetch(share_session_epoch=5)).error_code == 123
        refused = await member.fetch((0, 0, ACCEPT), share_session_epoch=0)
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        assert (await member.fetch(group_id="", share_session_epoch=1)).error_code == 42
        first = await member.peer.request(member.make_ack(share_session_epoch=0), LATEST)
        assert first.error_code == 123
        assert (await member.fetch(share_session_epoch=1)).error_code == 0


@on_loop
async def test_there_is_a_limit_of_sessions():
    async with Rig() as rig:
        topic_id = await start(rig)
        rig.gateway.share_sessions.sessions_max = 1
        await Member(rig, topic_id, "one").fetch()

        refused = await Member(rig, topic_id, "two").fetch()

        assert refused.error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED


def test_a_principal_has_as_many_sessions_and_partitions_as_it_leaves_free(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(sessions, "PARTITIONS_MAX", 8)
    cache = ShareSessionCache(lambda *_: None, sessions_max=4)
    keys = [TopicPartitionKey(bytes(16), index) for index in range(8)]
    connection = OpenConnection()

    def open_session(creator: str, number: int) -> ShareSession | ErrorCode:
        key = ShareSessionKey("g", f"{creator}-{number}")
        return cache.begin(key, INITIAL_EPOCH, connection, creator)

    one, two = (open_session("a", number) for number in range(2))
    assert isinstance(one, ShareSession)
    assert isinstance(two, ShareSession)
    assert open_session("a", 2) is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    other = open_session("b", 0)
    assert isinstance(other, ShareSession)

    assert cache.add(one, keys[:4])
    assert not cache.add(two, keys[:1])
    assert cache.add(other, keys[:2])
    cache.close(one)
    assert cache.add(two, keys[:3])
    assert isinstance(open_session("a", 2), ShareSession)


@on_loop
async def test_the_last_request_of_a_session_gives_records_back():
    async with Rig() as rig:
        topic_id = await start(rig, batch("a", "b", "c"))
        one, two = Member(rig, topic_id, "one"), Member(rig, topic_id, "two")
        await one.fetch()

        closing = one.make_ack((0, 0, ACCEPT), share_session_epoch=-1)
        assert (await one.peer.request(closing, LATEST)).error_code == 0

        assert acquired(await two.fetch()) == [(1, 2, 1)]
        assert (await one.fetch(share_session_epoch=1)).error_code == 122


@on_loop
async def test_a_closed_connection_gives_records_back():
    async with Rig() as rig:
        topic_id = await start(rig, batch("a", "b"))
        one, two = Member(rig, topic_id, "one"), Member(rig, topic_id, "two")
        await one.fetch()
        assert acquired(await two.fetch()) == []

        await leave(one.peer)

        assert acquired(await two.fetch()) == [(0, 1, 1)]
        assert len(rig.gateway.share_sessions) == 1


@on_loop
async def test_a_forgotten_partition_is_not_read():
    async with Rig() as rig:
        topic_id = await start(rig)
        member = Member(rig, topic_id)
        await member.fetch()
        await write(rig, batch("a"))

        forgotten = [ShareForgottenTopic(topic_id=topic_id, partitions=[0])]
        response = await member.fetch(topics=[], forgotten_topics_data=forgotten)

        assert response.responses == []


@on_loop
async def test_limits_of_records_cut_batches_only_in_strict_mode():
    async with Rig() as rig:
        topic_id = await start(rig, batch("a", "b", "c"), batch("d", "e"))
        strict = Member(rig, topic_id, "strict")
        soft = Member(rig, topic_id, "soft")

        assert acquired(await strict.fetch(max_records=2, share_acquire_mode=1)) == [(0, 1, 1)]
        assert acquired(await soft.fetch(max_records=2)) == [(2, 4, 1)]


@on_loop
async def test_acknowledgements_are_checked():
    async with Rig() as rig:
        topic_id = await start(rig, batch("a", "b", "c"))
        member, other = Member(rig, topic_id), Member(rig, topic_id, "other")
        await member.fetch()
        await other.fetch()

        async def code(who: Member, *ranges: tuple[int, int, int], **fields: object) -> int:
            response = await who.peer.request(who.make_ack(*ranges, **fields), LATEST)
            assert not response.error_code
            return response.responses[0].partitions[0].error_code

        assert await code(other, (0, 2, ACCEPT)) == 121
        assert await code(member, (0, 3, ACCEPT)) == 121
        assert await code(member, (2, 1, ACCEPT)) == 42
        assert await code(member, (0, 1, ACCEPT), (1, 2, ACCEPT)) == 42
        assert await code(member, (0, 0, 9)) == 42
        assert await code(member, (0, 0, RENEW)) == 42
        assert await code(member, (0, 0, RENEW), is_renew_ack=True) == 0
        assert await code(member, (0, 2, ACCEPT)) == 0


@on_loop
async def test_a_group_may_forbid_to_renew():
    async with Rig() as rig:
        topic_id = await start(rig, batch("a"), renew_acknowledge_enable="false")
        member = Member(rig, topic_id)
        await member.fetch()

        response = await member.peer.request(
            member.make_ack((0, 0, RENEW), is_renew_ack=True), LATEST
        )

        assert response.responses[0].partitions[0].error_code == ErrorCode.INVALID_REQUEST


@on_loop
async def test_a_request_that_renews_reads_nothing():
    async with Rig() as rig:
        topic_id = await start(rig, batch("a"))
        member = Member(rig, topic_id)
        await member.fetch(max_records=1)
        await write(rig, batch("b"))

        renewing = {"is_renew_ack": True, "max_bytes": 0, "max_records": 0}
        response = await member.fetch((0, 0, RENEW), **renewing)
        refused = await member.fetch((0, 0, RENEW), is_renew_ack=True)

        assert (acquired(response), refused.error_code) == ([], ErrorCode.INVALID_REQUEST)


@on_loop
async def test_acknowledgements_that_are_not_durable_are_not_confirmed():
    async with Rig() as rig:
        topic_id = await start(rig, batch("a"))
        member = Member(rig, topic_id)
        await member.fetch()
        rig.fail_disk("write")

        response = await member.peer.request(member.make_ack((0, 0, ACCEPT)), LATEST)

        code = response.responses[0].partitions[0].error_code
        assert code == ErrorCode.KAFKA_STORAGE_ERROR


@on_loop
async def test_control_records_are_passed_over_and_aborted_ones_by_isolation():
    async with Rig() as rig:
        batches = data(A), marker(A, Outcome.ABORT), data(None), data(A)
        topic_id = await start(rig, *batches, isolation_level="read_committed")
        member = Member(rig, topic_id)

        assert acquired(await member.fetch()) == [(2, 2, 1)]  # offset 3 is of an open transaction
        await write(rig, marker(A, Outcome.COMMIT))
        assert acquired(await member.fetch((2, 2, ACCEPT))) == [(3, 3, 1)]
        await member.fetch((3, 3, ACCEPT))

        positions = rig.broker.share_partitions.positions.of_group("g")
        assert [each.mark for each in positions.values()] == [5]


@on_loop
async def test_records_of_segments_are_acquired():
    async with Rig() as rig:
        topic_id = await start(rig, batch("a", "b"), batch("c"))
        await rig.flush()
        await write(rig, batch("d"))
        member = Member(rig, topic_id)

        response = await member.fetch()

        assert (acquired(response), bases(response)) == ([(0, 3, 1)], [0, 2, 3])


@on_loop
async def test_access_is_checked():
    async with Rig() as rig:
        topic_id = await start(rig, batch("a"))
        member = Member(rig, topic_id)
        await member.fetch()
        rig.rules.deny(Operation.READ, ResourceKind.TOPIC, "public/default/t")
        denied = await member.fetch((0, 0, ACCEPT))
        partition = denied.responses[0].partitions[0]
        assert (partition.error_code, partition.acknowledge_error_code) == (29, 29)
        rig.rules.deny(Operation.READ, ResourceKind.GROUP, "g")
        assert (await member.fetch()).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        response = await member.peer.request(member.make_ack(), LATEST)
        assert response.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED


@on_loop
async def test_an_unknown_topic_or_partition_is_an_error_of_its_own():
    async with Rig() as rig:
        topic_id = await start(rig, batch("a"))
        member = Member(rig, topic_id)
        topics = [
            ShareFetchTopic(topic_id=bytes(16), partitions=[ShareFetchPartition()]),
            ShareFetchTopic(topic_id=topic_id, partitions=[ShareFetchPartition(partition_index=7)]),
        ]

        response = await member.fetch(topics=topics)

        codes = {topic.partitions[0].error_code for topic in response.responses}
        assert codes == {ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
