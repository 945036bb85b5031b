"""Golden vectors of Pulsar's protocol: record what real clients send, and explain it.

A vector is one frame as it was on the wire (without totalSize), a field a line, hex first:

    00000019         # command size
    0806             # type = SEND
    3215             # send: 21 bytes
    0800             # send.producer_id = 0

Recording stands between a client and a broker that advertises the recorder's port. A SEND is named
after its producer's topic, `vector-<label>`, other commands after themselves:

    trilogue serve --listen pulsar=127.0.0.1:6651 --advertise pulsar=127.0.0.1:6650 ...
    python -m tools.pulsar_vectors 6650 127.0.0.1:6651 tests/vectors/pulsar cpp-4.2.0
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from trilogue.wire.frames import Int32Frames
from trilogue.wire.pulsar.pulsar_pb2 import BaseCommand, MessageMetadata

LIMIT = 8 << 20
HEX_COLUMNS = 64
LONGEST_SHOWN = 60
LONGEST = 4096
"""A frame longer than this is not worth a golden vector."""
PREFIX = "vector-"


class Line(NamedTuple):
    """Some bytes and what they mean."""

    raw: bytes
    meaning: str

    def __str__(self) -> str:
        shown = self.raw.hex()
        rows = [shown[at : at + HEX_COLUMNS] for at in range(0, len(shown), HEX_COLUMNS)] or [""]
        rows[0] = f"{rows[0]:<24} # {self.meaning}"
        return "\n".join(rows)


def explain(frame: bytes) -> Iterator[Line]:
    """Explain each part of a client's frame, by a slow walk of its own."""
    (size,) = struct.unpack_from(">I", frame)
    yield Line(frame[:4], f"command size = {size}")
    yield from fields(frame[4 : 4 + size], BaseCommand(), "")
    rest = frame[4 + size :]
    if not rest:
        return
    if rest[:2] == b"\x0e\x01":
        yield Line(rest[:6], f"magic, crc32c = {rest[2:6].hex()}")
        rest = rest[6:]
    (size,) = struct.unpack_from(">I", rest)
    yield Line(rest[:4], f"metadata size = {size}")
    yield from fields(rest[4 : 4 + size], MessageMetadata(), "metadata.")
    yield Line(rest[4 + size :], f"payload, {len(rest) - 4 - size} bytes")


def fields(raw: bytes, message: Message, path: str) -> Iterator[Line]:
    """Walk the fields of a protobuf message."""
    by_number = message.DESCRIPTOR.fields_by_number
    pos = 0
    while pos < len(raw):
        start = pos
        tag, pos = varint(raw, pos)
        field = by_number.get(tag >> 3)
        name = f"{path}{field.name if field else tag >> 3}"
        if tag & 7 == 0:
            value, pos = varint(raw, pos)
            yield Line(raw[start:pos], f"{name} = {shown(field, value)}")
            continue
        assert tag & 7 == 2, f"wire type {tag & 7} of {name}"
        size, pos = varint(raw, pos)
        octets = raw[pos : pos + size]
        if field is not None and field.type == FieldDescriptor.TYPE_MESSAGE:
            yield Line(raw[start:pos], f"{name}: {size} bytes")
            yield from fields(octets, field.message_type._concrete_class(), f"{name}.")  # noqa: SLF001
        else:
            text = (
                octets
                if field is None or field.type != FieldDescriptor.TYPE_STRING
                else (octets.decode())
            )
            short = repr(text) if size <= LONGEST_SHOWN else f"{size} bytes"
            yield Line(raw[start : pos + size], f"{name} = {short}")
        pos += size


def varint(raw: bytes, pos: int) -> tuple[int, int]:
    """A number and where it ends."""
    value = shift = 0
    while True:
        byte = raw[pos]
        value |= (byte & 127) << shift
        pos, shift = pos + 1, shift + 7
        if byte < 128:
            return value, pos


def shown(field: Any, value: int) -> object:
    """A number as its field means it."""
    if field is None:
        return value
    if field.type == FieldDescriptor.TYPE_ENUM:
        named = field.enum_type.values_by_number.get(value)
        return named.name if named else value
    if field.type == FieldDescriptor.TYPE_BOOL:
        return bool(value)
    signed = {FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_INT64}
    return value - (1 << 64) if field.type in signed and value >= 1 << 63 else value


class Recorder:
    """Writes the first frame of each kind that a client sends."""

    def __init__(self, folder: Path, client: str) -> None:
        self.folder, self.client = folder, client
        self.written: set[str] = set()
        self.topics: dict[int, str] = {}

    def frame(self, frame: bytes) -> None:
        """Look at one frame of a client."""
        (size,) = struct.unpack_from(">I", frame)
        command = BaseCommand.FromString(frame[4 : 4 + size])
        name = BaseCommand.Type.Name(command.type)
        if command.type == BaseCommand.PRODUCER:
            self.topics[command.producer.producer_id] = command.producer.topic
        if command.type == BaseCommand.SEND:
            label = self.topics[command.send.producer_id].partition(PREFIX)[2]
            metadata = MessageMetadata.FromString(self.metadata(frame[4 + size :]))
            if metadata.HasField("chunk_id"):
                label = f"{label}-{metadata.chunk_id}"
            name = f"SEND-{label}"
        if name not in self.written and len(frame) <= LONGEST:
            self.written.add(name)
            lines = [f"# {name}, recorded from {self.client}", *map(str, explain(frame))]
            (self.folder / f"{name}-{self.client}.hex").write_text("\n".join(lines) + "\n")
            print(name)

    @staticmethod
    def metadata(section: bytes) -> bytes:
        """The metadata of a section."""
        at = 6 if section[:2] == b"\x0e\x01" else 0
        (size,) = struct.unpack_from(">I", section, at)
        return section[at + 4 : at + 4 + size]


async def serve(port: int, upstream: tuple[str, int], folder: Path, client: str) -> None:
    """Pass everything on, both ways, and record what clients send."""
    recorder = Recorder(folder, client)

    async def joined(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(*upstream)
        frames = Int32Frames(LIMIT)

        def look(data: bytes) -> None:
            while data:
                room = frames.get_buffer()
                taken = min(len(room), len(data))
                room[:taken] = data[:taken]
                frames.received(taken)
                data = data[taken:]
                while (frame := frames.next()) is not None:
                    recorder.frame(bytes(frame))

        async def passed(source: asyncio.StreamReader, target: asyncio.StreamWriter, see) -> None:
            with contextlib.suppress(ConnectionError):
                while data := await source.read(1 << 16):
                    see(data)
                    target.write(data)
                    await target.drain()
            target.close()

        await asyncio.gather(passed(reader, back, look), passed(there, writer, lambda _: None))

    server = await asyncio.start_server(joined, "127.0.0.1", port)
    async with server:
        await server.serve_forever()


def main() -> None:
    """Port, broker, folder, name of the client."""
    port, broker, folder, client = sys.argv[1:]
    host, _, number = broker.rpartition(":")
    Path(folder).mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(int(port), (host, int(number)), Path(folder), client))


if __name__ == "__main__":
    main()
