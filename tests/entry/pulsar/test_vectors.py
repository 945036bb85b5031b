"""Golden vectors: frames of real clients, read with the intended values, stored unchanged.

Each file holds one frame, a field a line with its value (tools/pulsar_vectors.py records them).
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from struct import unpack_from
from typing import NamedTuple

import pytest
from tools.pulsar_vectors import explain

from trilogue.entry.kafka.record_batch import check_crc
from trilogue.entry.pulsar.pulsar_batch import (
    ChunkedEntry,
    EncryptedEntry,
    Flag,
    build_entry,
    read_metadata,
    sticky_key,
    walk_messages,
)
from trilogue.wire.pulsar.frame import parse_command, read_command_type
from trilogue.wire.pulsar.message_codec import read_ack, read_flow, read_send
from trilogue.wire.pulsar.pulsar_pb2 import BaseCommand

FOLDER = Path(__file__).parents[2] / "vectors" / "pulsar"
NAME = re.compile(r"(?P<what>.+)-(?P<client>cpp|java)-[0-9.]+")


class Vector(NamedTuple):
    """One file: the frame, and the values in its comments."""

    what: str
    client: str
    raw: bytes
    claims: dict[str, str]

    @property
    def frame(self) -> memoryview:
        return memoryview(self.raw)

    @property
    def section(self) -> memoryview:
        (size,) = unpack_from(">I", self.raw)
        return self.frame[4 + size :]

    def claim(self, name: str) -> object:
        return ast.literal_eval(self.claims[name])


def load(path: Path) -> Vector:
    name = NAME.fullmatch(path.stem)
    assert name is not None
    raw, claims = bytearray(), {}
    for line in path.read_text().splitlines()[1:]:
        octets, _, meaning = line.partition("#")
        raw += bytes.fromhex(octets)
        key, _, value = meaning.strip().partition(" = ")
        claims[key] = value
    return Vector(name["what"], name["client"], bytes(raw), claims)


VECTORS = {path.stem: load(path) for path in sorted(FOLDER.glob("*.hex"))}
SENDS = {name: each for name, each in VECTORS.items() if each.what.startswith("SEND-")}
CODECS = {"none": 0, "lz4": 1, "zlib": 2, "zstd": 3, "snappy": 4}


def text(number: int) -> bytes:
    return b"message %d, " % number * 10


def entry_of(vector: Vector):
    return build_entry(vector.section, broker_ms=1)


@pytest.mark.parametrize("name", VECTORS)
def test_a_vector_is_explained_as_it_was_recorded(name: str):
    recorded = (FOLDER / f"{name}.hex").read_text().splitlines()[1:]

    assert "\n".join(map(str, explain(VECTORS[name].raw))).splitlines() == recorded


@pytest.mark.parametrize("vector", VECTORS.values(), ids=VECTORS)
def test_frames_of_real_clients_are_parsed_as_commands(vector: Vector):
    kind = BaseCommand.Type.Value(vector.claims["type"])

    assert read_command_type(vector.frame) == kind
    assert parse_command(vector.frame).type == kind


@pytest.mark.parametrize("vector", SENDS.values(), ids=SENDS)
def test_send_vector_is_parsed_to_its_fields(vector: Vector):
    send = read_send(vector.frame)

    assert send.producer_id == vector.claim("send.producer_id")
    assert send.sequence_id == vector.claim("send.sequence_id")
    assert str(send.num_messages) == vector.claims.get("send.num_messages", "1")
    assert str(send.highest_sequence_id) == vector.claims.get("send.highest_sequence_id", "0")
    assert str(send.is_chunk) == vector.claims.get("send.is_chunk", "False")
    assert vector.raw[send.section_at :] == bytes(vector.section)


@pytest.mark.parametrize("vector", SENDS.values(), ids=SENDS)
def test_sections_of_real_clients_are_stored_byte_for_byte(vector: Vector):
    entry, header, stamp = entry_of(vector)
    metadata = read_metadata(entry)

    assert bytes(entry[101:]) == bytes(vector.section)
    assert check_crc(entry) == header
    assert stamp.sequence_id == vector.claim("metadata.sequence_id")
    assert metadata.producer_name == vector.claim("metadata.producer_name")
    assert metadata.publish_time == vector.claim("metadata.publish_time") == header.max_timestamp


@pytest.mark.parametrize("client", ["cpp", "java"])
@pytest.mark.parametrize("codec", CODECS)
def test_singles_of_real_clients_are_read(codec: str, client: str):
    vector = one(f"SEND-single-{codec}", client)
    entry, header, stamp = entry_of(vector)

    (message,) = walk_messages(entry, header)

    assert message.value == text(0)
    assert read_metadata(entry).compression == CODECS[codec]
    assert stamp.flags == 0


@pytest.mark.parametrize("client", ["cpp", "java"])
@pytest.mark.parametrize("codec", CODECS)
def test_batches_of_real_clients_are_read(codec: str, client: str):
    vector = one(f"SEND-batch-{codec}", client)
    entry, header, stamp = entry_of(vector)

    messages = list(walk_messages(entry, header))

    assert [each.value for each in messages] == [text(number) for number in range(3)]
    assert [each.key for each in messages] == [b"key-0", b"key-1", b"key-2"]
    assert [dict(each.properties) for each in messages] == [
        {"n": str(number), "ü": "é"} for number in range(3)
    ]
    assert [each.event_time for each in messages] == [1700000000000 + n for n in range(3)]
    assert header.span == header.record_count == 3
    assert stamp.flags == Flag.BATCH | Flag.KEYED
    # C++ sends the first sequence id only, Java the last as well
    assert stamp.highest_sequence_id - stamp.sequence_id == (2 if client == "java" else 0)


@pytest.mark.parametrize("client", ["cpp", "java"])
def test_everything_that_a_message_may_have(client: str):
    entry, header, _ = entry_of(one("SEND-full", client))

    (message,) = walk_messages(entry, header)

    assert (message.key, message.value, message.ordering_key) == (b"key-0", text(0), b"order")
    assert message.key_is_b64 == (client == "java")  # there it was given as bytes
    assert dict(message.properties) == {"n": "0", "ü": "é"}
    assert message.event_time == 1700000000000
    assert sticky_key(entry) == b"order"


def test_a_null_value_of_java():
    entry, header, _ = entry_of(one("SEND-null", "java"))

    (message,) = walk_messages(entry, header)

    assert (message.key, message.value) == (b"key-0", None)


def test_java_sends_a_batch_of_one_as_a_single_message():
    entry, header, stamp = entry_of(one("SEND-batch-of-one", "java"))

    assert not stamp.flags & Flag.BATCH
    assert [each.value for each in walk_messages(entry, header)] == [text(0)]


def test_key_based_batches_have_the_last_sequence_id_twice():
    _, _, stamp = entry_of(one("SEND-batch-by-key", "java"))

    assert (stamp.sequence_id, stamp.highest_sequence_id) == (2, 2)


def test_chunks_of_java():
    entries = [entry_of(one(f"SEND-chunk-{number}", "java")) for number in range(2)]

    assert [header.record_count for _, header, _ in entries] == [0, 1]
    assert {stamp.sequence_id for _, _, stamp in entries} == {0}
    with pytest.raises(ChunkedEntry):
        next(walk_messages(entries[0][0], entries[0][1]))


@pytest.mark.parametrize("client", ["cpp", "java"])
def test_encrypted_messages_stay_closed(client: str):
    entry, header, stamp = entry_of(one("SEND-encrypted", client))

    assert stamp.flags & Flag.ENCRYPTED
    with pytest.raises(EncryptedEntry):
        next(walk_messages(entry, header))


def test_acks_and_flows():
    ack = read_ack(one("ACK", "java").frame)
    assert [(each.entry_id, each.ack_set) for each in ack.ids] == [(0, (6,))]  # 0 of 0, 1, 2 acked
    assert ack.request_id > 2**32  # Java begins anywhere
    for client in ("cpp", "java"):
        assert read_flow(one("FLOW", client).frame).permits == 1000


def one(what: str, client: str) -> Vector:
    return next(each for each in VECTORS.values() if (each.what, each.client) == (what, client))
