"""Fetch v0-v3: message sets for clients from before 2017, of entries of every protocol.

KIP-31 and KIP-32 define magic 1, KIP-283 how a broker converts down to it.
"""

from __future__ import annotations

import pytest

from tests.conformance.raw_sets import APPEND_TIME, Message, messages, read_set
from tests.entry.converted import tube_entry
from tests.gateway.kafka.fetch.test_fetch import fetch, partitions
from tests.gateway.kafka.fetch.test_fetch_foreign import ENCRYPTED, several, single, write
from tests.gateway.kafka.produce.test_produce import request as produce
from tests.gateway.kafka.rig import NOW_MS, Rig, batch, settle
from tests.gateway.loop import on_loop
from tests.waiting import pass_time
from trilogue.entry.control import Outcome, build_marker
from trilogue.entry.entry import Codec
from trilogue.entry.kafka.record_batch import check_crc, iter_records, read_header, set_base
from trilogue.wire.kafka.errors import ErrorCode

OLD = [0, 1, 2, 3]


def magic_of(version: int) -> int:
    """Fetch v0-v1 has magic 0, v2-v3 magic 1."""
    return 0 if version <= 1 else 1


async def fetched(rig: Rig, offset: int = 0, version: int = 3, **how: int):
    (data,) = partitions(await rig.peer().request(fetch("t", offset, **how), version))
    return data


async def read(rig: Rig, offset: int = 0, version: int = 3, **how: int) -> list[Message]:
    """The messages of a response, wrappers opened."""
    data = await fetched(rig, offset, version, **how)
    assert data.error_code == 0
    return messages(bytes(data.records))


async def fill(rig: Rig, *batches: bytes) -> None:
    peer = rig.peer()
    for each in batches:
        await peer.request(produce("t", each), 7)
    peer.transport.close()


@pytest.mark.parametrize("codec", [0, 1, 2, 3])
@pytest.mark.parametrize("version", OLD)
@pytest.mark.parametrize("is_flushed", [False, True])
@on_loop
async def test_batches_are_read_as_messages(version: int, codec: int, is_flushed: bool):
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, batch("a", "b", codec=codec), batch("c", codec=codec))
        if is_flushed:
            await rig.flush()

        data = await fetched(rig, version=version)

        magic = magic_of(version)
        time = NOW_MS if magic else -1
        assert (data.error_code, data.high_watermark) == (0, 3)
        assert messages(bytes(data.records)) == [
            Message(at, magic, 0, time, None, value) for at, value in enumerate((b"a", b"b", b"c"))
        ]
        assert {each.attributes for each in read_set(bytes(data.records))} == {codec}


@on_loop
async def test_plain_messages_begin_at_the_offset_and_wrappers_are_whole():
    """RecordsUtil.downConvert: clients skip what is below the offset that they requested."""
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, batch("a", "b", "c"), batch("d", "e", "f", codec=1))

        assert [each.offset for each in await read(rig, 1)] == [1, 2, 3, 4, 5]
        assert [each.offset for each in await read(rig, 4)] == [3, 4, 5]


@on_loop
async def test_an_answer_holds_whole_messages_within_its_limits_but_at_least_one():
    """KIP-74: progress whatever the limits are; the rest comes with the next fetch."""
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, batch(*[f"{number:03}" for number in range(50)]))
        size = len(bytes((await fetched(rig, partition_max_bytes=1)).records))

        assert [each.offset for each in await read(rig, partition_max_bytes=1)] == [0]
        assert len(await read(rig, partition_max_bytes=10 * size)) == 10
        seen: list[int] = []
        while len(seen) < 50:
            seen += [each.offset for each in await read(rig, len(seen), partition_max_bytes=400)]
        assert seen == list(range(50))


@on_loop
async def test_all_partitions_share_max_bytes():
    async with Rig() as rig:
        rig.topic("t", partitions=2)
        for index in (0, 1):
            await rig.peer().request(produce("t", batch(*["v" * 50] * 20), index=index), 7)

        answer = await rig.peer().request(fetch("t", 0, 0, max_bytes=600), 3)

        first, second = (len(bytes(each.records)) for each in partitions(answer))
        assert 0 < first <= 600
        assert second == 0


@on_loop
async def test_a_topic_may_refuse_to_convert():
    """KIP-283: message.downconversion.enable=false is UNSUPPORTED_VERSION for old clients."""
    async with Rig() as rig:
        rig.topic("t", message_downconversion_enable="false")
        await fill(rig, batch("a"))

        for version in OLD:
            data = await fetched(rig, version=version)
            assert data.error_code == ErrorCode.UNSUPPORTED_VERSION
            assert data.records == b"", "null breaks the whole answer for some clients"
        assert (await fetched(rig, version=4)).error_code == 0


@on_loop
async def test_zstd_ends_an_answer_and_is_an_error_where_it_comes_first():
    """KIP-110: UNSUPPORTED_COMPRESSION_TYPE."""
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, batch("a"), batch("b", codec=4), batch("c"))

        for version in OLD:
            assert [each.offset for each in await read(rig, version=version)] == [0]
            data = await fetched(rig, 1, version)
            assert data.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@on_loop
async def test_log_append_time_is_marked():
    async with Rig() as rig:
        rig.topic("t", message_timestamp_type="LogAppendTime")
        rig.now_ms += 5
        await fill(rig, batch("a"), batch("b", codec=1))

        found = list(read_set(bytes((await fetched(rig)).records)))

        assert [each.attributes for each in found] == [APPEND_TIME, APPEND_TIME | 1]
        assert {each.timestamp for each in found} == {rig.now_ms}
        assert {each.timestamp for each in await read(rig, version=1)} == {-1}


# ---- what has nothing for such a client


def marker(rig: Rig) -> None:
    plog = rig.gateway.topic("t").partitions[0].log
    entry = build_marker(
        Outcome.COMMIT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp_ms=NOW_MS
    )
    plog.append(memoryview(entry), read_header(entry))


@on_loop
async def test_a_client_that_would_request_a_marker_for_ever_gets_what_follows():
    """A message set cannot express "nothing up to here"."""
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, batch("a"))
        for _ in range(3):
            marker(rig)
        await fill(rig, batch("b"))

        for version in OLD:
            assert [each.offset for each in await read(rig, 1, version)] == [4]
            (only,) = await read(rig, 1, version, partition_max_bytes=1)
            assert only.offset == 4


@on_loop
async def test_behind_a_marker_at_the_end_a_fetch_waits():
    async with Rig() as rig:
        rig.topic("t")
        marker(rig)
        await settle()
        began = rig.loop.time()

        found = await read(rig, max_wait_ms=500)

        assert found == []
        assert rig.loop.time() - began == pytest.approx(0.5, abs=0.01)
        peer = rig.peer()
        peer.send(fetch("t", 0, max_wait_ms=60_000), 3)
        await pass_time(1)
        assert peer.answered == 0
        await fill(rig, batch("a"))
        await peer.wait()
        assert [each.offset for each in messages(bytes(partitions(peer.answer())[0].records))] == [
            1
        ]


# ---- what clients of other protocols wrote


@pytest.mark.parametrize("version", OLD)
@pytest.mark.parametrize("is_flushed", [False, True])
@on_loop
async def test_pulsar_messages_are_down_converted(version: int, is_flushed: bool):
    """docs/reference/conversion.md: zstd becomes gzip, since message sets know no zstd."""
    async with Rig() as rig:
        rig.topic("t")
        await write(rig, "t", single(b"0"), several(b"1", b"2", codec=1))
        await write(rig, "t", several(b"3", b"4", codec=3), single(b"5"))
        if is_flushed:
            await rig.flush()

        for _ in range(2):  # converted, then cached
            found = await read(rig, version=version)
            assert [(each.offset, each.value) for each in found] == [
                (at, b"%d" % at) for at in range(6)
            ]
            assert {each.timestamp for each in found} == {NOW_MS if magic_of(version) else -1}


@on_loop
async def test_zstd_of_pulsar_is_gzip_before_fetch_v10():
    """KIP-110: Fetch v10 is the first with zstd."""
    async with Rig() as rig:
        rig.topic("t")
        await write(rig, "t", several(b"0", b"1", codec=3))

        for version in (4, 9, 10, 12):
            records = bytes((await fetched(rig, version=version)).records)
            assert read_header(records).codec is (Codec.GZIP if version < 10 else Codec.ZSTD)
            assert check_crc(records).base_offset == 0
            assert [each.value for each in iter_records(records)] == [b"0", b"1"]


@on_loop
async def test_entries_below_the_offset_are_not_converted():
    async with Rig() as rig:
        first, second = bytearray(batch("a", codec=4)), bytearray(batch("b"))
        set_base(second, 1, 0)

        parts = [memoryview(first), memoryview(second)]
        found, next_offset = rig.gateway.conversions.for_old_kafka(
            7, parts, 1000, magic=1, from_offset=1, keep=False
        )

        assert ([each.value for each in messages(b"".join(found))], next_offset) == ([b"b"], 2)


@on_loop
async def test_tubemq_messages_are_down_converted():
    async with Rig() as rig:
        rig.topic("t")
        partition = rig.gateway.topic("t").partitions[0]
        for value in (b"a", b"b"):
            entry, header = tube_entry(value)
            partition.append_entry(memoryview(bytearray(entry)), header, now_ms=NOW_MS, size=1)
        await settle()

        for version in OLD:
            assert [each.value for each in await read(rig, version=version)] == [b"a", b"b"]


@on_loop
async def test_encrypted_messages_are_skipped():
    async with Rig() as rig:
        rig.topic("t")
        await write(rig, "t", single(b"secret", **ENCRYPTED), single(b"open"))

        for version in OLD:
            assert [each.value for each in await read(rig, version=version)] == [b"open"]
        assert rig.gateway.conversions.skipped["kafka", "encrypted"] > 0


# ---- what is kept


@on_loop
async def test_the_next_reader_that_is_as_far_gets_what_was_converted():
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, batch("a", codec=1), batch("b", "c"))
        conversions = rig.gateway.conversions

        first = await read(rig)
        made, hits = conversions.converted.copy(), conversions.hits
        assert await read(rig) == first
        assert (conversions.converted, conversions.hits) == (made, hits + 2)

        assert await read(rig, version=1) != first  # another magic is another conversion
        assert await read(rig, 2) == first[2:]  # a part of a batch is converted separately
