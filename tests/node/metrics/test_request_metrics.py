"""Quantiles of latencies."""

from __future__ import annotations

import pytest

from trilogue.node.metrics.request_metrics import find_quantile


@pytest.mark.parametrize(
    ("counts", "share", "quantile"),
    [
        ([10, 0, 0, 0], 0.5, 0.5),
        ([0, 10, 0, 0], 0.5, 1.5),
        ([5, 4, 1, 0], 0.99, 3.8),
        ([1, 0, 0, 9], 0.5, 4.0),  # above the last bound
        ([0, 0, 0, 0], 0.5, 0.0),
    ],
)
def test_a_quantile_lies_within_its_bucket(counts: list[float], share: float, quantile: float):
    assert find_quantile((1.0, 2.0, 4.0), counts, share) == pytest.approx(quantile)
