"""Read-ahead: the next bytes of a sequential reader are read while it gets the current ones."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any

import pytest

from tests.gateway.kafka.fetch.test_fetch import bases, fetch, fill, partitions
from tests.gateway.kafka.rig import Peer, Rig
from tests.gateway.loop import on_loop
from tests.waiting import pass_time
from trilogue.broker.names import parse_kafka
from trilogue.gateway.segments import read_ahead
from trilogue.gateway.segments.read_ahead import KEPT_S, NextRead, ReadAhead
from trilogue.wire.kafka.fetch import FetchRequest, FetchResponse

PIECE = 200  # bytes: two batches


async def stored(rig: Rig) -> None:
    """Ten batches in a segment, and two in memory."""
    rig.topic("t")
    await fill(rig, "t", *"abcdefghij")
    await rig.flush()
    await fill(rig, "t", "k", "l")


async def read(peer: Peer, offset: int, *, size: int = PIECE, version: int = 11) -> list[int]:
    requested = fetch("t", offset, partition_max_bytes=size)
    (found,) = partitions(await peer.request(requested, version))
    await pass_time(0.001)  # what follows the response begins
    assert found.error_code == 0
    return bases(found.records)


async def read_on(rig: Rig, *, times: int) -> int:
    """Read some pieces from the start; returns the next offset."""
    peer, offset = rig.peer(), 0
    for _ in range(times):
        offset = (await read(peer, offset))[-1] + 1
    return offset


@pytest.mark.parametrize("isolation_level", [0, 1])
@on_loop
async def test_all_is_read_once_and_in_order(isolation_level):
    async with Rig() as rig:
        await stored(rig)
        peer, found, runs = rig.peer(), [], []
        before = rig.executor.runs

        while len(found) < 12:
            requested = fetch(
                "t", len(found), partition_max_bytes=PIECE, isolation_level=isolation_level
            )
            (data,) = partitions(await peer.request(requested, 11))
            found += bases(data.records)
            await pass_time(0.001)  # what follows the response begins
            runs.append(rig.executor.runs - before)
            before = rig.executor.runs

        assert found == list(range(12))
        assert runs == [2, 1, 1, 1, 0, 0], "read and read on; read on; ...; from memory"
        assert rig.gateway.read_ahead.hits == 4
        assert rig.gateway.read_ahead.size_bytes == 0


@on_loop
async def test_slow_consumer_gets_no_read_ahead_after_its_first_response():
    async with Rig() as rig:
        await stored(rig)
        peer, offset = rig.peer(), 0

        for _ in range(4):
            offset = (await read(peer, offset))[-1] + 1
            await pass_time(KEPT_S + 0.1)

        assert offset == 8
        assert rig.gateway.read_ahead.hits == rig.gateway.read_ahead.size_bytes == 0
        assert rig.executor.runs == 5


@on_loop
async def test_unused_read_ahead_is_released():
    async with Rig() as rig:
        await stored(rig)
        await read_on(rig, times=2)
        assert rig.gateway.read_ahead.size_bytes == PIECE

        await pass_time(2 * KEPT_S + 0.1)

        assert rig.gateway.read_ahead.size_bytes == 0


@on_loop
async def test_smaller_fetch_gets_a_part_of_the_read_ahead():
    async with Rig() as rig:
        await stored(rig)
        offset = await read_on(rig, times=2)

        assert await read(rig.peer(), offset, size=PIECE // 2) == [offset]


@on_loop
async def test_memory_for_reading_ahead_is_bounded(monkeypatch):
    monkeypatch.setattr(read_ahead, "AHEAD_BYTES_MAX", PIECE - 1)
    async with Rig() as rig:
        await stored(rig)

        assert await read_on(rig, times=5) == 10

        assert rig.gateway.read_ahead.hits == rig.gateway.read_ahead.size_bytes == 0


@on_loop
async def test_places_are_bounded(monkeypatch):
    monkeypatch.setattr(read_ahead, "POSITIONS_MAX", 3)
    async with Rig() as rig:
        await stored(rig)
        peer = rig.peer()

        for offset in (0, 2, 4, 6, 8):
            await read(peer, offset, size=1)

        assert rig.gateway.read_ahead.expected == 3


class Queue(Executor):
    """An executor whose work waits."""

    def __init__(self) -> None:
        self.works: list[Callable[[], object]] = []

    def submit(self, work: Callable[..., object], *of: Any, **_more: Any) -> Future[Any]:
        self.works.append(partial(work, *of))
        return Future()


@on_loop
async def test_late_read_ahead_is_not_begun():
    async with Rig() as rig:
        await stored(rig)
        (plog,) = [each.log for each in rig.broker.cluster.topic(parse_kafka("t")).partitions]
        queue = Queue()
        ahead = ReadAhead(queue, rig.memory.unsent)
        wanted = NextRead(plog, (0, 2, False), PIECE, None)
        ahead.expect([wanted], ahead=True)
        ahead.expect([wanted], ahead=True)
        assert len(queue.works) == 1
        await pass_time(KEPT_S * 1.1)
        assert ahead.find_expected(wanted.key) is None, "it is late"
        assert ahead.size_bytes == 0
        reads = rig.fs.counts["read"]
        queue.works[0]()
        assert rig.fs.counts["read"] == reads


@pytest.mark.parametrize("is_session", [False, True])
@on_loop
async def test_partitions_without_room_are_read_ahead_for_the_next_response(is_session):
    async with Rig() as rig:
        for topic in "abc":
            rig.topic(topic)
            await fill(rig, topic, *"klmn")
        await rig.flush()
        peer, offsets, session_id = rig.peer(), dict.fromkeys("abc", 0), 0
        runs = []

        for epoch in range(6):
            before = rig.executor.runs
            request = fetch_all(offsets, max_bytes=PIECE)
            if is_session:
                request.session_id, request.session_epoch = session_id, epoch
            answer = await peer.request(request, 11)
            session_id = answer.session_id
            for topic in answer.responses:
                for each in topic.partitions:
                    if each.records:
                        offsets[topic.topic] = bases(each.records)[-1] + 1
            await pass_time(0.001)  # what follows the response begins
            runs.append(rig.executor.runs - before)

        assert offsets == dict.fromkeys("abc", 4)
        assert runs[0] == 2, "read, and read on"
        assert max(runs[1:]) == 1, "only read on"
        assert rig.gateway.read_ahead.size_bytes == 0


@on_loop
async def test_a_partition_whose_bytes_do_not_fit_waits_for_the_next_response():
    async with Rig() as rig:
        for topic in "ab":
            rig.topic(topic)
            await fill(rig, topic, *"klmn")
        await rig.flush()
        peer = rig.peer()
        first = await peer.request(fetch_all({"a": 0, "b": 0}, max_bytes=2 * PIECE), 11)
        await pass_time(0.001)  # both are read ahead
        before = rig.executor.runs, rig.gateway.read_ahead.hits

        found = await peer.request(fetch_all({"a": 2, "b": 2}, max_bytes=PIECE), 11)

        whole = sizes(first)["a"]
        assert PIECE / 2 < whole < PIECE
        assert sizes(first) == {"a": whole, "b": whole}
        assert sizes(found) == {"a": whole, "b": 0}
        assert rig.executor.runs == before[0]
        assert rig.gateway.read_ahead.hits == before[1] + 1


def sizes(response: FetchResponse) -> dict[str, int]:
    """Bytes of records by topic."""
    return {
        each.topic: sum(len(data.records) for data in each.partitions)
        for each in response.responses
    }


def fetch_all(offsets: dict[str, int], max_bytes: int) -> FetchRequest:
    """One fetch of two batches of each topic."""
    requests = [fetch(topic, at, partition_max_bytes=PIECE) for topic, at in offsets.items()]
    whole = requests[0]
    whole.max_bytes = max_bytes
    whole.topics = [each.topics[0] for each in requests]
    return whole


@on_loop
async def test_damage_found_by_read_ahead_is_returned_to_the_fetch_at_its_offset():
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, "t", *"abcd", "damaged" * 50_000)
        await rig.flush()
        (path,) = rig.segments()
        rig.fs.flip(path, rig.fs.read(path).index(b"damaged") + 50, 3)
        peer = rig.peer()
        offset = 0
        while offset < 4:
            requested = fetch("t", offset, partition_max_bytes=100)
            (found,) = partitions(await peer.request(requested, 11))
            if found.error_code:
                break
            offset = bases(found.records)[-1] + 1

        (found,) = partitions(await peer.request(fetch("t", offset), 11))

        assert found.error_code in {2, 56}
        assert bytes(found.records) == b""
