"""Output of a message by `trilogue consume`: its bytes, a template, or a line of JSON."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from trilogue.cli.tables import spell_time

if TYPE_CHECKING:
    from trilogue.client.kafka.consumer.message import Message

Form = Callable[["Message"], bytes]
_PIECE: Final = re.compile(r"\{(\w*)\}|\\([ntr0\\])")
_ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_FIELDS: Final[dict[str, Form]] = {
    "topic": lambda message: message.topic.encode(),
    "partition": lambda message: b"%d" % message.partition,
    "offset": lambda message: b"%d" % message.offset,
    "timestamp": lambda message: b"%d" % message.timestamp,
    "time": lambda message: spell_time(message.timestamp).encode(),
    "key": lambda message: message.key or b"",
    "value": lambda message: message.value or b"",
    "headers": lambda message: b",".join(
        b"%s=%s" % (name.encode(), value or b"") for name, value in message.headers
    ),
}


class FormatError(Exception):
    """A template with an unknown name."""


def formatter(template: str | None, *, as_json: bool, keys: bool) -> Form:
    """Return a function that makes a line, with its end, of a message."""
    if as_json:
        return json_line
    if template is not None:
        return _compiled(template)
    return _key_and_value if keys else _value


def _value(message: Message) -> bytes:
    return (message.value or b"") + b"\n"


def _key_and_value(message: Message) -> bytes:
    return b"%s\t%s\n" % (message.key or b"", message.value or b"")


def _compiled(template: str) -> Form:
    parts: list[Form] = []
    at = 0
    for found in _PIECE.finditer(template):
        parts.append(_constant(template[at : found.start()].encode()))
        name, escape = found.groups()
        if escape is not None:
            parts.append(_constant(_ESCAPES[escape]))
        elif name in _FIELDS:
            parts.append(_FIELDS[name])
        else:
            raise FormatError(f"no {{{name}}}; there are {', '.join(_FIELDS)}")
        at = found.end()
    parts.append(_constant(template[at:].encode() + b"\n"))
    return lambda message: b"".join([part(message) for part in parts])


def _constant(text: bytes) -> Form:
    return lambda _message: text


def json_line(message: Message) -> bytes:
    """Return a line that `produce --json` accepts."""
    body: dict[str, Any] = {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp": message.timestamp,
        "time": spell_time(message.timestamp),
        **_text("key", message.key),
        **_text("value", message.value),
    }
    if message.timestamp < 0:
        del body["timestamp"], body["time"]
    if message.headers:
        body["headers"] = [
            {"name": name, **_text("value", value)} for name, value in message.headers
        ]
    return json.dumps(body, ensure_ascii=False).encode() + b"\n"


def _text(name: str, octets: bytes | None) -> dict[str, str | None]:
    """Return text unchanged, other bytes in base64."""
    if octets is None:
        return {name: None}
    try:
        return {name: octets.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(octets).decode()}
