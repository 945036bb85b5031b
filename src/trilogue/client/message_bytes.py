"""The bytes of a message, of whatever type an application gives them."""

from __future__ import annotations

from collections.abc import Iterable

from trilogue.client.errors import InvalidOptionType

MessageBytes = bytes | bytearray | memoryview | str
"""A text is sent as UTF-8."""


def message_bytes(name: str, value: MessageBytes) -> bytes:
    """Return the bytes of a value, key or header, which the error calls `name`.

    InvalidOptionType for a number, a dict or another object that has no bytes of its own.
    """
    if isinstance(value, str):
        return value.encode()
    try:
        return bytes(memoryview(value))  # not bytes(5), which are five zeros
    except TypeError:
        kind = type(value).__name__
        raise InvalidOptionType(
            f"{name}={value!r} is not allowed: {name} is bytes or a text, not {kind}: "
            "encode it first, as json.dumps does"
        ) from None


def check_topic(topic: object) -> None:
    """Raise InvalidOptionType for a topic that is no text."""
    if not isinstance(topic, str):
        raise InvalidOptionType(f"topic={topic!r} is not allowed: a topic is a text")


def check_texts(option: str, pairs: Iterable[tuple[object, object]]) -> None:
    """Raise InvalidOptionType for a name or value of attributes or properties that is no text."""
    for name, value in pairs:
        if not (isinstance(name, str) and isinstance(value, str)):
            raise InvalidOptionType(
                f"{option}={{{name!r}: {value!r}}} is not allowed: names and values are texts"
            )
