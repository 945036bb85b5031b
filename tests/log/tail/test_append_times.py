"""Append times of a tail: a search passes over nothing, whatever the broker's clock does."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trilogue.log.tail.append_times import STEP, AppendTimes

STEPS = st.lists(st.tuples(st.integers(1, 2 * STEP), st.integers(0, 50)), min_size=1, max_size=20)


@given(frames=STEPS, wanted=st.integers(0, 51), dropped=st.integers(0, 20))
def test_nothing_of_a_time_or_later_is_passed_over_whatever_the_clock_does(
    frames: list[tuple[int, int]], wanted: int, dropped: int
):
    times, ends, end = AppendTimes(), [], 0
    for size, time_ms in frames:
        end += size
        ends.append(end)
        times.note(end, time_ms)
    start = 0
    if dropped < len(frames):
        start = ends[dropped]
        times.drop_before(start, end)
    right = [
        ends[at] - frames[at][0]
        for at in range(len(frames))
        if frames[at][1] >= wanted and ends[at] > start
    ]

    found = times.find_position(wanted, start, end)

    if right:
        assert found is not None
        assert start <= found <= right[0]
        assert found in {start, *ends}
    else:  # the last step may remember what was dropped of it
        assert found is None or found >= (ends[-2] if len(ends) > 1 else 0) - 2 * STEP


def test_a_clock_that_was_ahead_spoils_its_own_step_only():
    times = AppendTimes()
    for number, time_ms in enumerate((10, 5000, 20, 30)):
        times.note((number + 1) * STEP, time_ms)

    assert times.find_position(100, 0, 4 * STEP) == STEP
    assert times.find_position(100, 2 * STEP, 4 * STEP) is None
    assert times.find_position(15, 2 * STEP, 4 * STEP) == 2 * STEP
    times.drop_before(3 * STEP, 4 * STEP)
    assert times._ends is not None
    assert len(times._ends) == 1
    times.drop_before(4 * STEP, 4 * STEP)
    assert times.find_position(0, 4 * STEP, 5 * STEP) is None
