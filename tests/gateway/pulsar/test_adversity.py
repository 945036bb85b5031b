"""What consumers, retention and administration do to one another at the worst moment."""

from __future__ import annotations

import pytest

from tests.gateway.loop import on_loop
from tests.gateway.pulsar.readers import (
    EXCLUSIVE,
    FAILOVER,
    KEY_SHARED,
    SHARED,
    ack,
    fill,
    fill_batch,
    ids,
    mark,
    messages,
    offsets,
    received,
    subscribe,
)
from tests.gateway.pulsar.rig import Answer, Peer, Rig, frame_of, settle
from tests.waiting import pass_time
from trilogue.gateway.pulsar.settings import PulsarSettings
from trilogue.gateway.pulsar.subscriptions import HELD_S
from trilogue.wire.pulsar.errors import ServerError


@on_loop
async def test_redelivery_skips_deleted_messages():
    """Its subscription may know of that before those do who hand out."""
    async with Rig() as rig:
        topic = rig.topic("t")
        await fill(rig, *[b"x"] * 10)
        peer, other = await rig.connected(), await rig.connected()
        await subscribe(peer, kind=SHARED, permits=5)
        assert await offsets(peer) == [0, 1, 2, 3, 4]
        peer.send_command("redeliverUnacknowledgedMessages", consumer_id=1)
        await settle()

        topic.partitions[0].log.retain_from(7)
        await subscribe(other, kind=SHARED, permits=0)
        peer.send_command("flow", consumer_id=1, messagePermits=100)

        assert await offsets(peer) == [7, 8, 9]


@pytest.mark.parametrize("durable", [True, False])
@on_loop
async def test_a_subscription_cannot_have_a_name_without_end(durable):
    async with Rig() as rig:
        rig.topic("t")
        peer = await rig.connected()

        await subscribe(peer, name="n" * 1_024, durable=durable)
        await subscribe(peer, name="n" * 1_025, durable=durable, consumer_id=2, answer="error")


@on_loop
async def test_a_reader_that_sought_twice_has_its_whole_time_to_come_again():
    async with Rig(pulsar=PulsarSettings(keep_alive_s=1_000)) as rig:
        rig.topic("t")
        await fill(rig, *[b"x"] * 10)
        peer = await rig.connected()
        await subscribe(peer, durable=False, permits=0)
        peer.send_command("seek", request_id=50, consumer_id=1, message_id=ids(rig, 3)[0])
        assert [each.field for each in await received(peer)] == ["close_consumer", "success"]
        await subscribe(peer, durable=False, permits=0)
        await pass_time(HELD_S - 1)

        peer.send_command("seek", request_id=51, consumer_id=1, message_id=ids(rig, 7)[0])
        assert [each.field for each in await received(peer)] == ["close_consumer", "success"]
        await pass_time(2)
        await subscribe(peer, durable=False, permits=1)

        assert await offsets(peer) == [7]


@on_loop
async def test_active_consumer_change_is_sent_to_affected_consumers_only():
    async with Rig() as rig:
        rig.topic("t")
        peer = await rig.connected()
        for number in range(1, 6):
            await subscribe(
                peer, kind=FAILOVER, consumer_id=number, consumer_name=f"c{number}", permits=0
            )
            reported = [each.command for each in await received(peer)]
            assert [(each.consumer_id, each.is_active) for each in reported] == [
                (number, number == 1)
            ]

        await subscribe(peer, kind=FAILOVER, consumer_id=9, consumer_name="a", permits=0)
        reported = [each.command for each in await received(peer)]
        assert {(each.consumer_id, each.is_active) for each in reported} == {(9, True), (1, False)}
        peer.send_command("close_consumer", request_id=77, consumer_id=9)
        reported = [each.command for each in await received(peer) if each.field != "success"]
        assert {(each.consumer_id, each.is_active) for each in reported} == {(1, True)}


@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED])
@on_loop
async def test_of_a_batch_whose_head_was_deleted_the_rest_comes_again(kind, flushed):
    """Records may be deleted up to anywhere, also inside an entry."""
    async with Rig() as rig:
        topic = rig.topic("t")
        await fill(rig, b"x")
        await fill_batch(rig, *[b"y"] * 5)
        await fill(rig, b"z")
        if flushed:
            await rig.flush()
        peer = await rig.connected()
        await subscribe(peer, kind=kind, permits=7)
        assert [each.command.message_id.entryId for each in await taken(peer)] == [0, 1, 6]
        peer.send_command("redeliverUnacknowledgedMessages", consumer_id=1)

        topic.partitions[0].log.retain_from(4)
        peer.send_command("flow", consumer_id=1, messagePermits=100)
        found = await taken(peer)

        assert [each.command.message_id.entryId for each in found] == [1, 6]
        assert list(found[0].command.ack_set) == [0b11000]
        ack(peer, ids(rig, 1, 6))
        assert mark(rig) == 7
        dispatcher = rig.gateway.subscriptions.find_dispatcher(
            topic.partitions[0].partition_id, "s"
        )
        assert dispatcher.subscription.unacked == 0


async def taken(peer: Peer) -> list[Answer]:
    """The messages that come; failover consumers hear of themselves too."""
    return [each for each in await received(peer) if each.field == "message"]


@pytest.mark.parametrize("flushed", [False, True])
@on_loop
async def test_of_a_batch_whose_head_was_deleted_the_rest_is_acked(flushed):
    async with Rig() as rig:
        topic = rig.topic("t")
        await fill(rig, b"x")
        await fill_batch(rig, *[b"y"] * 5)
        await fill(rig, b"z")
        if flushed:
            await rig.flush()
        peer = await rig.connected()
        await subscribe(peer, kind=SHARED, permits=7)
        await messages(peer)

        topic.partitions[0].log.retain_from(4)
        ack(peer, ids(rig, 0, 1, 6, -1))  # ids that were not sent to it are looked up in the log
        await settle()

        assert mark(rig) == 7


@on_loop
async def test_requests_of_a_stuck_peer_wait_within_one_loop_iteration():
    """A list of topics may be large, and a hundred requests for it may come at once."""
    async with Rig() as rig:
        for number in range(100):
            rig.topic(f"{number}-{'x' * 200}")
        peer = await rig.connected()
        peer.transport.stuck = True

        peer.give(frame_of("getTopicsOfNamespace", request_id=1, namespace="public/default") * 90)
        await settle()

        connection = peer.connection
        assert peer.transport.unsent + connection._out_bytes < 512 << 10
        peer.transport.unstick()
        assert len(await received(peer)) == 90


@on_loop
async def test_producer_cannot_send_with_the_name_of_another_producer():
    """De-duplication goes by the name in the message: it must be that of the one who sends it."""
    async with Rig() as rig:
        rig.topic("t", pulsar_deduplication="true")
        attacker, victim = await rig.connected(), await rig.connected()
        await attacker.producer("t", producer_name="attacker")
        await victim.producer("t", producer_name="victim")

        attacker.send(1, 2**62, metadata_producer_name="victim")
        refused = await attacker.answer("send_error")
        victim.send(1, 1, metadata_producer_name="victim")
        receipt = await victim.answer("send_receipt")

        assert refused.error == ServerError.MetadataError
        assert receipt.message_id.entryId == 0


@on_loop
async def test_total_metadata_of_producers_and_consumers_is_limited():
    async with Rig() as rig:
        rig.topic("t")
        peer = await rig.connected()
        much = [{"key": "k", "value": "v" * 16_000}]
        ranges = [{"start": each, "end": each} for each in range(1_024)]
        for number in range(1, 120):
            await peer.producer("t", producer_id=number, metadata=much)
        for number in range(1, 1_000):
            peer.send_command(
                "subscribe",
                topic="t",
                subscription=f"s-{number}",
                subType=KEY_SHARED,
                consumer_id=number,
                request_id=5_000 + number,
                durable=False,
                keySharedMeta={"keySharedMode": 1, "hashRanges": ranges},
            )
        found = [each.field for each in await received(peer)]

        assert 5 < found.count("success") < 40
        assert found.count("success") + found.count("error") == 999
        await peer.producer("t", producer_id=1_000)


@on_loop
async def test_one_ack_may_name_as_many_messages_as_an_application_took_at_once():
    """Java's acknowledge(Messages) is one ACK, however long the list was; real brokers take it."""
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, b"a", b"b")
        peer = await rig.connected()
        await subscribe(peer, kind=SHARED)
        await messages(peer)

        ack(peer, ids(rig, 0) * 20_000 + ids(rig, 1))

        assert not peer.is_cut
        assert mark(rig) == 2


@pytest.mark.parametrize("durable", [True, False])
@on_loop
async def test_ack_of_deleted_messages_reduces_the_unacked_count(durable):
    """It would count against what a consumer may have unacked as long as it lives."""
    async with Rig() as rig:
        topic = rig.topic("t")
        await fill(rig, *[b"x"] * 5)
        peer = await rig.connected()
        await subscribe(peer, kind=SHARED, durable=durable)
        await messages(peer)
        dispatcher = rig.gateway.subscriptions.find_dispatcher(
            topic.partitions[0].partition_id, "s"
        )

        topic.partitions[0].log.retain_from(5)
        ack(peer, ids(rig, 0, 1, 2, 3, 4, -1))
        await settle()

        assert dispatcher.subscription.unacked == 0
        assert dispatcher.acked.mark == 5
