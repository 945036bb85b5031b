"""Rates of a partition: two buckets, the tighter one decides; a changed rate ends the wait."""

from __future__ import annotations

import pytest

from trilogue.broker.quotas.topic_rates import (
    ROOM_MAX,
    PartitionRates,
    Rate,
    RateLimiter,
    SubscriptionLimiter,
    update_rates,
)
from trilogue.broker.topics.policies import PolicyLevel, check_policy, resolve_policies

NOW_S = 1_000.0


def nothing_published() -> tuple[int, int]:
    """Totals of a partition that has no messages."""
    return 0, 0


def test_the_tighter_of_messages_and_bytes_decides():
    limiter = RateLimiter(Rate(messages=10, size=1_000))

    assert limiter.count(5, 100, NOW_S) == 0.0
    assert limiter.count(0, 1_900, NOW_S) == pytest.approx(1.0)  # bytes: 1,000 too much
    assert limiter.count(25, 0, NOW_S) == pytest.approx(2.0)  # messages: 20 too much
    assert limiter.wait_s(NOW_S + 1.5) == pytest.approx(0.5)
    assert limiter.wait_s(NOW_S + 2.0) == 0.0
    assert limiter.waits == 1


def test_a_period_is_what_may_be_used_at_once():
    limiter = RateLimiter(Rate(messages=100, period_s=10))

    assert limiter.count(100, 0, NOW_S) == 0.0
    assert limiter.count(10, 0, NOW_S) == pytest.approx(1.0)


def test_an_equal_rate_keeps_the_debt_and_another_one_ends_it():
    first = update_rates(None, Rate(1), None, None, nothing_published)
    assert first is not None
    assert first.publish is not None
    assert first.publish.count(10, 0, NOW_S) > 8

    same = update_rates(first, Rate(1), Rate(5), None, nothing_published)
    assert same is not None
    assert same.publish is first.publish
    assert update_rates(same, None, None, None, nothing_published) is None
    assert first.publish.wait_s(NOW_S) == 0.0


def test_a_subscription_waits_for_its_own_rate_and_that_of_the_partition():
    rates = PartitionRates(None, RateLimiter(Rate(4)), Rate(2))
    mine, other = SubscriptionLimiter(), SubscriptionLimiter()

    assert mine.count(rates, 3, 0, NOW_S) == pytest.approx(0.5)
    assert other.wait_s(rates, NOW_S) == 0.0
    assert other.count(rates, 2, 0, NOW_S) == pytest.approx(0.25)
    assert other.room(rates, NOW_S) == (1, ROOM_MAX)
    assert mine.room(rates, NOW_S + 1.0) == (1, ROOM_MAX)
    assert mine.room(rates, NOW_S + 9.0) == (2, ROOM_MAX)


def test_a_topic_without_a_rate_of_its_own_has_that_of_its_namespace():
    of_namespace = {"publishRate": {"publishThrottlingRateInMsg": 7}}
    unset = {"publishRate": {"publishThrottlingRateInMsg": -1, "publishThrottlingRateInByte": 0}}
    own = {"publishRate": {"publishThrottlingRateInMsg": 9}}

    assert resolve_policies(unset, of_namespace).publish_rate == Rate(7)
    assert resolve_policies(own, of_namespace).publish_rate == Rate(9)
    assert resolve_policies({}, unset).publish_rate is None


def test_a_relative_rate_comes_on_top_of_the_publish_rate():
    published = [1_000, 0]  # before the limiter measures
    dispatch = Rate(messages=5, relative=True)
    rates = update_rates(None, None, dispatch, None, lambda: (published[0], published[1]))
    assert rates is not None
    assert rates.dispatch is not None

    assert rates.dispatch.count(15, 0, NOW_S) == pytest.approx(2.0)  # 10 too much, at 5 a second
    published[0] += 20
    assert rates.dispatch.wait_s(NOW_S + 0.9) == pytest.approx(1.1)  # measured once a second
    assert rates.dispatch.count(20, 0, NOW_S + 1.0) == pytest.approx(1.0)  # 25 too much, at 25
    assert rates.dispatch.wait_s(NOW_S + 2.0) == 0.0
    assert rates.dispatch.count(5, 0, NOW_S + 2.0) == pytest.approx(1.0)  # 0 published: 5 again


def test_each_subscription_has_a_relative_rate_of_its_own():
    published = [0, 0]
    subscription = Rate(messages=5, size=100, relative=True)
    rates = update_rates(None, None, None, subscription, lambda: (published[0], published[1]))
    assert rates is not None
    mine, other = SubscriptionLimiter(), SubscriptionLimiter()

    assert mine.room(rates, NOW_S) == (5, 100)
    assert other.room(rates, NOW_S) == (5, 100)
    published[:] = [10, 5_000]
    assert mine.count(rates, 5, 100, NOW_S + 1.0) == 0.0
    assert mine.room(rates, NOW_S + 2.0) == (5, 100), "nothing was published in that second"
    published[1] += 900
    assert mine.room(rates, NOW_S + 3.0) == (5, 100), "the rate is that of the second before"
    published[1] += 900
    assert mine.room(rates, NOW_S + 4.0) == (5, 1_000)


def test_a_policy_names_a_relative_rate():
    value = {"dispatchThrottlingRateInMsg": 5, "relativeToPublishRate": True}
    checked = check_policy("dispatchRate", PolicyLevel.TOPIC, value)
    policies = resolve_policies({"dispatchRate": checked}, {})
    assert policies.dispatch_rate == Rate(5, relative=True)
