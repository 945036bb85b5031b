"""Partitions of a session are parked until they have news, and watch their logs."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest

from tests.gateway.kafka.fetch.test_fetch import bases
from tests.gateway.kafka.fetch.test_sessions import transactional
from tests.gateway.kafka.reader import (
    NAMED,
    UNKNOWN_ID,
    WRONG_EPOCH,
    Reader,
    fill,
    indexes,
    reported,
    waiting,
)
from tests.gateway.kafka.rig import Rig, settle
from tests.gateway.loop import on_loop
from tests.waiting import pass_time
from trilogue.gateway.kafka.context import KafkaSettings
from trilogue.gateway.kafka.fetch.sessions import EVICTABLE_AFTER_S
from trilogue.wire.kafka.fetch import (
    PartitionData,
)

# ---- waiting


@on_loop
async def test_an_incremental_fetch_waits_until_something_moves():
    async with Rig() as rig:
        rig.topic("t", partitions=3)
        reader = Reader(rig)
        await reader.full(0, 0, 0)
        reader.peer.send(reader.build_request(max_wait_ms=60_000), NAMED)
        await settle()
        assert reader.peer.answered == 0
        begin = rig.loop.time()

        await fill(rig, "a", index=2)
        await settle()

        assert indexes(reported(reader.peer.answer())) == [2]
        assert rig.loop.time() - begin < 0.01


@on_loop
async def test_unknown_partition_is_returned_after_max_wait():
    """As in Kafka: a client of an unknown topic would otherwise poll again without a pause."""
    async with Rig() as rig:
        rig.topic("t")
        reader = Reader(rig)
        await reader.full(0)
        begin = rig.loop.time()

        (unknown,) = await reader.request({7: 0}, max_wait_ms=500)

        assert (unknown.error_code, rig.loop.time() - begin) == (3, pytest.approx(0.5, abs=0.01))


@on_loop
async def test_unchanged_partitions_are_not_scanned():
    """A fetch costs what moved, not what is in the session."""
    async with Rig() as rig:
        rig.topic("t", partitions=50)
        reader = Reader(rig)
        await reader.full(*[0] * 50)
        (session,) = rig.gateway.fetch_sessions._sessions.values()
        assert (session.dirty, waiting(rig)) == (set(), 50)

        await fill(rig, "a", index=7)
        assert {each.requested.partition for each in session.dirty} == {7}
        await reader.request()
        assert {each.requested.partition for each in session.dirty} == {7}, "more than was read"
        await reader.request({7: 1})

        assert (session.dirty, waiting(rig)) == (set(), 50)


@on_loop
async def test_a_later_request_of_the_session_overtakes_one_that_waits():
    """Kafka: "the session epoch changed in between": the first one gets 71."""
    async with Rig() as rig:
        rig.topic("t")
        reader = Reader(rig)
        await reader.full(0)
        first = reader.peer
        first.send(reader.build_request(max_wait_ms=60_000), NAMED)
        await settle()

        reader.peer, reader.epoch = rig.peer(), reader.epoch + 1
        assert await reader.request() == []

        await first.wait()
        answer = first.answer()
        assert (answer.error_code, answer.session_id) == (WRONG_EPOCH, reader.session_id)
        await fill(rig, "a")
        assert indexes(await reader.request()) == [0]


@on_loop
async def test_pipelined_requests_of_a_session_are_answered_in_order():
    async with Rig() as rig:
        rig.topic("t")
        reader = Reader(rig)
        await reader.full(0)
        for _ in range(3):
            reader.peer.send(reader.build_request(max_wait_ms=100), NAMED)
            reader.epoch += 1

        await fill(rig, "a")
        for _ in range(3):
            await reader.peer.wait()
            answer = reader.peer.answer()

            assert (answer.error_code, indexes(reported(answer))) == (0, [0])


@on_loop
async def test_a_session_that_ends_while_its_fetch_waits_answers_that_one():
    async with Rig(settings=KafkaSettings(fetch_sessions_max=1)) as rig:
        rig.topic("t")
        reader, other = Reader(rig), Reader(rig)
        await reader.full(0)
        await pass_time(EVICTABLE_AFTER_S)
        reader.peer.send(reader.build_request(max_wait_ms=200_000), NAMED)
        await pass_time(EVICTABLE_AFTER_S + 1)
        await other.full(0)
        assert other.session_id != 0

        await fill(rig, "a")
        await settle()

        answer = reader.peer.answer()
        assert (answer.error_code, answer.session_id) == (0, 0)
        assert bases(reported(answer)[0].records) == [0]
        assert waiting(rig) == 0
        assert await reader.code() == (UNKNOWN_ID, 0)


@on_loop
async def test_changes_of_a_held_fetch_are_returned_at_max_wait():
    """A new start, or an end beyond the reader's limit, is not worth a response by itself."""
    async with Rig() as rig:
        topic = rig.topic("t", partitions=3)
        await fill(rig, "a", "b", index=0)
        reader = Reader(rig)
        await reader.full(2, 0, 0, isolation_level=1)
        topic.partitions[1].log.restore_transaction(memoryview(transactional()))
        reader.peer.send(reader.build_request(max_wait_ms=500, isolation_level=1), NAMED)
        await settle()

        topic.partitions[0].log.retain_from(1)
        await fill(rig, "behind an open transaction", index=1)
        await settle()
        assert reader.peer.answered == 0

        await reader.peer.wait()
        start, end = reported(reader.peer.answer())
        assert (start.partition_index, start.log_start_offset) == (0, 1)
        assert (end.partition_index, end.high_watermark, bases(end.records)) == (1, 1, [])


# ---- against a model


class Model:
    """The expected behaviour, by scanning every partition each time."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.wanted: dict[int, int] = {}  # partition -> offset, in serving order
        self.known: dict[int, tuple[int, int]] = {}

    def want(self, offsets: dict[int, int], forget: Iterable[int]) -> None:
        self.wanted.update(offsets)
        for index in forget:
            self.wanted.pop(index, None)
            self.known.pop(index, None)

    def answer(self, *, may_rotate: bool) -> list[tuple[int, int, int, int, bool]]:
        found = []
        for index, offset in list(self.wanted.items()):
            log = self.rig.gateway.topic("t").partitions[index].log
            code = 0 if log.start_offset <= offset <= log.end_offset else 1
            end, start = (-1, -1) if code else (log.high_watermark, log.start_offset)
            has_more = not code and offset < end
            if code or has_more or self.known.get(index) != (end, start):
                found.append((index, code, end, start, has_more))
            self.known[index] = (end, start)
            if has_more and may_rotate:
                self.wanted[index] = self.wanted.pop(index)
        return found


@pytest.mark.parametrize("seed", range(12))
@on_loop
async def test_session_returns_the_same_as_a_full_scan(seed):
    random, count = Random(seed), 6
    async with Rig() as rig:
        topic = rig.topic("t", partitions=count)
        reader, model = Reader(rig, version=random.choice([7, 11, 12, 13, 17])), Model(rig)

        def seen(partitions: list[PartitionData]) -> list[tuple[int, int, int, int, bool]]:
            return [
                (
                    each.partition_index,
                    each.error_code,
                    each.high_watermark,
                    each.log_start_offset,
                    len(each.records) > 0,
                )
                for each in partitions
            ]

        model.want(dict.fromkeys(range(3), 0), [])
        assert seen(await reader.full(0, 0, 0)) == model.answer(may_rotate=False)
        for _ in range(80):
            index = random.randrange(count)
            log = topic.partitions[index].log
            offsets, forget = {}, []
            match random.randrange(8):
                case 0 | 1:
                    await fill(rig, "v", index=index)
                case 2:
                    log.retain_from(random.randint(log.start_offset, log.high_watermark))
                case 3 | 4:
                    offsets = {index: log.high_watermark}
                case 5:
                    offsets = {each: random.randint(0, 5) for each in random.sample(range(6), 2)}
                case 6 if len(model.wanted.keys() - {index}) > 0:
                    forget = [index]
                case _:
                    await rig.flush() if log.tail_bytes else None
            model.want(offsets, forget)

            assert seen(await reader.request(offsets, forget)) == model.answer(may_rotate=True)

        assert waiting(rig) <= len(model.wanted)
