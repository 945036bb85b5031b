"""Generate straight-line Python for a message class and a version, at its first use.

`decoder`, `encoder` and `gatherer` return functions; `source` returns their text. The text is
registered with `linecache`, so that a traceback shows the generated line. Fields that a version
lacks are left out when encoding and have their defaults when decoding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol, TypeAlias, TypeVar, cast

from trilogue.wire.kafka.codec import decode, encode
from trilogue.wire.kafka.codec.runtime import MAX_ELEMENTS
from trilogue.wire.kafka.codec.schema import Bytes, table
from trilogue.wire.kafka.codec.writer import Writer

M = TypeVar("M")
M_co = TypeVar("M_co", covariant=True)
M_contra = TypeVar("M_contra", contravariant=True)

Way: TypeAlias = Literal["decode", "encode", "gather"]


class Decoder(Protocol[M_co]):
    """Decodes one message at `pos`; returns it and the position behind it."""

    def __call__(self, buf: Bytes, pos: int = 0, /) -> tuple[M_co, int]:
        """Raises WireError for bytes that are not this message."""


class Encoder(Protocol[M_contra]):
    """Appends one message to `out`."""

    def __call__(self, message: M_contra, out: bytearray, /) -> None:
        """Raises EncodeError for what the version cannot express; `out` is unchanged then."""


class Gatherer(Protocol[M_contra]):
    """Appends one message to `head`; records given as lists of buffers are not copied."""

    def __call__(self, message: M_contra, head: bytearray, /) -> list[Bytes]:
        """Returns the buffers to write, in order, `head` first."""


def decoder(cls: type[M], version: int, elements_max: int = MAX_ELEMENTS) -> Decoder[M]:
    """Return the function that decodes this message in this version.

    It raises WireError for more structures and strings in arrays than `elements_max`, before they
    are created.
    """
    return cast("Decoder[M]", _function(cls, version, "decode", elements_max))


def encoder(cls: type[M], version: int) -> Encoder[M]:
    """Return the function that encodes this message in this version."""
    return cast("Encoder[M]", _function(cls, version, "encode"))


def gatherer(cls: type[M], version: int) -> Gatherer[M]:
    """Return the function that encodes this message in this version without copying its records."""
    return cast("Gatherer[M]", _function(cls, version, "gather"))


def source(cls: type, version: int, way: Way) -> str:
    """Return the generated text."""
    return _write(cls, version, way).text


_compiled: dict[tuple[type, int, Way, int], Callable[..., object]] = {}


def _function(
    cls: type, version: int, way: Way, elements_max: int = MAX_ELEMENTS
) -> Callable[..., object]:
    key = cls, version, way, elements_max
    found = _compiled.get(key)
    if found is None:
        found = _compiled[key] = _write(*key).build(way)
    return found


def _write(cls: type, version: int, way: Way, elements_max: int = MAX_ELEMENTS) -> Writer:
    known = table(cls)
    if version not in known:
        raise ValueError(f"{cls.__name__} has no version {version}")
    title, flexible = f"{cls.__name__} v{version}", version >= known.flexible
    if way == "decode":
        return decode.write(title, cls, version, flexible=flexible, elements_max=elements_max)
    return encode.write(title, cls, version, flexible=flexible, gather=way == "gather")
