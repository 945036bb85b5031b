"""Rates of counters between gatherings, and as /metrics has them."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress

from tests.gateway.loop import on_loop
from tests.gateway.pulsar.rig import Rig
from trilogue.node.metrics.topic_metrics import TopicMetrics
from trilogue.node.metrics.topic_rates import CounterRates


def gather(rates: CounterRates, time_s: float, **values: float) -> dict[str, float]:
    rates.begin(time_s)
    return {name: rates.add(name, value) for name, value in values.items()}


def test_a_rate_is_of_the_time_since_an_earlier_gathering():
    rates = CounterRates()
    assert gather(rates, 100, a=5_000) == {"a": 0}
    assert gather(rates, 110, a=5_100) == {"a": 10}


def test_many_scrapers_see_the_same_rate():
    rates = CounterRates()
    seen = [gather(rates, time_s, a=10 * time_s)["a"] for time_s in range(1, 500, 7)]
    assert seen[0] == 0
    assert set(seen[1:]) == {10}


def test_an_old_burst_is_forgotten_within_two_minutes():
    rates = CounterRates()
    gather(rates, 0, a=0)
    assert gather(rates, 10, a=1_000) == {"a": 100}
    seen = [gather(rates, time_s, a=1_000)["a"] for time_s in range(20, 150, 10)]
    assert seen == sorted(seen, reverse=True)
    assert seen[-1] == 0


def test_a_counter_that_is_new_or_went_back_has_no_rate():
    rates = CounterRates()
    gather(rates, 0, a=10)
    assert gather(rates, 10, a=5, b=100) == {"a": 0, "b": 0}


@on_loop
async def test_rates_of_a_topic_and_of_a_subscription():
    async with Rig() as rig:
        rig.topic("t")
        now_s = 100.0
        metrics = TopicMetrics(rig.broker, rig.gateway, "c", 1_000, monotonic=lambda: now_s)
        peer = await rig.connected()
        await peer.producer("t")
        await peer.request(
            "subscribe", "success", topic="t", subscription="s", subType=1, consumer_id=1
        )
        await metrics.gather()
        for number in range(20):
            peer.send(1, number)
            await peer.answer("send_receipt")
        peer.send_command("flow", consumer_id=1, messagePermits=100)
        for _ in range(20):
            await peer.answer("message")
        now_s = 110.0

        found = {each.name: each.samples[0][1] for each in await metrics.gather()}

        assert found["pulsar_rate_in"] == 2
        assert found["pulsar_rate_out"] == found["pulsar_subscription_msg_rate_out"] == 2
        size = found["pulsar_throughput_out"]
        assert 0 < size <= found["pulsar_throughput_in"]
        assert size == found["pulsar_subscription_msg_throughput_out"]


@on_loop
async def test_others_are_served_while_a_topic_of_many_partitions_is_gathered():
    partitions, iterations = 60, 0

    async def count_iterations():
        nonlocal iterations
        while True:
            iterations += 1
            await asyncio.sleep(0)

    async with Rig() as rig:
        rig.topic("t", partitions)
        clock = itertools.count()  # each look at it is a second later: every step is over
        metrics = TopicMetrics(rig.broker, rig.gateway, "c", 10_000, monotonic=lambda: next(clock))
        counting = asyncio.ensure_future(count_iterations())
        found = await metrics.gather()
        counting.cancel()
        with suppress(asyncio.CancelledError):
            await counting

    (sizes,) = [each.samples for each in found if each.name == "pulsar_storage_size"]
    assert len(sizes) == partitions
    assert iterations >= partitions


@on_loop
async def test_a_subscription_that_goes_during_a_gathering_is_left_out():
    async with Rig() as rig:
        partition = rig.topic("t").partitions[0]
        known, partition_id = rig.broker.subscriptions, partition.partition_id
        for name in ("a", "b", "c"):
            await rig.gateway.wait_for(known.create(partition_id, name, 0))
        stats = rig.gateway.subscriptions.iter_stats(partition)
        names = [next(stats).name]
        await rig.gateway.wait_for(known.delete(partition_id, "b"))
        names += [each.name for each in stats]

    assert names == ["a", "c"]
