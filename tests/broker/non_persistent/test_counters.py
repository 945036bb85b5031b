"""Counts and rates of non-persistent topics."""

from __future__ import annotations

from trilogue.broker.non_persistent.counters import PERIOD_S, TrafficCounter


def test_a_rate_is_of_the_last_complete_period():
    counter = TrafficCounter(0.0)
    counter.count(30, 300, 1.0)
    counter.count(30, 300, 10.0)

    assert counter.rates(20.0) == (3.0, 30.0)
    assert counter.rates(PERIOD_S) == (1.0, 10.0)
    assert counter.rates(PERIOD_S + 30) == (1.0, 10.0)
    assert (counter.messages, counter.size) == (60, 600)


def test_a_rate_is_zero_after_a_period_without_traffic():
    counter = TrafficCounter(0.0)
    counter.count(60, 600, 1.0)

    assert counter.rates(2 * PERIOD_S) == (0.0, 0.0)
    assert counter.messages == 60
