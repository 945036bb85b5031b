"""Plans of offsets: nothing skipped, nothing twice, limits kept, small partitions not starved."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trilogue.spark.errors import OptionError
from trilogue.spark.offsets import (
    Range,
    admit,
    align,
    from_json,
    keep_positions,
    ranges,
    to_json,
    wanted,
)
from trilogue.spark.protocols.positions import join_position

partitions = st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 3))
offset_maps = st.dictionaries(partitions, st.integers(0, 1000), min_size=1)


@given(offset_maps, offset_maps, st.none() | st.integers(1, 20))
def test_ranges_cover_every_offset_once(start, end, minimum):
    expected = {
        (*key, offset) for key, last in end.items() for offset in range(start.get(key, 0), last)
    }

    planned = ranges(start, end, minimum)

    covered = [(one.topic, one.partition, offset) for one in planned for offset in range(*one[2:])]
    assert len(covered) == len(set(covered))
    assert expected == set(covered)
    assert len(planned) >= min(minimum or 0, len(expected))


@given(offset_maps, offset_maps, st.integers(1, 2000))
@example({("a", 0): 0}, {("a", 0): 4, ("a", 1): 1, ("a", 2): 1}, 3)
def test_admission_moves_forward_within_the_end(start, ends, rows):
    latest = {key: max(end, start.get(key, 0)) for key, end in ends.items()}

    moved = admit(start, latest, rows)

    steps = {key: moved[key] - start.get(key, 0) for key in latest}
    lags = {key: latest[key] - start.get(key, 0) for key in latest}
    assert all(0 <= steps[key] <= lags[key] for key in latest)
    assert all(steps[key] >= 1 for key in latest if lags[key])
    assert sum(steps.values()) <= max(rows, sum(1 for lag in lags.values() if lag))


def test_admission_shares_in_proportion_to_lag():
    moved = admit({}, {("t", 0): 900, ("t", 1): 100}, 100)

    assert moved == {("t", 0): 90, ("t", 1): 10}


@given(offset_maps, st.dictionaries(st.sampled_from(["a", "b"]), st.text("0f", min_size=1)))
def test_checkpoints_come_back_as_they_were(offsets, ids):
    known = {topic: one for topic, one in ids.items() if topic in {name for name, _ in offsets}}

    assert from_json(to_json(offsets, ids)) == (offsets, known)


def test_a_checkpoint_of_spark_s_own_connector_is_read():
    assert from_json({"t": {"0": 23, "1": 5}}) == ({("t", 0): 23, ("t", 1): 5}, {})


def test_one_bound_is_for_all_partitions_and_a_map_names_each():
    assert wanted("o", {"t": {0: 5, 1: -2}}, [("t", 0), ("t", 1)]) == {("t", 0): 5, ("t", 1): -2}
    assert wanted("o", -1, [("t", 0)]) == {("t", 0): -1}


@pytest.mark.parametrize(
    ("bounds", "reported"),
    [
        ({"t": {0: 5}}, "'startingOffsets' does not name partition 1 of 't'"),
        ({"t": {0: 5, 1: 5, 2: 5}}, "names partition 2 of 't', which is not read"),
        ({"t": {0: 5, 1: 5}, "misspelt": {0: 1}}, "names partition 0 of 'misspelt'"),
    ],
)
def test_a_map_that_leaves_out_or_adds_a_partition_is_refused(bounds, reported):
    with pytest.raises(OptionError, match=reported):
        wanted("startingOffsets", bounds, [("t", 0), ("t", 1)])


@given(offset_maps, offset_maps, st.integers(1, 100), st.none() | st.integers(1, 20))
def test_no_range_is_longer_than_allowed(start, end, most, minimum):
    planned = ranges(start, end, minimum, most)

    assert all(0 < one.end - one.start <= most for one in planned)
    assert sum(one.end - one.start for one in planned) == sum(
        max(0, last - start.get(key, 0)) for key, last in end.items()
    )


def test_a_long_range_is_split_more_than_a_short_one():
    planned = ranges({}, {("t", 0): 90, ("t", 1): 10}, 4)

    assert Range("t", 1, 0, 10) in planned
    assert len(planned) >= 4


@pytest.mark.parametrize(
    ("start", "latest", "rows", "expected"),
    [
        (0, 280, 100, 84),
        (56, 280, 1, 84),
        (56, 280, 1_000, 280),
        (280, 280, 5, 280),
        (0, 281, 100, 100),
        (1, 280, 100, 101),
    ],
)
def test_limits_are_at_whole_steps_of_a_log_that_counts_in_them(start, latest, rows, expected):
    begin, end = {("t", 0): start}, {("t", 0): latest}

    assert align(begin, end, admit(begin, end, rows), 28) == {("t", 0): expected}


def test_a_partition_without_a_message_keeps_the_position_in_its_ledger():
    read = {("a", 0): join_position(7, 3), ("b", 0): join_position(7, 3), ("c", 0): 9}
    latest = {("a", 0): 0, ("b", 0): join_position(8, 1), ("c", 0): 0, ("new", 0): 0}

    assert keep_positions(read, latest) == {**latest, ("a", 0): join_position(7, 3)}
