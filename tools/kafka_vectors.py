"""Golden vectors of the Kafka protocol: record real clients and brokers, and explain the bytes.

A vector is one request or response as it was on the wire (without the frame's length), one field
a line, hex first, then its name and value:

    0003             # api_key = 3
    02               # topics: 1
    02 61            # topics[0].name = 'a'

Recording stands between a client and a broker that advertises the recorder's port:

    python -m tools.kafka_vectors 19092 127.0.0.1:9092 tests/vectors/kafka librdkafka-2.16

The explanation is found by a slow interpreter of the message tables, not by the compiled codec,
so that a vector's test compares two readings of the same bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from trilogue.wire.frames import Int32Frames
from trilogue.wire.kafka.api import MESSAGES
from trilogue.wire.kafka.codec.schema import Field, Wire, table

API_VERSIONS = 18
LIMIT = 1 << 20
LONGEST_SHOWN = 40
HEX_COLUMNS = 64
LONGEST = 2048
"""A frame longer than this is not worth a golden vector."""


class Line(NamedTuple):
    """Some bytes and what they mean."""

    raw: bytes
    meaning: str

    def __str__(self) -> str:
        shown = self.raw.hex()
        rows = [shown[at : at + HEX_COLUMNS] for at in range(0, len(shown), HEX_COLUMNS)] or [""]
        rows[0] = f"{rows[0]:<24} # {self.meaning}"
        return "\n".join(rows)


class Reading:
    """Reads one message field by field."""

    def __init__(self, raw: bytes, version: int, *, flexible: bool) -> None:
        self.raw, self.version, self.flexible = raw, version, flexible
        self.pos = self.shown = 0

    def take(self, count: int) -> bytes:
        self.pos += count
        return self.raw[self.pos - count : self.pos]

    def line(self, meaning: str) -> Line:
        """Everything taken since the last line."""
        self.shown, start = self.pos, self.shown
        return Line(self.raw[start : self.pos], meaning)

    def number(self, code: str) -> int:
        (value,) = struct.unpack(f">{code}", self.take(struct.calcsize(f">{code}")))
        return int(value)

    def uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def size(self, kind: str, *, flexible: bool) -> int:
        return self.uvarint() - 1 if flexible else self.number("h" if kind == "string" else "i")

    def structure(self, cls: type, path: str) -> Iterator[Line]:
        fields = [field for field in table(cls).fields if field.present(self.version)]
        for field in fields:
            if not field.is_tagged(self.version):
                if field.wire.kind == "struct" and field.nullable(self.version):
                    is_there = self.number("b") >= 0
                    yield self.line(f"{path}{field.name} {'follows' if is_there else '= None'}")
                    if not is_there:
                        continue
                yield from self.value(field.wire, field.item, f"{path}{field.name}")
        if self.flexible:
            tagged = {field.tag: field for field in fields if field.is_tagged(self.version)}
            yield from self.tags(tagged, path)

    def tags(self, known: dict[int | None, Field], path: str) -> Iterator[Line]:
        count = self.uvarint()
        yield self.line(f"{path.rstrip('.') or 'message'} has {count} tagged fields")
        for _ in range(count):
            tag, size = self.uvarint(), self.uvarint()
            yield self.line(f"tag {tag} of {size} bytes")
            if field := known.get(tag):
                yield from self.value(field.wire, field.item, f"{path}{field.name}")
            else:
                self.take(size)
                yield self.line("unknown")

    def value(self, wire: Wire, item: type | Wire | None, path: str) -> Iterator[Line]:
        if wire.kind == "fixed":
            (found,) = struct.unpack(f">{wire.code}", self.take(struct.calcsize(f">{wire.code}")))
            yield self.line(f"{path} = {found!r}")
            return
        if wire.kind == "struct":
            assert isinstance(item, type)
            yield from self.structure(item, f"{path}.")
            return
        size = self.size(wire.kind, flexible=self.flexible)
        if size < 0:
            yield self.line(f"{path} = None")
        elif wire.kind == "array":
            yield self.line(f"{path}: {size}")
            for index in range(size):
                inner, cls = (item, None) if isinstance(item, Wire) else (Wire("struct"), item)
                yield from self.value(inner, cls, f"{path}[{index}]")
        else:
            raw = self.take(size)
            shown = repr(raw.decode() if wire.kind == "string" else raw)
            short = wire.kind == "string" or size <= LONGEST_SHOWN
            yield self.line(f"{path} = {shown}" if short else f"{path}: {size} bytes")

    def header(self, *, response: bool, key: int) -> Iterator[Line]:
        if not response:
            for name, code in (("api_key", "h"), ("api_version", "h")):
                yield self.line(f"{name} = {self.number(code)}")
        yield self.line(f"correlation_id = {self.number('i')}")
        if not response:
            size = self.size("string", flexible=False)
            yield self.line(f"client_id = {None if size < 0 else self.take(size).decode()!r}")
        if self.flexible and not (response and key == API_VERSIONS):
            yield from self.tags({}, "header")


def explain(raw: bytes, key: int, version: int, *, response: bool) -> list[Line]:
    """One frame's body, header included, line by line."""
    cls = MESSAGES[key][response]
    reading = Reading(raw, version, flexible=version >= table(cls).flexible)
    lines = [*reading.header(response=response, key=key), *reading.structure(cls, "")]
    assert reading.pos == len(raw), f"{len(raw) - reading.pos} bytes left over"
    return lines


class Recorder:
    """Copies frames both ways and keeps the longest of each (API, version, direction)."""

    def __init__(self, upstream: str, folder: Path, client: str) -> None:
        self.host, port = upstream.rsplit(":", 1)
        self.port, self.folder, self.client = int(port), folder, client
        self.kept: dict[tuple[int, int, bool], bytes] = {}

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection(self.host, self.port)
        requested: dict[int, tuple[int, int]] = {}
        with contextlib.suppress(OSError):  # the client is gone, which is how recordings end
            await asyncio.gather(
                self.copy(reader, up_writer, requested, response=False),
                self.copy(up_reader, writer, requested, response=True),
            )

    async def copy(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        requested: dict[int, tuple[int, int]],
        *,
        response: bool,
    ) -> None:
        frames = Int32Frames(LIMIT)
        while data := await reader.read(1 << 16):
            while data:
                room = frames.get_buffer()
                part, data = data[: len(room)], data[len(room) :]
                room[: len(part)] = part
                frames.received(len(part))
                while (frame := frames.next()) is not None:
                    self.keep(bytes(frame), requested, response=response)
                    writer.write(len(frame).to_bytes(4, "big") + frame)
            await writer.drain()
        writer.close()

    def keep(self, raw: bytes, requested: dict[int, tuple[int, int]], *, response: bool) -> None:
        if response:
            key, version = requested.pop(struct.unpack_from(">i", raw)[0])
        else:
            key, version, correlation = struct.unpack_from(">hhi", raw)
            requested[correlation] = key, version
        place = (key, version, response)
        if key in MESSAGES and len(self.kept.get(place, b"")) < len(raw) <= LONGEST:
            self.kept[place] = raw

    def write(self) -> None:
        """One file for each message kept; one that cannot be explained is a bug to look into."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for (key, version, response), raw in self.kept.items():
            name = MESSAGES[key][response].__name__
            try:
                lines = explain(raw, key, version, response=response)
            except (IndexError, struct.error, AssertionError, UnicodeDecodeError) as error:
                print(f"{name} v{version}: {error!r}", raw.hex())
                continue
            text = f"# {name} v{version}, recorded from {self.client}\n"
            text += "\n".join(map(str, lines)) + "\n"
            (self.folder / f"{name}-v{version}-{self.client}.hex").write_text(text)


async def record(port: int, recorder: Recorder) -> None:
    async with await asyncio.start_server(recorder.connected, "127.0.0.1", port):
        await asyncio.to_thread(sys.stdin.readline)  # until Enter


def main() -> None:
    port, upstream, folder, client = sys.argv[1:]
    recorder = Recorder(upstream, Path(folder), client)
    asyncio.run(record(int(port), recorder))
    recorder.write()


if __name__ == "__main__":
    main()
