"""One declared setting: the row type of every table of settings, and how its values are checked.

The tables: topic_table.py (topics), broker_table.py (brokers and groups), and
node/settings/table.py (a process). A row declares what it accepts; `Setting.parse` is the only way
from a text to a value, and `list_values` the only rule of precedence between sources.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import TypedDict, TypeVar

import msgspec

from trilogue.broker.errors import InvalidSetting
from trilogue.broker.settings.values import (
    ADMIN_KINDS,
    INTEGER_MAX,
    InvalidValue,
    Kind,
    Value,
    format_value,
    parse_value,
)

COMPACT, DELETE = "compact", "delete"  # of cleanup.policy

S = TypeVar("S")
V = TypeVar("V")


class Effect(Enum):
    """What the broker does about a setting."""

    EFFECTIVE = "effective"  # the value is obeyed
    NO_OP = "no-op"  # what any value would cause holds anyway
    READ_ONLY = "read-only"  # shown: the node's settings, or what the node is, decide
    FIXED = "fixed"  # there is one value that the broker enforces


class Scope(Enum):
    """What a setting is a setting of."""

    NODE = "node"
    BROKER = "broker"  # one broker or all: as Kafka's administration sees the node
    TOPIC = "topic"
    GROUP = "group"


class ValueBounds(TypedDict, total=False):
    """The fields of a row that bound its values."""

    minimum: int
    maximum: int
    choices: tuple[str, ...]
    rule: Callable[[str], str]


class Setting(msgspec.Struct, frozen=True):
    """One row of a table.

    `minimum` and `maximum` are inclusive and `choices` bound a text; `rule` is what else a text
    must obey, and returns it in its canonical form. `broker_keys` are the broker's settings that
    hold for topics without an override, strongest first; `topic_key` is the reverse, for a broker's
    row. A `nullable` setting has no value unless one is set.
    """

    key: str
    kind: Kind
    default: str
    doc: str
    minimum: int | None = None
    maximum: int | None = None
    choices: tuple[str, ...] = ()
    rule: Callable[[str], str] | None = None
    secret: bool = False  # its value is not shown
    scope: Scope = Scope.NODE
    effect: Effect = Effect.EFFECTIVE
    nullable: bool = False
    broker_keys: tuple[str, ...] = ()
    topic_key: str = ""

    @property
    def is_effective(self) -> bool:
        """Whether the broker obeys its value."""
        return self.effect is Effect.EFFECTIVE

    @property
    def is_read_only(self) -> bool:
        """Whether clients cannot give it another value."""
        return self.effect in {Effect.FIXED, Effect.READ_ONLY}

    @property
    def is_secret(self) -> bool:
        """Whether its value is hidden."""
        return self.secret or self.kind is Kind.PASSWORD

    @property
    def accepted(self) -> str:
        """The accepted values in words; empty if the kind is enough."""
        if self.kind in ADMIN_KINDS:
            return self._accepted_by_administration()
        if self.choices:
            return ", ".join(self.choices)
        low = "" if self.minimum is None else format_value(self.kind, self.minimum)
        high = "" if self.maximum is None else format_value(self.kind, self.maximum)
        if low and high:
            return f"{low} to {high}"
        return f"at least {low}" if low else ""

    def parse(self, text: str) -> Value:
        """Return the value that a text stands for, within the row's bounds; InvalidValue."""
        if self.kind in ADMIN_KINDS:
            return self._parse_administration(text)
        if not text.strip():
            if self.default:
                raise InvalidValue("must not be empty")
            return None
        value = parse_value(self.kind, text)
        if self.choices and value not in self.choices:
            raise InvalidValue(f"expected one of {self.accepted}")
        if not self._is_in_range(value):
            raise InvalidValue(f"must be {self.accepted}")
        return value

    def check(self, text: str) -> str:
        """Return the canonical text of a value that a client sets, or raise InvalidSetting."""
        if self.is_read_only and self.scope is Scope.BROKER:
            raise InvalidSetting(f"{self.key} is not changed while the server runs: {self.doc}")
        if self.effect is Effect.FIXED:
            if text.strip().lower() != self.default.lower():
                raise InvalidSetting(f"{self.key}: only {self.default!r} is served: {self.doc}")
            return self.default
        try:
            return format_value(self.kind, self.parse(text))
        except InvalidValue as error:
            raise InvalidSetting(f"{self.key}: {error}") from error

    def _parse_administration(self, text: str) -> Value:
        try:
            value = parse_value(self.kind, text)
        except InvalidValue as error:
            raise InvalidValue(f"{self.accepted} is needed") from error
        if (self.choices and value not in self.choices) or not self._is_in_range(value):
            raise InvalidValue(f"{self.accepted} is needed")
        return value if self.rule is None else self._apply_rule(value)

    def _apply_rule(self, value: Value) -> Value:
        assert self.rule is not None
        return parse_value(self.kind, self.rule(format_value(self.kind, value)))

    def _is_in_range(self, value: Value) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return True
        low, high = self._range()
        return (low is None or value >= low) and (high is None or value <= high)

    def _range(self) -> tuple[int | None, int | None]:
        """The bounds; those of the integer type where the row has none."""
        widest = INTEGER_MAX.get(self.kind)
        if widest is None:
            return self.minimum, self.maximum
        low = -widest - 1 if self.minimum is None else self.minimum
        return low, widest if self.maximum is None else self.maximum

    def _accepted_by_administration(self) -> str:
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        if self.kind is Kind.BOOLEAN:
            return "true or false"
        low, high = self._range()
        if self.kind in INTEGER_MAX:
            return f"an integer from {low} to {high}"
        return f"a number from {low} to {high}" if self.kind is Kind.DOUBLE else ""


def list_values(key: str, layers: Iterable[tuple[S, Mapping[str, V]]]) -> list[tuple[S, V]]:
    """Return each layer's value of a setting, in the order of the layers.

    Layers are given strongest first: the first value in the result is the effective one.
    """
    return [(source, values[key]) for source, values in layers if key in values]


# -- rules of single settings: return the canonical text or raise InvalidValue


def check_cleanup_policy(text: str) -> str:
    """Check `cleanup.policy`: no, one or both policies."""
    policies = [each.strip().lower() for each in text.split(",")] if text.strip() else []
    if not set(policies) <= {COMPACT, DELETE}:
        raise InvalidValue(f"{COMPACT}, {DELETE} or both, with a comma, are needed")
    return ",".join(dict.fromkeys(policies))


def check_gzip_level(text: str) -> str:
    """Check a compression level of gzip; -1 is gzip's own default."""
    if text == "0":
        raise InvalidValue("-1 or a level from 1 to 9 is needed")
    return text


def check_replicas(text: str) -> str:
    """Check a list of replicas to throttle."""
    if text not in {"", "*", "none"} and not _REPLICAS.fullmatch(text):
        raise InvalidValue("partition:node, with commas, or * is needed")
    return text


def check_format_version(text: str) -> str:
    """Check the name of a message format."""
    if not _FORMAT_VERSION.fullmatch(text):
        raise InvalidValue("a version of Kafka like 3.0-IV1 is needed")
    return text


_REPLICAS = re.compile(r"\d{1,9}:\d{1,9}(?:\s*,\s*\d{1,9}:\d{1,9})*")
_FORMAT_VERSION = re.compile(r"(?:0\.(?:8|9|10|11)|[1-3])\.\d{1,2}(?:\.\d{1,2})?(?:-IV\d)?")
