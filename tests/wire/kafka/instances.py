"""Hypothesis strategies for any message of any version, from the tables that the codec uses."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import pytest
from hypothesis import strategies as st

from trilogue.wire.kafka.api import MESSAGES
from trilogue.wire.kafka.codec.schema import Field, Wire, is_message, table

INTEGERS = {"b": 8, "h": 16, "i": 32, "q": 64}
FIXED: dict[str, st.SearchStrategy[object]] = {
    **{code: st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) for code, bits in INTEGERS.items()},
    "H": st.integers(0, (1 << 16) - 1),
    "I": st.integers(0, (1 << 32) - 1),
    "?": st.booleans(),
    "d": st.floats(allow_nan=False),
    "16s": st.binary(min_size=16, max_size=16),
}
TEXT = st.one_of(st.text(max_size=5), st.sampled_from(["x" * 126, "x" * 127, "é" * 100]))
BYTES = st.one_of(st.binary(max_size=5), st.sampled_from([b"x" * 126, b"x" * 127, b"x" * 17_000]))

Special = Callable[[Field], st.SearchStrategy[object] | None]


class Spoken(NamedTuple):
    """One class in one version, with a name for pytest."""

    cls: type
    version: int

    def __str__(self) -> str:
        return f"{self.cls.__name__}-v{self.version}"


SPOKEN = [
    Spoken(cls, version)
    for pair in MESSAGES.values()
    for cls in pair
    for version in range(table(cls).first, table(cls).last + 1)
]


@cache
def layout(cls: type, version: int) -> tuple[object, ...]:
    """The wire layout of one version of a message: equal layouts, equal bytes."""
    known = table(cls)
    return (
        version >= known.flexible,
        *(
            (
                field.name, field.wire, field.nullable(version),
                field.tag if field.is_tagged(version) else None, inner_layout(field, version),
            )
            for field in known.fields
            if field.present(version)
        ),
    )  # fmt: skip


def inner_layout(field: Field, version: int) -> object:
    """The layout of a structure's fields; any other item is its own."""
    if isinstance(field.item, type) and is_message(field.item):
        return layout(field.item, version)
    return field.item


def changes(spoken: Spoken) -> bool:
    """Whether this version differs from the one before it, or is the last one."""
    known = table(spoken.cls)
    if spoken.version in {known.first, known.last}:
        return True
    return layout(*spoken) != layout(spoken.cls, spoken.version - 1)


def quick(spoken: Spoken) -> object:
    """A parameter of a test; versions that change nothing are left to `make fuzz`."""
    marks = () if changes(spoken) else pytest.mark.long
    return pytest.param(spoken, marks=marks, id=str(spoken))


def newest(spoken: Spoken, changed: pytest.MarkDecorator = pytest.mark.full) -> object:
    """A parameter of a slower test: an earlier version in which something changed has the mark
    `changed`, others are long."""
    if spoken.version == table(spoken.cls).last:
        marks: tuple[pytest.MarkDecorator, ...] = ()
    else:
        marks = (changed if changes(spoken) else pytest.mark.long,)
    return pytest.param(spoken, marks=marks, id=str(spoken))


def ordinary(_: Field) -> None:
    """No field is special."""


@cache
def messages(cls: type, version: int, special: Special = ordinary) -> st.SearchStrategy[object]:
    """Any instance that this version can express: missing fields keep their defaults."""
    fields = {}
    for field in table(cls).fields:
        if field.present(version):
            chosen = special(field)
            fields[field.name] = values(field, version, special) if chosen is None else chosen
    return st.builds(cls, **fields)


def values(field: Field, version: int, special: Special = ordinary) -> st.SearchStrategy[object]:
    """Any value that one field may have in this version."""
    found = _present(field.wire, field.item, version, special)
    return st.one_of(st.none(), found) if field.nullable(version) else found


def _present(
    wire: Wire, item: type | Wire | None, version: int, special: Special
) -> st.SearchStrategy[object]:
    match wire.kind:
        case "fixed":
            return FIXED[wire.code]
        case "string":
            return TEXT
        case "bytes" | "records":
            return BYTES
        case "struct":
            assert isinstance(item, type)
            return messages(item, version, special)
    if is_message(item):
        assert isinstance(item, type)
        return st.lists(messages(item, version, special), max_size=3)
    assert isinstance(item, Wire)
    sizes = st.sampled_from([1, 2, 3, 16, 17, 40])
    return st.one_of(
        st.just([]),
        sizes.flatmap(
            lambda size: st.lists(
                _present(item, None, version, special), min_size=size, max_size=size
            )
        ),
    )
