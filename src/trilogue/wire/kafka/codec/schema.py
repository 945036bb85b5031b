"""The declaration language: one Python class declares every version of a Kafka message.

    @message(frozen=True)
    class LeaderIdAndEpoch:
        leader_id: int32 = since(10, default=-1)
        leader_epoch: int32 = since(10, default=-1)

    @message()
    class PartitionProduceResponse:
        index: int32 = since(0)
        log_append_time_ms: int64 = since(2, default=-1)
        error_message: string | None = since(8, null=8, default=None)
        current_leader: LeaderIdAndEpoch = since(10, tag=0)

    @message(key=0, versions=(0, 13), flexible=9)
    class ProduceResponse:
        responses: list[TopicProduceResponse] = since(0)
        throttle_time_ms: int32 = since(1)

Fields are in wire order. `since(a, until=b)` gives the versions that have the field, `null=n` the
first version in which it may be null, `tag=t` makes it a tagged field. The versions of a nested
structure are those of the message around it. Type checkers see plain ints, strings and lists, all
keyword arguments, each with Kafka's default. `compile.py` turns a table into functions.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
import types
import typing
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple, TypeAlias, TypeVar, dataclass_transform

Bytes: TypeAlias = bytes | bytearray | memoryview
"""Bytes that the codec reads or writes without looking inside."""

LAST_VERSION = 32767
ZERO_UUID = bytes(16)


class Wire(NamedTuple):
    """The encoding of a value: its kind, its `struct` code if its size is fixed, its zero."""

    kind: str
    code: str = ""
    zero: object = 0


int8 = Annotated[int, Wire("fixed", "b")]
int16 = Annotated[int, Wire("fixed", "h")]
uint16 = Annotated[int, Wire("fixed", "H")]
int32 = Annotated[int, Wire("fixed", "i")]
uint32 = Annotated[int, Wire("fixed", "I")]
int64 = Annotated[int, Wire("fixed", "q")]
float64 = Annotated[float, Wire("fixed", "d", 0.0)]
boolean = Annotated[bool, Wire("fixed", "?", False)]
uuid = Annotated[bytes, Wire("fixed", "16s", ZERO_UUID)]
"""16 bytes; all zero means none."""
string = Annotated[str, Wire("string", "", "")]
blob = Annotated[bytes, Wire("bytes", "", b"")]
"""Bytes that are copied when decoded."""
batches = Annotated[Bytes | Sequence[Bytes], Wire("records", "", None)]
"""Record batches: decoded, a view of the buffer; for `gatherer`, a list of buffers."""


class Field(NamedTuple):
    """One field in the table of a message."""

    name: str
    wire: Wire
    item: type | Wire | None  # of an array: its elements; of a structure: its class
    first: int
    last: int
    null: int
    tag: int | None
    tagged: int
    default: object

    def present(self, version: int) -> bool:
        """Whether this version has the field."""
        return self.first <= version <= self.last

    def is_tagged(self, version: int) -> bool:
        """Whether this version encodes it as a tagged field."""
        return self.tag is not None and version >= self.tagged

    def nullable(self, version: int) -> bool:
        """Whether it may be null in this version."""
        return version >= self.null


class Table(NamedTuple):
    """Everything declared about one class; key -1 for a nested structure."""

    key: int
    first: int
    last: int
    flexible: int
    frozen: bool
    fields: tuple[Field, ...]

    def __contains__(self, version: object) -> bool:
        """Whether the message has this version."""
        return isinstance(version, int) and self.first <= version <= self.last


class _Since(NamedTuple):
    first: int
    until: int
    default: object
    null: int
    tag: int | None
    tagged: int | None


def since(
    first: int,
    *,
    until: int = LAST_VERSION,
    default: object = dataclasses.MISSING,
    null: int = LAST_VERSION + 1,
    tag: int | None = None,
    tagged: int | None = None,
) -> Any:
    """Declare a field of the versions `first` to `until`; its default is the zero of its type."""
    return _Since(first, until, default, null, tag, tagged)


T = TypeVar("T")
_TABLE = "__wire_table__"


# No field_specifiers: type checkers then take `= since(...)` for a default, as it is at run time,
# where an omitted field has its type's zero or the declared default.
@dataclass_transform(kw_only_default=True)
def message(
    *,
    key: int = -1,
    versions: tuple[int, int] = (0, LAST_VERSION),
    flexible: int = LAST_VERSION + 1,
    frozen: bool = False,
) -> Callable[[type[T]], type[T]]:
    """Make a keyword-only slots dataclass of the class and keep its table.

    A structure that is itself the type of a field must be frozen: all messages that omit the field
    share one default.
    """

    def declare(cls: type[T]) -> type[T]:
        fields = _read_fields(cls)
        for field in fields:
            setattr(cls, field.name, _dataclass_field(field.default))
        # Shared methods: dataclass would compile new ones for each of 250 classes at every start.
        made = dataclasses.dataclass(
            slots=True, kw_only=True, frozen=frozen, eq=frozen, repr=False
        )(cls)
        for name, method in (_SHARED_FROZEN if frozen else _SHARED).items():
            setattr(made, name, method)
        setattr(made, _TABLE, Table(key, *versions, flexible, frozen, fields))
        return made

    return declare


def _equal(one: object, other: object) -> Any:
    """`__eq__` of messages: the same class, with equal fields."""
    if type(one) is not type(other):
        return NotImplemented
    names: tuple[str, ...] = type(one).__slots__  # type: ignore[attr-defined]
    return all(getattr(one, name) == getattr(other, name) for name in names)


def _represent(one: object) -> str:
    """`__repr__` of messages, as a dataclass has it."""
    names: tuple[str, ...] = type(one).__slots__  # type: ignore[attr-defined]
    fields = ", ".join(f"{name}={getattr(one, name)!r}" for name in names)
    return f"{type(one).__qualname__}({fields})"


_SHARED_FROZEN = {"__repr__": _represent}
_SHARED = _SHARED_FROZEN | {"__eq__": _equal, "__hash__": None}


def _dataclass_field(default: object) -> object:
    if isinstance(default, list):
        return dataclasses.field(default_factory=list)
    return dataclasses.field(default=default)


def table(cls: type) -> Table:
    """Return the table of a message or structure class."""
    found = getattr(cls, _TABLE)
    assert isinstance(found, Table)
    return found


def is_message(kind: object) -> bool:
    """Whether a class was declared with `message`."""
    return isinstance(kind, type) and hasattr(kind, _TABLE)


def _read_fields(cls: type) -> tuple[Field, ...]:
    scope = vars(sys.modules[cls.__module__])
    return tuple(
        _read_field(cls, name, eval(_compiled(text), scope))  # noqa: S307 - our own text
        for name, text in cls.__annotations__.items()
    )


@functools.cache
def _compiled(annotation: str) -> types.CodeType:
    """Compile an annotation once: few distinct ones are used in many places.

    `typing` would compile each use, which took a tenth of the run time of a tool that sends one
    request.
    """
    return compile(annotation, annotation, "eval")


def _read_field(cls: type, name: str, hint: Any) -> Field:
    declared = vars(cls).get(name)
    assert isinstance(declared, _Since), f"{cls.__name__}.{name} needs since(...)"
    inner, optional = _split_none(hint)
    wire, item = _read_type(inner)
    assert optional == (declared.null <= declared.until or wire.zero is None), (
        f"{cls.__name__}.{name}: `| None` and null= must agree"
    )
    default = declared.default
    if default is dataclasses.MISSING:
        default = [] if wire.kind == "array" else wire.zero
        if wire.kind == "struct":
            assert isinstance(item, type)
            assert table(item).frozen, f"{cls.__name__}.{name}: its structure must be frozen"
            default = item()
    tagged = declared.first if declared.tagged is None else declared.tagged
    return Field(
        name=name,
        wire=wire,
        item=item,
        first=declared.first,
        last=declared.until,
        null=declared.null,
        tag=declared.tag,
        tagged=tagged,
        default=default,
    )


def _split_none(hint: Any) -> tuple[Any, bool]:
    if typing.get_origin(hint) not in {typing.Union, types.UnionType}:
        return hint, False
    rest = [kind for kind in typing.get_args(hint) if kind is not type(None)]
    assert len(rest) == 1, f"{hint} is not one type or None"
    return rest[0], True


def _read_type(hint: Any) -> tuple[Wire, type | Wire | None]:
    if typing.get_origin(hint) is list:
        (inner,) = typing.get_args(hint)
        wire, item = _read_type(inner)
        return Wire("array", "", ()), item if wire.kind == "struct" else wire
    if is_message(hint):
        return Wire("struct"), hint
    return hint.__metadata__[0], None
