"""Throttling: the response is sent at once with its throttle time; then the connection is muted.

KIP-219: "the broker will return the response immediately with the throttle time, and mute the
channel until the throttle time is over".
"""

from __future__ import annotations

import asyncio
import itertools

import pytest

from tests.gateway.kafka.fetch.test_fetch import fetch
from tests.gateway.kafka.produce.test_produce import request as produce
from tests.gateway.kafka.rig import Peer, Rig, batch, settle, versions
from tests.gateway.loop import on_loop
from tests.waiting import pass_time
from trilogue.broker.errors import QuotaExceeded
from trilogue.broker.quotas.quotas import DEFAULT, QuotaEntity, QuotaKind
from trilogue.gateway.kafka.quotas.metering import Metering
from trilogue.gateway.stream import STOP_QUOTA
from trilogue.wire.kafka.groups.classic import HeartbeatRequest
from trilogue.wire.kafka.metadata.metadata import MetadataRequest, MetadataRequestTopic
from trilogue.wire.kafka.metadata.topic_partitions import DescribeTopicPartitionsRequest
from trilogue.wire.kafka.transactions.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersTopic,
)

RATE = 1_000.0  # bytes a second
CLIENT = QuotaEntity(None, "rig")


def limit(rig: Rig, entity: QuotaEntity = CLIENT, **rates: float) -> None:
    given = {QuotaKind(name): rate for name, rate in rates.items()}
    rig.broker.quotas.plan_alter([(entity, given)]).apply()


def metadata(*names: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])


async def send_request(peer: Peer, request: object, version: int):
    """Send when the connection is read again: until then a kernel would keep the bytes."""
    while not peer.transport.reading:
        await pass_time(0.001)
    return await peer.request(request, version)


def is_muted(peer: Peer) -> bool:
    return bool(peer.stream.stops & STOP_QUOTA)


@pytest.mark.parametrize("version", [each for each in versions(0) if each >= 3])
@on_loop
async def test_a_producer_is_directed_to_wait_and_not_read_meanwhile(version):
    """In every version, and by both ways that a request may take."""
    async with Rig() as rig:
        topic = rig.topic("t")
        limit(rig, produced=RATE)
        peer = rig.peer()
        reported, times = [], []

        for _ in range(6):
            requested = produce("t", batch("x" * 400), topic_id=topic.topic_id)
            response = await send_request(peer, requested, version)
            assert response.responses[0].partition_responses[0].error_code == 0
            reported.append(response.throttle_time_ms)
            times.append(rig.loop.time())

        assert reported[0] == 0  # there was room for it
        assert 500 < reported[-2] < 700  # as long as its bytes take
        assert reported[-1] == reported[-2]
        assert times[-1] - times[-2] == pytest.approx(reported[-1] / 1000, abs=0.005)
        assert len(rig.gateway.templates) == 1
        waits, waited_s = rig.broker.quotas.waits, rig.broker.quotas.waited_s
        assert waits[QuotaKind.PRODUCED] == sum(map(bool, reported))
        assert waited_s[QuotaKind.PRODUCED] == pytest.approx(sum(reported) / 1000, abs=0.01)


@on_loop
async def test_while_a_client_waits_what_it_sends_waits_too():
    async with Rig() as rig:
        rig.topic("t")
        limit(rig, produced=RATE)
        peer, other = rig.peer(), rig.peer("other")
        peer.send(produce("t", batch("x" * 3_000)), 7)
        await settle()
        assert (peer.answered, is_muted(peer), peer.transport.reading) == (1, True, False)
        assert 2_000 < peer.answer().throttle_time_ms < 2_300

        later = asyncio.gather(*(send_request(peer, metadata("t"), 4) for _ in range(1)))
        await pass_time(2.0)

        assert (later.done(), is_muted(peer)) == (False, True)
        assert (await send_request(other, metadata("t"), 4)).throttle_time_ms == 0
        await pass_time(0.3)
        assert (is_muted(peer), peer.transport.reading) == (False, True)
        (answer,) = await later
        assert answer.throttle_time_ms == 0


@on_loop
async def test_long_throttle_time_is_split_over_responses():
    """Clients time out after 30 s, so none is left without a response for that long."""
    async with Rig() as rig:
        rig.topic("t")
        limit(rig, produced=RATE)
        peer = rig.peer()

        reported = [
            (await send_request(peer, produce("t", batch("x" * 30_000)), 7)).throttle_time_ms
        ]
        began = rig.loop.time()
        while reported[-1] > 1_000:
            reported.append(
                (await send_request(peer, produce("t", batch("x")), 7)).throttle_time_ms
            )
            assert len(reported) < 10

        assert reported[:2] == [10_000, 10_000]
        assert max(reported) == 10_000
        assert rig.loop.time() - began == pytest.approx(30, abs=1.5)


@on_loop
async def test_producer_with_acks_0_is_throttled():
    async with Rig() as rig:
        rig.topic("t")
        limit(rig, produced=RATE)
        peer = rig.peer()
        peer.send(produce("t", batch("x" * 2_000), acks=0), 7)
        peer.sends_nothing_back()
        began = rig.loop.time()

        await send_request(peer, metadata("t"), 4)

        assert 1.0 < rig.loop.time() - began < 1.2


@on_loop
async def test_one_quota_counts_for_all_connections_of_its_client():
    async with Rig() as rig:
        rig.topic("t")
        limit(rig, produced=RATE)
        first, second, other = rig.peer(), rig.peer(), rig.peer("other")

        await send_request(first, produce("t", batch("x" * 2_000)), 7)

        assert (await send_request(second, produce("t", batch("x")), 7)).throttle_time_ms > 1_000
        assert (
            await send_request(other, produce("t", batch("x" * 5_000)), 7)
        ).throttle_time_ms == 0


@on_loop
async def test_the_default_holds_for_each_client_for_itself():
    async with Rig() as rig:
        rig.topic("t")
        limit(rig, QuotaEntity(None, DEFAULT), produced=RATE)
        for client_id in ("one", "two", "", None):
            peer = rig.peer(client_id)
            reported = [
                (await send_request(peer, produce("t", batch("x" * 700)), 7)).throttle_time_ms
                for _ in range(2)
            ]
            assert reported[0] == 0 or client_id is None  # which is the same as the empty one
            assert 500 < reported[1] < 2_000


@on_loop
async def test_a_quota_of_the_user_bounds_all_its_connections():
    """Every client is ANONYMOUS without authentication."""
    async with Rig() as rig:
        rig.topic("t")
        limit(rig, QuotaEntity("ANONYMOUS"), produced=RATE)

        await rig.peer("one").request(produce("t", batch("x" * 2_000)), 7)

        response = await rig.peer("two").request(produce("t", batch("x")), 7)
        assert response.throttle_time_ms > 1_000


@pytest.mark.parametrize("version", [4, 7, 12, 17])
@on_loop
async def test_consumer_receives_at_its_quota_rate(version):
    async with Rig() as rig:
        topic = rig.topic("t")
        for _ in range(40):
            await rig.peer("writer").request(produce("t", batch("x" * 200)), 7)
        limit(rig, fetched=RATE)
        peer = rig.peer()
        reported, got, offset, began = [], 0, 0, rig.loop.time()

        while offset < 40:
            requested = fetch(
                "t", offset, topic_id=topic.topic_id, min_bytes=100_000, max_wait_ms=5_000
            )
            response = await send_request(peer, requested, version)
            records = response.responses[0].partitions[0].records
            assert 0 < len(records) <= RATE  # no more at once than a second's worth
            reported.append(response.throttle_time_ms)
            offset += len(records) // len(batch("x" * 200))
            got += len(records)

        assert max(reported) <= 1_000
        assert sum(reported) > 0
        took_s = rig.loop.time() - began + reported[-1] / 1000
        assert took_s == pytest.approx((got - RATE) / RATE, abs=0.2)


@on_loop
async def test_a_batch_above_the_quota_is_sent_whole_and_waited_for():
    async with Rig() as rig:
        rig.topic("t")
        await rig.peer("writer").request(produce("t", batch("x" * 5_000)), 7)
        limit(rig, fetched=RATE)
        peer = rig.peer()

        response = await send_request(peer, fetch("t", 0), 11)

        assert len(response.responses[0].partitions[0].records) > 5_000
        assert 4_000 < response.throttle_time_ms < 4_200
        assert is_muted(peer)


# ---- the loop's time


class Worked:
    """A clock of the loop's thread that goes on with every look at it."""

    def __init__(self, step_s: float) -> None:
        self.step_s, self.now_s = step_s, 0.0

    def __call__(self) -> float:
        self.now_s += self.step_s
        return self.now_s


REQUESTS = {
    "at once": (HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 2),
    "written by itself": (metadata("t"), 8),
    "pages": (DescribeTopicPartitionsRequest(topics=[]), 0),
    "step by step": (
        DescribeProducersRequest(
            topics=[DescribeProducersTopic(name="t", partition_indexes=[0] * 500)]
        ),
        0,
    ),
    "a place": (fetch("t", 0), 11),
}  # fmt: skip


@pytest.mark.parametrize("kind", REQUESTS)
@on_loop
async def test_the_loops_time_is_counted_for_every_kind_of_answer(kind):
    requested, version = REQUESTS[kind]
    async with Rig() as rig:
        rig.topic("t")
        rig.gateway.cpu_s = Worked(0.05)  # 50 ms at least for every request
        limit(rig, work=10.0)  # 100 ms a second
        peer, free = rig.peer(), rig.peer("other")
        began = rig.loop.time()

        reported = [
            (await send_request(peer, requested, version)).throttle_time_ms for _ in range(12)
        ]

        assert max(reported) <= 1_000  # in one piece, as in Kafka
        assert sum(reported) > 2_000
        assert rig.loop.time() - began > 2.0
        assert {
            (await send_request(free, requested, version)).throttle_time_ms for _ in range(5)
        } == {0}


@on_loop
async def test_a_small_share_is_no_matter():
    async with Rig() as rig:
        rig.topic("t")
        rig.gateway.cpu_s = Worked(0.000_01)
        limit(rig, work=10.0)
        peer = rig.peer()

        assert {
            (await send_request(peer, metadata("t"), 8)).throttle_time_ms for _ in range(50)
        } == {0}


# ---- changes of topics


@on_loop
async def test_changes_of_topics_are_counted_and_newer_versions_refused():
    """KIP-599: "the new versions get THROTTLING_QUOTA_EXCEEDED, older ones are throttled"."""
    async with Rig() as rig:
        limit(rig, changes=2.0)
        peer = rig.peer()
        metering = Metering(rig.broker.quotas, "u", peer.stream, rig.loop, rig.gateway.cpu_s)
        metering.set_client("rig")

        metering.count_mutations(6, strict=True)  # accepted: there was something left
        assert metering.throttle_ms() == 0
        with pytest.raises(QuotaExceeded):
            metering.count_mutations(1, strict=True)
        assert metering.throttle_ms() == 2_000
        await pass_time(2.0)
        metering.count_mutations(1, strict=True)
        metering.count_mutations(4, strict=False)
        assert metering.throttle_ms() == 2_500


# ---- life


@on_loop
async def test_quotas_come_and_go_while_clients_are_connected():
    async with Rig() as rig:
        rig.topic("t")
        peer = rig.peer()

        async def reported() -> int:
            return (await send_request(peer, produce("t", batch("x" * 1_500)), 7)).throttle_time_ms

        assert [await reported() for _ in range(3)] == [0, 0, 0]
        limit(rig, produced=RATE)
        assert [await reported() > 0 for _ in range(3)] == [True] * 3
        rig.broker.quotas.plan_alter([(CLIENT, {QuotaKind.PRODUCED: None})]).apply()
        await reported()  # which still waits for the one before
        assert [await reported() for _ in range(3)] == [0, 0, 0]


@on_loop
async def test_quota_follows_the_client_id_of_each_request():
    async with Rig() as rig:
        rig.topic("t")
        limit(rig, produced=RATE)
        peer = rig.peer()
        reported = {"rig": [], "other": []}

        for client_id, _ in itertools.product(["other", "rig"], range(3)):
            peer.client_id = client_id
            response = await send_request(peer, produce("t", batch("x" * 1_500)), 7)
            reported[client_id].append(response.throttle_time_ms)

        assert reported["other"] == [0, 0, 0]
        assert all(reported["rig"])


@on_loop
async def test_a_connection_that_goes_leaves_no_timer():
    async with Rig() as rig:
        rig.topic("t")
        limit(rig, produced=RATE)
        peer = rig.peer()
        await send_request(peer, produce("t", batch("x" * 5_000)), 7)

        peer.stream.connection_lost(None)

        assert all(handle.cancelled() for handle in rig.loop._scheduled)


@on_loop
async def test_drain_does_not_wait_for_muted_connections():
    async with Rig() as rig:
        rig.topic("t")
        limit(rig, produced=RATE)
        peer = rig.peer()
        await send_request(peer, produce("t", batch("x" * 5_000)), 7)

        peer.session.drain()
        await settle()

        assert peer.is_cut


@on_loop
async def test_requests_that_came_together_are_taken_one_wait_after_the_other():
    """What was received already waits too; nothing of it is lost."""
    async with Rig() as rig:
        rig.topic("t")
        limit(rig, produced=RATE)
        peer = rig.peer()
        together = kept_back(peer, *[produce("t", batch("x" * 2_000))] * 3)

        peer.transport.receive(together)
        answered = []
        for _ in range(4):
            await pass_time(1.0)
            answered.append(peer.answered)

        assert answered == [1, 2, 2, 3]


@on_loop
async def test_muted_connection_is_neither_idle_nor_incomplete():
    async with Rig() as rig:
        rig.topic("t")
        limit(rig, produced=100.0)
        peer = rig.peer()
        half = b"\0\0\1\0half of a request"

        peer.transport.receive(kept_back(peer, produce("t", batch("x" * 5_000))) + half)
        for number in range(9):
            await pass_time(1.0)
            peer.stream.sweep(1_000_000.0 * number)

        assert is_muted(peer)
        assert not peer.is_cut


def kept_back(peer: Peer, *requests: object) -> bytes:
    """The bytes of requests that are sent later."""
    kept: list[bytes] = []
    receive = peer.transport.receive
    peer.transport.receive = lambda data, _piece: kept.append(data)
    for each in requests:
        peer.send(each, 7)
    peer.transport.receive = receive
    return b"".join(kept)
