"""A histogram that is filled as events happen."""

from __future__ import annotations

from trilogue.node.histogram import Buckets


def test_values_count_at_or_below_each_bound():
    buckets = Buckets((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 9.0):
        buckets.observe(value)

    assert buckets.cumulative() == [("1.0", 2), ("2.0", 3), ("+Inf", 4)]
    assert buckets.total == 12.0
