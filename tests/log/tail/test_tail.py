from __future__ import annotations

import struct
from bisect import bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.log.rig import make_entry
from trilogue.log.errors import TailFull
from trilogue.log.tail.chunks import Budget
from trilogue.log.tail.tail import COPIED_BELOW, LARGEST_CHUNK, SMALLEST_CHUNK, Tail

Shape = tuple[int, int, int]  # size, span, time
SHAPES = st.lists(
    st.tuples(
        st.one_of(st.integers(61, 300), st.integers(61, 9000), st.integers(30_000, 80_000)),
        st.integers(1, 4),
        st.integers(0, 50),
    ),
    min_size=1,
    max_size=60,
)


class Filled:
    """A tail and a list of what is in it."""

    def __init__(self, shapes: list[Shape], budget: Budget | None = None) -> None:
        self.budget = budget or Budget(1 << 40, lambda: None)
        self.tail = Tail(self.budget)
        self.bases: list[int] = []
        self.ends: list[int] = []
        self.positions: list[int] = []
        self.times: list[int] = []
        self.data = b""
        for at, (size, span, time_ms) in enumerate(shapes):
            entry = make_entry(size, span=span, time_ms=time_ms, fill=at)
            base = self.ends[-1] if self.ends else 0
            self.positions.append(self.tail.end)
            stored = self.tail.append(entry, size, base, 9, time_ms)
            self.bases.append(base)
            self.ends.append(base + span)
            self.times.append(time_ms)
            assert stored[16:] == entry[16:]
            assert struct.unpack_from(">qii", stored) == (base, size - 12, 9)
            self.data += bytes(stored)

    def read(self, position: int, end: int) -> bytes:
        return b"".join(self.tail.slices(position, end))


@given(SHAPES)
def test_appended_entries_are_read(shapes: list[Shape]) -> None:
    filled = Filled(shapes)

    assert filled.read(0, filled.tail.end) == filled.data
    assert filled.tail.size == len(filled.data)
    assert filled.tail.max_timestamp(filled.tail.end) == max(filled.times)


@given(SHAPES, st.data())
def test_any_offset_is_found(shapes: list[Shape], data: st.DataObject) -> None:
    filled = Filled(shapes)
    offset = data.draw(st.integers(0, filled.ends[-1] + 2))

    at = bisect_right(filled.ends, offset)

    expected = [*filled.positions, filled.tail.end][at]
    assert filled.tail.locate(offset) == expected


@given(SHAPES, st.data())
def test_a_read_is_cut_between_entries(shapes: list[Shape], data: st.DataObject) -> None:
    filled = Filled(shapes)
    start = data.draw(st.sampled_from(filled.positions))
    limit = data.draw(st.integers(start, filled.tail.end))

    end = filled.tail.boundary(start, limit)

    edges = [edge for edge in [*filled.positions, filled.tail.end] if start <= edge <= limit]
    assert end == edges[-1]
    assert filled.read(start, end) == filled.data[start:end]


@given(SHAPES, st.data())
def test_the_first_entry_of_a_time_is_found(shapes: list[Shape], data: st.DataObject) -> None:
    filled = Filled(shapes)
    time_ms = data.draw(st.integers(0, 51))
    at = data.draw(st.integers(0, len(shapes) - 1))
    end = data.draw(st.sampled_from([*filled.positions[at:], filled.tail.end]))

    found = filled.tail.find_time(time_ms, filled.positions[at], end)

    edges = [*filled.positions, filled.tail.end]
    expected = [
        (edges[each], edges[each + 1])
        for each in range(at, len(shapes))
        if filled.times[each] >= time_ms and edges[each] < end
    ]
    assert found == (expected[0] if expected else None)
    visible = [time for time, edge in zip(filled.times, edges, strict=False) if edge < end]
    assert filled.tail.max_timestamp(end) == max(visible, default=-1)


@given(SHAPES, st.data())
def test_dropping_keeps_the_rest_and_what_comes(shapes: list[Shape], data: st.DataObject) -> None:
    filled = Filled(shapes)
    for at in sorted(data.draw(st.lists(st.integers(0, len(shapes)), max_size=3))):
        position = [*filled.positions, filled.tail.end][at]
        filled.tail.drop_before(position)
        assert filled.tail.start == position
        assert filled.read(position, filled.tail.end) == filled.data[position:]
        for later in range(at, len(shapes)):
            assert filled.tail.locate(filled.bases[later]) == filled.positions[later]

    entry = make_entry(100, time_ms=99)
    base, position = filled.ends[-1], filled.tail.end
    filled.tail.append(entry, 100, base, 9, 99)
    assert filled.tail.locate(base) == position
    assert filled.read(position, filled.tail.end)[16:] == entry[16:]
    assert filled.tail.find_time(99, position, filled.tail.end) == (position, position + 100)


def test_dropped_memory_is_free_when_no_reader_holds_it() -> None:
    filled = Filled([(5000, 1, 0)] * 200)
    view = filled.tail.slices(0, 10_000)[-1]
    used = filled.budget.used

    filled.tail.drop_before(filled.tail.end)

    assert 0 < filled.budget.used < used
    assert bytes(view) in filled.data
    del view
    assert filled.budget.used == 0


def test_views_stay_true_while_the_tail_grows() -> None:
    filled = Filled([(5000, 1, 0)])
    (view,) = filled.tail.slices(0, 5000)
    before = bytes(view)

    for _ in range(100):
        filled.tail.append(make_entry(5000, fill=0xEE), 5000, 1, 9, 0)

    assert isinstance(view, memoryview)
    assert bytes(view) == before


def test_small_slices_are_copies_so_that_they_hold_no_chunk() -> None:
    filled = Filled([(COPIED_BELOW - 1, 1, 0), (COPIED_BELOW, 1, 0)])

    small, large = (
        filled.tail.slices(0, COPIED_BELOW - 1)[0],
        filled.tail.slices(COPIED_BELOW - 1, filled.tail.end)[0],
    )

    assert isinstance(small, bytes)
    assert isinstance(large, memoryview)


def test_memory_stays_close_to_stored_bytes() -> None:
    """Few bytes for a partition that hardly speaks; a tenth more than the bytes for a busy one."""
    assert Filled([(168, 1, 0)]).budget.used == SMALLEST_CHUNK
    for shape, most in (((168, 1, 0), 1.2), ((16_384, 1, 0), 1.15), ((70_000, 1, 0), 1.13)):
        filled = Filled([shape] * (4 * LARGEST_CHUNK // shape[0]))
        assert filled.budget.used <= most * len(filled.data)


def test_small_and_large_entries_in_turn_waste_little() -> None:
    filled = Filled([(168, 1, 0), (70_000, 1, 0)] * 30)

    assert filled.budget.used <= 1.15 * len(filled.data)


def test_no_more_memory_than_the_budget_and_nothing_half_done() -> None:
    budget = Budget(100_000, lambda: None)
    filled = Filled([(9000, 1, 0)] * 5, budget)
    while budget.used < budget.limit:
        filled.tail.append(make_entry(9000), 9000, 5, 9, 0)
    end = filled.tail.end
    filled.tail._room = 0  # whatever is left of the last chunk

    with pytest.raises(TailFull):
        filled.tail.append(make_entry(9000), 9000, 5, 9, 0)

    assert filled.tail.end == end
    assert budget.used < 100_000 + 2 * 9000 + 32_768
