"""Produce v0-v2, and validation before the append, on the event loop or in the executor."""

from __future__ import annotations

import logging

import pytest
from msgspec.structs import replace

from tests.conformance.raw_sets import message, wrapper
from tests.gateway.kafka.produce.test_produce import only, request, stored
from tests.gateway.kafka.rig import NOW_MS, Peer, Rig, batch, settle
from tests.gateway.loop import on_loop
from trilogue.gateway.kafka.produce.produce import ON_LOOP
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.produce import PartitionProduceData, ProduceRequest, TopicProduceData

OLD = [0, 1, 2]


def old(value: bytes, version: int) -> bytes:
    """A message as a client of this version writes it."""
    return message(value, magic=0 if version < 2 else 1, timestamp=NOW_MS)


def large(version: int) -> bytes:
    """A wrapper that is converted in the executor."""
    magic = 0 if version < 2 else 1
    inner = message(b"x" * 40_000, magic=magic) + message(b"y", magic=magic, offset=1)
    return wrapper(inner, magic=magic, offset=1)


@pytest.mark.parametrize("version", OLD)
@on_loop
async def test_message_sets_are_stored_and_answered(version: int):
    async with Rig() as rig:
        topic = rig.topic("t")
        peer = rig.peer()

        sent = [old(b"a", version) + old(b"b", version), old(b"c", version), large(version)]
        offsets = [only(await peer.request(request("t", each), version)) for each in sent]

        assert [(each.base_offset, each.error_code) for each in offsets] == [(0, 0), (2, 0), (3, 0)]
        assert stored(rig, topic) == [b"a", b"b", b"c", b"x" * 40_000, b"y"]


@pytest.mark.parametrize("version", OLD)
@on_loop
async def test_a_batch_in_an_old_request_is_taken_as_ever(version: int):
    """Kafka never checked which magic comes in which version before v3, and clients rely on it."""
    async with Rig() as rig:
        topic = rig.topic("t")

        answer = only(await rig.peer().request(request("t", batch("a", codec=1)), version))

        assert (answer.error_code, stored(rig, topic)) == (0, [b"a"])


@pytest.mark.parametrize("version", OLD)
@on_loop
async def test_a_set_without_messages_is_answered_and_appends_nothing(version: int):
    """As a real Kafka 3.9.1 does: no error, offset -1. A null set is refused: it would time out."""
    async with Rig() as rig:
        topic = rig.topic("t")
        peer = rig.peer()

        answer = only(await peer.request(request("t", b""), version))
        refused = only(await peer.request(request("t", None), version))

        assert (answer.error_code, answer.base_offset) == (0, -1)
        assert refused.error_code == ErrorCode.INVALID_RECORD
        assert topic.partitions[0].log.end_offset == 0


@on_loop
async def test_sets_belong_to_old_versions_only():
    async with Rig() as rig:
        rig.topic("t")

        answer = only(await rig.peer().request(request("t", message(b"v")), 3))

        assert answer.error_code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (message(b"v", crc=1), ErrorCode.CORRUPT_MESSAGE),
        (message(b"v")[:-1], ErrorCode.INVALID_RECORD),
        (wrapper(wrapper(message(b"v"))), ErrorCode.INVALID_RECORD),
        (message(bytes(2 << 20)), ErrorCode.MESSAGE_TOO_LARGE),
        (wrapper(message(bytes(40 << 20))), ErrorCode.MESSAGE_TOO_LARGE),
        (message(b"v", attributes=8, timestamp=-1), ErrorCode.INVALID_TIMESTAMP),
    ],
    ids=["checksum", "cut", "nested", "large", "bomb", "time"],
)
@on_loop
async def test_refused_message_set_leaves_other_partitions_unaffected(sent: bytes, code: int):
    async with Rig() as rig:
        topic = rig.topic("t", partitions=2)
        parts = [PartitionProduceData(index=0, records=sent)]
        parts += [PartitionProduceData(index=1, records=message(b"good"))]
        both = ProduceRequest(
            acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=parts)]
        )

        (answer,) = (await rig.peer().request(both, 2)).responses

        bad, good = answer.partition_responses
        assert (bad.error_code, bad.base_offset) == (code, -1)
        assert (good.error_code, good.base_offset) == (0, 0)
        assert (stored(rig, topic, 0), stored(rig, topic, 1)) == ([], [b"good"])


@on_loop
async def test_log_append_time_is_returned_since_version_2():
    async with Rig() as rig:
        rig.topic("t", message_timestamp_type="LogAppendTime")

        for version in OLD:
            answer = only(await rig.peer().request(request("t", old(b"v", version)), version))
            assert answer.log_append_time_ms == (rig.now_ms if version == 2 else -1)


@on_loop
async def test_storage_error_is_retriable_for_old_versions():
    """KIP-112: only clients with Produce v4 know KAFKA_STORAGE_ERROR."""
    for version in (1, 2, 3, 4, 9):
        async with Rig() as rig:
            rig.topic("t")
            peer = rig.peer()
            sent = old(b"v", version) if version < 3 else batch("v")
            assert only(await peer.request(request("t", sent), version)).error_code == 0
            rig.fail_disk("write")

            answer = only(await peer.request(request("t", sent), version))

            assert answer.error_code == (6 if version < 4 else 56)


# ---- on the event loop and in the executor


@on_loop
async def test_small_sets_are_converted_at_once_and_larger_ones_in_the_executor():
    async with Rig() as rig:
        rig.topic("t")
        peer = rig.peer()

        await peer.request(request("t", message(b"v") + message(b"w")), 2)
        await peer.request(request("t", wrapper(message(b"v"))), 2)
        assert rig.executor.runs == 0
        await peer.request(request("t", message(bytes(ON_LOOP))), 2)
        assert rig.executor.runs == 1
        await peer.request(request("t", wrapper(message(bytes(40_000)))), 2)
        assert rig.executor.runs == 2


def send_together(peer: Peer, *sent: bytes, acks: int = -1) -> None:
    """Several requests that arrive at once."""
    peer.stream.stop(1)
    peer.transport.reading = True
    for each in sent:
        peer.send(request("t", each, acks=acks), 2)
    peer.stream.go_on(1)
    peer.transport.reading = False


@on_loop
async def test_many_parts_of_one_request_do_not_keep_the_loop_or_the_executor():
    """A few on the event loop, the others in runs, with other requests in between."""
    async with Rig() as rig:
        topic = rig.topic("t", partitions=40)
        parts = [
            PartitionProduceData(index=index, records=message(bytes(4_000))) for index in range(40)
        ]
        data = [TopicProduceData(name="t", partition_data=parts)]

        requested = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=data)
        (answer,) = (await rig.peer().request(requested, 2)).responses

        assert {each.error_code for each in answer.partition_responses} == {0}
        assert [len(stored(rig, topic, index)) for index in range(40)] == [1] * 40
        assert rig.executor.runs == 3  # 36 batches of 4 KiB


@on_loop
async def test_requests_behind_a_large_one_wait_so_that_the_order_stays():
    async with Rig() as rig:
        topic = rig.topic("t")
        peer = rig.peer()

        send_together(peer, old(b"1", 2), large(2), old(b"4", 2), large(2), old(b"7", 2))
        for _ in range(5):
            await peer.wait()
            assert only(peer.answer()).error_code == 0

        assert [len(each) for each in stored(rig, topic)] == [1, 40_000, 1, 1, 40_000, 1, 1]


@on_loop
async def test_acks_0_has_no_response_and_a_failure_closes_the_connection():
    async with Rig() as rig:
        topic = rig.topic("t")
        peer = rig.peer()

        send_together(peer, old(b"1", 2), large(2), old(b"2", 2), acks=0)
        for _ in range(3):
            peer.sends_nothing_back()
        await settle()
        assert (await peer.request(request("t", old(b"3", 2)), 2)).responses
        assert len(stored(rig, topic)) == 5
        assert not peer.is_cut

        peer.send(request("t", wrapper(message(bytes(40 << 20))), acks=0), 2)
        await settle()
        assert peer.is_cut


@on_loop
async def test_a_client_that_goes_away_meanwhile_disturbs_no_other(caplog):
    async with Rig() as rig:
        topic = rig.topic("t")
        peer = rig.peer()

        peer.send(request("t", large(2)), 2)
        peer.transport.close()
        await settle()

        assert len(stored(rig, topic)) in {0, 2}
        assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


@on_loop
async def test_a_failed_write_takes_back_what_was_converted_elsewhere():
    async with Rig() as rig:
        rig.topic("t")
        rig.fail_disk("write")

        answer = only(await rig.peer().request(request("t", large(2)), 2))

        assert (answer.error_code, answer.base_offset) == (6, -1)


# ---- settings of topics that require validation


@pytest.mark.parametrize("size", [10, 50_000])
@on_loop
async def test_a_topics_codec_is_applied_to_what_comes(size: int):
    async with Rig() as rig:
        topic = rig.topic("t", compression_type="gzip")
        peer = rig.peer()

        for number in range(3):  # also for requests with the prefix of the first one
            answer = only(await peer.request(request("t", batch("v" * size, codec=number)), 9))
            assert (answer.error_code, answer.base_offset) == (0, number)

        assert stored(rig, topic) == [b"v" * size] * 3
        plog = topic.partitions[0].log
        data = b"".join(plog.read(0, 1 << 20).slices)
        assert len(data) < 3 * 200
        assert rig.executor.runs == (0 if size == 10 else 2)  # a batch in gzip is unchanged


@on_loop
async def test_a_setting_that_comes_later_holds_for_known_shapes_too():
    async with Rig() as rig:
        topic = rig.topic("t")
        peer = rig.peer()
        for _ in range(3):
            await peer.request(request("t", batch("v" * 1000)), 9)
        partition = topic.partitions[0]
        partition.apply_settings(replace(partition.settings, timestamp_before_max_ms=0))

        answer = only(await peer.request(request("t", batch("v" * 1000, timestamp=5)), 9))

        assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
        assert "message 0 has time 5" in answer.error_message
