"""Generates the encoder and the gatherer of one (message, version), as text.

The encoder appends to one bytearray, `out`. The gatherer does the same until it meets records given
as a list of buffers: it passes these through and continues in a new bytearray.
"""

from __future__ import annotations

import struct

from trilogue.wire.errors import EncodeError
from trilogue.wire.kafka.codec import runtime
from trilogue.wire.kafka.codec.schema import Field, table
from trilogue.wire.kafka.codec.writer import (
    SHORT_ARRAY,
    Writer,
    element,
    layout,
    many,
    packers,
    tagged,
    untagged,
)

SCOPE: dict[str, object] = {
    "EncodeError": EncodeError,
    "UNFIT": (
        EncodeError, struct.error, OverflowError, UnicodeEncodeError, AttributeError, TypeError,
    ),
    "BUFFERS": (bytes, memoryview, bytearray),
    "pack": struct.pack,
    "uvarint": runtime.uvarint,
    "string_length": runtime.string_length,
    "bad_uuid": runtime.bad_uuid,
    "total": runtime.total,
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
            emit(f"raise EncodeError(f'{title} cannot encode this: {{error}}') from error")
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
        here = untagged(known, version)
        self._values([(field, f"{source}.{field.name}") for field in here])
        if self._flexible:
            self._tags(tagged(known, version), source)
        elif not here:
            self._emit("pass")

    def _values(self, wanted: list[tuple[Field, str]]) -> None:
        """Append fields in order; fixed sizes and a following length share one pack call."""
        codes, values = "", list[str]()
        for field, value in wanted:
            kind = field.wire.kind
            if kind == "fixed":
                if field.wire.code == "16s":  # struct would pad or truncate silently
                    self._emit(f"if len({value}) != 16: bad_uuid({value})")
                codes += field.wire.code
                values.append(value)
                continue
            name, size = self._writer.fresh("v"), self._writer.fresh("n")
            self._emit(f"{name} = {value}")
            if kind != "struct":
                self._measure(field, name, size)
                if not self._flexible:
                    codes += "h" if kind == "string" else "i"
                    values.append(size)
            self._run(codes, values)
            codes, values = "", []
            if self._flexible and kind != "struct":
                length = f"string_length({size})" if kind == "string" else f"uvarint({size} + 1)"
                self._emit(f"out += {length}")
            self._content(field, name, size)
        self._run(codes, values)

    def _run(self, codes: str, values: list[str]) -> None:
        if codes:
            pack = self._writer.bind(layout(codes).pack)
            self._emit(f"out += {pack}({', '.join(values)})")

    def _measure(self, field: Field, value: str, size: str) -> None:
        """Compute the length to encode, -1 for null; a string is encoded to bytes on the way."""
        match field.wire.kind:
            case "string":
                measured = f"{value} = {value}.encode(); {size} = len({value})"
            case "records":
                measured = (
                    f"{size} = len({value}) if isinstance({value}, BUFFERS) else total({value})"
                )
            case _:
                measured = f"{size} = len({value})"
        if field.nullable(self._version):
            self._emit(f"if {value} is None: {size} = -1")
            self._emit(f"else: {measured}")
        else:
            self._emit(measured)

    def _content(self, field: Field, value: str, size: str) -> None:
        if not field.nullable(self._version):
            self._present(field, value, size)
            return
        if field.wire.kind == "struct":
            # Kafka marks a tagged field without a value by 0, any other by -1.
            null = r"b'\0'" if field.is_tagged(self._version) else r"b'\xff'"
            self._emit(f"out += {null} if {value} is None else b'\\1'")
        with self._writer.block(f"if {value} is not None:"):
            self._present(field, value, size)

    def _present(self, field: Field, value: str, size: str) -> None:
        match field.wire.kind:
            case "struct":
                assert isinstance(field.item, type)
                self.structure(field.item, value)
            case "array":
                self._array(field, value, size)
            case "records":
                self._records(value, size)
            case _:
                self._emit(f"out += {value}")

    def _records(self, value: str, size: str) -> None:
        self._emit(f"if isinstance({value}, BUFFERS): out += {value}")
        if not self._gather:
            self._emit("else:")
            self._emit(f"    for piece in {value}: out += piece")
            return
        with self._writer.block(f"elif {size}:"):
            self._emit(f"parts += {value}")
            self._emit("out = bytearray()")
            self._emit("parts.append(out)")

    def _array(self, field: Field, value: str, count: str) -> None:
        inner = element(field)
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
                self._values([(inner, item)])

    def _tags(self, known: list[Field], source: str) -> None:
        """Append the tagged fields that differ from their defaults; mostly there are none."""
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
                    self._values([(field, f"m.{field.name}")])
                    self._emit(f"tags.append(({field.tag}, out))")
            self._emit("target += uvarint(len(tags))")
            with self._writer.block("for tag, out in tags:"):
                self._emit("target += uvarint(tag) + uvarint(len(out)) + out")

    def _is_default(self, field: Field, source: str) -> str:
        value = f"{source}.{field.name}"
        if field.default is None:
            return f"{value} is None"
        if field.wire.kind == "array":
            return f"({value} is not None and not {value})"
        literal = self._writer.literal(field.default)
        if field.wire.kind == "struct":
            return f"({value} is {literal} or {value} == {literal})"
        return f"{value} == {literal}"
