"""The encoder and the gatherer of one (message, version), as text.

The encoder appends to one bytearray, `out`.  The gatherer does the same until it meets records
given as a list of buffers: those it passes on as they are, and goes on in a new bytearray.
"""

from __future__ import annotations

import struct

from trilogue.wire.errors import EncodeError
from trilogue.wire.kafka import runtime
from trilogue.wire.kafka.schema import Field, table
from trilogue.wire.kafka.writer import (
    SHORT_ARRAY,
    Writer,
    element,
    layout,
    many,
    packers,
    runs,
    tagged,
    untagged,
)

SCOPE: dict[str, object] = {
    "EncodeError": EncodeError,
    "UNFIT": (
        EncodeError, struct.error, OverflowError, UnicodeEncodeError, AttributeError, TypeError,
    ),
    "BUFFERS": (bytes, memoryview, bytearray),
    "p16": layout("h").pack,
    "p32": layout("i").pack,
    "pack": struct.pack,
    "uvarint": runtime.uvarint,
    "string_length": runtime.string_length,
    "bad_uuid": runtime.bad_uuid,
    "pieces": runtime.pieces,
}  # fmt: skip


def write(title: str, cls: type, version: int, *, flexible: bool, gather: bool) -> Writer:
    """Write the function `encode` or `gather` of a message."""
    writer = Writer(title, "gather" if gather else "encode", SCOPE)
    encoding = _Encoding(writer, version, flexible=flexible, gather=gather)
    emit = writer.emit
    with writer.function(f"def {'gather' if gather else 'encode'}(m, head):"):
        emit("start = len(head)")
        emit("out = head")
        if gather:
            emit("parts = [out]")
        with writer.block("try:"):
            encoding.structure(cls, "m")
        with writer.block("except UNFIT as error:"):
            emit("del head[start:]")
            emit(f"raise EncodeError(f'{title} cannot say this: {{error}}') from error")
        if gather:
            emit("if not out and len(parts) > 1: parts.pop()")
            emit("return parts")
    return writer


class _Encoding:
    """Emits statements that append to `out`."""

    def __init__(self, writer: Writer, version: int, *, flexible: bool, gather: bool) -> None:
        self._writer = writer
        self._emit = writer.emit
        self._version = version
        self._flexible = flexible
        self._gather = gather

    def structure(self, cls: type, source: str) -> None:
        """Append the structure in the name `source`."""
        known, version = table(cls), self._version
        for fixed, group in runs(untagged(known, version)):
            values = [f"{source}.{field.name}" for field in group]
            if fixed:
                self._run(group, values)
            else:
                for field, value in zip(group, values, strict=True):
                    self._value(field, value)
        if self._flexible:
            self._tags(tagged(known, version), source)
        elif not untagged(known, version):
            self._emit("pass")

    def _run(self, group: list[Field], values: list[str]) -> None:
        for field, value in zip(group, values, strict=True):
            if field.wire.code == "16s":  # struct would pad or cut in silence
                self._emit(f"if len({value}) != 16: bad_uuid({value})")
        pack = self._writer.bind(layout("".join(field.wire.code for field in group)).pack)
        self._emit(f"out += {pack}({', '.join(values)})")

    def _value(self, field: Field, value: str) -> None:
        if field.wire.kind == "fixed":
            self._run([field], [value])
            return
        name = self._writer.fresh("v")
        self._emit(f"{name} = {value}")
        if not field.nullable(self._version):
            self._present(field, name)
            return
        self._emit(f"if {name} is None: out += {self._null(field.wire.kind)!r}")
        with self._writer.block("else:"):
            if field.wire.kind == "struct":
                self._emit("out += b'\\1'")
            self._present(field, name)

    def _null(self, kind: str) -> bytes:
        if kind == "struct":
            return b"\xff"
        if self._flexible:
            return b"\0"
        return b"\xff" * (2 if kind == "string" else 4)

    def _present(self, field: Field, value: str) -> None:
        match field.wire.kind:
            case "struct":
                assert isinstance(field.item, type)
                self.structure(field.item, value)
            case "array":
                self._array(field, value)
            case "records":
                self._records(value)
            case "string":
                self._emit(f"{value} = {value}.encode()")
                size = "string_length" if self._flexible else "p16"
                self._emit(f"out += {size}(len({value}))")
                self._emit(f"out += {value}")
            case _:
                self._emit(f"out += {self._length(f'len({value})')}")
                self._emit(f"out += {value}")

    def _length(self, size: str) -> str:
        return f"uvarint({size} + 1)" if self._flexible else f"p32({size})"

    def _records(self, value: str) -> None:
        with self._writer.block(f"if isinstance({value}, BUFFERS):"):
            self._emit(f"out += {self._length(f'len({value})')}")
            self._emit(f"out += {value}")
        size = self._writer.fresh("n")
        with self._writer.block("else:"):
            self._emit(f"{size}, {value} = pieces({value})")
            self._emit(f"out += {self._length(size)}")
            if self._gather:
                self._emit(f"parts += {value}")
                self._emit("out = bytearray()")
                self._emit("parts.append(out)")
            else:
                self._emit(f"for piece in {value}: out += piece")

    def _array(self, field: Field, value: str) -> None:
        inner = element(field)
        count = self._writer.fresh("n")
        self._emit(f"{count} = len({value})")
        self._emit(f"out += {self._length(count)}")
        if inner.wire.kind == "fixed":
            code = inner.wire.code
            if code == "16s":
                self._emit(f"for u in {value}:")
                self._emit("    if len(u) != 16: bad_uuid(u)")
            short = self._writer.bind(packers(code))
            self._emit(
                f"out += {short}[{count}](*{value}) if {count} < {SHORT_ARRAY} "
                f"else pack({many(code, count)}, *{value})"
            )
            return
        item = self._writer.fresh("i")
        with self._writer.block(f"for {item} in {value}:"):
            if inner.wire.kind == "struct":
                assert isinstance(inner.item, type)
                self.structure(inner.item, item)
            else:
                self._value(inner, item)

    def _tags(self, known: list[Field], source: str) -> None:
        """Append the tagged fields that are not at their defaults; mostly there are none."""
        if not known:
            self._emit("out += b'\\0'")
            return
        name = self._writer.fresh("tags")
        usual = " and ".join(self._is_default(field, source) for field in known)
        self._emit(f"if {usual}: out += b'\\0'")
        self._emit(f"else: {name}({source}, out)")
        with self._writer.function(f"def {name}(m, target):"):
            self._emit("tags = []")
            for field in known:
                assert field.wire.kind != "records"
                with self._writer.block(f"if not ({self._is_default(field, 'm')}):"):
                    self._emit("out = bytearray()")
                    self._value(field, f"m.{field.name}")
                    self._emit(f"tags.append(({field.tag}, out))")
            self._emit("target += uvarint(len(tags))")
            with self._writer.block("for tag, out in tags:"):
                self._emit("target += uvarint(tag) + uvarint(len(out)) + out")

    def _is_default(self, field: Field, source: str) -> str:
        value = f"{source}.{field.name}"
        if field.default is None:
            return f"{value} is None"
        if field.wire.kind == "array":
            return f"({value} is not None and len({value}) == 0)"
        literal = self._writer.literal(field.default)
        if field.wire.kind == "struct":
            return f"({value} is {literal} or {value} == {literal})"
        return f"{value} == {literal}"
