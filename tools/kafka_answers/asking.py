"""The same question in every version to one server, and its answers in a form that compares.

A question is a nested dict of what a request's fields are to be; those left out have Kafka's
default, else zero. An answer is a dict of path to value: `topics[a].partitions[0].error_code: 3`.
Lists go by the names or numbers of what is in them, since their order is nobody's promise. What
must differ is replaced: hosts, ports, ids that were given out, times of now, texts of errors.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.conformance.asking import Asker

from trilogue.gateway.kafka.apis import TABLE
from trilogue.wire.errors import EncodeError, WireError
from trilogue.wire.kafka.api import MESSAGES
from trilogue.wire.kafka.codec.compile import encoder
from trilogue.wire.kafka.codec.schema import ZERO_UUID, table
from trilogue.wire.kafka.metadata.api_versions import ApiVersionsRequest

Answer = dict[str, object]
Spec = Mapping[str, Any]

SERVED = {row.key: row.served for row in TABLE}
NAMES = ("name", "topic", "topic_name", "topic_id", "key", "api_key", "group_id", "resource_name",
         "partition_index", "index", "partition", "partition_id", "transactional_id",
         "broker_id", "node_id", "log_dir")  # fmt: skip
GIVEN = {"host", "port", "cluster_id", "client_host", "log_dir", "client_instance_id",
         "producer_id", "subscription_id", "usable_bytes", "total_bytes"}  # fmt: skip
TEXTS = {"error_message", "batch_index_error_message", "documentation"}
MADE_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}|^[\w-]{22}$")
NOW_MS = 1_750_000_000_000  # times after this are of now


def build(cls: type, spec: Spec) -> Any:
    """Make a message of nested dicts."""
    fields = {field.name: field for field in table(cls).fields}
    assert set(spec) <= set(fields), f"{cls.__name__}: {set(spec) - set(fields)}"
    return cls(**{name: _value(fields[name].item, value) for name, value in spec.items()})


def _value(item: Any, value: Any) -> Any:
    if isinstance(value, Mapping):
        return build(item, value)
    if isinstance(value, list):
        return [build(item, each) if isinstance(each, Mapping) else each for each in value]
    return value


class Questions:
    """One server: its requests and responses, by question and version."""

    def __init__(self, address: str, run: str, *, timeout: float = 3.0) -> None:
        self.address = address
        self.run = run  # distinguishes this run's topics and groups from those of other runs
        self.answers: dict[tuple[str, int], Answer] = {}
        self.ids: dict[str, bytes] = {}  # of topics
        self.epoch = 0  # of the leader of its partitions
        self._timeout = timeout
        self._asker = Asker(address, timeout=timeout)
        served = self._asker.request(ApiVersionsRequest(), 0).api_keys
        self.range = {each.api_key: (each.min_version, each.max_version) for each in served}

    def named(self, word: str) -> str:
        """Return this run's topic or group."""
        return f"{word}-{self.run}"

    def request(self, key: int, version: int, spec: Spec) -> Any:
        """Send one request, unrecorded; a closed connection or a timeout is None."""
        request = build(MESSAGES[key][0], spec)
        try:
            return self._asker.request(request, version)
        except (OSError, EOFError, AssertionError, WireError) as problem:
            self._asker.close()
            self._asker = Asker(self.address, timeout=self._timeout)
            return None if not isinstance(problem, TimeoutError) else problem

    def at_once(self, requests: list[tuple[int, int, Spec]]) -> list[str]:
        """Send all, then return which were answered, in their order, until one is not."""
        for key, version, spec in requests:
            self._asker.send(build(MESSAGES[key][0], spec), version)
        reported: list[str] = []
        try:
            for key, _, spec in requests:
                if key == 0 and spec["acks"] == 0:
                    self._asker.unanswered()
                else:
                    reported.append(type(self._asker.answer()).__name__)
        except OSError as problem:
            reported.append("silence" if isinstance(problem, TimeoutError) else "closed")
            self._asker.close()
            self._asker = Asker(self.address, timeout=self._timeout)
        return reported

    def every(
        self, key: int, title: str, spec: Spec | Callable[[int], Spec], *, first: int = 0
    ) -> None:
        """Send in every version that Trilogue and this server have and that has the fields."""
        low, high = SERVED[key]
        real_low, real_high = self.range.get(key, (low, high))
        for version in range(max(low, real_low, first), min(high, real_high) + 1):
            words = spec(version) if callable(spec) else spec
            try:
                encoder(MESSAGES[key][0], version)(build(MESSAGES[key][0], words), bytearray())
            except EncodeError:
                continue
            answer = self.request(key, version, words)
            self.note(f"{MESSAGES[key][0].__name__[:-7]}: {title}", version, answer)

    def note(self, title: str, version: int, answer: Any) -> None:
        """Keep an answer for the comparison."""
        if answer is None or isinstance(answer, Exception):
            found: Answer = {"": "closed" if answer is None else "silence"}
        else:
            found = dict(self._paths("", answer, version))
        assert (title, version) not in self.answers, f"asked twice: {title} v{version}"
        self.answers[title, version] = found

    def _paths(self, path: str, value: Any, version: int) -> Iterator[tuple[str, object]]:
        if dataclasses.is_dataclass(value):
            for field in table(type(value)).fields:
                served = field.name not in TEXTS or not getattr(value, "error_code", 0)
                if field.present(version) and served:  # errors may have texts or not
                    inner = getattr(value, field.name)
                    yield from self._paths(f"{path}.{field.name}", inner, version)
        elif isinstance(value, list):
            kind = type(value[0]).__name__ if value else ""
            parts_only = kind == "FetchableTopicResponse"
            if not parts_only and kind != "PartitionData":  # a topic may come in several pieces
                yield f"{path}#", len(value)
            seen: dict[str, int] = {}
            for place, each in enumerate(value):
                name = self._name_of(each, place)
                seen[name] = seen.get(name, 0) + 1
                again = "" if seen[name] == 1 or parts_only else f"'{seen[name]}"
                yield from self._paths(f"{path}[{name}{again}]", each, version)
        else:
            yield path, self._normal(path.rpartition(".")[2], value)

    def _name_of(self, each: Any, place: int) -> str:
        if not dataclasses.is_dataclass(each):
            return str(place)
        for name in NAMES:
            found = getattr(each, name, "")
            if found not in ("", None, ZERO_UUID):
                return str(self._normal(name, found))
        return str(place)

    def _normal(self, name: str, value: object) -> object:  # noqa: PLR0911 - a table of its own
        if name in {"leader_epoch", "committed_leader_epoch"} and value == self.epoch:
            return "epoch"
        if isinstance(value, memoryview):
            value = bytes(value)
        if value in (None, "", b"", -1, 0) and name != "base_offset":
            return value
        if name in TEXTS:
            return "text"
        if name == "base_offset" and value != -1:
            return "an offset"
        if name in GIVEN:
            return name
        if isinstance(value, bytes):
            return self._bytes(name, value)
        if isinstance(value, int) and value > NOW_MS:
            return "now"
        if isinstance(value, str):
            value = value.replace(f"-{self.run}", "")
            return MADE_ID.sub("id", value)
        return "session" if name == "session_id" else value

    def _bytes(self, name: str, value: bytes) -> str:
        if name == "topic_id" or len(value) == len(ZERO_UUID):
            known = {number: topic for topic, number in self.ids.items()}
            known[ZERO_UUID] = "none"
            return known.get(value, "an id").replace(f"-{self.run}", "")
        if name == "records":
            value = _without_epochs(value)
        return f"{len(value)} bytes {hashlib.sha256(value).hexdigest()[:8]}"


def _without_epochs(batches: bytes) -> bytes:
    """Return batches with the epoch of their leader, each server's own, at zero."""
    made, place = bytearray(batches), 0
    while place + 17 <= len(made):
        if made[place + 16] == 2:
            made[place + 12 : place + 16] = bytes(4)
        place += 12 + int.from_bytes(made[place + 8 : place + 12], "big")
    return bytes(made)


def raw(key: int, version: int, body: bytes, *, client_id: bytes | None = b"asker") -> bytes:
    """Return a frame with a header v1 and whatever body, for what no codec would write."""
    name = struct.pack(">h", -1) if client_id is None else struct.pack(">h", len(client_id))
    head = struct.pack(">hhi", key, version, 77) + name + (client_id or b"")
    return struct.pack(">i", len(head) + len(body)) + head + body
