"""Rates of topics at the Kafka listener: throttle times for producers, records that wait."""

from __future__ import annotations

import pytest

from tests.gateway.kafka.fetch.test_fetch import bases, fetch, fill, partitions
from tests.gateway.kafka.produce.test_produce import request as produce
from tests.gateway.kafka.quotas.test_metering import is_muted, send_request
from tests.gateway.kafka.rig import Rig, batch, settle, versions
from tests.gateway.loop import on_loop
from tests.waiting import pass_time
from trilogue.broker.quotas.topic_rates import Rate
from trilogue.broker.topics.policies import Policies
from trilogue.gateway.kafka.fetch.dispatch_rates import cut_records


@pytest.mark.parametrize("version", [each for each in versions(0) if each >= 3])
@on_loop
async def test_a_producer_is_given_the_throttle_time_of_its_topics_rate(version):
    """In every version, also where the client has sent the same request before the rate was set."""
    async with Rig() as rig:
        topic = rig.topic("t")
        peer = rig.peer()
        requested = produce("t", batch("x"), topic_id=topic.topic_id)
        for _ in range(3):
            assert (await send_request(peer, requested, version)).throttle_time_ms == 0
        topic.partitions[0].policies = Policies(publish_rate=Rate(messages=1))

        first = await send_request(peer, requested, version)
        second = await send_request(peer, requested, version)

        assert first.throttle_time_ms == 0
        assert 900 < second.throttle_time_ms <= 1_000
        assert is_muted(peer)
        topic.partitions[0].policies = Policies()
        await pass_time(0.6)
        assert not is_muted(peer)


@on_loop
async def test_a_producer_of_another_topic_is_not_throttled():
    async with Rig() as rig:
        rig.topic("free")
        rig.topic("t").partitions[0].policies = Policies(publish_rate=Rate(size=100))
        peer, other = rig.peer(), rig.peer("other")

        limited = await send_request(peer, produce("t", batch("x" * 900)), 7)
        free = await send_request(other, produce("free", batch("x" * 900)), 7)

        assert limited.throttle_time_ms > 5_000
        assert free.throttle_time_ms == 0


@on_loop
async def test_records_over_the_dispatch_rate_wait_and_other_partitions_do_not():
    async with Rig() as rig:
        topic = rig.topic("t", partitions=2)
        await fill(rig, "t", "a", "b", "c", index=0)
        await fill(rig, "t", "d", "e", index=1)
        topic.partitions[0].policies = Policies(dispatch_rate=Rate(messages=1))
        peer = rig.peer()

        one, other = partitions(await peer.request(fetch("t", 0, 0), 12))
        assert (bases(one.records), bases(other.records)) == ([0], [0, 1])
        one, other = partitions(await peer.request(fetch("t", 1, 0), 12))
        assert (bases(one.records), bases(other.records)) == ([1], [0, 1])
        one, other = partitions(await peer.request(fetch("t", 2, 0), 12))
        assert (bases(one.records), one.error_code, one.high_watermark) == ([], 0, 3)
        assert bases(other.records) == [0, 1]


@on_loop
async def test_a_fetch_that_waits_ends_when_the_rate_allows_it():
    async with Rig() as rig:
        topic = rig.topic("t")
        await fill(rig, "t", *"abc")
        topic.partitions[0].policies = Policies(dispatch_rate=Rate(messages=1))
        peer = rig.peer()
        for offset in range(2):
            await peer.request(fetch("t", offset, max_wait_ms=5_000), 12)
        began_s = rig.loop.time()

        (last,) = partitions(await peer.request(fetch("t", 2, max_wait_ms=5_000), 12))

        assert bases(last.records) == [2]
        assert 0.9 < rig.loop.time() - began_s < 2.0


@on_loop
async def test_a_fetch_that_waits_ends_when_the_rate_is_removed():
    async with Rig() as rig:
        topic = rig.topic("t")
        await fill(rig, "t", "x" * 5_000, "y")
        topic.partitions[0].policies = Policies(dispatch_rate=Rate(size=100))
        peer = rig.peer()
        await peer.request(fetch("t", 0, max_wait_ms=5_000), 12)
        peer.send(fetch("t", 1, max_wait_ms=5_000), 12)
        await settle()
        assert peer.answered == 0

        topic.partitions[0].policies = Policies()
        await pass_time(0.6)

        (last,) = partitions(peer.answer())
        assert bases(last.records) == [1]


@on_loop
async def test_each_connection_is_a_subscription_of_its_own():
    async with Rig() as rig:
        topic = rig.topic("t")
        await fill(rig, "t", *"abc")
        topic.partitions[0].policies = Policies(subscription_dispatch_rate=Rate(messages=1))

        for peer in (rig.peer(), rig.peer()):
            found = [
                bases(partitions(await peer.request(fetch("t", offset), 12))[0].records)
                for offset in range(3)
            ]
            assert found == [[0], [1], []]


@on_loop
async def test_a_response_has_as_many_messages_as_a_period_allows_in_every_version():
    async with Rig() as rig:
        topic = rig.topic("t")
        await fill(rig, "t", *"abcdef")
        for version in versions(1):
            topic.partitions[0].policies = Policies()
            topic.partitions[0].policies = Policies(dispatch_rate=Rate(messages=2))
            requested = fetch("t", 1, topic_id=topic.topic_id)
            (found,) = partitions(await rig.peer().request(requested, version))
            assert bases(found.records) == [1, 2], version


def test_one_batch_is_sent_however_large_it_is():
    large = bytes(batch(*"abcdefgh"))

    assert cut_records([large, large], 3) == ([large, b""], 8, len(large))
    assert cut_records([large + large], 100) == ([large + large], 16, 2 * len(large))
    assert cut_records([b"", large], 3)[1:] == (8, len(large))
