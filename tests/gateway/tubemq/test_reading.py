"""What a get finds: where it is read, what is hidden, how far it goes."""

from __future__ import annotations

import pytest

from tests.gateway.kafka.rig import batch, quick_or_not, settle
from tests.gateway.loop import on_loop
from tests.gateway.tubemq.reader import Reader
from tests.gateway.tubemq.rig import Rig
from tests.log.ledger import data, marker
from trilogue.entry.control import Outcome
from trilogue.entry.tubemq_blob import split_data
from trilogue.entry.walk import read_header
from trilogue.gateway.conversions import Conversions
from trilogue.gateway.tubemq.reading import MESSAGES, Later, Pack, filters_of, read
from trilogue.gateway.tubemq.settings import TubeSettings

AT_ONCE = TubeSettings(hold_s=0)


@quick_or_not
@on_loop
async def test_only_what_is_quick_is_converted_on_the_loop(written, leaves):
    async with Rig() as rig:
        partition = rig.topic("demo", 1).partitions[0]
        partition.append(memoryview(written), now_ms=rig.now_ms)
        await settle()

        found = read(partition.log, 0, None, Conversions())

        assert isinstance(found, Later if leaves else Pack)
        pack = found.run() if isinstance(found, Later) else found
        assert pack.next_offset == min(MESSAGES, partition.log.high_watermark)


@on_loop
async def test_a_large_foreign_entry_is_read_get_after_get():
    async with Rig(tube=AT_ONCE) as rig:
        partition = rig.topic("demo", 1).partitions[0]
        values = [str(number) for number in range(2_500)]
        partition.append(memoryview(batch(*values)), now_ms=rig.now_ms)
        mine = Reader(rig.broker_peer())
        await mine.register()

        sizes, found = [], []
        while (said := await mine.get(consumed=True)).success:
            sizes.append(len(said.messages))
            found += [split_data(each.payLoadData, each.flag)[1] for each in said.messages]

        assert sizes[:2] == [1_000, 1_000]
        assert sum(sizes) == 2_500
        assert found == [value.encode() for value in values]


@pytest.mark.parametrize("flushed", [False, True])
@on_loop
async def test_nothing_of_an_aborted_or_open_transaction_is_seen(flushed):
    """What stands behind an open one waits with it; what is passed over is done with."""
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
        mine = Reader(rig.broker_peer())
        await mine.register()

        found = []
        while (said := await mine.get(consumed=True)).success:
            found += [each.messageId & 0xFFF for each in said.messages]

        assert found == [0, 3], "offsets are in the last bits of an id"
        assert (await mine.commit()).currOffset == 4


@on_loop
async def test_a_filter_that_nothing_passes_costs_a_get_for_each_thousand_entries():
    async with Rig(tube=AT_ONCE) as rig:
        partition = rig.topic("demo", 1).partitions[0]
        writer = rig.broker_peer()
        for _ in range(1_500):
            writer.say(
                "sendMessageP2B", clientId="p", topicName="demo", partitionId=0, data=b"x",
                flag=0, checkSum=-1, sentAddr=1, msgType="a",
            )  # fmt: skip
        await settle()

        first = read(partition.log, 0, filters_of(["b"]), Conversions())

        assert isinstance(first, Pack)
        assert (first.messages, first.next_offset) == ([], 1_000)
        assert filters_of([]) is None
