"""Rates of a partition: two buckets, the tighter one decides; a changed rate ends the wait."""

from __future__ import annotations

import pytest

from trilogue.broker.errors import InvalidSetting
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
    first = update_rates(None, Rate(1), None, None)
    assert first is not None
    assert first.publish is not None
    assert first.publish.count(10, 0, NOW_S) > 8

    same = update_rates(first, Rate(1), Rate(5), None)
    assert same is not None
    assert same.publish is first.publish
    assert update_rates(same, None, None, None) is None
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


def test_a_rate_relative_to_the_publish_rate_is_refused():
    value = {"dispatchThrottlingRateInMsg": 5, "relativeToPublishRate": True}
    with pytest.raises(InvalidSetting, match="relativeToPublishRate"):
        check_policy("dispatchRate", PolicyLevel.TOPIC, value)
