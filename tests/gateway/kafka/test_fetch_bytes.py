"""Where fetched bytes come from, and what a reader that does not read them costs."""

from __future__ import annotations

from tests.gateway.kafka.rig import Rig, settle
from tests.gateway.kafka.test_fetch import bases, fetch, fill, partitions
from tests.gateway.loop import on_loop
from trilogue.gateway.stream import Limits


@on_loop
async def test_older_bytes_are_read_in_the_executor_and_newer_ones_are_not():
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, "t", "old", "older")
        await rig.flush()
        await fill(rig, "t", "new")

        (found,) = partitions(await rig.peer().ask(fetch("t", 0), 11))
        assert bases(found.records) == [0, 1]
        assert rig.executor.runs == 1
        (found,) = partitions(await rig.peer().ask(fetch("t", 2), 11))
        assert bases(found.records) == [2]
        assert rig.executor.runs == 1


@on_loop
async def test_a_damaged_segment_is_an_error_of_its_partition_alone(caplog):
    """checks.md 7: error, never wrong bytes, others unaffected."""
    async with Rig() as rig:
        rig.topic("t", partitions=2)
        await fill(rig, "t", "damaged" * 100)
        await rig.flush()
        await fill(rig, "t", "good", index=1)
        (path,) = rig.segments()
        rig.fs.flip(path, rig.fs.read(path).index(b"damaged") + 50, 3)

        bad, good = partitions(await rig.peer().ask(fetch("t", 0, 0), 11))

        assert bad.error_code in {2, 56}
        assert bytes(bad.records) == b""
        assert (good.error_code, bases(good.records)) == (0, [0])
        assert "fetch.cold_read_failed" in caplog.messages


@on_loop
async def test_a_reader_that_does_not_read_costs_one_response():
    """checks.md 37: bounded by connections x 2 buffers."""
    async with Rig(limits=Limits(write_high_bytes=10_000)) as rig:
        rig.topic("t")
        await fill(rig, "t", *("x" * 30_000 for _ in range(4)))
        peer = rig.peer()
        peer.transport.stuck = True
        for _ in range(50):
            if peer.transport.reading:
                peer.send(fetch("t", 0), 11)
        await settle()

        assert 120_000 < peer.transport.unsent < 121_000


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
