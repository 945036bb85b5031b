"""Plans of offsets: nothing skipped, nothing twice, limits kept, small partitions not starved."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trilogue.spark.offsets import Range, admit, from_json, ranges, to_json, wanted

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


@given(offset_maps)
def test_checkpoints_come_back_as_they_were(offsets):
    assert offsets == from_json(to_json(offsets))


def test_bounds_fill_in_the_default():
    assert wanted({"t": {0: 5}}, [("t", 0), ("t", 1)], -2) == {("t", 0): 5, ("t", 1): -2}
    assert wanted(-1, [("t", 0)], -2) == {("t", 0): -1}


def test_a_long_range_is_split_more_than_a_short_one():
    planned = ranges({}, {("t", 0): 90, ("t", 1): 10}, 4)

    assert Range("t", 1, 0, 10) in planned
    assert len(planned) >= 4
