"""Compactions between appends, flushes and transactions, against a model that never forgets."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fakes import FakeFileSystem
from tests.log.jobs.compacted import DAY_MS, PARTITION, World, latest
from trilogue.entry.control import Outcome
from trilogue.entry.kafka.record_batch import check_crc

KEYS = [b"a", b"b", b"c", b"d", None]
PRODUCERS = (-1, -1, 1, 2)


@st.composite
def steps(draw: st.DrawFn, world: World) -> None:
    """Append something, flush, move the clock, or compact."""
    kind = draw(st.sampled_from(["append", "append", "append", "mark", "flush", "compact"]))
    if kind == "append":
        pairs = draw(
            st.lists(
                st.tuples(st.sampled_from(KEYS), st.none() | st.binary(max_size=3)),
                min_size=1,
                max_size=4,
            )
        )
        producer = draw(st.sampled_from(PRODUCERS))
        is_open = producer in world.transactions.open
        world.append(
            *pairs,
            producer=producer,
            transactional=producer >= 0 and (is_open or draw(st.booleans())),
            codec=draw(st.sampled_from([0, 0, 4])),
            time_ms=draw(st.integers(0, 2000)),
            hole=draw(st.sampled_from([0, 0, 0, 2])),
        )
    elif kind == "mark" and world.transactions.open:
        producer = draw(st.sampled_from(sorted(world.transactions.open)))
        world.mark(producer, draw(st.sampled_from(Outcome)))
    elif kind == "flush":
        world.flush(neighbour=draw(st.booleans()))
    elif kind == "compact":
        world.now_ms += draw(st.sampled_from([0, DAY_MS // 2, DAY_MS, 3 * DAY_MS]))
        _compact_and_check(draw, world)


def _compact_and_check(draw: st.DrawFn, world: World) -> None:
    entry_ends = {each.header.last_offset + 1 for each in world.written}
    ends = [each for each in entry_ends if world.compacted_end < each <= world.stable_end]
    if not ends:
        return
    end = draw(st.sampled_from(sorted(ends)))
    behind = world.entries(end) if end < world.flushed_end else []

    result = world.compact(end)

    assert result.compacted_end == end
    _check(world)
    assert (world.entries(end) if end < world.flushed_end else []) == behind


def _check(world: World) -> None:
    end = world.compacted_end
    committed = world.committed()
    truth = world.truly_committed()
    originals = world.originals()

    assert latest(committed) == latest(truth)

    below = [each for each in truth if each.offset < end]
    last = {each.key: each.offset for each in below if each.key is not None}
    kept = {each.offset: each for each in committed if each.offset < end}
    for record in below:
        if record.key is None or last[record.key] != record.offset:
            assert record.offset not in kept, "it is not the last of its key"
        elif record.value is not None:
            assert kept[record.offset] == record
        else:  # a tombstone: its time began when it was first compacted
            horizon_ms = world.horizons.setdefault(record.offset, world.now_ms + DAY_MS)
            assert (record.offset in kept) == (world.now_ms < horizon_ms)
    assert set(kept) <= {each.offset for each in below}, "what was aborted is seen"

    before = -1
    for header, records in world.retained():
        original = originals[header.base_offset].header
        assert header.last_offset == original.last_offset
        assert header.base_offset > before
        before = header.last_offset
        there = originals[header.base_offset].records
        assert [each for each in there if each in records] == records
    headers = [check_crc(entry) for entry in world.entries()]
    for info in world.inputs():
        extent = info.partitions[PARTITION]
        within = [
            each for each in headers if extent.base_offset <= each.base_offset < extent.end_offset
        ]
        assert extent.entry_count == len(within)
        assert extent.size == sum(each.length for each in within)
        assert (extent.base_offset, extent.end_offset) == (
            within[0].base_offset,
            within[-1].last_offset + 1,
        )
        for offset in range(extent.base_offset, extent.end_offset):
            first = next(each for each in within if each.last_offset >= offset)
            assert world.first_at(offset) == first


def run(data: st.DataObject, per_block: int, target: int, *, direct: bool) -> None:
    fs = FakeFileSystem(direct=direct)
    world = World(fs, entries_per_block=per_block, target_bytes=target, direct=direct)
    for _ in range(data.draw(st.integers(5, 40))):
        data.draw(steps(world))


runs = given(
    data=st.data(),
    per_block=st.integers(1, 4),
    target=st.sampled_from([300, 1 << 30]),
    direct=st.booleans(),
)


@runs
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_compaction_keeps_its_promises(
    data: st.DataObject, per_block: int, target: int, direct: bool
):
    run(data, per_block, target, direct=direct)


@pytest.mark.long
@pytest.mark.timeout(900)
@runs
@settings(max_examples=1_000, deadline=None, suppress_health_check=list(HealthCheck))
def test_compaction_keeps_its_promises_for_long(
    data: st.DataObject, per_block: int, target: int, direct: bool
):
    run(data, per_block, target, direct=direct)
