"""Filters of a query that narrow what a batch reads: partitions, offsets, the first time.

Spark gives a reader filters only with spark.sql.python.filterPushdown.enabled, and refuses a reader
that takes them without it; so the option `pushFilters` switches them on.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from trilogue.spark.offsets import Offsets, Partition

if TYPE_CHECKING:
    from trilogue.spark.topic_lookup import TopicLookup

COMPARISONS: dict[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: operator.eq,
    EqualNullSafe: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    In: lambda found, wanted: found in wanted,
    StringStartsWith: str.startswith,
}
EQUALITIES = (EqualTo, EqualNullSafe)
NEVER_NULL = ("topic", "partition", "offset")
OF_PARTITIONS = ("topic", "partition")
ALL_COLUMNS = (*OF_PARTITIONS, "offset", "timestamp")


class ReadFilter:
    """The filters that a read obeys; Spark applies the others to its rows.

    `columns`: those of which conditions are taken. By other protocols than Kafka's an offset may
    be null, and times are found by when a message was published, which its column need not have.
    """

    def __init__(self, columns: tuple[str, ...] = ALL_COLUMNS) -> None:
        self._columns = columns
        self._conditions: list[tuple[int, type[Filter], Any]] = []
        self._first = 0
        self._end: int | None = None
        self._first_ms: int | None = None

    def add(self, wanted: Filter) -> bool:
        """Narrow the read; return whether no row that is read fails the filter."""
        path: tuple[str, ...] = getattr(wanted, "attribute", ())
        if len(path) != 1 or path[0] not in self._columns:
            return False
        if isinstance(wanted, IsNotNull):
            return path[0] in NEVER_NULL
        value = getattr(wanted, "value", None)
        if value is None or type(wanted) not in COMPARISONS:
            return False
        match path[0]:
            case "topic" | "partition" as name:
                self._conditions.append((0 if name == "topic" else 1, type(wanted), value))
                return True
            case "offset" if isinstance(value, int):
                return self._add_offset(wanted, value)
            case "timestamp" if isinstance(value, datetime):
                self._add_time(wanted, value)
        return False  # Spark applies it, too: times of messages are in no order

    def _add_offset(self, wanted: Filter, value: int) -> bool:
        low = {GreaterThan: value + 1, GreaterThanOrEqual: value}.get(type(wanted))
        high = {LessThan: value, LessThanOrEqual: value + 1}.get(type(wanted))
        if isinstance(wanted, EQUALITIES):
            low, high = value, value + 1
        if low is not None:
            self._first = max(self._first, low)
        if high is not None:
            self._end = high if self._end is None else min(self._end, high)
        return low is not None or high is not None

    def _add_time(self, wanted: Filter, value: datetime) -> None:
        """Start at the first message that is as late. Where a range ends no time decides."""
        if isinstance(wanted, (GreaterThan, GreaterThanOrEqual, *EQUALITIES)):
            time_ms = int(value.timestamp() * 1000)
            self._first_ms = max(time_ms, self._first_ms or 0)

    def select_partitions(self, partitions: Iterable[Partition]) -> list[Partition]:
        """Return the partitions of which a row can pass."""
        return [
            each
            for each in partitions
            if all(
                COMPARISONS[kind](each[column], value) for column, kind, value in self._conditions
            )
        ]

    def narrow(self, at: TopicLookup, start: Offsets, end: Offsets) -> tuple[Offsets, Offsets]:
        """Return the part of [start, end) of the selected partitions that can pass."""
        selected = self.select_partitions(end)
        first = {key: max(start[key], self._first) for key in selected}
        if self._first_ms is not None:
            times = at.at_times(dict.fromkeys(selected, self._first_ms))
            first = {
                key: end[key] if times[key] < 0 else max(offset, times[key])
                for key, offset in first.items()
            }
        last = {key: end[key] if self._end is None else min(end[key], self._end) for key in first}
        return first, last
