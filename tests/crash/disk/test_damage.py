"""One error of the disk at each kind of file, and one flipped bit anywhere in a segment.

After a failed write or sync no message is acked and the call is not retried: the process ends and
the next one recovers. The exception is a file that no other state refers to yet, or that can be
rebuilt: it is written again under another name. A flipped bit gives an error, or the right bytes,
for the partition it belongs to, and changes nothing for the others.
"""

from __future__ import annotations

import errno
from random import Random

import pytest

from tests.crash.log_workload import LogWorkload, partition_of, places, read
from tests.crash.world import DATA, World
from trilogue.log.errors import CorruptLog, StorageFailed
from trilogue.log.jobs.merge import merge
from trilogue.log.segments.segment_info import MergeJob, SegmentInfo
from trilogue.log.segments.segment_reader import SegmentReader
from trilogue.node.node import Node

FLIPS = 200
SEGMENTS = DATA / "segments"


# ── one error ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("operation", ["write", "sync"])
@pytest.mark.parametrize("after", ["kill", "power"])
def test_an_error_of_the_journal_ends_it_and_nothing_is_acked_after_it(
    operation: str, after: str
) -> None:
    world, workload = World(), LogWorkload()
    number = 100

    async def script(node: Node) -> None:
        workload.messages = number
        await workload.script(node)
        world.fs.trouble = (operation, ".journal", errno.EIO)
        workload.messages = 300
        await workload.script(node)

    with pytest.raises(StorageFailed):
        world.live(script)

    assert workload.failed
    assert isinstance(world.node.failure, StorageFailed)
    acked = dict(workload.ledger.acked)
    world.crash(Random(1) if after == "power" else None)
    assert world.live(workload.script)
    assert acked.items() <= workload.ledger.acked.items()


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_an_error_of_a_flush_ends_it_and_what_the_journal_has_is_safe(operation: str) -> None:
    """The first segment that is written is a flush's."""
    world, workload = World(), LogWorkload()
    world.fs.trouble = (operation, ".segment", errno.EIO)

    with pytest.raises((AssertionError, StorageFailed), match="rror"):
        world.live(workload.script)

    assert isinstance(world.node.failure, OSError)
    world.crash(Random(1))
    assert world.live(workload.script)


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_an_error_of_a_merge_costs_nothing_but_the_merge(operation: str) -> None:
    """No state refers to its files yet: they are removed, and it is done again with new names."""
    world, workload = World(), LogWorkload()

    async def script(node: Node) -> None:
        node.maintenance.planners = [Failing(world, operation, *node.maintenance.planners)]
        await workload.script(node)
        assert sum(each.failures for each in node.maintenance.counts.values()) == 1

    assert world.live(script)
    assert world.fs.trouble is None
    known = {each.name for each in world.meta.state.segments.values()}
    assert {name for name in world.fs.listdir(SEGMENTS) if name.endswith(".segment")} == known


class Failing:
    """Planners whose first job meets an error of the disk."""

    def __init__(self, world: World, operation: str, *planners: object) -> None:
        self.world, self.operation, self.planners = world, operation, planners
        self.jobs = 0

    async def plan(self) -> object:
        for planner in self.planners:
            job = await planner.plan()
            if job is not None:
                self.jobs += 1
                if self.jobs == 1:
                    self.world.fs.trouble = (self.operation, ".segment", errno.EIO)
                return job
        return None


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_an_error_of_the_manifest_is_mended_by_the_next_one(operation: str) -> None:
    world, workload = World(), LogWorkload()
    world.fs.trouble = (operation, "manifest.json.tmp", errno.EIO)

    assert world.live(workload.script)

    assert world.fs.trouble is None
    assert world.live(workload.script)


# ── one wrong bit ─────────────────────────────────────────────────────────────────────────────


def lived() -> World:
    """A world whose segments are of the first level and merged, several partitions in each."""
    world, workload = World(merge__rate="0"), LogWorkload(messages=220)
    assert world.live(workload.script)
    levels = {segment.level > 0 for segment in world.meta.state.segments.values()}
    assert levels == {False, True}
    return world


@pytest.mark.parametrize("merged", [False, True], ids=["flushed", "merged"])
def test_a_wrong_bit_in_a_segment_is_an_error_or_nothing(*, merged: bool, chance: Random) -> None:
    world = lived()
    hit = set()

    async def script(node: Node) -> None:
        right = everything(node)
        segments = node.storage.meta.state.segments.values()
        infos = [each for each in segments if bool(each.level) == merged]
        for _ in range(FLIPS):
            info = chance.choice(infos)
            at, bit = chance.randrange(info.size), chance.randrange(8)
            world.fs.flip(SEGMENTS / info.name, at, bit)
            hit.add(judge(node, info, at, right))
            world.fs.flip(SEGMENTS / info.name, at, bit)
            node.storage.log.readers.forget(info.segment_id)

    assert world.live(script)
    assert "error" in hit


def owns(info: SegmentInfo, partition_id: int, at: int) -> bool:
    extent = info.partitions.find_extent(partition_id)
    return extent is not None and extent.position <= at < extent.position + extent.size


def everything(node: Node) -> dict[int, list[tuple[int, bytes | None]]]:
    logs = [partition_of(node, place).log for place in places()]
    return {log.partition_id: list(read(log)) for log in logs}


def judge(
    node: Node, info: SegmentInfo, at: int, right: dict[int, list[tuple[int, bytes | None]]]
) -> str:
    """Read everything; return what the flipped bit led to."""
    node.storage.log.readers.forget(info.segment_id)
    hurt = set()
    for place in places():
        log = partition_of(node, place).log
        try:
            assert list(read(log)) == right[log.partition_id], f"wrong bytes: {info.name} {at}"
        except CorruptLog:
            hurt.add(log.partition_id)
    assert hurt <= set(info.partitions)
    owner = {each for each in info.partitions if owns(info, each, at)}
    assert hurt <= owner or not owner, "a partition suffers from another's bit"
    return "error" if hurt else "nothing"


def test_a_wrong_bit_that_a_merge_reads_makes_no_wrong_bytes(chance: Random) -> None:
    """It gives up, leaves the partition where it is, or copies what is damaged as it is."""
    world = lived()
    seen = set()

    async def script(node: Node) -> None:
        storage = node.storage
        infos = list(storage.meta.state.segments.values())
        starts = {each: row.start_offset for each, row in storage.meta.state.partitions.items()}
        for number in range(FLIPS // 4):
            inputs = tuple(chance.sample(infos, 2))
            job = MergeJob(
                inputs, str(SEGMENTS), tuple(range(90_000, 90_010)), 1, starts, 1 << 30, 1 << 30,
                storage.meta.state.cluster_id, 1, 1, 0,
            )  # fmt: skip
            right = bytes_of(world, inputs, starts)
            info = chance.choice(inputs)
            first = info.footer_position if number % 2 else 0  # most of those are found
            at, bit = chance.randrange(first, info.size), chance.randrange(8)
            world.fs.flip(SEGMENTS / info.name, at, bit)
            try:
                result = merge(job, world.fs)
            except CorruptLog:
                seen.add("given up")
            else:
                seen.add("left" if result.left else "done")
                kept = result.swap(job)
                found = bytes_of(world, (*kept.changed, *kept.added), starts)
                for partition_id, data in right.items():
                    is_hit = at >= info.footer_position or owns(info, partition_id, at)
                    allowed = (data, None) if is_hit else (data,)
                    assert found[partition_id] in allowed, (number, info.name, at)
                for added in result.added:
                    world.fs.unlink(SEGMENTS / added.name)
            world.fs.flip(SEGMENTS / info.name, at, bit)

    assert world.live(script, drain=False)
    assert seen - {"done"}


def bytes_of(
    world: World, infos: tuple[SegmentInfo, ...], starts: dict[int, int]
) -> dict[int, bytes | None]:
    """Entries by partition that end above its start, by offset; None where some cannot be read."""
    parts: dict[int, list[tuple[int, bytes]]] = {}
    bad: set[int] = set()
    for info in infos:
        for extent in info.partitions.values():
            start = starts.get(extent.partition_id, extent.end_offset)
            try:
                reader = SegmentReader.open(world.fs, SEGMENTS / info.name, info)
                data = bytes(reader.read(extent.partition_id, start, 1 << 30))
                reader.close()
            except CorruptLog:
                bad.add(extent.partition_id)
            else:
                parts.setdefault(extent.partition_id, []).append((extent.base_offset, data))
    found: dict[int, bytes | None] = dict.fromkeys(bad)
    for partition_id in parts.keys() - bad:
        data = b"".join(data for _, data in sorted(parts[partition_id]))
        if data:
            found[partition_id] = data
    return found
