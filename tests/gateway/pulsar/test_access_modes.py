"""Who has a topic to itself, who waits for that, and the epochs that outlive them (PIP-68)."""

from __future__ import annotations

from tests.gateway.loop import on_loop
from tests.gateway.pulsar.rig import Peer, Rig
from trilogue.broker.producers.access_modes import Writers
from trilogue.gateway.pulsar.settings import NO_REQUEST
from trilogue.wire.pulsar.errors import ServerError
from trilogue.wire.pulsar.pulsar_pb2 import CommandProducer

SHARED, EXCLUSIVE, WAITING, FENCING = range(4)


async def refused(peer: Peer, topic: str = "t", producer_id: int = 1, **fields) -> ServerError:
    """The code of the ERROR that PRODUCER is answered with."""
    answer = await peer.request("producer", "error", topic=topic, producer_id=producer_id, **fields)
    return ServerError(answer.error)


@on_loop
async def test_an_exclusive_producer_has_the_topic_to_itself():
    """PIP-68."""
    async with Rig() as rig:
        rig.topic("t")
        peer, other = await rig.connected(), await rig.connected()
        first = await peer.producer("t", producer_access_mode=EXCLUSIVE)

        assert first.topic_epoch == 0
        assert await refused(other) == ServerError.ProducerBusy
        assert await refused(other, producer_access_mode=EXCLUSIVE) == ServerError.ProducerFenced
        peer.send(1, 0)
        await peer.answer("send_receipt")


@on_loop
async def test_exclusive_is_refused_beside_others():
    async with Rig() as rig:
        rig.topic("t")
        peer, other = await rig.connected(), await rig.connected()
        await peer.producer("t")

        assert await refused(other, producer_access_mode=EXCLUSIVE) == ServerError.ProducerFenced


@on_loop
async def test_wait_for_exclusive_sends_producer_success_twice():
    """PIP-68: producer_ready false first, and true when its turn has come."""
    async with Rig() as rig:
        rig.topic("t")
        peer, other = await rig.connected(), await rig.connected()
        await peer.producer("t")

        waits = await other.producer("t", producer_access_mode=WAITING)
        assert not waits.producer_ready
        assert waits.HasField("schema_version")
        await peer.request("close_producer", "success", producer_id=1)
        ready = await other.answer("producer_success")

        assert (ready.producer_ready, ready.request_id) == (True, waits.request_id)
        assert (ready.producer_name, ready.topic_epoch) == (waits.producer_name, 0)
        other.send(1, 0)
        await other.answer("send_receipt")


@on_loop
async def test_a_producer_that_waits_may_not_send():
    async with Rig() as rig:
        rig.topic("t")
        peer, other = await rig.connected(), await rig.connected()
        await peer.producer("t")
        await other.producer("t", producer_access_mode=WAITING)

        other.send(1, 0)

        assert other.is_cut


@on_loop
async def test_fencing_closes_the_others_for_good():
    """PIP-68, ExclusiveWithFencing."""
    async with Rig() as rig:
        rig.topic("t")
        peer, other, third = [await rig.connected() for _ in range(3)]
        epoch = (await peer.producer("t", producer_access_mode=EXCLUSIVE)).topic_epoch
        await third.producer("t", producer_access_mode=WAITING)

        assert (await other.producer("t", producer_access_mode=FENCING)).topic_epoch == epoch + 1

        closed = await peer.answer("close_producer")
        assert (closed.producer_id, closed.request_id) == (1, NO_REQUEST)
        assert (await third.answer("error")).error == ServerError.ProducerFenced
        again = {"producer_access_mode": EXCLUSIVE, "topic_epoch": epoch}
        assert await refused(peer, **again) == ServerError.ProducerFenced


@on_loop
async def test_the_epoch_of_a_topic_survives_a_restart():
    async with Rig() as rig:
        topic = rig.topic("t")
        peer = await rig.connected()
        first = await peer.producer("t", producer_access_mode=EXCLUSIVE)
        partition_id = topic.partitions[0].partition_id

        writers = Writers(rig.meta.state.settings).get_or_create(partition_id)
        assert writers.epoch == first.topic_epoch


@on_loop
async def test_the_epoch_of_a_topic_goes_with_it():
    async with Rig() as rig:
        rig.topic("t")
        peer = await rig.connected()
        await peer.producer("t", producer_access_mode=EXCLUSIVE)

        await rig.commit(rig.broker.cluster.plan_delete(rig.name("t")))

        assert not [key for key in rig.meta.state.settings if key.startswith("writers/")]


@on_loop
async def test_returning_producer_is_admitted_with_its_epoch():
    async with Rig() as rig:
        rig.topic("t")
        peer, other = await rig.connected(), await rig.connected()
        epoch = (await peer.producer("t", producer_access_mode=EXCLUSIVE)).topic_epoch
        peer.transport.close()

        again = await other.producer("t", producer_access_mode=EXCLUSIVE, topic_epoch=epoch)

        assert again.topic_epoch == epoch


def test_every_access_mode_of_the_protocol_is_one_of_ours():
    modes = CommandProducer.DESCRIPTOR.fields_by_name["producer_access_mode"].enum_type.values
    assert [mode.number for mode in modes] == [SHARED, EXCLUSIVE, WAITING, FENCING]
