"""The operations that the tests use of every foreign client."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

DEADLINE = 90.0
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Record:
    """A record to write; the tests leave out what a client does not support (see `cannot`)."""

    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Read:
    """A record that was read."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int

    @property
    def content(self) -> tuple[bytes | None, bytes | None, Headers]:
        return self.key, self.value, self.headers


class Client(Protocol):
    """A foreign client: `write` comes back when everything is acked, `read` reads from the start.

    `cannot` names what the client does not support: "timestamps", "binary", "null headers",
    "nothing at all" (neither key nor value).
    """

    name: str
    cannot: frozenset[str]

    def write(
        self,
        address: str,
        topic: str,
        records: Sequence[Record],
        *,
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
    ) -> None: ...

    def read(
        self, address: str, topic: str, count: int, *, group: str | None = None
    ) -> list[Read]: ...


def can_write(client: Client, record: Record) -> bool:
    """Whether the client has words for this record."""
    null_headers = any(value is None for _, value in record.headers)
    nothing = record.key is None and record.value is None
    return not (null_headers and "null headers" in client.cannot) and not (
        nothing and "nothing at all" in client.cannot
    )


class Deadline:
    """Time that must not run out; an assertion, not a measurement."""

    def __init__(self, what: str, seconds: float = DEADLINE) -> None:
        self.what = what
        self.end = time.monotonic() + seconds

    def check(self, so_far: object = "") -> None:
        assert time.monotonic() < self.end, f"{self.what}: not in time; so far {so_far!r:.2000}"
