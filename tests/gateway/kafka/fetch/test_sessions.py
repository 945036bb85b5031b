"""Fetch sessions: a client names its partitions once and gets what is new (KIP-227)."""

from __future__ import annotations

import pytest

from tests.gateway.kafka.fetch.test_fetch import bases
from tests.gateway.kafka.reader import (
    BY_ID,
    MIXED,
    NAMED,
    SESSIONS,
    UNKNOWN_ID,
    WRONG_EPOCH,
    Reader,
    fill,
    indexes,
    reported,
    waiting,
)
from tests.gateway.kafka.rig import Rig, batch
from tests.gateway.loop import on_loop
from tests.waiting import pass_time
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.gateway.kafka.context import KafkaSettings
from trilogue.gateway.kafka.fetch.sessions import EVICTABLE_AFTER_S, next_epoch

# ---- the session itself


@pytest.mark.parametrize("version", SESSIONS)
@on_loop
async def test_every_version_returns_only_changed_partitions(version):
    async with Rig() as rig:
        rig.topic("t", partitions=3)
        reader = Reader(rig, version=version)

        assert indexes(await reader.full(0, 0, 0)) == [0, 1, 2]
        assert await reader.request() == []
        await fill(rig, "a", index=1)
        (new,) = await reader.request()

        assert (new.partition_index, new.high_watermark, bases(new.records)) == (1, 1, [0])
        assert rig.gateway.fetch_sessions.counts["incremental"] == 2


@pytest.mark.parametrize("version", [4, 6])
@on_loop
async def test_before_version_7_there_are_none(version):
    async with Rig() as rig:
        rig.topic("t")

        assert indexes(await Reader(rig, version=version).full(0)) == [0]

        assert len(rig.gateway.fetch_sessions) == 0


@pytest.mark.parametrize(
    ("session_id", "epoch", "code", "is_opened"),
    [
        (0, 0, 0, True),
        (0, -1, 0, False),
        (5, 0, 0, True),
        (5, -1, 0, False),
        (5, 1, UNKNOWN_ID, False),
        (0, 7, UNKNOWN_ID, False),
        (0, -2, UNKNOWN_ID, False),
        (-1, 1, UNKNOWN_ID, False),
    ],
)
@on_loop
async def test_session_id_and_epoch_decide_the_type_of_a_request(
    session_id, epoch, code, is_opened
):
    """KIP-227, "Fetch request": full, sessionless, incremental; an unknown id is an error."""
    async with Rig() as rig:
        rig.topic("t")
        reader = Reader(rig)

        requested = reader.build_request({0: 0}, session_id=session_id, session_epoch=epoch)
        answer = await reader.peer.request(requested, NAMED)

        assert (answer.error_code, answer.session_id > 0) == (code, is_opened)
        assert indexes(reported(answer)) == ([] if code else [0])
        assert len(rig.gateway.fetch_sessions) == is_opened


@on_loop
async def test_a_wrong_epoch_is_refused_and_the_session_goes_on():
    async with Rig() as rig:
        rig.topic("t")
        reader = Reader(rig)
        await reader.full(0)
        await reader.request()

        assert await reader.code(session_epoch=1) == (WRONG_EPOCH, 0)
        assert await reader.code(session_epoch=3) == (WRONG_EPOCH, 0)
        assert await reader.request() == []


@on_loop
async def test_names_and_ids_do_not_mix_in_a_session():
    async with Rig() as rig:
        rig.topic("t")
        for first, second in ((NAMED, BY_ID), (BY_ID, NAMED)):
            reader = Reader(rig, version=first)
            await reader.full(0)

            reader.version = second
            assert await reader.code() == (MIXED, 0)
            reader.version = first
            assert await reader.request() == []


@on_loop
async def test_a_full_request_closes_the_session_that_it_names():
    async with Rig() as rig:
        rig.topic("t")
        reader = Reader(rig)
        await reader.full(0)
        old = reader.session_id

        await reader.full(0, session_id=old)

        assert reader.session_id != old
        assert await reader.code(session_id=old) == (UNKNOWN_ID, 0)
        assert len(rig.gateway.fetch_sessions) == 1


@on_loop
async def test_the_last_request_closes_the_session():
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, "a")
        reader = Reader(rig)
        await reader.full(1)

        answer = await reader.peer.request(reader.build_request({0: 0}, session_epoch=-1), NAMED)

        assert (answer.session_id, bases(reported(answer)[0].records)) == (0, [0])
        assert len(rig.gateway.fetch_sessions) == 0
        assert waiting(rig) == 0
        assert await reader.code() == (UNKNOWN_ID, 0)


@on_loop
async def test_a_session_that_wants_nothing_any_more_is_closed():
    async with Rig() as rig:
        rig.topic("t", partitions=2)
        reader = Reader(rig)
        await reader.full(0, 0)

        answer = await reader.peer.request(reader.build_request(forget=[0, 1]), NAMED)

        assert (answer.session_id, answer.error_code, answer.responses) == (0, 0, [])
        assert len(rig.gateway.fetch_sessions) == 0
        assert waiting(rig) == 0


@on_loop
async def test_after_the_largest_epoch_comes_1():
    async with Rig() as rig:
        rig.topic("t")
        reader = Reader(rig)
        await reader.full(0)
        (session,) = rig.gateway.fetch_sessions._sessions.values()
        session.epoch = reader.epoch = 2**31 - 1

        await reader.request()
        reader.epoch = 1

        assert await reader.request() == []
        assert [next_epoch(each) for each in (1, 2**31 - 1)] == [2, 1]


@on_loop
async def test_a_session_belongs_to_no_connection():
    async with Rig() as rig:
        rig.topic("t")
        reader = Reader(rig)
        await reader.full(0)
        reader.peer.transport.close()
        await fill(rig, "a")

        reader.peer = rig.peer()

        assert bases((await reader.request())[0].records) == [0]


@on_loop
async def test_unknown_session_of_another_server_starts_over():
    """As after a restart: sessions are in memory only."""
    async with Rig() as rig:
        rig.topic("t")
        reader = Reader(rig)
        await reader.full(0)
        await fill(rig, "a")
        rig.gateway.fetch_sessions._sessions.clear()

        assert await reader.code() == (UNKNOWN_ID, 0)

        assert bases((await reader.full(0))[0].records) == [0]


# ---- contents of responses


@on_loop
async def test_advanced_offsets_are_sent_and_others_kept_in_the_session():
    async with Rig() as rig:
        rig.topic("t", partitions=2)
        await fill(rig, "a", "b", index=0)
        await fill(rig, "c", index=1)
        reader = Reader(rig)
        await reader.full(0, 0)

        (second,) = await reader.request({0: 2})
        assert (second.partition_index, bases(second.records)) == (1, [0])
        (first,) = await reader.request({1: 1, 0: 1})
        assert (first.partition_index, bases(first.records)) == (0, [1])
        assert await reader.request({0: 2}) == []


@on_loop
async def test_partitions_come_and_go():
    async with Rig() as rig:
        rig.topic("t", partitions=3)
        for index in range(3):
            await fill(rig, "a", index=index)
        reader = Reader(rig)
        await reader.full(1)

        assert indexes(await reader.request({1: 1, 2: 0})) == [1, 2]
        assert indexes(await reader.request(forget=[2])) == []
        await fill(rig, "b", index=1)
        await fill(rig, "b", index=2)
        assert indexes(await reader.request()) == [1]
        assert waiting(rig) == 1


@on_loop
async def test_a_new_start_of_the_log_is_reported():
    async with Rig() as rig:
        topic = rig.topic("t", partitions=2)
        await fill(rig, "a", "b")
        reader = Reader(rig)
        await reader.full(2, 0)

        topic.partitions[0].log.retain_from(1)

        (moved,) = await reader.request()
        assert (moved.partition_index, moved.log_start_offset, bases(moved.records)) == (0, 1, [])
        assert await reader.request() == []


@on_loop
async def test_partition_error_is_returned_each_time_until_resolved():
    async with Rig() as rig:
        rig.topic("t", partitions=2)
        await fill(rig, "a")
        reader = Reader(rig)
        await reader.full(1, 0)

        for _ in range(2):
            (bad,) = await reader.request({0: 9})
            assert (bad.error_code, bad.high_watermark) == (1, -1)
        (good,) = await reader.request({0: 1})

        assert (good.error_code, good.high_watermark, bases(good.records)) == (0, 1, [])
        assert await reader.request() == []


@on_loop
async def test_partition_with_returned_messages_is_served_last_next_time():
    """KIP-227, "Partition ordering": otherwise the first partitions would starve the others."""
    async with Rig() as rig:
        rig.topic("t", partitions=3)
        for index in range(3):
            await fill(rig, *["a" * 100] * 3, index=index)
        reader = Reader(rig)
        await reader.full(0, 0, 0, max_bytes=1)

        served = [indexes(await reader.request(max_bytes=1)) for _ in range(4)]

        assert served == [[0], [1], [2], [0]]


@on_loop
async def test_topics_of_a_session_may_go_and_come_again():
    """By name the new one is read; by id it is another one (103), as in Kafka."""
    async with Rig() as rig:
        first = rig.topic("t", partitions=1)
        named, by_id = Reader(rig), Reader(rig, version=BY_ID)
        await named.full(0)
        await by_id.full(0)
        delete = rig.broker.cluster.plan_delete(first.name)
        rig.meta.write_now(delete.ops(), delete.preconditions)
        delete.apply()

        assert [(await each.request())[0].error_code for each in (named, by_id)] == [3, 3]
        rig.topic("t", partitions=1)
        await fill(rig, "new")
        assert bases((await named.request())[0].records) == [0]
        assert (await by_id.request())[0].error_code == 103


@on_loop
async def test_a_partition_that_comes_later_is_found():
    async with Rig() as rig:
        topic = rig.topic("t")
        reader = Reader(rig)
        assert (await reader.full(0, 0))[1].error_code == 3

        plan = rig.broker.cluster.plan_add_partitions(topic.name, 2)
        await rig.commit(plan)

        (grown,) = await reader.request()
        assert (grown.partition_index, grown.error_code, grown.high_watermark) == (1, 0, 0)


@on_loop
async def test_session_returns_no_records_after_read_is_denied():
    async with Rig() as rig:
        rig.topic("t")
        reader = Reader(rig)
        await reader.full(0)
        await fill(rig, "secret")
        rig.rules.deny(Operation.READ, ResourceKind.TOPIC, "public/default/t")

        (refused,) = await reader.request()

        assert (refused.error_code, bytes(refused.records)) == (29, b"")


@on_loop
async def test_a_session_that_is_read_otherwise_is_looked_at_again():
    """Each request has its level: a partition parked for one level may have news for the other."""
    async with Rig() as rig:
        topic = rig.topic("t")
        reader = Reader(rig)
        await reader.full(0, isolation_level=1)
        topic.partitions[0].log.restore_transaction(memoryview(transactional()))
        await fill(rig, "a")
        assert bases((await reader.request(isolation_level=1))[0].records) == []
        assert await reader.request(isolation_level=1) == []

        (found,) = await reader.request(isolation_level=0)

        assert bases(found.records) == [0]


def transactional() -> bytes:
    return batch("v", transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)


# ---- the cache


@on_loop
async def test_a_full_cache_opens_no_more_sessions():
    async with Rig(settings=KafkaSettings(fetch_sessions_max=2)) as rig:
        rig.topic("t")
        readers = [Reader(rig) for _ in range(3)]

        for reader in readers:
            assert indexes(await reader.full(0)) == [0]

        assert [reader.session_id > 0 for reader in readers] == [True, True, False]


@on_loop
async def test_least_recently_used_session_is_evicted_first():
    """KIP-227, "Fetch session caching": after two minutes, min.incremental.fetch...eviction.ms."""
    async with Rig(settings=KafkaSettings(fetch_sessions_max=2)) as rig:
        rig.topic("t", partitions=3)
        large, small = Reader(rig), Reader(rig)
        await large.full(0, 0, 0)
        await small.full(0)
        await pass_time(EVICTABLE_AFTER_S - 1)
        await small.request()
        await pass_time(2)

        third = Reader(rig)
        await third.full(0)

        assert third.session_id > 0
        assert await large.code() == (UNKNOWN_ID, 0)
        assert await small.request() == []
        assert rig.gateway.fetch_sessions.counts["evicted"] == 1


@on_loop
async def test_else_the_smallest_old_one_goes_for_a_larger_one():
    async with Rig(settings=KafkaSettings(fetch_sessions_max=2)) as rig:
        rig.topic("t", partitions=3)
        large, small = Reader(rig), Reader(rig)
        await large.full(0, 0, 0)
        await small.full(0)
        for _ in range(2):
            await pass_time(EVICTABLE_AFTER_S / 2 + 1)
            await large.request()
            await small.request()

        same, larger, young = Reader(rig), Reader(rig), Reader(rig)
        await same.full(0)
        assert same.session_id == 0, "as small as the smallest"
        await larger.full(0, 0)
        assert larger.session_id > 0
        assert await small.code() == (UNKNOWN_ID, 0)
        await young.full(0, 0, 0)
        assert young.session_id == 0, "the others are large, or young"
        assert await large.request() == []


@on_loop
async def test_no_sessions_where_none_are_wanted():
    async with Rig(settings=KafkaSettings(fetch_sessions_max=0)) as rig:
        rig.topic("t")
        reader = Reader(rig)

        await reader.full(0)

        assert reader.session_id == 0


@on_loop
async def test_all_sessions_together_take_so_many_bytes_and_no_more():
    async with Rig(settings=KafkaSettings(fetch_sessions_bytes_max=10_000)) as rig:
        rig.topic("t", partitions=20)
        first, second, third = Reader(rig), Reader(rig), Reader(rig)
        sessions = rig.gateway.fetch_sessions

        await first.full(*[0] * 6)
        await second.full(*[0] * 4)
        await third.full(*[0] * 8)
        assert [each.session_id > 0 for each in (first, second, third)] == [True, True, False]
        answer = await first.peer.request(first.build_request(dict.fromkeys(range(20), 0)), NAMED)
        assert answer.error_code == UNKNOWN_ID, "it grew too large: start over"
        assert 0 < sessions.size_bytes <= 10_000
        await second.peer.request(second.build_request(session_epoch=-1), NAMED)
        assert (sessions.size_bytes, len(sessions), waiting(rig)) == (0, 0, 0)


@on_loop
async def test_long_names_of_nothing_count_too():
    async with Rig(settings=KafkaSettings(fetch_sessions_bytes_max=10_000)) as rig:
        rig.topic("t")
        reader = Reader(rig)
        reader.topic = "n" * 30_000

        assert (await reader.full(0))[0].error_code == 3

        assert reader.session_id == 0
