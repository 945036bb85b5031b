"""Chunks grow with what a partition keeps, whatever the size of its entries."""

from __future__ import annotations

import pytest

from trilogue.log.chunks import Budget
from trilogue.log.tail import Tail


@pytest.mark.parametrize("size", [100, 513, 1_090, 3_000, 9_000, 20_000])
def test_entries_of_one_size_share_chunks_and_waste_little(size):
    budget = Budget(1 << 40, lambda: None)
    tail = Tail(budget)

    for number in range(2_000):
        tail.append(memoryview(bytes(size)), size, number, 0, 0)

    assert len(tail.slices(0, tail.end)) < 2_000 / 5
    assert budget.used < 1.3 * tail.end + (256 << 10)
