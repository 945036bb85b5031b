"""Generates the decoder of one (message, version), as text.

Any bytes yield a message or a `WireError`, in bounded time and memory. `pos` only grows. A slice
past the end is short and harmless: the next read, or the comparison with `end` on the last line,
detects it. A count is checked against the remaining bytes, each element at its smallest size,
before anything is allocated. Since an element of two bytes can take a hundred in memory, `room`
counts down the structures and strings that one message may have in its arrays: a million, or the
limit given to `decoder`.
"""

from __future__ import annotations

import struct

from trilogue.wire.errors import WireError
from trilogue.wire.kafka.codec import runtime
from trilogue.wire.kafka.codec.schema import Field, table
from trilogue.wire.kafka.codec.writer import (
    SHORT_ARRAY,
    Writer,
    element,
    layout,
    least_size,
    many,
    tagged,
    unpackers,
    untagged,
)

SCOPE: dict[str, object] = {
    "WireError": WireError,
    "MALFORMED": (WireError, UnicodeDecodeError),
    "SHORT": (IndexError, struct.error),
    "new": object.__new__,
    "unpack_from": struct.unpack_from,
    "read_uvarint": runtime.read_uvarint,
    "long_length": runtime.long_length,
    "long_string_length": runtime.long_string_length,
    "skip_tags": runtime.skip_tags,
    "check_count": runtime.check_count,
    "bad_count": runtime.bad_count,
    "bad_null": runtime.bad_null,
    "bad_tag": runtime.bad_tag,
    "cut": runtime.cut,
}


def write(title: str, cls: type, version: int, *, flexible: bool, elements_max: int) -> Writer:
    """Write the function `decode` of a message."""
    writer = Writer(title, "decode", SCOPE)
    decoding = _Decoding(writer, version, flexible=flexible, elements_max=elements_max)
    with writer.function("def decode(buf, pos=0):"):
        writer.emit("if type(buf) is not memoryview: buf = memoryview(buf)")
        writer.emit(f"end = len(buf); room = {elements_max}")
        with writer.block("try:"):
            decoding.structure(cls, "m")
            writer.emit("if pos > end: cut()")
        with writer.block("except MALFORMED as error:"):
            writer.emit(f"raise WireError(f'{title}: {{error}}') from error")
        with writer.block("except SHORT as error:"):
            writer.emit(f"raise WireError('{title}: the message is cut off') from error")
        writer.emit("return m, pos")
    return writer


class _Decoding:
    """Emits statements that read from `buf` at `pos` and move `pos`."""

    def __init__(self, writer: Writer, version: int, *, flexible: bool, elements_max: int) -> None:
        self._writer = writer
        self._elements_max = elements_max
        self._emit = writer.emit
        self._version = version
        self._flexible = flexible

    def structure(self, cls: type, out: str) -> None:
        """Assign a structure to the name `out`; a frozen one is created after all of its fields."""
        known, version = table(cls), self._version
        join = "_" if known.frozen else "."
        made = self._writer.bind(cls)
        if not known.frozen:
            self._emit(f"{out} = new({made})")
        here = untagged(known, version)
        for field in known.fields:
            if field not in here:
                self._emit(f"{out}{join}{field.name} = {self._writer.literal(field.default)}")
        self._values([(field, f"{out}{join}{field.name}") for field in here])
        if self._flexible:
            self._tags(known.frozen, tagged(known, version), out)
        if known.frozen:
            names = [field.name for field in known.fields]
            self._emit(f"{out} = {made}({', '.join(f'{n}={out}_{n}' for n in names)})")

    def _values(self, wanted: list[tuple[Field, str]]) -> None:
        """Read fields in order; fixed sizes and a following length share one unpack call."""
        codes, targets = "", list[str]()
        for field, target in wanted:
            kind = field.wire.kind
            if kind == "fixed":
                codes += field.wire.code
                targets.append(target)
                continue
            size = self._writer.fresh("n")
            if kind != "struct" and not self._flexible:
                codes += "h" if kind == "string" else "i"
                targets.append(size)
            self._run(codes, targets)
            codes, targets = "", []
            if kind == "struct":
                self._struct_value(field, target)
            else:
                if self._flexible:
                    self._compact_size(kind, size)
                self._sized_value(field, target, size)
        self._run(codes, targets)

    def _run(self, codes: str, targets: list[str]) -> None:
        if not codes:
            return
        unpack = self._writer.bind(layout(codes).unpack_from)
        comma = "," if len(targets) == 1 else ""
        self._emit(f"{', '.join(targets)}{comma} = {unpack}(buf, pos)")
        self._emit(f"pos += {layout(codes).size}")

    def _compact_size(self, kind: str, size: str) -> None:
        long = "long_string_length" if kind == "string" else "long_length"
        self._emit(f"{size} = buf[pos] - 1; pos += 1")
        self._emit(f"if {size} > 126: {size}, pos = {long}(buf, pos)")

    def _struct_value(self, field: Field, target: str) -> None:
        assert isinstance(field.item, type)
        out = self._writer.fresh("s")
        if not field.nullable(self._version):
            self.structure(field.item, out)
        else:
            flag = self._writer.fresh("n")
            self._emit(f"{flag} = buf[pos]; pos += 1")
            is_null = f"not {flag}" if field.is_tagged(self._version) else f"{flag} > 127"
            with self._writer.block(f"if {is_null}:"):
                self._emit(f"{out} = None")
            with self._writer.block("else:"):
                self.structure(field.item, out)
        self._emit(f"{target} = {out}")

    def _sized_value(self, field: Field, target: str, size: str) -> None:
        if not field.nullable(self._version):
            if field.wire.kind != "array":  # an array checks its count itself
                self._emit(f"if {size} < 0: bad_null()")
            self._content(field, target, size)
            return
        with self._writer.block(f"if {size} < 0:"):
            self._emit(f"{target} = None")
        with self._writer.block("else:"):
            self._content(field, target, size)

    def _content(self, field: Field, target: str, size: str) -> None:
        match field.wire.kind:
            case "array":
                self._array(field, target, size)
                return
            case "string":
                value = f"buf[pos:pos + {size}].tobytes().decode()"
            case "bytes":
                value = f"buf[pos:pos + {size}].tobytes()"
            case _:  # records: a view
                value = f"buf[pos:pos + {size}]"
        self._emit(f"{target} = {value}; pos += {size}")

    def _array(self, field: Field, target: str, count: str) -> None:
        inner = element(field)
        least = least_size(inner, self._version, flexible=self._flexible)
        assert least > 0, f"elements of {field.name} may be empty: nothing bounds their number"
        negative = "" if field.nullable(self._version) else f"{count} < 0 or "
        fits = f"{negative}{count} * {least} > end - pos"
        if inner.wire.kind != "fixed":
            fits += f" or (room := room - {count}) < 0"
        self._emit(f"if {fits}: bad_count({count})")
        if inner.wire.kind == "fixed":
            code = inner.wire.code
            short = self._writer.bind(unpackers(code))
            self._emit(
                f"{target} = list({short}[{count}](buf, pos) if {count} < {SHORT_ARRAY} "
                f"else unpack_from({many(code, count)}, buf, pos))"
            )
            self._emit(f"pos += {count} * {least}")
            return
        items, item = self._writer.fresh("x"), self._writer.fresh("i")
        self._emit(f"{target} = {items} = []")
        with self._writer.block(f"for _ in range({count}):"):
            if inner.wire.kind == "struct":
                assert isinstance(inner.item, type)
                self.structure(inner.item, item)
            else:
                self._values([(inner, item)])
            self._emit(f"{items}.append({item})")

    def _tags(self, frozen: bool, known: list[Field], out: str) -> None:
        """Read tagged fields; they are rare, so all but "none" is a separate function."""
        if not known:
            self._emit("if buf[pos]: pos = skip_tags(buf, pos, end)")
            self._emit("else: pos += 1")
            return
        assert not frozen, "a frozen structure has no tagged fields of its own"
        name = self._writer.fresh("tags")
        self._emit(f"if buf[pos]: pos = {name}({out}, buf, pos, end)")
        self._emit("else: pos += 1")
        count, tag, stop = (self._writer.fresh(prefix) for prefix in ("n", "t", "e"))
        with self._writer.function(f"def {name}(m, buf, pos, end):"):
            self._emit(f"room = {self._elements_max}")
            self._emit(f"{count}, pos = read_uvarint(buf, pos)")
            self._emit(f"check_count({count}, 2, end - pos)")
            with self._writer.block(f"for _ in range({count}):"):
                self._emit(f"{tag}, pos = read_uvarint(buf, pos)")
                self._emit(f"{stop}, pos = read_uvarint(buf, pos)")
                self._emit(f"{stop} += pos")
                word = "if"
                for field in known:
                    with self._writer.block(f"{word} {tag} == {field.tag}:"):
                        self._values([(field, f"m.{field.name}")])
                    word = "elif"
                self._emit(f"else: pos = {stop}")
                self._emit(f"if pos != {stop}: bad_tag({tag})")
            self._emit("return pos")
