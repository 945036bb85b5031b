"""How a setting's value is written and read: `64MiB`, `7d`, `true`, `127.0.0.1:9092`.

One rule each way, so that what `trilogue config` prints can be pasted back. A size is a number
of bytes, a duration a number of milliseconds; a bare number means just that. `m` is refused: it
means minutes to some and months, metres or milli to others.
"""

from __future__ import annotations

import enum
import re

Value = str | int | bool | None

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

_SWITCHES = {"true": True, "on": True, "yes": True, "1": True}
_SWITCHES |= {"false": False, "off": False, "no": False, "0": False}
_QUANTITY = re.compile(r"(-?[0-9]{1,18})\s*([A-Za-z]*)")


class Kind(enum.Enum):
    """What a value is, and how it is written."""

    TEXT = "text"
    PATH = "path"
    ADDRESS = "host:port"
    INTEGER = "number"
    SIZE = "size"
    DURATION = "duration"
    SWITCH = "true or false"


class ValueTextError(Exception):
    """A text that is no value of its kind; the message says what would be."""


def parse(kind: Kind, text: str) -> Value:
    """Read one value; ValueTextError says what was expected."""
    text = text.strip()
    match kind:
        case Kind.SWITCH:
            if text.lower() not in _SWITCHES:
                raise ValueTextError("expected true or false")
            return _SWITCHES[text.lower()]
        case Kind.INTEGER:
            return _quantity(text, {})
        case Kind.SIZE:
            return _quantity(text, SIZE_UNITS)
        case Kind.DURATION:
            return _quantity(text, DURATION_UNITS)
        case _:
            return text


def spell(kind: Kind, value: Value) -> str:
    """Write a value in the largest unit that keeps it exact; the empty text stands for none."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        units = {Kind.SIZE: SIZE_UNITS, Kind.DURATION: DURATION_UNITS}.get(kind, {})
        return _spell_quantity(value, units)
    return value


def _quantity(text: str, units: dict[str, int]) -> int:
    found = _QUANTITY.fullmatch(text)
    expected = f"a number with one of the units {', '.join(units)}" if units else "a whole number"
    if found is None:
        raise ValueTextError(f"expected {expected}")
    number, unit = found.groups()
    if not unit:
        return int(number)
    if unit not in units:
        raise ValueTextError(f"expected {expected}, not {unit!r}")
    return int(number) * units[unit]


def _spell_quantity(value: int, units: dict[str, int]) -> str:
    if value <= 0:
        return str(value)
    for unit, size in units.items():
        if unit not in {"TB", "GB", "MB", "kB"} and value % size == 0:
            return f"{value // size}{unit}"
    return str(value)
