"""SEND: receipts, errors in order, batches, chunks, repeats, and what the disk does not keep."""

from __future__ import annotations

import errno
import struct
import sys
from collections.abc import Callable
from types import FrameType

import pytest
from msgspec.structs import replace

from tests.gateway.loop import on_loop
from tests.gateway.pulsar.rig import LOG_LIMITS, Rig, section, send_frame, settle, use_fast_path
from tests.waiting import pass_time
from trilogue.entry.entry import Format
from trilogue.entry.kafka.record_batch import read_header
from trilogue.entry.pulsar.pulsar_batch import PULSAR_SECTION_AT, broker_time
from trilogue.gateway.pulsar import send_fast_path
from trilogue.gateway.stream import STOP_WRITING
from trilogue.wire.pulsar.errors import ServerError
from trilogue.wire.pulsar.pulsar_pb2 import SingleMessageMetadata

ABSENT = (1 << 64) - 1
IS_COMPILED = not str(send_fast_path.__file__).endswith(".py")


@pytest.fixture(autouse=True, params=["installed", "uncompiled"])
def fast_path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Connections take frames by the installed module, or by its .py."""
    use_fast_path(request.param, monkeypatch)
    return request.param


def stored(rig: Rig, topic: str = "t") -> bytes:
    """All that readers of a topic's first partition see."""
    log = rig.broker.cluster.topic(rig.name(topic)).partitions[0].log
    return b"".join(bytes(each) for each in log.read(0, 1 << 30).slices)


def batch(count: int) -> bytes:
    """The section of a batch."""
    payload = b""
    for number in range(count):
        single = SingleMessageMetadata(payload_size=2).SerializeToString()
        payload += struct.pack(">I", len(single)) + single + b"v%d" % number
    return section(payload, num_messages_in_batch=count)


@on_loop
async def test_a_receipt_names_the_partition_and_the_offset():
    """Protocol, SendReceipt: message_id "assigned by the system to the published message"."""
    async with Rig() as rig:
        topic = rig.topic("t")
        peer = await rig.connected()
        await peer.producer("t", 7)

        ids = []
        for number in range(3):
            peer.send(7, number)
            receipt = await peer.answer("send_receipt")
            assert (receipt.producer_id, receipt.sequence_id) == (7, number)
            ids.append((receipt.message_id.ledgerId, receipt.message_id.entryId))

        assert ids == [(topic.partitions[0].partition_id, number) for number in range(3)]


@on_loop
async def test_a_message_is_stored_as_it_came():
    async with Rig() as rig:
        rig.topic("t")
        peer = await rig.connected()
        await peer.producer("t")
        sent = section(b"hello", properties=[{"key": "a", "value": "b"}], event_time=5)

        peer.give(send_frame(1, 0, body=sent))
        await peer.answer("send_receipt")

        entry = stored(rig)
        assert entry[PULSAR_SECTION_AT:] == sent
        assert read_header(entry).format is Format.PULSAR
        assert broker_time(entry) == rig.now_ms


@on_loop
async def test_a_message_without_a_checksum_is_taken():
    """Protocol, payload commands: magic and checksum are optional."""
    async with Rig() as rig:
        rig.topic("t")
        peer = await rig.connected(5)
        await peer.producer("t")

        peer.give(send_frame(1, 0, body=section()[6:]))
        await peer.answer("send_receipt")

        assert stored(rig)[PULSAR_SECTION_AT:] == section()


@on_loop
async def test_a_batch_takes_an_offset_for_each_message():
    async with Rig() as rig:
        rig.topic("t")
        peer = await rig.connected()
        await peer.producer("t")

        peer.give(send_frame(1, 0, body=batch(5), num_messages=5, highest_sequence_id=4))
        first = await peer.answer("send_receipt")
        peer.send(1, 5)
        second = await peer.answer("send_receipt")

        assert first.highest_sequence_id == 4
        assert (first.message_id.entryId, second.message_id.entryId) == (0, 5)


@on_loop
async def test_a_damaged_message_is_an_error_and_the_connection_stays():
    """docs/reference/wire/pulsar.md: SEND_ERROR ChecksumError."""
    async with Rig() as rig:
        rig.topic("t")
        peer = await rig.connected()
        await peer.producer("t")
        damaged = bytearray(section())
        damaged[-1] ^= 1

        peer.give(send_frame(1, 3, body=bytes(damaged)))
        error = await peer.answer("send_error")

        assert (error.producer_id, error.sequence_id) == (1, 3)
        assert error.error == ServerError.ChecksumError
        assert "Checksum failed on the broker" in error.message
        peer.send(1, 3)
        await peer.answer("send_receipt")


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"body": b""}, ServerError.ChecksumError),
        ({"body": b"\x0e\x01\0"}, ServerError.ChecksumError),
        ({"metadata_highest_sequence_id": 2, "sequence_id": 3}, ServerError.MetadataError),
        ({"metadata_num_messages_in_batch": 0}, ServerError.MetadataError),
        ({"metadata_num_messages_in_batch": 1 << 30}, ServerError.MetadataError),
    ],
    ids=["no section", "cut", "sequences", "no messages", "too many messages"],
)
def test_invalid_send_returns_send_error(fields, code):
    @on_loop
    async def scenario():
        async with Rig() as rig:
            rig.topic("t")
            peer = await rig.connected()
            await peer.producer("t")
            sequence_id = fields.pop("sequence_id", 0)

            peer.give(send_frame(1, sequence_id, **fields))

            assert ServerError((await peer.answer("send_error")).error) in {
                code,
                ServerError.MetadataError,
            }
            assert not peer.is_cut

    fields = dict(fields)
    scenario()


@on_loop
async def test_errors_wait_for_the_receipts_before_them():
    """Receipts in send order per producer; clients look at the first."""
    async with Rig() as rig:
        rig.topic("t")
        peer = await rig.connected()
        await peer.producer("t")

        peer.give(send_frame(1, 0) + send_frame(1, 1, body=b"") + send_frame(1, 2))
        assert peer.answered == 0
        await settle()

        found = [peer.next() for _ in range(3)]
        assert [each.command.sequence_id for each in found] == [0, 1, 2]
        assert [each.field for each in found] == ["send_receipt", "send_error", "send_receipt"]


@on_loop
async def test_a_repeated_send_is_stored_once():
    """De-duplication: a normal receipt, with an id that is none."""
    async with Rig() as rig:
        rig.topic("t", pulsar_deduplication="true")
        peer = await rig.connected()
        await peer.producer("t", producer_name="rig")
        peer.send(1, 0)
        await peer.answer("send_receipt")
        before = stored(rig)

        peer.send(1, 0)
        receipt = await peer.answer("send_receipt")

        assert (receipt.message_id.ledgerId, receipt.message_id.entryId) == (ABSENT, ABSENT)
        assert stored(rig) == before


@on_loop
async def test_chunks_are_taken_one_by_one():
    """PIP-37."""
    async with Rig() as rig:
        rig.topic("t")
        peer = await rig.connected()
        await peer.producer("t")

        for chunk in range(3):
            peer.send(
                1, 0, b"part", is_chunk=True, metadata_uuid="rig-0", metadata_chunk_id=chunk,
                metadata_num_chunks_from_msg=3, metadata_total_chunk_msg_size=12,
            )  # fmt: skip

        ids = [(await peer.answer("send_receipt")).message_id.entryId for _ in range(3)]
        assert ids == [0, 1, 2]


@on_loop
async def test_a_full_disk_refuses_messages_until_there_is_room():
    limits = replace(LOG_LIMITS, journal=replace(LOG_LIMITS.journal, min_free_bytes=1 << 20))
    async with Rig(log_limits=limits) as rig:
        rig.topic("t")
        peer = await rig.connected()
        await peer.producer("t")
        rig.fs.free = 0
        for sequence_id in range(100):  # the room is looked at every few MiB
            peer.send(1, sequence_id, b"x" * 100_000)
            await peer.wait()
            answer = peer.next()
            if answer.field == "send_error":
                break

        assert answer.command.error == ServerError.PersistenceError
        rig.fs.free = 1 << 40
        await pass_time(1)
        peer.send(1, sequence_id)
        await peer.answer("send_receipt")


@on_loop
async def test_a_failed_disk_takes_all_receipts_of_the_turn_back():
    async with Rig() as rig:
        rig.topic("t")
        peer = await rig.connected()
        await peer.producer("t")
        peer.give(send_frame(1, 0))  # the first frame: the journal makes its second file after it
        await peer.answer("send_receipt")
        await settle()
        rig.fs.fail("write", errno.EIO)

        peer.give(send_frame(1, 1) + send_frame(1, 2, body=b"") + send_frame(1, 3))
        await settle()

        found = [peer.next() for _ in range(3)]
        assert [each.command.sequence_id for each in found] == [1, 2, 3]
        assert [each.command.error for each in found] == [
            ServerError.PersistenceError,
            found[1].command.error,
            ServerError.PersistenceError,
        ]


@on_loop
async def test_messages_above_the_topics_size_are_refused():
    async with Rig() as rig:
        rig.topic("t", pulsar_maxMessageSize="100")
        peer = await rig.connected()
        await peer.producer("t")

        peer.send(1, 0, b"x" * 100)

        assert (await peer.answer("send_error")).error == ServerError.NotAllowedError


@on_loop
async def test_a_topic_acknowledged_from_memory_answers_at_once_but_not_out_of_order():
    async with Rig() as rig:
        rig.topic("t", flush="interval")
        rig.topic("u")
        peer = await rig.connected()
        await peer.producer("t", 1)
        await peer.producer("u", 2)

        peer.give(send_frame(2, 0) + send_frame(1, 0))
        assert peer.next().command.producer_id == 1
        peer.give(send_frame(1, 1, body=b"") + send_frame(1, 2))
        assert peer.answered == 0
        await settle()

        found = [peer.next().command for _ in range(peer.answered)]
        assert [each.sequence_id for each in found if each.producer_id == 1] == [1, 2]


@on_loop
async def test_a_peer_that_does_not_read_its_receipts_is_not_read():
    async with Rig() as rig:
        rig.topic("t")
        peer = await rig.connected()
        await peer.producer("t")
        peer.transport.stuck = True
        sent = 0
        while not peer.stream.stops & STOP_WRITING:
            peer.give(b"".join(send_frame(1, sent + number) for number in range(100)))
            await settle()
            sent += 100
            assert sent < 100_000

        peer.transport.unstick()
        await settle()

        assert peer.answered == sent


def frames_of_python(call: Callable[[], None]) -> int:
    """How many functions of Python a call enters."""
    counted = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal counted
        counted += event == "call"

    sys.setprofile(count)
    try:
        call()
    finally:
        sys.setprofile(None)
    return counted


@pytest.mark.skipif(not IS_COMPILED, reason="the installed module is not compiled")
@pytest.mark.parametrize("topic", ["t", "interval", "non-persistent://public/default/t"])
def test_one_more_message_of_a_step_runs_no_frame_of_python(fast_path: str, topic: str):
    @on_loop
    async def scenario() -> None:
        async with Rig() as rig:
            rig.topic("t")
            rig.topic("interval", flush="interval")
            peer = await rig.connected()
            await peer.producer(topic)

            def count(messages: int) -> int:
                data = b"".join(send_frame(1, number) for number in range(messages))
                return frames_of_python(lambda: peer.give(data))

            count(5)
            await settle()
            few = count(10)
            await settle()

            assert count(60) - few < 50  # a few more are of the step, as when a window begins

    if fast_path == "installed":
        scenario()


@on_loop
async def test_counters_include_messages_of_the_fast_path_and_of_the_handler():
    async with Rig() as rig:
        rig.topic("t")
        peer = await rig.connected()
        await peer.producer("t")
        damaged = send_frame(1, 1, body=b"\x0e\x01\0\0\0\0" + b"\0\0\0\0")
        size = len(section(sequence_id=0))

        peer.give(send_frame(1, 0) + damaged + send_frame(1, 2) + send_frame(1, 3))
        await settle()

        fields = [peer.next().field for _ in range(4)]
        assert fields == ["send_receipt", "send_error", "send_receipt", "send_receipt"]
        producer = peer.connection.producers[1]
        assert (producer.messages, rig.gateway.messages_in) == (3, 3)
        assert (producer.bytes, rig.gateway.bytes_in) == (3 * size, 3 * size)
