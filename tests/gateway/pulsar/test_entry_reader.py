"""Where entries of another protocol are converted: on the loop, or away from it."""

from __future__ import annotations

from tests.gateway.kafka.rig import quick_or_not, settle
from tests.gateway.loop import on_loop
from tests.gateway.pulsar.rig import Rig
from trilogue.gateway.partition_reader import ExecutorRead
from trilogue.gateway.pulsar.entry_reader import EntryRange, read_entries


@quick_or_not
@on_loop
async def test_only_cheap_conversions_run_on_the_loop(written, leaves):
    async with Rig() as rig:
        partition = rig.topic("t").partitions[0]
        partition.append(memoryview(written), now_ms=rig.now_ms)
        await settle()

        found = read_entries(partition.log, 0, 5 << 20)

        assert isinstance(found, ExecutorRead if leaves else EntryRange)
        rows = (found.run() if isinstance(found, ExecutorRead) else found).entries
        assert [row.base for row in rows] == [0]
