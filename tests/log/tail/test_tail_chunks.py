"""Chunks grow with what a partition keeps, whatever the size of its entries."""

from __future__ import annotations

import pytest

from tests.log.rig import make_entry
from trilogue.log.tail.chunks import SLAB_BYTES, Budget
from trilogue.log.tail.tail import Tail


@pytest.mark.parametrize("size", [100, 513, 1_090, 3_000, 9_000, 20_000])
def test_entries_of_one_size_share_chunks_and_waste_little(size):
    budget = Budget(1 << 40, lambda: None)
    tail = Tail(budget)

    for number in range(2_000):
        tail.append(memoryview(bytes(size)), size, number, 0, 0)

    assert len(tail.slices(0, tail.end)) < 2_000 / 5
    open_slab = SLAB_BYTES  # counts whole, and is there once for all partitions
    assert budget.used < 1.3 * tail.end + (256 << 10) + open_slab


def test_small_chunks_are_never_lent_and_counted_until_they_are_dropped():
    budget = Budget(1 << 40, lambda: None)
    tail = Tail(budget)
    for number in range(20):
        tail.append(memoryview(bytes(100)), 100, number, 0, 0)
    found = tail.slices(0, tail.end)
    assert {bytes} == {type(each) for each in found}
    assert budget.used >= 2_000

    tail.drop_before(1_500)
    assert 500 <= budget.used < 2_000
    tail.drop_before(tail.end)

    assert budget.used == 0
    assert found == [bytes(each) for each in found], "what was given out stays"


def test_the_index_still_finds_everything_when_its_beginning_is_dropped():
    tail = Tail(Budget(1 << 40, lambda: None))
    starts = []
    for number in range(600):  # 60 bytes of body: about forty to a mark
        starts.append(tail.end)
        tail.append(make_entry(100, time_ms=1_000 + number), 100, number, 0, 1_000 + number)

    for first in (1, 39, 40, 41, 300, 599):
        tail.drop_before(starts[first])
        for number in range(first, 600, 7):
            assert starts[number] == tail.locate(number)
            assert (starts[number], starts[number] + 100) == tail.find_time(
                1_000 + number, tail.start, tail.end
            )
            assert 1_000 + number == tail.max_timestamp(starts[number] + 100)
        assert starts[first] == tail.locate(0)
        assert starts[first] == tail.find_time(0, tail.start, tail.end)[0]
