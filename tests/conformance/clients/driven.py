"""Kafka clients in other languages behind one small language of lines, the same for each.

Java (java-kafka/), Go (go-kafka/) and Node (node-kafka/) run as programs of their own, started
with the first verb and stopped with the session: {"id": 7, "do": "write", ...} is answered by
{"id": 7, "got": ...} or {"id": 7, "error": "..."}. A test writes

    client = FRANZ_GO
    client.write(address, topic, [Record(b"key", b"value")], codec="zstd", idempotent=True)
    (read,) = client.read(address, topic, 1, group="readers")
    member = client.join(address, "readers", [topic])
    member.poll(); member.partitions(); member.reads; member.commit(); member.close()
    client.request("create", address, topic=topic, partitions=3)

The verbs are those of administrators.py. `settings` are the client's own, by its own names, and go
through as they are: `join(..., settings={"group.protocol": "consumer"})`.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.conformance.clients.base import Headers, Read, Record
from tests.conformance.clients.pulsar import CALL_S, Process

Settings = Mapping[str, object]
NONE: Settings = {}


class Driven:
    """A client whose driver is a program."""

    name: str
    cannot: frozenset[str] = frozenset()
    verbs: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self._process: Process | None = None

    def require(self) -> None:
        """Skip the test where the client cannot be had."""
        raise NotImplementedError

    def command(self) -> list[str | Path]:
        """What starts the driver, which is built if need be."""
        raise NotImplementedError

    def request(self, verb: str, address: str = "", **words: object) -> object:
        """Raises ClientError with the client's own words."""
        if self._process is None:
            self.require()
            self._process = Process(self.command())
        return self._process.start(verb, address=address, **words).result(CALL_S)

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None

    def write(
        self,
        address: str,
        topic: str,
        records: Sequence[Record],
        *,
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
        **words: object,
    ) -> None:
        fields = [as_words(record) for record in records]
        kind = {"codec": codec, "acks": acks, "idempotent": idempotent}
        self.request("write", address, topic=topic, records=fields, **kind, **words)

    def read(
        self,
        address: str,
        topic: str,
        count: int,
        *,
        group: str | None = None,
        **words: object,
    ) -> list[Read]:
        got = self.request("read", address, topic=topic, count=count, group=group, **words)
        reads = [as_read(each) for each in got]  # type: ignore[attr-defined]
        assert len(reads) == count, f"{self.name}: {len(reads)} of {count} in time: {reads!r:.2000}"
        return reads

    def join(
        self, address: str, group: str, topics: Sequence[str], settings: Settings = NONE
    ) -> DrivenMember:
        return DrivenMember(self, address, group, list(topics), dict(settings))


class DrivenMember:
    """A member of a group in a program of its own; see members.py."""

    def __init__(
        self,
        client: Driven,
        address: str,
        group: str,
        topics: list[str],
        settings: dict[str, object],
        **words: object,
    ) -> None:
        self.client = client
        self.reads: list[Read] = []
        self.has: set[tuple[str, int]] = set()
        self.handle: object = client.request(
            "join", address, group=group, topics=topics, settings=spelled(settings), **words
        )

    def poll(self, ms: int = 50) -> None:
        got: dict[str, list[object]] = self.client.request("poll", of=self.handle, ms=ms)  # type: ignore[assignment]
        self.reads += [as_read(each) for each in got["reads"]]
        self.has = {(topic, partition) for topic, partition in got["partitions"]}  # type: ignore[misc]

    def partitions(self) -> set[int]:
        return {partition for _, partition in self.has}

    def commit(self) -> None:
        self.client.request("commit", of=self.handle)

    def close(self) -> None:
        if self.handle is not None:
            self.client.request("leave", of=self.handle)
            self.handle = None


def spelled(settings: Settings) -> dict[str, str]:
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in settings.items()
    }


def as_words(record: Record) -> dict[str, object]:
    words: dict[str, object] = {"key": token(record.key), "value": token(record.value)}
    words["headers"] = [[name, token(value)] for name, value in record.headers]
    if record.timestamp_ms is not None:
        words["timestamp"] = record.timestamp_ms
    return words


def as_read(fields: object) -> Read:
    words: dict[str, object] = dict(fields)  # type: ignore[call-overload]
    headers: Headers = tuple((name, value_of(value)) for name, value in words["headers"])  # type: ignore[attr-defined]
    return Read(
        int(words["partition"]),  # type: ignore[call-overload]
        int(words["offset"]),  # type: ignore[call-overload]
        value_of(words["key"]),
        value_of(words["value"]),
        headers,
        int(words["timestamp"]),  # type: ignore[call-overload]
    )


def token(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def value_of(words: object) -> bytes | None:
    return None if words is None else base64.b64decode(str(words))
