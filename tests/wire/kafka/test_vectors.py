"""Golden vectors: frames of real clients and a real broker, decoded to the expected fields.

Each file holds one frame, a field a line with its value (tools/kafka_vectors.py records them).
"""

from __future__ import annotations

import ast
import re
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import pytest
from tools.kafka_vectors import explain

from trilogue.wire.kafka.api import MESSAGES, OWN_KEYS
from trilogue.wire.kafka.codec.compile import decoder, encoder
from trilogue.wire.kafka.codec.header import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
)

FOLDER = Path(__file__).parents[2] / "vectors" / "kafka"
CLASSES = {
    cls.__name__: (key, cls) for key, pair in MESSAGES.items() if key < OWN_KEYS for cls in pair
}
HEADER = {"api_key", "api_version", "correlation_id", "client_id"}


class Vector(NamedTuple):
    """One file: the frame, and the fields in its comments."""

    cls: type
    key: int
    version: int
    raw: bytes
    claims: dict[str, object]
    counts: dict[str, int]
    lines: list[str]

    @property
    def is_request(self) -> bool:
        return self.cls.__name__.endswith("Request")


def load(path: Path) -> Vector:
    name, version, _ = path.stem.split("-", 2)
    key, cls = CLASSES[name]
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    comments = "\n".join(line.partition("# ")[2] for line in lines)
    claims = re.findall(r"^([\w.\[\]]+) = (.*)$", comments, re.MULTILINE)
    counts = re.findall(r"^([\w.\[\]]+): (\d+)", comments, re.MULTILINE)
    return Vector(
        cls, key, int(version[1:]),
        bytes.fromhex("".join(line.partition("#")[0] for line in lines)),
        {where: ast.literal_eval(value) for where, value in claims},
        {where: int(count) for where, count in counts},
        lines,
    )  # fmt: skip


def find(message: object, where: str) -> object:
    """The value at a path such as `topics[0].name`."""
    for step in re.findall(r"\w+|\[\d+\]", where):
        message = message[int(step[1:-1])] if step[0] == "[" else attrgetter(step)(message)
    return message


VECTORS = sorted(FOLDER.glob("*.hex"))


def test_vectors_cover_every_message():
    assert {path.stem.split("-")[0] for path in VECTORS} == CLASSES.keys()


def test_vectors_cover_message_sets():
    """Message sets: Produce v0 to v2 and Fetch v0 to v3, from clients before Kafka 0.11."""
    recorded = {tuple(path.stem.split("-")[:2]) for path in VECTORS}
    old = [("Produce", 3), ("Fetch", 4)]

    assert recorded >= {
        (f"{name}{kind}", f"v{version}")
        for name, first in old
        for kind in ("Request", "Response")
        for version in range(first)
    }


@pytest.mark.parametrize("path", VECTORS, ids=lambda path: path.stem)
def test_a_recorded_frame_is_read_as_it_was_meant(path: Path):
    vector = load(path)
    claimed_header = {where: vector.claims.pop(where) for where in HEADER & vector.claims.keys()}

    if vector.is_request:
        header, pos = decode_request_header(vector.raw)
        assert header._asdict() == claimed_header
    else:
        correlation, pos = decode_response_header(vector.raw, vector.key, vector.version)
        assert {"correlation_id": correlation} == claimed_header
    message, end = decoder(vector.cls, vector.version)(vector.raw, pos)

    assert end == len(vector.raw)
    assert {where: find(message, where) for where in vector.claims} == vector.claims
    assert {where: len(find(message, where)) for where in vector.counts} == vector.counts


@pytest.mark.parametrize("path", VECTORS, ids=lambda path: path.stem)
def test_a_recorded_frame_is_written_as_it_was(path: Path):
    vector = load(path)
    out = bytearray()

    if vector.is_request:
        header, pos = decode_request_header(vector.raw)
        encode_request_header(out, RequestHeader(*header))
    else:
        correlation, pos = decode_response_header(vector.raw, vector.key, vector.version)
        encode_response_header(out, vector.key, vector.version, correlation)
    message, _ = decoder(vector.cls, vector.version)(vector.raw, pos)
    encoder(vector.cls, vector.version)(message, out)

    assert out == vector.raw


@pytest.mark.parametrize("path", VECTORS, ids=lambda path: path.stem)
def test_the_tool_still_explains_a_vector_like_this(path: Path):
    vector = load(path)

    lines = explain(vector.raw, vector.key, vector.version, response=not vector.is_request)

    assert "\n".join(map(str, lines)).splitlines() == vector.lines
