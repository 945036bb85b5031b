"""Every API key, in every version, to Trilogue and to real Kafkas: what kind of answer it gets.

`python -m tools.kafka_answers.versions 3.9.1 4.3.1` walks over Trilogue and real Kafkas of these
versions, and writes versions.json beside this module; without a version it renews Trilogue's part.
Each request has a connection of its own, and nothing in its arrays. The test
tests/conformance/kafka/test_versions.py repeats the walk over Trilogue; the page
docs/reference/kafka-versions.md shows it.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import socket
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.conformance.clients.base import Deadline
from tests.server import start_server

from tools.kafka_answers.asking import Spec, build
from tools.servers.kafka import RealKafka
from tools.servers.probe import free_port, receive
from trilogue.wire.kafka.api import MESSAGES, NAMES, OWN_KEYS
from trilogue.wire.kafka.codec.compile import decoder, encoder
from trilogue.wire.kafka.codec.header import (
    RequestHeader,
    decode_response_header,
    encode_request_header,
)
from trilogue.wire.kafka.codec.schema import table

RECORDED = Path(__file__).with_name("versions.json")
Walk = dict[str, list[str]]
"""API key, as JSON has it, to the answer of each version from 0."""

SPECS: dict[int, Spec] = {  # where a request of zeros has no answer, or is no request
    0: {"acks": -1},
    18: {"client_software_name": "walk", "client_software_version": "1"},
    22: {"transactional_id": None, "transaction_timeout_ms": 60_000, "producer_id": -1,
         "producer_epoch": -1},
    29: {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1},
}  # fmt: skip
READY: list[tuple[int, int, Spec]] = [
    (10, 1, {"key": "walk"}),
    (10, 1, {"key": "walk", "key_type": 1}),
    (9, 5, {"group_id": "walk"}),
    (22, 1, {"transactional_id": "walk", "transaction_timeout_ms": 60_000}),
    (22, 1, SPECS[22]),
]
"""Requests that a new real Kafka answers with an error until its coordinators work."""
LISTENERS = ("open", "login")
"""A listener without a login, and one with SASL on which the client has not logged in."""
TIMEOUT_S = 5.0
JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="a" password="b" user_a="b";'
)


def names() -> dict[int, str]:
    """Return the name of each API key that is walked over."""
    return {key: name for key, (name, _) in NAMES.items() if key < OWN_KEYS}


def newest(key: int) -> int:
    """Return the newest version that Kafka has of an API."""
    declared = table(MESSAGES[key][0])
    return max(version for version in range(64) if version in declared)


def walk(address: str) -> Walk:
    """Send each key in each version, and in one that does not exist yet."""
    return {
        str(key): [
            send(address, key, version, SPECS.get(key, {})) for version in range(newest(key) + 2)
        ]
        for key in names()
    }


def wait_for_coordinators(address: str) -> None:
    """Send the requests of READY until each is answered without an error."""
    for key, version, fields in READY:
        deadline = Deadline(f"API {key}")
        while (answer := send(address, key, version, fields)) != "answered":
            deadline.check(answer)


def send(address: str, key: int, version: int, fields: Spec) -> str:
    """Return "answered", "error" with the codes of the body, "closed" or "silence"."""
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), TIMEOUT_S) as connection:
        try:
            frame = _request(key, version, fields)
            connection.sendall(struct.pack(">i", len(frame)) + frame)
            (size,) = struct.unpack(">i", receive(connection, 4))
            answer = memoryview(receive(connection, size))
        except TimeoutError:
            return "silence"
        except ConnectionError:
            return "closed"
    version = 0 if key == 18 and version > newest(key) else version  # as Kafka answers
    if version not in table(MESSAGES[key][1]):
        return "answered"  # a version that a release had before it was stable
    _, position = decode_response_header(answer, key, version)
    response, _ = decoder(MESSAGES[key][1], version)(answer, position)
    codes = sorted({code for code in _error_codes(response) if code})
    return f"error {', '.join(map(str, codes))}" if codes else "answered"


def _request(key: int, version: int, fields: Spec) -> bytes:
    frame = bytearray()
    encode_request_header(frame, RequestHeader(key, version, 7, "walk"))
    declared = table(MESSAGES[key][0])
    if version in declared:
        present = {field.name for field in declared.fields if field.present(version)}
        spec = {name: value for name, value in fields.items() if name in present}
        encoder(MESSAGES[key][0], version)(build(MESSAGES[key][0], spec), frame)
    else:
        frame += bytes(32)
    return bytes(frame)


def _error_codes(message: Any) -> Iterator[int]:
    for field in dataclasses.fields(message):
        value = getattr(message, field.name)
        if field.name == "error_code":
            yield int(value)
        for each in value if isinstance(value, list) else [value]:
            if dataclasses.is_dataclass(each):
                yield from _error_codes(each)


def walk_trilogue(root: Path) -> dict[str, Walk]:
    """Walk over both listeners of a new Trilogue."""
    free = dict.fromkeys(("kafka", "kafka-sasl"), "127.0.0.1:0")
    with start_server(root, listen=free) as server:
        return {"open": walk(server.doors["kafka"]), "login": walk(server.doors["kafka-sasl"])}


def walk_kafka(root: Path, version: str) -> dict[str, Walk]:
    """Walk over both listeners of a new real Kafka."""
    secured = {"SASL_PLAINTEXT": f"127.0.0.1:{free_port()}"}
    settings = {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
    }
    root.mkdir()
    kafka = RealKafka(root, version=version, heap="512m", settings=settings, secured=secured)
    kafka.start()
    try:
        wait_for_coordinators(kafka.address)
        return {"open": walk(kafka.address), "login": walk(secured["SASL_PLAINTEXT"])}
    finally:
        kafka.stop()


def read_recorded() -> dict[str, dict[str, Walk]]:
    """Return the recorded walks: server, listener, API key, versions."""
    recorded: dict[str, dict[str, Walk]] = json.loads(RECORDED.read_text())
    return recorded


def write_json(path: Path, recorded: object) -> None:
    """Write what was recorded, each list of strings on a line."""
    text = json.dumps(recorded, indent=1)
    lists = re.compile(r"\[[^]]*\]")  # of strings without brackets
    path.write_text(lists.sub(lambda found: " ".join(found[0].split()), text) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("versions", nargs="*", help="of real Kafkas, as 3.9.1")
    chosen = parser.parse_args()
    walks = read_recorded() if RECORDED.exists() else {}
    with tempfile.TemporaryDirectory() as root:
        walks["trilogue"] = walk_trilogue(Path(root) / "data")
        for version in chosen.versions:
            walks[f"kafka {version}"] = walk_kafka(Path(root) / version, version)
    write_json(RECORDED, walks)


if __name__ == "__main__":
    main()
