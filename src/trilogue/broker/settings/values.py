"""How a setting's value is parsed and formatted: `64MiB`, `7d`, `true`, `127.0.0.1:9092`.

`format_value` is the inverse of `parse_value`, so what `trilogue config` prints can be pasted back.
A size is a number of bytes and a duration a number of milliseconds; a bare number means just that.
`m` is refused as a unit: it could mean minutes, months, metres or milli.

The kinds that Kafka's administration names (`ADMIN_KINDS`) take plain numbers and no units.
"""

from __future__ import annotations

import enum
import re

Value = str | int | float | bool | None

SIZE_UNITS = {
    "TiB": 1 << 40,
    "GiB": 1 << 30,
    "MiB": 1 << 20,
    "KiB": 1 << 10,
    "TB": 10**12,
    "GB": 10**9,
    "MB": 10**6,
    "kB": 10**3,
    "B": 1,
}
DURATION_UNITS = {"d": 86_400_000, "h": 3_600_000, "min": 60_000, "s": 1_000, "ms": 1}

INT16_MAX = 2**15 - 1
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

_SWITCHES = {"true": True, "on": True, "yes": True, "1": True}
_SWITCHES |= {"false": False, "off": False, "no": False, "0": False}
_BOOLEANS = {"true": True, "false": False}
_PLAIN_NUMBER = re.compile(r"[+-]?[0-9]{1,40}")
_QUANTITY = re.compile(r"(-?[0-9]{1,18})\s*([A-Za-z]*)")


@enum.unique
class Kind(enum.Enum):
    """The type of a value. The reference pages and DescribeConfigs show it."""

    # the node's own settings
    TEXT = "text"
    PATH = "path"
    ADDRESS = "host:port"
    INTEGER = "number"
    SIZE = "size"
    DURATION = "duration"
    SWITCH = "true or false"
    # settings that administration requests name
    BOOLEAN = "boolean"
    STRING = "string"
    INT = "int"
    LONG = "long"
    DOUBLE = "double"
    LIST = "list"
    SHORT = "short"
    CLASS = "class"
    PASSWORD = "password"  # noqa: S105 (a kind of value, not one)


ADMIN_KINDS = frozenset(
    {
        Kind.BOOLEAN,
        Kind.STRING,
        Kind.INT,
        Kind.LONG,
        Kind.DOUBLE,
        Kind.LIST,
        Kind.SHORT,
        Kind.CLASS,
        Kind.PASSWORD,
    }
)
INTEGER_MAX = {Kind.SHORT: INT16_MAX, Kind.INT: INT32_MAX, Kind.LONG: INT64_MAX}


_WORDS = {Kind.SWITCH: _SWITCHES, Kind.BOOLEAN: _BOOLEANS}
_UNITS: dict[Kind, dict[str, int]] = {
    Kind.INTEGER: {},
    Kind.SIZE: SIZE_UNITS,
    Kind.DURATION: DURATION_UNITS,
}


class InvalidValue(Exception):
    """A text that is not a value of its setting; the message has what is accepted."""


def parse_value(kind: Kind, text: str) -> Value:
    """Return the value that a text stands for; InvalidValue."""
    text = text.strip()
    if kind in _WORDS:
        return _parse_word(text, _WORDS[kind])
    if kind in _UNITS:
        return _parse_quantity(text, _UNITS[kind])
    if kind in INTEGER_MAX:
        return _parse_integer(text)
    return _parse_float(text) if kind is Kind.DOUBLE else text


def format_value(kind: Kind, value: Value) -> str:
    """Return a value as text, in the largest unit that keeps it exact; empty for no value."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return _format_quantity(value, _UNITS.get(kind, {}))
    if isinstance(value, float):
        return str(value).replace("e+", "E").replace("e", "E")  # as Java writes it
    return str(value)


def _parse_word(text: str, words: dict[str, bool]) -> bool:
    if text.lower() not in words:
        raise InvalidValue("expected true or false")
    return words[text.lower()]


def _parse_integer(text: str) -> int:
    """Refuse what `int` takes and a real broker does not: underscores and foreign digits."""
    if not _PLAIN_NUMBER.fullmatch(text):
        raise InvalidValue("expected an integer")
    return int(text)


def _parse_float(text: str) -> float:
    if not text.isascii() or "_" in text:
        raise InvalidValue("expected a number")
    try:
        return float(text)
    except ValueError as error:
        raise InvalidValue("expected a number") from error


def _parse_quantity(text: str, units: dict[str, int]) -> int:
    found = _QUANTITY.fullmatch(text)
    expected = f"a number with one of the units {', '.join(units)}" if units else "a whole number"
    if found is None:
        raise InvalidValue(f"expected {expected}")
    number, unit = found.groups()
    if not unit:
        return int(number)
    if unit not in units:
        raise InvalidValue(f"expected {expected}, not {unit!r}")
    return int(number) * units[unit]


def _format_quantity(value: int, units: dict[str, int]) -> str:
    if value <= 0:
        return str(value)
    for unit, size in units.items():
        if unit not in {"TB", "GB", "MB", "kB"} and value % size == 0:
            return f"{value // size}{unit}"
    return str(value)
