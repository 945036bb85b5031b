"""The source of fetched bytes, and the memory of responses that a client does not read."""

from __future__ import annotations

import pytest

from tests.gateway.kafka.fetch.test_fetch import bases, fetch, fill, partitions
from tests.gateway.kafka.produce.test_produce import request as produce
from tests.gateway.kafka.rig import Rig, batch, settle
from tests.gateway.loop import on_loop
from tests.waiting import run_ready_tasks
from trilogue.gateway.kafka.fetch.fetch import ROOM_BYTES_MIN
from trilogue.gateway.memory_budget import ConnectionMemory, MemoryBudget
from trilogue.gateway.reply_queue import ITERATION_WORK
from trilogue.gateway.stream import Limits


@on_loop
async def test_older_bytes_are_read_in_the_executor_and_newer_ones_are_not():
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, "t", "old", "older")
        await rig.flush()
        await fill(rig, "t", "new")

        (found,) = partitions(await rig.peer().request(fetch("t", 0), 11))
        assert bases(found.records) == [0, 1]
        assert rig.executor.runs == 1
        (found,) = partitions(await rig.peer().request(fetch("t", 2), 11))
        assert bases(found.records) == [2]
        assert rig.executor.runs == 1


@on_loop
async def test_a_damaged_segment_is_an_error_of_its_partition_alone(caplog):
    """An error, never wrong bytes; other partitions are unaffected."""
    async with Rig() as rig:
        rig.topic("t", partitions=2)
        await fill(rig, "t", "damaged" * 100)
        await rig.flush()
        await fill(rig, "t", "good", index=1)
        (path,) = rig.segments()
        rig.fs.flip(path, rig.fs.read(path).index(b"damaged") + 50, 3)

        bad, good = partitions(await rig.peer().request(fetch("t", 0, 0), 11))

        assert bad.error_code in {2, 56}
        assert bytes(bad.records) == b""
        assert (good.error_code, bases(good.records)) == (0, [0])
        assert "fetch.cold_read_failed" in caplog.messages


@on_loop
async def test_a_reader_that_does_not_read_costs_one_response():
    """Bounded by connections x 2 buffers."""
    async with Rig(limits=Limits(write_high_bytes=10_000)) as rig:
        rig.topic("t")
        await fill(rig, "t", *("x" * 30_000 for _ in range(4)))
        peer = rig.peer()
        peer.transport.stuck = True
        for _ in range(50):
            if peer.transport.reading:
                peer.send(fetch("t", 0), 11)
        await settle()

        assert 110_000 < rig.memory.unsent.size_bytes < 141_000
        assert peer.transport.unsent <= 40_000, "the rest waits here"


@on_loop
async def test_hot_bytes_are_written_as_views_of_the_tail():
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, "t", "x" * 100_000)
        peer = rig.peer()
        written = []
        peer.transport.writelines = written.extend

        peer.send(fetch("t", 0), 11)

        assert [type(each) for each in written] == [bytearray, memoryview]


@on_loop
async def test_unread_responses_shrink_responses_of_all_connections():
    """Slow readers may be many, each within its own limit: their sum has a limit too."""
    memory = ConnectionMemory(unsent=MemoryBudget(270_000))  # 200,000 of it for large responses
    async with Rig(limits=Limits(write_high_bytes=10_000), memory=memory) as rig:
        rig.topic("t")
        await fill(rig, "t", *("x" * 1_000 for _ in range(150)))
        peers, sizes = [rig.peer() for _ in range(8)], []
        for peer in peers:
            before = rig.memory.unsent.size_bytes
            peer.transport.stuck = True
            peer.send(fetch("t", 0), 11)
            await settle()
            sizes.append(rig.memory.unsent.size_bytes - before)

        assert sizes[0] > 150_000
        assert max(sizes[2:]) < ROOM_BYTES_MIN + 1_000
        assert max(peer.transport.unsent for peer in peers) <= 40_000
        for peer in peers:
            peer.transport.unstick()
        await settle()
        assert rig.memory.unsent.size_bytes == 0
        assert len(peers[0].transport.written) > 150_000
        (found,) = partitions(await rig.peer().request(fetch("t", 0), 11))
        assert len(bases(found.records)) == 150


@pytest.mark.parametrize("version", [3, 11])
@on_loop
async def test_a_fetch_of_many_partitions_is_looked_at_over_several_turns(version):
    async with Rig() as rig:
        count = 2 * ITERATION_WORK + ITERATION_WORK // 2
        rig.topic("t", partitions=count)
        await fill(rig, "t", "a", index=count - 1)
        turns = []
        spawn = rig.gateway.spawn
        rig.gateway.spawn = lambda work: (turns.append(1), spawn(work))

        found = partitions(await rig.peer().request(fetch("t", *[0] * count), version))

        assert len(turns) == 4, "one to know them, three to look, and the last of all to finish"
        assert [each.partition_index for each in found] == list(range(count))
        assert len(found[-1].records) > 0


@pytest.mark.parametrize("in_session", [False, True])
@on_loop
async def test_record_appended_during_a_scan_is_returned_without_a_wait(in_session):
    """The first partition gets a record after it was scanned, before the last one was."""
    async with Rig() as rig:
        count = 8 * ITERATION_WORK
        topic = rig.topic("t", count)
        reader = rig.peer()
        requested = fetch("t", *[0] * count, max_wait_ms=60_000, session_epoch=-1)
        if in_session:
            full = await reader.request(fetch("t", *[0] * count, session_epoch=0), 11)
            requested.session_id, requested.session_epoch = full.session_id, 1
            requested.isolation_level = 1  # so all are scanned again
        began_s = rig.loop.time()

        reader.send(requested, 11)
        await run_ready_tasks()
        await rig.peer().request(produce("t", batch("now")), 7)
        assert topic.partitions[0].log.high_watermark == 1
        await reader.wait()

        assert bases(records_of(reader.answer())) == [0]
        assert rig.loop.time() - began_s < 1


@on_loop
async def test_a_look_has_one_share_of_each_turn_however_much_moves_meanwhile():
    async with Rig() as rig:
        count = 8 * ITERATION_WORK
        topic = rig.topic("t", count)
        reader, writer = rig.peer(), rig.peer()
        full = await reader.request(fetch("t", *[0] * count, session_epoch=0), 11)
        requested = fetch("t", max_wait_ms=60_000, isolation_level=1)  # all are scanned again
        requested.session_id, requested.session_epoch = full.session_id, 1
        rounds, looks, spawn = 0, [], rig.gateway.spawn
        rig.gateway.spawn = lambda work: (looks.append(rounds), spawn(work))

        reader.send(requested, 11)
        while not reader.answered:
            if rounds < 20:
                writer.send(produce("t", batch("now"), index=count - 1 - rounds), 7)
            rounds += 1
            await run_ready_tasks()

        assert len(looks) >= 8
        assert all(looks.count(each) == 1 for each in looks), looks
        assert any(each.log.high_watermark for each in topic.partitions)


def records_of(response) -> bytes:
    return b"".join(bytes(each.records) for each in partitions(response) if each.records)
