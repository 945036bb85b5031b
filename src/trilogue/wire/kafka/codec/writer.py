"""Writes Python text: lines, names, bound values, and the struct calls of both directions."""

from __future__ import annotations

import itertools
import linecache
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

from trilogue.wire.kafka.codec.schema import Field, Table, Wire, table

SHORT_ARRAY = 17
"""Arrays of fixed-size values shorter than this use a prepared struct each."""


class Writer:
    """The text of one generated module and the values that it refers to."""

    def __init__(self, title: str, way: str, scope: dict[str, object]) -> None:
        self.title = title
        self._file = f"<{title} {way}>"
        self._scope = dict(scope)
        self._names: dict[object, str] = {}
        self._ids = itertools.count()
        self._done: list[str] = []
        self._lines: list[str] = []
        self._depth = 0

    @property
    def text(self) -> str:
        """Return all functions written so far."""
        return "\n".join(self._done) + "\n"

    def emit(self, line: str) -> None:
        """Write one line at the current depth."""
        self._lines.append("    " * self._depth + line)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Write a statement and indent what follows."""
        self.emit(head)
        self._depth += 1
        yield
        self._depth -= 1

    @contextmanager
    def function(self, head: str) -> Iterator[None]:
        """Write a separate function, above the one being written."""
        outer = self._lines, self._depth
        self._lines, self._depth = [], 0
        with self.block(head):
            yield
        self._done += self._lines
        self._lines, self._depth = outer

    def fresh(self, prefix: str) -> str:
        """Return a name that is not used yet."""
        return f"{prefix}{next(self._ids)}"

    def bind(self, value: object) -> str:
        """Return a name for a value that the text needs."""
        key = (type(value), id(value))
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = self.fresh("k")
            self._scope[name] = value
        return name

    def literal(self, value: object) -> str:
        """Return an expression for a default."""
        if value is None or isinstance(value, int | float | str | bytes):
            return repr(value)
        return "[]" if isinstance(value, list) else self.bind(value)

    def build(self, entry: str) -> Callable[..., object]:
        """Compile the text; returns one of its functions."""
        text = self.text
        exec(compile(text, self._file, "exec"), self._scope)  # noqa: S102  our own text
        linecache.cache[self._file] = (len(text), None, text.splitlines(keepends=True), self._file)
        made = self._scope[entry]
        assert callable(made)
        return made


@cache
def layout(codes: str) -> struct.Struct:
    """Return the big-endian struct of a run of codes."""
    return struct.Struct(">" + codes)


@cache
def unpackers(code: str) -> tuple[Callable[..., tuple[object, ...]], ...]:
    """Return readers of arrays with 0, 1, 2 ... elements."""
    return tuple(layout(code * count).unpack_from for count in range(SHORT_ARRAY))


@cache
def packers(code: str) -> tuple[Callable[..., bytes], ...]:
    """Return writers of arrays with 0, 1, 2 ... elements."""
    return tuple(layout(code * count).pack for count in range(SHORT_ARRAY))


def many(code: str, count: str) -> str:
    """Return an expression for the format of `count` values."""
    return f"'>%d{code}' % {count}" if len(code) == 1 else f"'>' + '{code}' * {count}"


def untagged(known: Table, version: int) -> list[Field]:
    """Return the fields of this version, in wire order."""
    return [f for f in known.fields if f.present(version) and not f.is_tagged(version)]


def tagged(known: Table, version: int) -> list[Field]:
    """Return the tagged fields of this version, by ascending tag."""
    found = [f for f in known.fields if f.present(version) and f.is_tagged(version)]
    return sorted(found, key=lambda field: field.tag or 0)


def element(array: Field) -> Field:
    """Return the element of an array as a field: always present, never null."""
    item = array.item
    wire = item if isinstance(item, Wire) else Wire("struct")
    return array._replace(
        name="", wire=wire, item=None if isinstance(item, Wire) else item,
        first=0, null=1 << 20, tag=None, default=None,
    )  # fmt: skip


def least_size(field: Field, version: int, *, flexible: bool) -> int:
    """Return the fewest bytes that a value of this field can take."""
    match field.wire.kind:
        case "fixed":
            return layout(field.wire.code).size
        case "struct":
            assert isinstance(field.item, type)
            if field.nullable(version):
                return 1
            inner = untagged(table(field.item), version)
            return sum(least_size(f, version, flexible=flexible) for f in inner) + flexible
        case "string":
            return 1 if flexible else 2
        case _:
            return 1 if flexible else 4
