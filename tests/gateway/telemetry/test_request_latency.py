"""Which requests are measured, and what their histograms hold."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.pure import load_pure
from trilogue.gateway.telemetry.request_latency import (
    EXACT,
    SAMPLED,
    LatencyHistogram,
    RequestLatencies,
)

PURE = load_pure("trilogue.gateway.telemetry.request_latency")


def make_clock(*times_s: float) -> Callable[[], float]:
    return iter(times_s).__next__


@pytest.mark.parametrize("kind", [LatencyHistogram, PURE.LatencyHistogram])
def test_values_count_at_or_below_each_bound(kind: type[LatencyHistogram]):
    histogram = kind((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 9.0):
        histogram.observe(value)

    assert histogram.cumulative() == [("1.0", 2), ("2.0", 3), ("+Inf", 4)]
    assert histogram.total == 12.0


def test_a_timer_counts_the_time_of_all_requests_that_share_a_reply():
    latencies = RequestLatencies(make_clock(10.0, 10.5, 20.0, 20.5))
    alone = latencies.start("produce", 1)
    assert alone is not None
    alone.stop()
    together = latencies.start("produce", 2)
    assert together is not None
    together.weight += 2
    together.stop()

    found = latencies.histograms["produce"]
    assert found.total == 2.0
    assert dict(found.cumulative())["0.2"] == 0
    assert dict(found.cumulative())["0.5"] == 4


def test_the_number_of_requests_is_kept_when_only_some_are_measured():
    latencies = RequestLatencies(lambda: 0.0)
    requests = EXACT + 100 * SAMPLED
    timers = [latencies.start("fetch", count) for count in range(1, requests + 1)]
    measured = [timer for timer in timers if timer is not None]
    for timer in measured:
        timer.stop()

    assert len(measured) < EXACT + 102
    assert abs(sum(latencies.histograms["fetch"].counts) - requests) < SAMPLED


def test_groups_of_sends_count_each_message():
    latencies = RequestLatencies(lambda: 0.0)
    groups = EXACT + 100 * SAMPLED
    for _ in range(groups):
        timer = latencies.start_group("sends")
        if timer is not None:
            timer.stop(3)

    assert abs(sum(latencies.histograms["sends"].counts) - 3 * groups) < 3 * SAMPLED
