"""Random bytes: they are messages, a BadMessage, or the end of one connection."""

from __future__ import annotations

import asyncio
import contextlib

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.client.pulsar.scripted import batch, metadata, single
from trilogue.client.pulsar.connection import PulsarConnection
from trilogue.client.pulsar.consumer.chunk_assembler import ChunkAssembler
from trilogue.client.pulsar.errors import BadMessage
from trilogue.client.pulsar.options import ClientOptions
from trilogue.client.pulsar.section import (
    decompress_payload,
    estimate_count,
    read_section,
    read_single,
    read_singles,
)
from trilogue.entry.checksum import crc32c
from trilogue.entry.pulsar.pulsar_batch import build_section
from trilogue.wire.errors import WireError
from trilogue.wire.pulsar import pulsar_pb2 as pb
from trilogue.wire.pulsar.commands import COMMANDS
from trilogue.wire.pulsar.frame import encode_command

LIMIT = 1 << 16
QUICK = settings(max_examples=200, derandomize=True, deadline=None, database=None)
SECTIONS = [
    single(b"x" * 40, partition_key="k"),
    batch(b"a", None, b"c" * 30),
    *(batch(b"a" * 50, b"b" * 50, codec=codec) for codec in range(1, 5)),
    build_section(
        metadata(uuid="u", chunk_id=0, num_chunks_from_msg=2, total_chunk_msg_size=9), b"abc"
    ),
]
FRAMES = [
    encode_command(
        pb.BaseCommand(type=pb.BaseCommand.SUCCESS, success=pb.CommandSuccess(request_id=1))
    ),
    encode_command(
        pb.BaseCommand(
            type=pb.BaseCommand.ERROR,
            error=pb.CommandError(request_id=1, error=pb.UnknownError, message="x"),
        )
    ),
    encode_command(
        pb.BaseCommand(
            type=pb.BaseCommand.SEND_RECEIPT,
            send_receipt=pb.CommandSendReceipt(
                producer_id=0, sequence_id=0, message_id=pb.MessageIdData(ledgerId=1, entryId=2)
            ),
        )
    ),
]


def changed(draw: st.DrawFn, octets: bytes) -> bytearray:
    out = bytearray(octets)
    for _ in range(draw(st.integers(1, 4))):
        out[draw(st.integers(0, len(out) - 1))] = draw(st.integers(0, 255))
    return out[: draw(st.integers(1, len(out)))] + draw(st.binary(max_size=4))


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A section with some bytes changed; its checksum may have been made right again."""
    out = changed(draw, draw(st.sampled_from(SECTIONS)))
    if draw(st.booleans()):
        out[:6] = b"\x0e\x01" + crc32c(out[6:]).to_bytes(4, "big")
    return bytes(out)


@QUICK
@given(damaged())
def test_a_damaged_section_is_messages_or_a_bad_message(section: bytes):
    view = memoryview(section)
    assert estimate_count(view) >= 1
    with contextlib.suppress(BadMessage):
        opened = read_section(view)
        if opened.metadata.is_chunk:
            ChunkAssembler(2, LIMIT).add((1, 1), opened)
            return
        payload = decompress_payload(opened.metadata, opened.payload, LIMIT)
        assert len(payload) <= LIMIT
        if opened.metadata.is_batch:
            assert len(read_singles(opened.metadata, payload)) <= opened.metadata.num_messages
        else:
            read_single(opened.metadata, opened.properties, payload)


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    """The body of a frame: damaged, or a command of any type with anything in it."""
    if draw(st.booleans()):
        return bytes(changed(draw, draw(st.sampled_from(FRAMES))[4:]))
    kind = draw(st.sampled_from([row.type for row in COMMANDS]))
    inner = draw(st.binary(max_size=20))
    body = pb.BaseCommand(type=kind).SerializePartialToString()
    tag = kind << 3 | 2
    body += bytes([tag & 127 | 128, tag >> 7]) + bytes([len(inner)]) + inner
    return len(body).to_bytes(4, "big") + body + draw(st.binary(max_size=8))


@QUICK
@given(frames())
def test_a_frame_is_taken_or_ends_the_connection(frame: bytes):
    async def work() -> None:
        connection = PulsarConnection(ClientOptions())
        connection.expect(1)
        with contextlib.suppress(WireError):
            connection._on_frame(memoryview(frame))

    asyncio.run(work())
