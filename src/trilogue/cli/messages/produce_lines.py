"""Input of `trilogue produce`: splits bytes into messages, and reads keys, values and JSON."""

from __future__ import annotations

import base64
import binascii
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from trilogue.cli.tables import spell_size

CHUNK: Final = 256 << 10
LINE_MAX: Final = 64 << 20
MESSAGE_BYTES: Final = 1 << 20
UTF8_BYTES_MAX: Final = 4
ESCAPES: Final = {"\\n": b"\n", "\\t": b"\t", "\\0": b"\0", "\\r": b"\r"}
STDIN: Final = "-"
KNOWN: Final = frozenset(
    {
        "key", "key_base64", "value", "value_base64", "headers", "timestamp", "partition",
        "topic", "offset", "time",
    }
)  # fmt: skip
"""The fields of `consume --json`; topic, offset and time are ignored."""


class LinesError(Exception):
    """Input that cannot be sent, with the reason."""


class InputChunk(NamedTuple):
    """Consecutive messages of one source, as bytes."""

    source: str
    first: int
    """The number of the first line, from 1; 0 for a source that is one message."""
    pieces: list[bytes]

    def origin(self, index: int) -> str:
        """Return the place of a message in its source, for errors."""
        return f"{self.source}:{self.first + index}" if self.first else self.source


class InputMessage(NamedTuple):
    """A message to send."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int | None = None
    partition: int | None = None


@dataclass(slots=True, kw_only=True)
class Lines:
    """The sources of messages, and how bytes become messages."""

    files: list[Path]
    key: str | None = None
    separator: str | None = None
    value: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    as_json: bool = False
    whole: bool = False
    delimiter: str = "\\n"
    tombstones: bool = False
    size_limit: int = 0
    """The most bytes of a message, if above LINE_MAX: a file may have no line ends."""

    def __post_init__(self) -> None:
        if self.value is not None and (self.files or self.as_json or self.whole):
            raise LinesError("--value is one message: it excludes files, --json and --whole")
        if self.as_json and (self.separator is not None or self.whole or self.key is not None):
            raise LinesError(
                "--json has keys itself: it excludes --key, --key-separator and --whole"
            )
        if self.separator is not None and self.key is not None:
            raise LinesError("--key or --key-separator, not both")
        if self.separator == "" or self.delimiter == "":
            raise LinesError("a separator has at least one character")
        for file in self.files:
            if str(file) != STDIN and not file.is_file() and not file.is_fifo():
                raise LinesError(f"{file}: no such file")

    @property
    def are_values(self) -> bool:
        """Whether each piece is the value of a message as it is, without key and headers."""
        return not (self.as_json or self.tombstones or self.headers) and (
            self.key is None and self.separator is None
        )

    @property
    def is_typed(self) -> bool:
        """Whether messages are typed on a terminal."""
        return self.value is None and not self.files and sys.stdin.isatty()

    @property
    def size_bytes(self) -> int | None:
        """The size of all files; None if unknown, as for stdin."""
        if not self.files or any(str(file) == STDIN for file in self.files):
            return None
        return sum(file.stat().st_size for file in self.files)

    @property
    def may_exceed(self) -> bool:
        """Whether a message may have more than 1 MiB, Kafka's default limit."""
        if self.value is not None:
            return len(self.value) > MESSAGE_BYTES // UTF8_BYTES_MAX
        return self.size_bytes is None or self.size_bytes > MESSAGE_BYTES

    def chunks(self) -> Iterator[InputChunk]:
        """Yield the messages in order; blocks while no input comes."""
        if self.value is not None:
            yield InputChunk("--value", 0, [self.value.encode()])
            return
        for file in self.files or [Path(STDIN)]:
            if str(file) == STDIN:
                yield from self._cut("stdin", sys.stdin.fileno())
            else:
                descriptor = os.open(file, os.O_RDONLY)
                try:
                    yield from self._cut(str(file), descriptor)
                finally:
                    os.close(descriptor)

    def _cut(self, name: str, descriptor: int) -> Iterator[InputChunk]:
        delimiter = ESCAPES.get(self.delimiter, self.delimiter.encode())
        left, number = bytearray(), 0
        while chunk := os.read(descriptor, CHUNK):
            seen = max(0, len(left) - len(delimiter) + 1)
            left += chunk
            pieces: list[bytes] = []
            if not self.whole and left.find(delimiter, seen) >= 0:
                *pieces, rest = bytes(left).split(delimiter)
                left = bytearray(rest)
            if len(left) > max(self.size_limit, LINE_MAX):
                limit = spell_size(max(self.size_limit, LINE_MAX))
                raise LinesError(f"{name}:{number + 1}: longer than {limit}")
            if pieces:
                yield InputChunk(name, number + 1, pieces)
                number += len(pieces)
        if left or (self.whole and number == 0):
            yield InputChunk(name, 0 if self.whole else number + 1, [bytes(left)])

    def message(self, piece: bytes) -> InputMessage:
        """Return the message of one piece; LinesError if it is invalid."""
        if self.as_json:
            return self._of_json(piece)
        key = None if self.key is None else self.key.encode()
        value: bytes | None = piece
        if self.separator is not None:
            first, found, rest = piece.partition(
                ESCAPES.get(self.separator, self.separator.encode())
            )
            if not found:
                raise LinesError(f"no {self.separator!r} after a key")
            key, value = first, rest
        if self.tombstones and not value:
            value = None
        return InputMessage(key, value, tuple((name, text.encode()) for name, text in self.headers))

    def _of_json(self, piece: bytes) -> InputMessage:
        try:
            body = json.loads(piece)
        except ValueError as error:
            raise LinesError(f"no JSON: {error}") from None
        if not isinstance(body, dict):
            raise LinesError('expected an object: {"key": ..., "value": ...}')
        unknown = sorted(body.keys() - KNOWN)
        if unknown:
            raise LinesError(f"unknown {unknown[0]!r}; known: {', '.join(sorted(KNOWN))}")
        headers: list[tuple[str, bytes | None]] = []
        headers += [(name, text.encode()) for name, text in self.headers]
        headers += _headers(body.get("headers") or [])
        return InputMessage(
            _octets(body, "key"),
            _octets(body, "value"),
            tuple(headers),
            _number(body, "timestamp"),
            _number(body, "partition"),
        )


def _octets(body: dict[str, Any], name: str) -> bytes | None:
    if f"{name}_base64" in body:
        try:
            return base64.b64decode(body[f"{name}_base64"], validate=True)
        except (TypeError, binascii.Error, ValueError):
            raise LinesError(f"{name}_base64 is no base64") from None
    found = body.get(name)
    if found is None:
        return None
    if isinstance(found, str):
        return found.encode()
    return json.dumps(found, ensure_ascii=False, separators=(",", ":")).encode()


def _number(body: dict[str, Any], name: str) -> int | None:
    found = body.get(name)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int) or found < 0:
        raise LinesError(f"{name}: expected a whole number")
    return found


def _headers(body: object) -> list[tuple[str, bytes | None]]:
    """Read a list of {"name": ..., "value": ...}, or an object of texts."""
    if isinstance(body, dict):
        body = [{"name": name, "value": value} for name, value in body.items()]
    if not isinstance(body, list):
        raise LinesError("headers: expected a list or an object")
    found = []
    for one in body:
        if not isinstance(one, dict) or not isinstance(one.get("name"), str):
            raise LinesError('headers: expected {"name": ..., "value": ...}')
        found.append((one["name"], _octets(one, "value")))
    return found
