"""Acked offsets against the simplest model there is: a set of numbers."""

from __future__ import annotations

from random import Random
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trilogue.broker.cursors.position import Position

END = 60
OFFSETS = st.integers(0, END)
MOVES = st.one_of(
    st.tuples(st.just("ack"), OFFSETS, OFFSETS),
    st.tuples(st.just("ack"), OFFSETS, st.none()),
    st.tuples(st.just("until"), OFFSETS, st.none()),
    st.tuples(st.just("reset"), OFFSETS, st.none()),
    st.tuples(st.just("pack"), st.none(), st.none()),
)


def runs(numbers: set[int]) -> list[tuple[int, int]]:
    """The runs of a set, as half-open ranges."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and found[-1][1] == number:
            found[-1][1] = number + 1
        else:
            found.append([number, number + 1])
    return [(start, end) for start, end in found]


@given(OFFSETS, st.lists(MOVES, max_size=40))
def test_acked_offsets_are_a_set_of_numbers(mark, moves):
    acked, model = Position(mark), set(range(mark))
    for name, first, second in moves:
        before = set(model)
        match name:
            case "ack":
                end = first + 1 if second is None else second
                model |= set(range(first, end))
                assert acked.ack(first, end) == (model != before)
            case "until":
                model |= set(range(first))
                assert acked.ack_until(first) == (model != before)
            case "reset":
                model = set(range(first))
                acked.reset(first)
            case "pack":
                packed = acked.pack_ranges(1_000)
                acked = Position(acked.mark)
                acked.unpack_ranges(packed)

        expected = runs(model)
        below = expected[0][1] if expected and expected[0][0] == 0 else 0
        above = [each for each in expected if each[0] >= below and each[0] != 0]
        assert (acked.mark, acked.ranges()) == (below, above)
        assert acked.range_count == len(above)
        assert acked.acked_above == len(model) - below
        for offset in range(END + 2):
            assert acked.contains(offset) == (offset in model)
            rest = range(offset, END + 3)
            assert acked.first_missing(offset) == next(at for at in rest if at not in model)
        for start, end in ((0, END), (below, END), (below + 1, END), (7, 31), (31, 7)):
            missing = {at for at in range(start, end) if at not in model}
            assert acked.missing(start, end) == runs(missing)


def test_only_the_lowest_ranges_are_packed_up_to_a_limit():
    acked = Position(5)
    for offset in range(10, 30, 2):
        acked.ack(offset, offset + 1)

    kept = Position(5)
    kept.unpack_ranges(acked.pack_ranges(3))

    assert kept.ranges() == [(10, 11), (12, 13), (14, 15)]
    assert acked.pack_ranges(1).hex() == "000000000000000a" + "000000000000000b"


@pytest.mark.parametrize(
    "numbers",
    [(10, 9), (10, 10), (5, 9), (4, 9), (10, 12, 15, 14), (10, 12, 13, 13), (10, 12, 12, 13)],
)
def test_ranges_that_cannot_be_are_refused(numbers):
    half = len(numbers) // 2
    columns = numbers if half == 1 else (*numbers[::2], *numbers[1::2])
    packed = b"".join(each.to_bytes(8, "big") for each in columns)
    with pytest.raises(ValueError, match="after"):
        Position(5).unpack_ranges(packed)


def test_ranges_of_a_wrong_size_are_refused():
    with pytest.raises(ValueError, match="24 bytes"):
        Position(5).unpack_ranges(bytes(24))


@pytest.mark.parametrize("order", ["forward", "backward", "random"])
def test_a_hundred_thousand_holes_are_made_and_closed_quickly(order):
    offsets = list(range(1, 200_001, 2))
    if order == "backward":
        offsets.reverse()
    elif order == "random":
        Random(7).shuffle(offsets)
    acked = Position()
    began = process_time()

    for offset in offsets:
        acked.ack(offset, offset + 1)
    assert (acked.mark, acked.range_count, acked.acked_above) == (0, 100_000, 100_000)
    assert acked.first_missing(100_001) == 100_002
    for offset in offsets:
        acked.ack(offset - 1, offset)

    assert (acked.mark, acked.range_count, acked.acked_above) == (200_000, 0, 0)
    assert process_time() - began < 12  # about 0.3 s in order, 2 s at random
