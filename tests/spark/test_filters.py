"""Which rows a read leaves out for the filters of a query: none that passes them."""

from __future__ import annotations

import operator
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringStartsWith,
)

from trilogue.spark.filters import ReadFilter

START = {("a", 0): 0, ("a", 1): 10, ("b", 0): 5}
END = {("a", 0): 100, ("a", 1): 20, ("b", 0): 50}


class Times:
    """A lookup whose partitions have a message at each millisecond: offset = time."""

    def at_times(self, times):
        return {key: ms if ms < END[key] else -1 for key, ms in times.items()}


def narrow(*filters):
    made = ReadFilter()
    left = [each for each in filters if not made.add(each)]
    start, end = made.narrow(Times(), START, END)
    return {key: (start[key], end[key]) for key in end}, left


def test_conditions_on_partitions_leave_the_others_out():
    found, left = narrow(
        IsNotNull(("partition",)), EqualTo(("partition",), 0), StringStartsWith(("topic",), "a")
    )
    assert (found, left) == ({("a", 0): (0, 100)}, [])
    assert narrow(In(("topic",), ("b", "c")))[0] == {("b", 0): (5, 50)}
    assert narrow(GreaterThan(("partition",), 1)) == ({}, [])


@pytest.mark.parametrize(
    "unknown",
    [
        Not(EqualTo(("partition",), 0)),
        StringContains(("topic",), "a"),
        EqualTo(("value", "partition"), 0),
        EqualTo(("key",), b"k"),
        EqualNullSafe(("partition",), None),
        In(("offset",), (1, 2)),
        IsNotNull(("timestamp",)),
        LessThan(("timestamp",), datetime(1970, 1, 1, tzinfo=UTC)),
    ],
)
def test_filters_that_no_read_can_use_are_left_to_spark(unknown):
    found, left = narrow(unknown)

    assert found == {key: (START[key], END[key]) for key in END}
    assert left == [unknown]


OPERATORS = {
    EqualTo: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
}
comparison = st.tuples(st.sampled_from(list(OPERATORS)), st.integers(-2, 110))


@given(st.lists(comparison, min_size=1, max_size=4))
def test_offsets_that_are_read_are_those_that_pass(conditions):
    found, left = narrow(*(kind(("offset",), value) for kind, value in conditions))

    assert left == []
    for key, (first, end) in found.items():
        passing = [
            offset
            for offset in range(START[key], END[key])
            if all(OPERATORS[kind](offset, value) for kind, value in conditions)
        ]
        assert list(range(first, end)) == passing


def test_a_read_starts_at_the_first_message_of_a_time_and_spark_looks_again():
    late = GreaterThan(("timestamp",), datetime.fromtimestamp(0.0302, UTC))

    found, left = narrow(late)

    assert left == [late]
    assert found == {("a", 0): (30, 100), ("a", 1): (20, 20), ("b", 0): (30, 50)}
