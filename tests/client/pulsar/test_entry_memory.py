"""Clients with a memory for entries decode them when their messages are taken, some at a time."""

from __future__ import annotations

import asyncio

import pytest

from tests.client.pulsar.scripted import ScriptedPulsar, batch, chunk, on_broker, single
from trilogue.client.errors import ClientError
from trilogue.client.pulsar import PulsarClient
from trilogue.client.pulsar.consumer.ack_tracker import bits_to_mask, has_bit
from trilogue.client.pulsar.consumer.pending_entry import DECODED_AT_ONCE
from trilogue.entry.pulsar.compression import PulsarCodec, compress

MESSAGES = 1_000
VALUES = [b"%04d" % number for number in range(MESSAGES)]


class CountedMemory:
    """Memory of a limit, which is never waited for."""

    copies = 4

    def __init__(self, limit: int = 1 << 30) -> None:
        self.limit = limit
        self.size = self.highest = self.reserved = self.steps = 0

    def resize(self, size_bytes: int) -> bool:
        self.size, self.highest = size_bytes, max(self.highest, size_bytes)
        return size_bytes <= self.limit

    async def reserve(self, size_bytes: int) -> None:
        self.reserved = size_bytes
        await asyncio.sleep(0)

    async def next_step(self) -> None:
        self.steps += 1
        await asyncio.sleep(0)


def test_a_batch_is_decoded_some_messages_at_a_time():
    memory = CountedMemory()

    @on_broker(entry_memory=memory)
    async def work(broker: ScriptedPulsar, client: PulsarClient) -> None:
        consumer = await client.subscribe("t", "s", queue_size=1)
        broker.peers[0].message(batch(*VALUES))
        found = [(await consumer.receive(60)).value]
        decoded = len(consumer._inbox.messages)

        assert decoded < DECODED_AT_ONCE
        assert memory.size > 4 * MESSAGES
        found += [(await consumer.receive(60)).value for _ in VALUES[1:]]
        assert found == VALUES
        assert (memory.size, len(consumer._inbox)) == (0, 0)
        assert memory.steps >= MESSAGES // DECODED_AT_ONCE

    work()


def test_memory_of_a_compressed_batch_is_reserved_first():
    memory = CountedMemory()

    @on_broker(entry_memory=memory)
    async def work(broker: ScriptedPulsar, client: PulsarClient) -> None:
        consumer = await client.subscribe("t", "s", queue_size=1)
        broker.peers[0].message(batch(bytes(1 << 20), b"last", codec=PulsarCodec.ZSTD))
        assert await consumer.receive(60)
        assert 5 << 20 < memory.size < memory.reserved
        assert (await consumer.receive(60)).value == b"last"
        consumer.release_taken()
        assert memory.size == 0

    work()


def test_memory_of_large_messages_is_held_until_they_were_used():
    memory = CountedMemory()

    @on_broker(entry_memory=memory)
    async def work(broker: ScriptedPulsar, client: PulsarClient) -> None:
        consumer = await client.subscribe("t", "s", queue_size=1)
        peer = broker.peers[0]
        for number, codec in enumerate((PulsarCodec.NONE, PulsarCodec.ZSTD)):
            packed = compress(codec, bytes(1 << 20))
            peer.message(single(packed, compression=codec, uncompressed_size=1 << 20), number)
            assert len((await consumer.receive(60)).value or b"") == 1 << 20
            assert memory.reserved == memory.size >= 5 << 20
        peer.message(single(b"small"), 2)
        assert (await consumer.receive(60)).value == b"small"
        assert memory.size == 0

    work()


def test_a_batch_is_counted_by_its_largest_message():
    memory = CountedMemory()

    @on_broker(entry_memory=memory)
    async def work(broker: ScriptedPulsar, client: PulsarClient) -> None:
        consumer = await client.subscribe("t", "s", queue_size=1)
        broker.peers[0].message(batch(*[bytes(10_000)] * 100))
        assert await consumer.receive(60)
        assert memory.reserved > 5_000_000
        assert 1_000_000 < memory.size < 1_100_000

    work()


def test_acknowledged_messages_of_a_batch_are_left_out():
    @on_broker(entry_memory=CountedMemory())
    async def work(broker: ScriptedPulsar, client: PulsarClient) -> None:
        consumer = await client.subscribe("t", "s", queue_size=4, batch_index_acks=True)
        broker.peers[0].message(batch(b"a", b"b", b"c"), 0, ack_set=[0b101])
        broker.peers[0].message(single(b"d"), 1)

        assert [(await consumer.receive(60)).value for _ in range(3)] == [b"a", b"c", b"d"]
        await broker.saw("FLOW", 2)

    work()


def test_a_damaged_batch_is_acknowledged_and_the_next_one_read():
    @on_broker(entry_memory=CountedMemory())
    async def work(broker: ScriptedPulsar, client: PulsarClient) -> None:
        consumer = await client.subscribe("t", "s", queue_size=1)
        broker.peers[0].message(single(b"no batch", num_messages_in_batch=7), 0)
        broker.peers[0].message(single(b"good"), 1)

        assert (await consumer.receive(60)).value == b"good"
        await broker.saw("ACK")

    work()


@pytest.mark.parametrize("is_chunk", [False, True], ids=["entry", "chunk"])
def test_an_entry_without_room_ends_the_consumer(is_chunk: bool):
    @on_broker(entry_memory=CountedMemory(limit=1_000))
    async def work(broker: ScriptedPulsar, client: PulsarClient) -> None:
        consumer = await client.subscribe("t", "s", queue_size=1)
        large = chunk(0, 2, bytes(2_000), 4_000) if is_chunk else single(bytes(2_000))
        broker.peers[0].message(large)

        with pytest.raises(ClientError, match="no memory"):
            await consumer.receive(60)
        assert len(consumer._inbox) == 0

    work()


def test_redelivery_drops_undecoded_entries():
    memory = CountedMemory()

    @on_broker(entry_memory=memory)
    async def work(broker: ScriptedPulsar, client: PulsarClient) -> None:
        consumer = await client.subscribe("t", "s", queue_size=1)
        broker.peers[0].message(batch(*VALUES))
        await consumer.receive(60)
        consumer.redeliver()
        assert (memory.size, len(consumer._inbox)) == (0, 0)

    work()


def test_sets_of_bits():
    indexes = [0, 7, 8, 63, 64, 99]
    mask = sum(1 << index for index in indexes)
    bits = mask.to_bytes(13, "little")

    assert bits_to_mask(indexes, 100) == mask
    assert [index for index in range(100) if has_bit(bits, index)] == indexes
