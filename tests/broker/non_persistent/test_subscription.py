"""Which consumer of a subscription gets a message of a non-persistent topic."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trilogue.broker.errors import SubscriptionBusy
from trilogue.broker.non_persistent.subscription import NonPersistentSubscription
from trilogue.broker.quotas.topic_rates import PartitionRates, Rate
from trilogue.broker.subscriptions.consumer import KEYLESS, SubscriptionConsumer
from trilogue.broker.subscriptions.murmur import key_hash
from trilogue.broker.subscriptions.subscription import SubscriptionType

EXCLUSIVE, SHARED = SubscriptionType.EXCLUSIVE, SubscriptionType.SHARED
FAILOVER, KEY_SHARED = SubscriptionType.FAILOVER, SubscriptionType.KEY_SHARED


def make_subscription() -> NonPersistentSubscription:
    return NonPersistentSubscription("s", durable=True, partition_index=-1, hashing=True, now_s=0.0)


def make_consumer(name: str, demand: int = 10, priority: int = 0) -> SubscriptionConsumer:
    return SubscriptionConsumer(name, demand=demand, priority=priority)


def offer(
    subscription: NonPersistentSubscription,
    messages: int = 1,
    key: int = KEYLESS,
    rates: PartitionRates | None = None,
) -> str:
    """The name of the consumer that gets the messages; "" when they are dropped."""
    member = subscription.offer(messages, 10 * messages, key, rates, 0.0)
    return "" if member is None else member.name


def test_messages_beyond_the_permits_are_dropped_and_counted():
    subscription = make_subscription()
    subscription.join(make_consumer("a", demand=2), EXCLUSIVE)

    assert [offer(subscription) for _ in range(4)] == ["a", "a", "", ""]
    assert (subscription.sent.messages, subscription.dropped.messages) == (2, 2)
    assert subscription.dropped.size == 20


def test_a_subscription_without_consumers_drops():
    assert offer(make_subscription(), 5) == ""


def test_a_batch_may_overdraw_the_permits_once():
    subscription = make_subscription()
    subscription.join(make_consumer("a", demand=1), EXCLUSIVE)

    assert [offer(subscription, 5), offer(subscription, 1)] == ["a", ""]


def test_shared_consumers_take_turns_and_those_without_permits_are_passed():
    subscription = make_subscription()
    for name, demand in (("a", 2), ("b", 1), ("c", 2)):
        subscription.join(make_consumer(name, demand), SHARED)

    assert [offer(subscription) for _ in range(6)] == ["a", "b", "c", "a", "c", ""]


def test_shared_consumers_of_a_lower_priority_wait_for_the_others():
    subscription = make_subscription()
    subscription.join(make_consumer("later", priority=1), SHARED)
    subscription.join(make_consumer("first", demand=2), SHARED)

    assert [offer(subscription) for _ in range(3)] == ["first", "first", "later"]


def test_failover_has_one_active_consumer_until_it_leaves():
    subscription = make_subscription()
    first, second = make_consumer("a"), make_consumer("b")
    subscription.join(second, FAILOVER)
    subscription.join(first, FAILOVER)

    assert (subscription.active, offer(subscription)) == (first, "a")
    subscription.remove(first)
    assert (subscription.active, offer(subscription)) == (second, "b")


def test_a_key_stays_with_its_consumer_also_when_that_has_no_permits():
    subscription = make_subscription()
    consumers = [make_consumer(name, 100) for name in "abc"]
    for each in consumers:
        subscription.join(each, KEY_SHARED)
    keys = [key_hash(b"%d" % number) for number in range(40)]
    owners = {key: offer(subscription, key=key) for key in keys}

    assert {offer(subscription, key=key) == owners[key] for key in keys} == {True}
    assert set(owners.values()) == {"a", "b", "c"}
    consumers[0].demand = 0
    of_first = next(key for key, owner in owners.items() if owner == "a")
    assert offer(subscription, key=of_first) == ""


def test_kinds_do_not_mix():
    subscription = make_subscription()
    subscription.join(make_consumer("a"), SHARED)

    with pytest.raises(SubscriptionBusy):
        subscription.join(make_consumer("b"), FAILOVER)


def test_messages_above_the_dispatch_rate_are_dropped():
    subscription = make_subscription()
    subscription.join(make_consumer("a", 1_000), EXCLUSIVE)
    rates = PartitionRates(None, None, Rate(messages=10))

    taken = [offer(subscription, rates=rates) for _ in range(100)]

    assert 10 <= taken.count("a") <= 21
    assert subscription.dropped.messages == taken.count("")


@given(
    kind=st.sampled_from([EXCLUSIVE, FAILOVER, SHARED, KEY_SHARED]),
    demands=st.lists(st.integers(0, 6), max_size=3),
    entries=st.lists(st.tuples(st.integers(1, 3), st.integers(0, 9)), max_size=12),
)
def test_several_entries_are_shared_out_as_one_after_the_other(kind, demands, entries):
    counts = [count for count, _ in entries]
    keys = [key_hash(b"%d" % key) for _, key in entries]
    both = make_subscription(), make_subscription()
    for subscription in both:
        for number, demand in enumerate(demands if kind is not EXCLUSIVE else demands[:1]):
            subscription.join(make_consumer(f"c{number}", demand), kind)
    one_by_one, together = both

    taken = [offer(one_by_one, count, key) for count, key in zip(counts, keys, strict=True)]
    shares = together.share_out(counts, [10 * count for count in counts], keys, None, 0.0)

    found = {index: each.name for each, indexes in shares.items() for index in indexes}
    assert taken == [found.get(index, "") for index in range(len(entries))]
    assert state_of(one_by_one) == state_of(together)


def state_of(subscription: NonPersistentSubscription) -> list[object]:
    counters = subscription.sent, subscription.dropped
    return [(each.demand, each.messages_out, each.entries_out, each.bytes_out)
            for each in subscription.members] + [
        (each.messages, each.size) for each in counters]  # fmt: skip
