"""What `trilogue produce` reads: bytes cut into messages, lines into key and value, JSON."""

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

CHUNK: Final = 256 << 10
LINE_MAX: Final = 64 << 20
"""No message may be this large anywhere; a file without line ends is not read into memory."""
ESCAPES: Final = {"\\n": b"\n", "\\t": b"\t", "\\0": b"\0", "\\r": b"\r"}
STDIN: Final = "-"
KNOWN: Final = frozenset(
    {
        "key", "key_base64", "value", "value_base64", "headers", "timestamp", "partition",
        "topic", "offset", "time",
    }
)  # fmt: skip
"""What `consume --json` tells; topic, offset and time are passed over."""


class LinesError(Exception):
    """What was given cannot be sent; says where and why."""


class Outgoing(NamedTuple):
    """A message to be sent."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int | None = None
    partition: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """Where messages come from, and what they are made of."""

    files: list[Path]
    key: str | None = None
    separator: str | None = None
    value: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    as_json: bool = False
    whole: bool = False
    delimiter: str = "\\n"
    tombstones: bool = False

    def __post_init__(self) -> None:
        if self.value is not None and (self.files or self.as_json or self.whole):
            raise LinesError("--value is one message: it goes with no files, --json or --whole")
        if self.as_json and (self.separator is not None or self.whole or self.key is not None):
            raise LinesError("--json names keys itself: leave --key, --key-separator, --whole away")
        if self.separator is not None and self.key is not None:
            raise LinesError("--key or --key-separator, not both")
        if self.separator == "" or self.delimiter == "":
            raise LinesError("a separator has at least one character")
        for file in self.files:
            if str(file) != STDIN and not file.is_file() and not file.is_fifo():
                raise LinesError(f"{file}: there is no such file")

    @property
    def is_typed(self) -> bool:
        """Whether somebody types the messages in."""
        return self.value is None and not self.files and sys.stdin.isatty()

    @property
    def size_bytes(self) -> int | None:
        """Of all files; None where that is not known before."""
        if not self.files or any(str(file) == STDIN for file in self.files):
            return None
        return sum(file.stat().st_size for file in self.files)

    def chunks(self) -> Iterator[list[tuple[str, bytes]]]:
        """Lists of messages as bytes, each with where it is from; blocks while nothing comes."""
        if self.value is not None:
            yield [("--value", self.value.encode())]
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

    def _cut(self, name: str, descriptor: int) -> Iterator[list[tuple[str, bytes]]]:
        delimiter = ESCAPES.get(self.delimiter, self.delimiter.encode())
        left, number = b"", 0
        while chunk := os.read(descriptor, CHUNK):
            left += chunk
            if self.whole:
                pieces: list[bytes] = []
            else:
                *pieces, left = left.split(delimiter)
            if len(left) > LINE_MAX:
                raise LinesError(f"{name}:{number + 1}: longer than {LINE_MAX >> 20} MiB")
            if pieces:
                yield [(f"{name}:{number + at}", one) for at, one in enumerate(pieces, 1)]
                number += len(pieces)
        if left or (self.whole and number == 0):
            yield [(name if self.whole else f"{name}:{number + 1}", left)]

    def message(self, piece: bytes) -> Outgoing:
        """What one piece says; LinesError."""
        if self.as_json:
            return self._of_json(piece)
        key = None if self.key is None else self.key.encode()
        value: bytes | None = piece
        if self.separator is not None:
            first, found, rest = piece.partition(
                ESCAPES.get(self.separator, self.separator.encode())
            )
            if not found:
                raise LinesError(f"there is no {self.separator!r} after a key")
            key, value = first, rest
        if self.tombstones and not value:
            value = None
        return Outgoing(key, value, tuple((name, text.encode()) for name, text in self.headers))

    def _of_json(self, piece: bytes) -> Outgoing:
        try:
            told = json.loads(piece)
        except ValueError as problem:
            raise LinesError(f"no JSON: {problem}") from None
        if not isinstance(told, dict):
            raise LinesError('expected an object: {"key": ..., "value": ...}')
        unknown = sorted(told.keys() - KNOWN)
        if unknown:
            raise LinesError(f"unknown {unknown[0]!r}; known: {', '.join(sorted(KNOWN))}")
        headers: list[tuple[str, bytes | None]] = []
        headers += [(name, text.encode()) for name, text in self.headers]
        headers += _headers(told.get("headers") or [])
        return Outgoing(
            _octets(told, "key"),
            _octets(told, "value"),
            tuple(headers),
            _number(told, "timestamp"),
            _number(told, "partition"),
        )


def _octets(told: dict[str, Any], name: str) -> bytes | None:
    if f"{name}_base64" in told:
        try:
            return base64.b64decode(told[f"{name}_base64"], validate=True)
        except (TypeError, binascii.Error, ValueError):
            raise LinesError(f"{name}_base64 is no base64") from None
    found = told.get(name)
    if found is None:
        return None
    if isinstance(found, str):
        return found.encode()
    return json.dumps(found, ensure_ascii=False, separators=(",", ":")).encode()


def _number(told: dict[str, Any], name: str) -> int | None:
    found = told.get(name)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int) or found < 0:
        raise LinesError(f"{name}: expected a whole number")
    return found


def _headers(told: object) -> list[tuple[str, bytes | None]]:
    """A list of {"name": ..., "value": ...}, or an object of texts."""
    if isinstance(told, dict):
        told = [{"name": name, "value": value} for name, value in told.items()]
    if not isinstance(told, list):
        raise LinesError("headers: expected a list or an object")
    found = []
    for one in told:
        if not isinstance(one, dict) or not isinstance(one.get("name"), str):
            raise LinesError('headers: expected {"name": ..., "value": ...}')
        found.append((one["name"], _octets(one, "value")))
    return found
