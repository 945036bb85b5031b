"""Buckets that fill at a rate: what was used is taken always, and then waited for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trilogue.broker.quotas.token_bucket import TokenBucket


def test_tokens_in_the_bucket_are_taken_at_once_and_others_are_awaited():
    meter = TokenBucket(100.0, 2.0)

    assert meter.take_tokens(200, 10.0) == 0
    assert meter.take_tokens(50, 10.0) == 0.5
    assert meter.take_tokens(50, 10.25) == 0.75  # 25 came, 50 went
    assert meter.wait_s(11.0) == 0
    assert meter.take_tokens(10, 11.25) == 0


def test_one_use_may_be_far_more_than_there_is():
    meter = TokenBucket(100.0, 1.0)

    assert meter.take_tokens(10_100, 0.0) == 100.0
    assert meter.wait_s(60.0) == pytest.approx(40.0)


def test_after_a_pause_no_more_is_there_than_the_burst():
    meter = TokenBucket(100.0, 1.0)
    meter.take_tokens(100, 0.0)

    assert meter.take_tokens(100, 3600.0) == 0
    assert meter.take_tokens(1, 3600.0) == 0.01


def test_a_clock_that_stands_or_jumps_back_gives_nothing():
    meter = TokenBucket(100.0, 1.0)
    meter.take_tokens(100, 50.0)

    assert meter.take_tokens(50, 40.0) == 0.5
    assert meter.take_tokens(0, 50.0) == 0.5


uses = st.lists(st.tuples(st.floats(0, 5), st.floats(0, 1_000)), min_size=1, max_size=50)


@given(uses, st.floats(1, 1_000), st.floats(0.1, 10))
def test_client_that_obeys_throttle_times_stays_below_the_rate(uses, rate, burst_s):
    """Over any time from the start: rate x time + burst, and the last use."""
    meter, now, used = TokenBucket(rate, burst_s), 100.0, 0.0
    for pause, amount in uses:
        now += pause
        assert used <= rate * (now - 100.0) + rate * burst_s + 1e-6 * (1 + used)
        used += amount
        now += meter.take_tokens(amount, now)
