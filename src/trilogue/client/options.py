"""Checks of the options that clients, producers and consumers are made with.

Each options class lists one check per field. A check returns the value that the client works with,
or raises InvalidOption (a ValueError) or InvalidOptionType (a TypeError). Both name the option, the
value that was given and what is allowed, so that a wrong option never gets as far as a request.
"""

from __future__ import annotations

import difflib
import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from enum import Enum
from typing import Any, TypeVar

from trilogue.client.errors import InvalidOption, InvalidOptionType

Options = TypeVar("Options")
Check = Callable[[str, Any], Any]
"""Takes an option's name and value; returns the value to use."""


def build_options(
    kind: type[Options], given: Mapping[str, Any], renamed: Mapping[str, str] | None = None
) -> Options:
    """Make the options of a client, producer or consumer from keyword arguments.

    `renamed` maps deprecated names to the names that replaced them. InvalidOptionType for a name
    that is no option.
    """
    options = dict(given)
    for old, new in (renamed or {}).items():
        if old in options:
            if new in options:
                raise InvalidOption(f"{old} is the old name of {new}: give {new} only")
            warnings.warn(f"{old} is now called {new}", DeprecationWarning, stacklevel=4)
            options[new] = options.pop(old)
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    for name in options:
        if name not in names:
            near = difflib.get_close_matches(name, names, 1)
            hint = f"did you mean {near[0]}?" if near else f"the options are {', '.join(names)}"
            raise InvalidOptionType(f"{kind.__name__} has no option {name}: {hint}")
    return kind(**options)


def check_options(options: object, checks: Mapping[str, Check]) -> None:
    """Replace each field of frozen options by the checked value; raises what a check raises."""
    for name, check in checks.items():
        object.__setattr__(options, name, check(name, getattr(options, name)))


def optional(check: Check) -> Check:
    """None is allowed, too."""
    return lambda name, value: None if value is None else check(name, value)


def one_of(kind: type[Enum]) -> Check:
    """A member of an enum, its name in any case, or its value."""

    def check(name: str, value: Any) -> Enum:
        if isinstance(value, kind):
            return value
        if isinstance(value, str):
            plain = _plain(value)
            for member in kind:
                if plain in {_plain(member.name), _plain(str(member.value))}:
                    return member
        elif isinstance(value, int) and not isinstance(value, bool | Enum):
            for member in kind:
                if member.value == value:
                    return member
        members = ", ".join(f"{member.name} ({member.value!r})" for member in kind)
        allowed = f"one of {members}"
        if isinstance(value, str | int) and not isinstance(value, bool | Enum):
            raise InvalidOption(_refusal(name, value, allowed))
        raise InvalidOptionType(_refusal(name, value, allowed))

    return check


def _plain(text: str) -> str:
    return text.lower().replace("-", "_").replace(" ", "_")


def number_by_name(allowed: Mapping[str, int]) -> Check:
    """One of some numbers, or its name in any case."""

    def check(name: str, value: Any) -> int:
        if isinstance(value, str) and value.lower() in allowed:
            return allowed[value.lower()]
        if isinstance(value, int) and not isinstance(value, bool) and value in allowed.values():
            return value
        names = ", ".join(f'"{one}" ({number})' for one, number in allowed.items())
        kind = InvalidOption if isinstance(value, str | int) else InvalidOptionType
        raise kind(_refusal(name, value, f"one of {names}"))

    return check


def several_of(kind: type[Enum]) -> Check:
    """At least one member of an enum, each only once; a single one may stand alone."""
    check_one = one_of(kind)

    def check(name: str, value: Any) -> tuple[Enum, ...]:
        if isinstance(value, str | Enum):
            value = (value,)
        if not isinstance(value, Iterable):
            allowed = f"one or several of {', '.join(member.name for member in kind)}"
            raise InvalidOptionType(_refusal(name, value, allowed))
        members = tuple(check_one(name, one) for one in value)
        if not members or len(set(members)) < len(members):
            raise InvalidOption(_refusal(name, value, "at least one value, and each only once"))
        return members

    return check


def seconds(*, zero: bool = False) -> Check:
    """A time in seconds, finite and above 0 (with `zero`: 0 or above)."""
    allowed = "a number of seconds, 0 or more" if zero else "a number of seconds above 0"

    def check(name: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidOptionType(_refusal(name, value, allowed))
        if not math.isfinite(value) or value < 0 or not (value or zero):
            raise InvalidOption(_refusal(name, value, allowed))
        return value

    return check


def whole_number(least: int, most: int | None = None) -> Check:
    """An int in a range, both ends included."""
    allowed = f"a whole number from {least} on" if most is None else f"from {least} to {most}"

    def check(name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise InvalidOptionType(_refusal(name, value, allowed))
        if value < least or (most is not None and value > most):
            raise InvalidOption(_refusal(name, value, allowed))
        return value

    return check


def instance_of(kind: type | tuple[type, ...], allowed: str) -> Check:
    """A value of a type; `allowed` describes it in the error."""

    def check(name: str, value: Any) -> Any:
        if not isinstance(value, kind):
            raise InvalidOptionType(_refusal(name, value, allowed))
        return value

    return check


text: Check = instance_of(str, "a text")
flag: Check = instance_of(bool, "True or False")
mapping: Check = instance_of(Mapping, "a mapping of names to values")


def function(name: str, value: Any) -> Any:
    """Anything that can be called."""
    if not callable(value):
        raise InvalidOptionType(_refusal(name, value, "a function"))
    return value


def _refusal(name: str, value: object, allowed: str) -> str:
    return f"{name}={value!r} is not allowed: {name} is {allowed}"
