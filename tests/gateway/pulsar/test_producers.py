"""PRODUCER and CLOSE_PRODUCER: names, access modes, ids that come again, what policies demand."""

from __future__ import annotations

import pytest

from tests.gateway.loop import on_loop
from tests.gateway.pulsar import readers
from tests.gateway.pulsar.rig import Peer, Rig, frame_of, send_frame, settle
from tests.waiting import pass_time
from trilogue.broker.access.authorizer import Operation, ResourceKind
from trilogue.broker.errors import UnknownTopic
from trilogue.gateway.pulsar.services import MEMBERS_PER_BLOCK, MemberBlocks
from trilogue.gateway.pulsar.settings import NO_REQUEST, PulsarSettings
from trilogue.wire.pulsar.errors import ServerError

SHARED, EXCLUSIVE, WAITING, FENCING = range(4)


async def refused(peer: Peer, topic: str = "t", producer_id: int = 1, **fields) -> ServerError:
    """The code of the ERROR that PRODUCER is answered with."""
    answer = await peer.request("producer", "error", topic=topic, producer_id=producer_id, **fields)
    return ServerError(answer.error)


@on_loop
async def test_a_producer_without_a_name_gets_one_that_no_client_had():
    """Protocol, Producer: "Generated producer name is guaranteed to be globally unique"."""
    async with Rig() as rig:
        rig.topic("t")
        peer = await rig.connected()

        names = {(await peer.producer("t", number)).producer_name for number in range(5)}

        assert len(names) == 5
        assert all(name.startswith("standalone-1-3-") for name in names)  # node 1, its epoch 3


@on_loop
async def test_a_generated_name_is_none_that_an_application_has_chosen():
    async with Rig() as rig:
        rig.topic("t")
        peer = await rig.connected()
        await peer.producer("t", 1, producer_name="standalone-1-3-1")

        assert (await peer.producer("t", 2)).producer_name == "standalone-1-3-2"


@on_loop
async def test_the_success_has_every_field_that_clients_read():
    """docs/reference/wire/pulsar.md: Java 4.0 reads schema_version unconditionally."""
    async with Rig() as rig:
        rig.topic("t")
        peer = await rig.connected()

        success = await peer.producer("t", producer_name="mine")

        assert success.producer_name == "mine"
        assert success.last_sequence_id == -1
        assert success.HasField("schema_version")
        assert success.producer_ready


@on_loop
async def test_a_name_is_for_one_producer_of_a_topic():
    """Protocol, Producer: producer_name "needs to be unique"."""
    async with Rig() as rig:
        rig.topic("t"), rig.topic("u")
        peer, other = await rig.connected(), await rig.connected()
        await peer.producer("t", producer_name="mine")

        assert await refused(other, producer_name="mine") == ServerError.ProducerBusy
        await other.producer("u", producer_name="mine")


@on_loop
async def test_a_reconnect_takes_a_generated_name_from_the_older_connection():
    async with Rig() as rig:
        rig.topic("t")
        peer, other = await rig.connected(), await rig.connected()
        name = (await peer.producer("t")).producer_name

        again = {"producer_name": name, "user_provided_producer_name": False, "epoch": 1}
        assert (await other.producer("t", **again)).producer_name == name

        peer.send(1, 0)  # its last messages are on their way still
        await settle()
        assert peer.answered == 0
        assert not peer.is_cut


@on_loop
async def test_an_older_incarnation_loses_to_a_newer_one():
    async with Rig() as rig:
        rig.topic("t")
        peer, other = await rig.connected(), await rig.connected()
        again = {"producer_name": "n", "user_provided_producer_name": False}
        await peer.producer("t", **again, epoch=2)

        assert await refused(other, **again, epoch=1) == ServerError.ProducerBusy


@on_loop
async def test_for_a_taken_name_the_holder_is_pinged_to_see_whether_it_is_alive():
    async with Rig() as rig:
        rig.topic("t")
        peer, other = await rig.connected(), await rig.connected()
        await peer.producer("t", producer_name="mine")

        await pass_time(6)
        assert await refused(other, producer_name="mine") == ServerError.ProducerBusy

        assert (await peer.answer("ping")) is not None
        await pass_time(7)
        assert peer.is_cut
        await other.producer("t", 2, producer_name="mine")


@on_loop
async def test_live_producer_keeps_its_name_against_repeated_claims():
    async with Rig() as rig:
        rig.topic("t")
        peer, other = await rig.connected(), await rig.connected()
        await peer.producer("t", producer_name="mine")

        for number in range(40):
            await pass_time(0.4)
            await refused(other, producer_id=number, producer_name="mine")
            while peer.answered:
                assert peer.next().field == "ping"
                peer.send_command("pong")

        assert not peer.is_cut


@on_loop
async def test_the_same_id_again_is_the_same_producer():
    """docs/reference/wire/pulsar.md: the same one already there -> success again."""
    async with Rig() as rig:
        rig.topic("t")
        peer = await rig.connected()
        first = await peer.producer("t")

        assert (await peer.producer("t")).producer_name == first.producer_name
        assert len(rig.broker.writers.get_or_create(1)) <= 1


@on_loop
async def test_the_same_id_while_it_is_being_made_is_for_later():
    async with Rig() as rig:
        peer = await rig.connected()
        rig.hold_commits = True
        peer.send_command("producer", topic="new", producer_id=1, request_id=70)
        await settle()

        assert await refused(peer, "new") == ServerError.ServiceNotReady
        await rig.release()
        assert (await peer.answer("producer_success")).request_id == 70


@on_loop
async def test_close_is_answered_when_all_is_durable_and_takes_no_more():
    """Protocol, CloseProducer: "stop accepting any more messages for the producer, wait until all
    pending messages are persisted and then reply Success"."""
    async with Rig() as rig:
        rig.topic("t")
        peer = await rig.connected()
        await peer.producer("t")

        close = frame_of("close_producer", producer_id=1, request_id=9)
        peer.give(send_frame(1, 0) + send_frame(1, 1) + close + send_frame(1, 2))
        assert peer.answered == 0
        await settle()

        assert [peer.next().field for _ in range(3)] == ["send_receipt", "send_receipt", "success"]
        assert peer.answered == 0
        assert rig.broker.cluster.topic(rig.name("t")).partitions[0].log.end_offset == 2


@on_loop
async def test_close_and_producer_right_behind_it_are_served_in_order():
    """Protocol, CloseProducer: "The client does not need to wait for a response to the
    CloseProducer command before sending the next Producer command"."""
    async with Rig() as rig:
        rig.topic("t")
        peer = await rig.connected()
        await peer.producer("t", producer_name="mine")

        peer.give(
            send_frame(1, 0)
            + frame_of("close_producer", producer_id=1, request_id=8)
            + frame_of("producer", topic="t", producer_id=1, request_id=9, producer_name="mine")
        )
        await settle()

        found = [peer.next() for _ in range(3)]
        assert [each.field for each in found] == ["send_receipt", "success", "producer_success"]
        assert [each.command.request_id for each in found[1:]] == [8, 9]
        peer.send(1, 1)
        assert (await peer.answer("send_receipt")).message_id.entryId == 1


@on_loop
async def test_a_producer_that_is_closed_before_it_was_made_gets_no_answer():
    async with Rig() as rig:
        peer = await rig.connected()
        rig.hold_commits = True
        peer.send_command(
            "producer", topic="new", producer_id=1, request_id=8, producer_name="mine"
        )
        await settle()
        peer.send_command("close_producer", producer_id=1, request_id=9)
        assert (await peer.answer("success")).request_id == 9

        await rig.release()
        await settle()

        assert peer.answered == 0
        await peer.producer("new", 2, producer_name="mine")


@on_loop
async def test_close_of_an_unknown_producer_is_an_error_unless_recently_closed():
    async with Rig() as rig:
        rig.topic("t")
        peer = await rig.connected()
        await peer.producer("t")

        await peer.request("close_producer", "success", producer_id=1)
        await peer.request("close_producer", "success", producer_id=1)
        await peer.request("close_producer", "error", producer_id=2)


@on_loop
async def test_a_send_without_a_producer_ends_the_connection():
    """Protocol, Send: "If a producer has not yet been created for this connection, the broker will
    terminate the connection"."""
    async with Rig() as rig:
        peer = await rig.connected()
        peer.send(1, 0)

        assert peer.is_cut


@on_loop
async def test_a_connection_that_closes_leaves_its_producers_names():
    async with Rig() as rig:
        rig.topic("t")
        peer, other = await rig.connected(), await rig.connected()
        await peer.producer("t", producer_name="mine", producer_access_mode=EXCLUSIVE)

        peer.transport.close()

        await other.producer("t", producer_name="mine")


# ---- topics


@on_loop
async def test_a_topic_is_made_by_a_producer_that_names_it():
    async with Rig() as rig:
        peer = await rig.connected()

        await peer.producer("persistent://public/default/new")

        assert not rig.broker.cluster.topic(rig.name("new")).partitioned


@on_loop
async def test_concurrent_producers_create_a_new_topic_once():
    async with Rig() as rig:
        peer = await rig.connected()
        for number in (1, 2):
            peer.send_command("producer", topic="new", producer_id=number, request_id=number)

        names = {(await peer.answer("producer_success")).producer_name for _ in (1, 2)}

        assert len(names) == 2


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ("persistent://public/default/t/t/t", ServerError.InvalidTopicName),
        ("a/b", ServerError.InvalidTopicName),
        ("p", ServerError.NotAllowedError),
        ("p-partition-3", ServerError.TopicNotFound),
        ("t-partition-0", ServerError.TopicNotFound),
        ("nobody/there/t", ServerError.TopicNotFound),
    ],
)
def test_names_that_are_no_topic_to_write_to_are_refused(topic, code):
    @on_loop
    async def scenario():
        async with Rig() as rig:
            rig.topic("t")
            rig.topic("p", 3)
            peer = await rig.connected()

            assert await refused(peer, topic) == code
            await peer.producer("p-partition-2", 1)

    scenario()


@on_loop
async def test_nothing_is_made_where_the_node_does_not_allow_it():
    async with Rig(pulsar=PulsarSettings(auto_create_topics=False)) as rig:
        peer = await rig.connected()

        assert await refused(peer, "new") == ServerError.TopicNotFound


@on_loop
async def test_producer_without_permission_is_denied():
    """Protocol, Producer: "the broker will first verify that this particular client is authorized
    to publish on the topic"."""
    async with Rig() as rig:
        rig.topic("t")
        rig.rules.deny(Operation.WRITE, ResourceKind.TOPIC, "public/default/t")
        peer = await rig.connected()

        assert await refused(peer) == ServerError.AuthorizationError


@on_loop
async def test_producers_of_a_topic_are_limited():
    async with Rig() as rig:
        rig.topic("t", pulsar_maxProducers="1")
        peer = await rig.connected()
        await peer.producer("t", 1)

        assert await refused(peer, producer_id=2) == ServerError.ProducerBusy


@on_loop
async def test_size_of_producer_metadata_is_limited():
    async with Rig() as rig:
        rig.topic("t")
        peer = await rig.connected()
        long = [{"key": "k", "value": "v" * 20_000}]

        assert await refused(peer, metadata=long) == ServerError.NotAllowedError
        assert await refused(peer, producer_name="n" * 2_000) == ServerError.NotAllowedError


@on_loop
async def test_large_requests_at_work_stop_the_connection():
    async with Rig(pulsar=PulsarSettings(requests_bytes_max=1_000)) as rig:
        peer = await rig.connected()
        rig.hold_commits = True
        name = "n" * 900

        for number in (1, 2):
            peer.send_command("partitionMetadata", topic=name, request_id=number)
        assert peer.stream.stops
        await rig.release()
        await settle()

        assert not peer.stream.stops
        assert peer.answered == 2


@on_loop
async def test_producers_of_a_connection_are_limited():
    async with Rig(pulsar=PulsarSettings(producers_max=1)) as rig:
        rig.topic("t")
        peer = await rig.connected()
        await peer.producer("t", 1)

        assert await refused(peer, producer_id=2) == ServerError.NotAllowedError


@on_loop
async def test_producers_and_consumers_of_all_connections_are_limited():
    """An address leaves as much room as it takes; a connection that closes gives its own back."""
    async with Rig(pulsar=PulsarSettings(all_members_max=4 * MEMBERS_PER_BLOCK)) as rig:
        rig.topic("t")
        first, second = await rig.connected(), await rig.connected()
        for number in range(MEMBERS_PER_BLOCK):
            await first.producer("t", number)
            await readers.subscribe(second, kind=readers.SHARED, consumer_id=number)

        assert await refused(first, producer_id=100) == ServerError.NotAllowedError
        await readers.subscribe(second, kind=readers.SHARED, consumer_id=100, answer="error")
        second.transport.close()
        await settle()
        await first.producer("t", 100)


def test_a_principal_leaves_members_for_others():
    blocks = MemberBlocks(8 * MEMBERS_PER_BLOCK)
    assert [blocks.reserve(("a", number), "mallory") for number in range(5)].count(True) == 4
    assert [blocks.reserve(("b", number), "alice") for number in range(3)] == [True, True, False]
    blocks.release([("a", number) for number in range(4)])
    assert blocks.reserve(("b", 2), "alice")


@on_loop
async def test_a_producer_that_does_not_encrypt_is_refused_where_it_must():
    async with Rig() as rig:
        await rig.policies("public/default", encryptionRequired=True)
        rig.topic("t")
        peer = await rig.connected()

        assert await refused(peer) == ServerError.MetadataError
        await peer.producer("t", encrypted=True)
        peer.send(1, 0)
        assert (await peer.answer("send_error")).error == ServerError.MetadataError
        keys = [{"key": "k", "value": b"v"}]
        peer.send(1, 1, metadata_encryption_keys=keys)
        await peer.answer("send_receipt")


@on_loop
async def test_an_initial_subscription_holds_messages_from_the_first_on():
    """PIP-106."""
    async with Rig() as rig:
        topic = rig.topic("t")
        peer = await rig.connected()
        await peer.producer("t", 1)
        peer.send(1, 0)
        await peer.answer("send_receipt")

        await peer.producer("t", 2, initial_subscription_name="first")

        found = rig.broker.subscriptions.find_cursor(topic.partitions[0].partition_id, "first")
        assert found is not None
        assert found.mark == 0


@on_loop
async def test_a_returning_producer_learns_what_it_has_written_where_repeats_are_dropped():
    async with Rig() as rig:
        rig.topic("t", pulsar_deduplication="true")
        peer = await rig.connected()
        await peer.producer("t", producer_name="mine")
        peer.send(1, 7, metadata_producer_name="mine")
        await peer.answer("send_receipt")
        await peer.request("close_producer", "success", producer_id=1)

        assert (await peer.producer("t", producer_name="mine")).last_sequence_id == 7


# ---- what the broker ends


@on_loop
async def test_deleted_topic_closes_its_producers():
    async with Rig() as rig:
        rig.topic("t")
        peer = await rig.connected()
        await peer.producer("t")

        await rig.commit(rig.broker.cluster.plan_delete(rig.name("t")))

        assert (await peer.answer("close_producer")).request_id == NO_REQUEST
        peer.send(1, 0)
        await settle()
        assert not peer.is_cut
        assert peer.answered == 0


@on_loop
async def test_terminated_topic_closes_its_producers_and_refuses_new_ones():
    async with Rig() as rig:
        topic = rig.topic("t")
        peer = await rig.connected()
        await peer.producer("t")

        settings = {**topic.settings, "pulsar.terminated": "[0]"}
        await rig.commit(rig.broker.cluster.plan_alter(rig.name("t"), settings))

        await peer.answer("close_producer")
        assert await refused(peer, producer_id=2) == ServerError.TopicTerminatedError


@on_loop
async def test_receipts_are_sent_before_close_producer():
    async with Rig() as rig:
        topic = rig.topic("t")
        peer = await rig.connected()
        await peer.producer("t")

        peer.send(1, 0)
        rig.broker.writers.get_or_create(topic.partitions[0].partition_id).fence_all(
            UnknownTopic("unloaded")
        )
        await settle()

        assert [peer.next().field for _ in range(2)] == ["send_receipt", "close_producer"]
