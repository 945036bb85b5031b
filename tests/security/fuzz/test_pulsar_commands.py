"""Damaged, oversized and incomplete commands of Pulsar's clients, made from their descriptors.

Each costs at most its own connection: there is ERROR, another answer, or a close with one line in
the log, without work that grows faster than the frame (CPU_MAX_S). How long others wait for one
is measured at a server (tests/attacks). `make fuzz` runs many more rounds (TRILOGUE_FUZZ_ROUNDS).
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator
from random import Random

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from tests.cpu_time import measure_cpu
from tests.gateway.loop import on_loop
from tests.gateway.pulsar.rig import TYPES, Peer, Rig, section, settle
from tests.gateway.pulsar.test_hostile import SURPRISES
from tests.security.fuzz.test_logins import mutate, rounds
from trilogue.gateway.pulsar.commands import TABLE
from trilogue.wire.pulsar.frame import MAX_MESSAGE_SIZE
from trilogue.wire.pulsar.pulsar_pb2 import BaseCommand

FIELDS = [row.field for row in TABLE]
RAW = {row.field for row in TABLE if row.raw}  # their codec reads what it needs
LINES = {"ack": 2}  # a wrong id, and that the client could not read the message
ACK_IDS = 100_000  # more are refused
CPU_MAX_S = 5.0  # 0.1 where it was written, 0.5 on the slowest machine so far
LARGE = MAX_MESSAGE_SIZE - (1 << 10)
DEPTH = 3
TEXTS = (
    "", "t", "s", "p", "p-partition-1", "persistent://public/default/t", "non-persistent://a/b/c",
    "public/default", "a/b/c/d/e", "%", "\0", "\x7f", "\u00fc", "\U0001f4a3", ".*", "(" * 50,
    "x" * 300,
)  # fmt: skip
NUMBERS = (0, 1, 2, 3, 127, 2**31 - 1)
LONG = (2**32 - 1, 2**62, 2**63 - 1)
SIGNED = (-1, -(2**31))
CPP_LONG = {FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64}
CPP_SIGNED = {FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_INT32}
CPP_FLOATS = {FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT}


def scalar(random: Random, field: FieldDescriptor) -> object:
    """Return a value of the field's type, at the edges of what it may be."""
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        text = random.choice(TEXTS)
        return text.encode() if field.type == FieldDescriptor.TYPE_BYTES else text
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        return random.choice(field.enum_type.values).number
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return random.random() < 0.5
    if field.cpp_type in CPP_FLOATS:
        return random.choice((0.0, -1.0, 1e300))
    numbers = NUMBERS * 3
    numbers += LONG if field.cpp_type in CPP_LONG else ()
    numbers += SIGNED if field.cpp_type in CPP_SIGNED else ()
    return random.choice(numbers)


def fill(random: Random, message: Message, depth: int = 0) -> None:
    """Set all required fields, and of the others half."""
    message.SetInParent()
    for field in message.DESCRIPTOR.fields:
        if not field.is_required and (depth >= DEPTH or random.random() < 0.5):
            continue
        if field.is_repeated:
            items = getattr(message, field.name)
            for _ in range(random.choice((0, 1, 2, 200 if depth == 0 else 3))):
                if field.message_type is not None:
                    fill(random, items.add(), depth + 1)
                else:
                    items.append(scalar(random, field))
        elif field.message_type is not None:
            fill(random, getattr(message, field.name), depth + 1)
        else:
            setattr(message, field.name, scalar(random, field))


def make_command(random: Random, name: str) -> BaseCommand:
    """Return a command with its message."""
    made = BaseCommand(type=TYPES[name])
    fill(random, getattr(made, name))
    return made


def frame(name: str, body: bytes) -> bytes:
    """Return the frame of an encoded command; that of SEND has a message."""
    more = section(b"hello") if name == "send" else b""
    return struct.pack(">II", 4 + len(body) + len(more), len(body)) + body + more


def required_fields(message: Message) -> Iterator[tuple[Message, str]]:
    """Yield each required field that is set, with the message that has it."""
    for field, value in message.ListFields():
        if field.is_required:
            yield message, field.name
        if field.message_type is not None:
            for each in value if field.is_repeated else [value]:
                yield from required_fields(each)


async def make_peer(rig: Rig) -> Peer:
    """Return a client with a producer and a consumer, so that some numbers name them."""
    peer = await rig.connected()
    await peer.producer("t")
    await peer.request("subscribe", "success", topic="t", subscription="s", subType=1,
                       consumer_id=1)  # fmt: skip
    peer.send_command("flow", consumer_id=1, messagePermits=10)
    await settle()
    return peer


async def give(
    rig: Rig, content: bytes, caplog: pytest.LogCaptureFixture, seed: Random, lines_max: int = 1
) -> Peer:
    """Send a frame; check what it costs and what is logged."""
    peer = await make_peer(rig)
    caplog.clear()
    with measure_cpu() as used:
        peer.give(content)
        await settle()
    lines = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert used.seconds < CPU_MAX_S, seed
    assert not [each for each in lines if each.getMessage() in SURPRISES or each.exc_info], seed
    assert len(lines) <= lines_max, (lines, seed)
    assert not peer.is_cut or lines, seed
    return peer


def end(peer: Peer) -> None:
    if not peer.is_cut:
        peer.transport.close()


async def check_others(rig: Rig, other: Peer) -> None:
    """Another client goes on, and a new one is served."""
    other.send_command("ping")
    await other.answer("pong")
    end(await make_peer(rig))


@pytest.mark.parametrize("name", FIELDS)
def test_damaged_commands(name: str, caplog: pytest.LogCaptureFixture):
    @on_loop
    async def scenario():
        async with Rig() as rig:
            rig.topic("t")
            rig.topic("p", 2)
            other = await rig.connected()
            for random in rounds(f"command {name}"):
                body = make_command(random, name).SerializeToString()
                kind = random.random()
                if kind < 0.6:
                    body = mutate(random, body)
                content = frame(name, body)
                if kind > 0.9:  # the frame is damaged, but for its length
                    damaged = mutate(random, content[4:])
                    content = struct.pack(">I", len(damaged)) + damaged
                end(await give(rig, content, caplog, random, LINES.get(name, 1)))
            await check_others(rig, other)

    scenario()


@pytest.mark.parametrize("name", FIELDS)
def test_commands_without_a_required_field(name: str, caplog: pytest.LogCaptureFixture):
    """Its connection is closed, whatever field it is."""
    missing: set[str] = set()

    @on_loop
    async def scenario():
        async with Rig() as rig:
            rig.topic("t")
            other = await rig.connected()
            for random in rounds(f"missing {name}"):
                made = make_command(random, name)
                fields = list(required_fields(getattr(made, name)))
                if name in RAW:
                    fields = [each for each in fields if each[0] is getattr(made, name)]
                if not fields:
                    continue
                message, field = random.choice(fields)
                message.ClearField(field)
                missing.add(field)
                content = frame(name, made.SerializePartialToString())
                peer = await give(rig, content, caplog, random)
                assert peer.is_cut, (field, random)
            await check_others(rig, other)

    scenario()
    wanted = {each.name for each in BaseCommand.DESCRIPTOR.fields_by_name[name].message_type.fields
              if each.is_required}  # fmt: skip
    assert wanted <= missing


@pytest.mark.parametrize("name", FIELDS)
def test_oversized_fields(name: str, caplog: pytest.LogCaptureFixture):
    """Each text and each list, alone, as long as a frame may be."""

    @on_loop
    async def scenario():
        async with Rig() as rig:
            rig.topic("t")
            other = await rig.connected()
            (random,) = rounds(f"large {name}")[:1]
            for field in BaseCommand.DESCRIPTOR.fields_by_name[name].message_type.fields:
                made = make_command(random, name)
                message = getattr(made, name)
                is_text = field.cpp_type == FieldDescriptor.CPPTYPE_STRING
                if field.is_repeated:
                    enlarge(random, getattr(message, field.name), field)
                elif is_text:
                    is_bytes = field.type == FieldDescriptor.TYPE_BYTES
                    setattr(message, field.name, b"x" * LARGE if is_bytes else "x" * LARGE)
                else:
                    continue
                end(await give(rig, frame(name, made.SerializeToString()), caplog, random))
            await check_others(rig, other)

    scenario()


def enlarge(random: Random, items: object, field: FieldDescriptor) -> None:
    """Make a list that is nearly as long as a frame may be."""
    if field.message_type is not None:
        first = items.add()  # type: ignore[attr-defined]
        fill(random, first, DEPTH)
        count = LARGE // 2 // (first.ByteSize() + 8)
        is_id = field.message_type.name == "MessageIdData"
        items.extend([first] * (min(count, ACK_IDS) if is_id else count))  # type: ignore[attr-defined]
    else:
        value = scalar(random, field)
        size = len(str(value)) + 12
        items.extend([value] * (LARGE // 2 // size))  # type: ignore[attr-defined]
