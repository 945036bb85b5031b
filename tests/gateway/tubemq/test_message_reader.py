"""The messages of a get: from memory and segments, hidden entries, next offsets."""

from __future__ import annotations

import pytest

from tests.gateway.kafka.rig import batch, quick_or_not, settle
from tests.gateway.loop import on_loop
from tests.gateway.tubemq.partition_consumer import PartitionConsumer
from tests.gateway.tubemq.rig import Rig
from tests.log.ledger import data, marker
from trilogue.entry.control import Outcome
from trilogue.entry.tubemq.tubemq_blob import split_data
from trilogue.entry.walk import read_header
from trilogue.gateway.conversion_cache import ConversionCache
from trilogue.gateway.partition_reader import ExecutorRead
from trilogue.gateway.tubemq.message_reader import MESSAGES, Pack, filters_of, read
from trilogue.gateway.tubemq.settings import TubeSettings

AT_ONCE = TubeSettings(hold_s=0)


@quick_or_not
@on_loop
async def test_only_cheap_conversions_run_on_the_loop(written, leaves):
    async with Rig() as rig:
        partition = rig.topic("demo", 1).partitions[0]
        partition.append(memoryview(written), now_ms=rig.now_ms)
        await settle()

        found = read(partition.log, 0, None, ConversionCache())

        assert isinstance(found, ExecutorRead if leaves else Pack)
        pack = found.run() if isinstance(found, ExecutorRead) else found
        assert pack.next_offset == min(MESSAGES, partition.log.high_watermark)


@on_loop
async def test_a_large_foreign_entry_is_read_get_after_get():
    async with Rig(tube=AT_ONCE) as rig:
        partition = rig.topic("demo", 1).partitions[0]
        values = [str(number) for number in range(2_500)]
        partition.append(memoryview(batch(*values)), now_ms=rig.now_ms)
        mine = PartitionConsumer(rig.broker_peer())
        await mine.register()

        sizes, found = [], []
        while (response := await mine.get(consumed=True)).success:
            sizes.append(len(response.messages))
            found += [split_data(each.payLoadData, each.flag)[1] for each in response.messages]

        assert sizes[:2] == [1_000, 1_000]
        assert sum(sizes) == 2_500
        assert found == [value.encode() for value in values]


@pytest.mark.parametrize("flushed", [False, True])
@on_loop
async def test_nothing_of_an_aborted_or_open_transaction_is_seen(flushed):
    """Messages behind an open transaction wait for its end; aborted ones are skipped."""
    async with Rig(tube=AT_ONCE) as rig:
        plog = rig.topic("demo", 1).partitions[0].log
        entries = (
            data(None), data(7), marker(7, Outcome.ABORT), data(None), data(8), data(None),
        )  # fmt: skip
        for entry in entries:
            plog.append(memoryview(entry), read_header(entry))
        await settle()
        if flushed:
            await rig.flush()
        mine = PartitionConsumer(rig.broker_peer())
        await mine.register()

        found = []
        while (response := await mine.get(consumed=True)).success:
            found += [each.messageId & 0xFFF for each in response.messages]

        assert found == [0, 3], "offsets are in the last bits of an id"
        assert (await mine.commit()).currOffset == 4


@on_loop
async def test_a_filter_that_nothing_passes_costs_a_get_for_each_thousand_entries():
    async with Rig(tube=AT_ONCE) as rig:
        partition = rig.topic("demo", 1).partitions[0]
        writer = rig.broker_peer()
        for _ in range(1_500):
            writer.send_request(
                "sendMessageP2B", clientId="p", topicName="demo", partitionId=0, data=b"x",
                flag=0, checkSum=-1, sentAddr=1, msgType="a",
            )  # fmt: skip
        await settle()

        first = read(partition.log, 0, filters_of(["b"]), ConversionCache())

        assert isinstance(first, Pack)
        assert (first.messages, first.next_offset) == ([], 1_000)
        assert filters_of([]) is None
