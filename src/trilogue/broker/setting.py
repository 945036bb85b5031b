"""What one row of a table of Kafka's settings says, and how its value is checked.

The tables: settings_table.py (of topics), kafka_settings.py (of the broker).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from trilogue.broker.errors import InvalidSetting

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
COMPACT, DELETE = "compact", "delete"  # what makes room in a topic


class Kind(Enum):
    """The type of a setting's value, as administration requests name it."""

    BOOLEAN = "boolean"
    STRING = "string"
    INT = "int"
    LONG = "long"
    DOUBLE = "double"
    LIST = "list"
    SHORT = "short"
    CLASS = "class"
    PASSWORD = "password"  # noqa: S105 (a kind of value, not one)


class Standing(Enum):
    """What we do about a setting."""

    ACTS = "acts"  # what it says
    MET = "met"  # nothing: whatever it says holds already
    LIVE = "live"  # of a broker: a setting of the node says it, or what the node is
    FIXED = "fixed"  # it has the one value that we in effect enforce


@dataclass(frozen=True, slots=True)
class Setting:
    """One row: `check` returns the value as it is kept, or raises InvalidSetting.

    `broker_keys` are settings of the broker that say it for topics that do not, strongest first;
    `topic` is the reverse, for a row of the broker. `null`: it has no value unless one is set.
    """

    key: str
    kind: Kind
    default: str
    check: Callable[[str, str], str]
    standing: Standing
    doc: str
    broker_keys: tuple[str, ...] = ()
    topic: str = ""
    null: bool = False

    @property
    def acts(self) -> bool:
        """Whether something obeys it."""
        return self.standing is Standing.ACTS

    @property
    def fixed(self) -> bool:
        """Whether it can have one value only, as far as clients may say it."""
        return self.standing in {Standing.FIXED, Standing.LIVE}


def integer(low: int, high: int) -> Callable[[str, str], str]:
    """Make a check for a whole number between two."""

    def check(key: str, text: str) -> str:
        try:
            value = int(text.strip()) if text.isascii() and "_" not in text else None
        except ValueError:
            value = None
        if value is None or not low <= value <= high:
            raise InvalidSetting(f"{key}: an integer from {low} to {high} is needed")
        return str(value)

    return check


def choice(*choices: str) -> Callable[[str, str], str]:
    """Make a check for one of some texts."""

    def check(key: str, text: str) -> str:
        value = text.strip()
        if value not in choices:
            raise InvalidSetting(f"{key}: one of {', '.join(choices)} is needed")
        return value

    return check


def ratio(key: str, text: str) -> str:
    """Check a number from 0 to 1."""
    try:
        value = float(text) if text.isascii() and "_" not in text else -1.0
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise InvalidSetting(f"{key}: a number from 0 to 1 is needed")
    return str(value)


def policy(key: str, text: str) -> str:
    """Check what makes room in a topic."""
    given = [each.strip().lower() for each in text.split(",")] if text.strip() else []
    if not set(given) <= {COMPACT, DELETE}:
        raise InvalidSetting(f"{key}: {COMPACT}, {DELETE} or both, with a comma, are needed")
    return ",".join(dict.fromkeys(given))


def boolean(key: str, text: str) -> str:
    """Check a true or false, in any case."""
    value = text.strip().lower()
    if value not in {"true", "false"}:
        raise InvalidSetting(f"{key}: true or false is needed")
    return value


def gzip_level(key: str, text: str) -> str:
    """Check a level of gzip: -1 is its own."""
    level = integer(-1, 9)(key, text)
    if level == "0":
        raise InvalidSetting(f"{key}: -1 or a level from 1 to 9 is needed")
    return level


def replicas(key: str, text: str) -> str:
    """Check a list of copies to be throttled."""
    value = text.strip()
    if value not in {"", "*", "none"} and not REPLICAS.fullmatch(value):
        raise InvalidSetting(f"{key}: partition:node, with commas, or * is needed")
    return value


def format_version(key: str, text: str) -> str:
    """Check a name of a format of messages."""
    value = text.strip()
    if not FORMAT_VERSION.fullmatch(value):
        raise InvalidSetting(f"{key}: a version of Kafka like 3.0-IV1 is needed")
    return value


REPLICAS = re.compile(r"\d{1,9}:\d{1,9}(?:\s*,\s*\d{1,9}:\d{1,9})*")
FORMAT_VERSION = re.compile(r"(?:0\.(?:8|9|10|11)|[1-3])\.\d{1,2}(?:\.\d{1,2})?(?:-IV\d)?")


def only(value: str, why: str) -> Callable[[str, str], str]:
    """Make a check that takes one value, in any case, and tells others why not."""
    accepted = value.lower()

    def check(key: str, text: str) -> str:
        if text.strip().lower() != accepted:
            raise InvalidSetting(f"{key}: only {value!r} is served: {why}")
        return value

    return check
