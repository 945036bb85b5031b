"""What the gateways may read of a partition: ends, hidden entries, and what leaves the loop."""

from __future__ import annotations

import pytest

from tests.gateway.kafka.rig import quick_or_not, settle
from tests.gateway.loop import on_loop
from tests.gateway.pulsar.rig import Rig
from tests.log.ledger import data, marker
from trilogue.entry.control import Outcome
from trilogue.entry.entry import Format
from trilogue.entry.walk import read_header
from trilogue.gateway.partition_reader import (
    HIDDEN,
    ExecutorRead,
    NeedsExecutor,
    entries_end,
    open_read,
    read_visible,
    resolve_aborted,
)


def walked(walk):
    return [(base, end, entry_format) for base, end, _, entry_format in walk], walk.end


async def fill(rig, *entries):
    plog = rig.topic("t").partitions[0].log
    for entry in entries:
        plog.append(memoryview(entry), read_header(entry))
    await settle()
    return plog


@pytest.mark.parametrize("flushed", [False, True])
@on_loop
async def test_markers_and_aborted_entries_are_hidden_and_open_ones_end_the_read(flushed):
    async with Rig() as rig:
        entries = (
            data(None, 2),
            data(7),
            marker(7, Outcome.ABORT),
            data(8),
            marker(8, Outcome.COMMIT),
        )
        plog = await fill(rig, *entries, data(9), data(None))
        if flushed:
            await rig.flush()

        found = read_visible(plog, 1, 1 << 20, Format.KAFKA, walked)

        assert isinstance(found, ExecutorRead) == flushed
        rows, end = found.run() if flushed else found
        hidden = [(2, 3, HIDDEN), (3, 4, HIDDEN)]
        assert rows == [(0, 2, Format.KAFKA), *hidden, (4, 5, Format.KAFKA), (5, 6, HIDDEN)]
        assert end == plog.stable_end == 6


@quick_or_not
@on_loop
async def test_foreign_entries_leave_the_loop_where_their_conversion_is_large(written, leaves):
    async with Rig() as rig:
        plog = await fill(rig, written)
        count = plog.high_watermark

        own = read_visible(plog, 0, 1 << 20, Format.KAFKA, walked)
        foreign = read_visible(plog, 0, 1 << 20, Format.PULSAR, walked)

        assert own == ([(0, count, Format.KAFKA)], count)
        assert isinstance(foreign, ExecutorRead) == leaves
        assert (foreign.run() if leaves else foreign) == own


@on_loop
async def test_a_builder_may_return_what_it_has_before_it_leaves_the_loop():
    async with Rig() as rig:
        plog = await fill(rig, data(None), data(None, size=70_000))

        def first(walk):
            found = []
            try:
                for base, *_ in walk:
                    found.append(base)
            except NeedsExecutor:
                return found
            raise AssertionError("the second entry is too large for the loop")

        assert read_visible(plog, 0, 1 << 20, Format.PULSAR, first) == [0]


@pytest.mark.parametrize(("committed", "end"), [(True, 2), (False, 4)])
@on_loop
async def test_the_isolation_level_decides_where_a_read_ends(committed, end):
    async with Rig() as rig:
        plog = await fill(rig, data(None, 2), data(9), data(None))

        read = open_read(plog, 0, 1 << 20, committed=committed)

        assert entries_end(b"".join(read.load())) == end
        assert read.size_hint == len(b"".join(read.load()))
        assert not committed or resolve_aborted(read.find_aborted(plog), end) == []
