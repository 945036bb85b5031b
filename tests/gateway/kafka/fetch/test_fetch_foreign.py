"""Fetch and ListOffsets over what Pulsar clients wrote."""

from __future__ import annotations

import logging

import pytest

from tests.entry.converted import message, metadata, stored
from tests.gateway.kafka.fetch.test_fetch import bases, fetch, partitions
from tests.gateway.kafka.offsets.test_list_offsets import build_request as list_offsets
from tests.gateway.kafka.offsets.test_list_offsets import found as offsets_of
from tests.gateway.kafka.offsets.test_list_offsets import request_each
from tests.gateway.kafka.produce.test_produce import request as produce
from tests.gateway.kafka.rig import NOW_MS, Rig, batch, settle
from tests.gateway.loop import on_loop
from trilogue.entry.entry import Record
from trilogue.entry.kafka.record_batch import iter_records
from trilogue.entry.pulsar.pulsar_batch import build_batch, build_single, read_stamp
from trilogue.entry.walk import walk_headers
from trilogue.wire.pulsar.pulsar_pb2 import EncryptionKeys

FETCH = 12
ENCRYPTED = {"encryption_keys": [EncryptionKeys(key="k", value=b"x")]}


async def write(rig: Rig, topic: str, *sections: bytes) -> None:
    """Append what the Pulsar gateway appends for a SEND."""
    partition = rig.gateway.topic(topic).partitions[0]
    for section in sections:
        entry, header = stored(section)
        view = memoryview(bytearray(entry))
        partition.append_entry(view, header, now_ms=NOW_MS, sequence=read_stamp(entry))
    await settle()


def single(value: bytes = b"v", publish_time: int = NOW_MS, **fields: object) -> bytes:
    return build_single(message(value), metadata(publish_time=publish_time, **fields))


def several(*values: bytes, codec: int = 0) -> bytes:
    return build_batch([message(value) for value in values], metadata(), codec=codec)


def records_in(data: object) -> list[Record]:
    """The records of consecutive batches."""
    view = memoryview(bytes(data or b""))
    found: list[Record] = []
    for pos, length, *_ in walk_headers(view):
        found += iter_records(view[pos : pos + length])
    return found


async def read(rig: Rig, offset: int = 0, **how: int):
    (data,) = partitions(await rig.peer().request(fetch("t", offset, **how), FETCH))
    assert data.error_code == 0
    return data.records


@pytest.mark.parametrize("is_flushed", [False, True])
@on_loop
async def test_partition_with_kafka_and_pulsar_messages_is_read_in_order(is_flushed):
    async with Rig() as rig:
        rig.topic("t")
        await rig.peer().request(produce("t", batch("kafka 0", "kafka 1")), 7)
        await write(rig, "t", several(b"pulsar 2", b"pulsar 3", codec=3), single(b"pulsar 4"))
        await rig.peer().request(produce("t", batch("kafka 5")), 7)
        if is_flushed:
            await rig.flush()

        found = records_in(await read(rig))

        assert [(each.offset, each.value) for each in found] == [
            (0, b"kafka 0"),
            (1, b"kafka 1"),
            (2, b"pulsar 2"),
            (3, b"pulsar 3"),
            (4, b"pulsar 4"),
            (5, b"kafka 5"),
        ]
        assert bases(await read(rig, 3)) == [2, 4, 5]  # whole batches, from the one with the offset


@on_loop
async def test_kafkas_own_entries_go_out_as_they_were_sent():
    async with Rig() as rig:
        rig.topic("t")
        await rig.peer().request(produce("t", batch("a", "b", codec=1)), 7)
        await write(rig, "t", single())

        sent = bytes(await read(rig))
        stored_batch = bytes(rig.gateway.topic("t").partitions[0].log.read(0, 1).slices[0])

        assert sent.startswith(stored_batch)


@on_loop
async def test_unconvertible_messages_are_skipped_counted_and_logged_once(caplog):
    async with Rig() as rig:
        rig.topic("t")
        await write(rig, "t", single(b"0"), single(b"1", **ENCRYPTED), single(b"2", **ENCRYPTED))
        await write(rig, "t", single(b"3"))

        with caplog.at_level(logging.WARNING):
            data = await read(rig)

        assert [each.offset for each in records_in(data)] == [0, 3]
        assert bases(data) == [0, 1, 2, 3]  # a consumer skips them and continues
        assert rig.gateway.conversions.skipped == {("kafka", "encrypted"): 2}
        (line,) = [each for each in caplog.records if each.message == "conversion.skipped"]
        assert (line.offset, line.reason) == (1, "encrypted")


@on_loop
async def test_a_consumer_alone_at_what_it_cannot_get_goes_on():
    async with Rig() as rig:
        rig.topic("t")
        await write(rig, "t", single(b"0", **ENCRYPTED))

        data = await read(rig)

        assert [(base, delta) for _, _, base, delta, *_ in walk_headers(bytes(data))] == [(0, 0)]


@pytest.mark.parametrize("is_flushed", [False, True])
@on_loop
async def test_fetch_limits_count_converted_bytes(is_flushed):
    """A zlib batch of Pulsar's may become larger; the response stays within the requested limit."""
    async with Rig() as rig:
        rig.topic("t")
        for _ in range(6):
            await write(rig, "t", *(single(b"x", publish_time=NOW_MS) for _ in range(3)))
            await write(rig, "t", several(*(b"%d" % i for i in range(100)), codec=0))
        if is_flushed:
            await rig.flush()
        whole = bytes(await read(rig))

        for limit in (100, 800, 2_000, 4_000):
            part = bytes(await read(rig, partition_max_bytes=limit))
            assert whole.startswith(part)
            assert len(part) <= limit or len(bases(part)) == 1


@on_loop
async def test_a_limit_on_the_whole_answer_holds_over_partitions():
    async with Rig() as rig:
        topic = rig.topic("t", 2)
        for partition in topic.partitions:
            for _ in range(5):
                entry, header = stored(several(*(b"%d" % i for i in range(40))))
                partition.append_entry(
                    memoryview(entry), header, now_ms=NOW_MS, sequence=read_stamp(entry)
                )
        await settle()

        answer = await rig.peer().request(fetch("t", 0, 0, max_bytes=2_000), FETCH)

        sizes = [len(bytes(each.records or b"")) for each in partitions(answer)]
        assert 0 < sum(sizes) <= 2_000


@on_loop
async def test_near_the_tail_it_is_converted_once_for_all_readers():
    async with Rig() as rig:
        rig.topic("t")
        await write(rig, "t", *(single() for _ in range(5)))

        first = bytes(await read(rig))
        again = bytes(await read(rig))

        assert first == again
        assert rig.gateway.conversions.converted == {"kafka": 5}
        assert rig.gateway.conversions.hits == 5


@on_loop
async def test_fetch_of_kafka_batches_uses_no_thread():
    async with Rig() as rig:
        rig.topic("t")
        rig.topic("other")
        await write(rig, "other", single())
        await rig.peer().request(produce("t", batch("a")), 7)
        before = rig.executor.runs

        await read(rig)

        assert rig.executor.runs == before


@pytest.mark.parametrize("is_flushed", [False, True])
@on_loop
async def test_a_time_is_found_by_what_pulsar_published(is_flushed):
    async with Rig() as rig:
        rig.topic("t")
        await rig.peer().request(produce("t", batch("0", "1", timestamp=1_000)), 7)
        await write(
            rig, "t", build_batch([message(event_time=9_999)] * 3, metadata(publish_time=2_000))
        )
        await write(rig, "t", single(publish_time=3_000))
        await rig.peer().request(produce("t", batch("6", timestamp=2_500)), 7)
        if is_flushed:
            await rig.flush()

        requested = list_offsets("t", 500, 1_500, 2_500, 3_001, -3, -2, -1)
        answer = await request_each(rig.peer(), requested, 7)

        assert offsets_of(answer) == [
            (0, 0, 1_000),
            (0, 2, 2_000),
            (0, 5, 3_000),
            (0, -1, -1),
            (0, 5, 3_000),
            (0, 0, -1),
            (0, 7, -1),
        ]


@on_loop
async def test_conversions_of_segments_are_not_cached():
    async with Rig() as rig:
        rig.topic("t")
        await write(rig, "t", single(), single())
        await read(rig)
        await rig.flush()

        await read(rig)

        assert rig.gateway.conversions.converted == {"kafka": 4}
        assert rig.gateway.conversions.hits == 0
