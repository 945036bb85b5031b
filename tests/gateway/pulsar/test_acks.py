"""ACK by raw frames: what is acked, what is refused, and when the answer leaves."""

from __future__ import annotations

import errno
import gc
import logging

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
from tests.gateway.pulsar.rig import Peer, Rig, settle
from tests.waiting import run_ready_tasks, wait_on_loop
from trilogue.broker.cursors.position import Cursor
from trilogue.gateway.pulsar.acks import ID_BYTES
from trilogue.gateway.stream import STOP_TURN
from trilogue.gateway.stream_memory import RequestMemory
from trilogue.wire.pulsar.errors import ServerError
from trilogue.wire.pulsar.message_codec import AckId
from trilogue.wire.pulsar.pulsar_pb2 import CommandAck

CUMULATIVE = CommandAck.Cumulative


def cursor(rig: Rig) -> Cursor:
    partition = rig.broker.cluster.topic(rig.name("t")).partitions[0]
    found = rig.broker.subscriptions.find_cursor(partition.partition_id, "s")
    assert found is not None
    return found


async def reader(rig: Rig, kind: int = EXCLUSIVE, version: int = 21) -> Peer:
    """A consumer that has been sent everything."""
    peer = await rig.connected(version)
    await subscribe(peer, kind=kind)
    await received(peer)
    return peer


@on_loop
async def test_large_acks_wait_while_those_of_others_are_looked_up():
    """An id takes thirty times its bytes of the frame until its entry is found."""
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, *[b"x"] * 6)
        memory = rig.gateway.request_memory = RequestMemory(100_000)
        peers = [await rig.connected() for _ in range(3)]
        for number, peer in enumerate(peers):
            await subscribe(peer, name=f"s{number}", permits=0)  # so it was sent nothing
        many = ids(rig, 0, 1, 2) * 200
        small = await rig.connected()

        for number, peer in enumerate(peers):
            ack(peer, many, request_id=number)
        most = memory.used
        assert [peer.stream.stops for peer in peers] == [0, STOP_TURN, STOP_TURN]
        small.send_command("ping")
        assert small.next().field == "pong"  # a small request waits for no other
        await wait_on_loop(lambda: all(peer.answered for peer in peers))

        assert most < 2 * len(many) * ID_BYTES
        await wait_on_loop(lambda: memory.used == 0)
        for peer in peers:
            assert peer.next().field == "ackResponse"
            assert not peer.stream.stops


@on_loop
async def test_a_refused_ack_frees_its_ids_at_once():
    """Not at the next collection, which comes once a minute."""
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, b"x")
        peer = await rig.connected()
        await subscribe(peer, permits=0)
        gc.collect()
        gc.disable()
        try:
            ack(peer, ids(rig, *range(5_000, 6_000)), request_id=1)
            await wait_on_loop(lambda: peer.answered)
            assert peer.next().command.error == ServerError.NotAllowedError
            await run_ready_tasks()
            assert not [each for each in gc.get_objects() if type(each) is AckId]
        finally:
            gc.enable()


@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED])
@on_loop
async def test_messages_are_acked_one_by_one_or_many_at_once(kind):
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, *[b"x"] * 6)
        peer = await reader(rig, kind)

        ack(peer, ids(rig, 1))
        ack(peer, ids(rig, 0, 3, 4))

        assert mark(rig) == 2
        assert cursor(rig).ranges() == [(3, 5)]
        if kind in {SHARED, KEY_SHARED}:
            assert peer.connection.consumers[1].unacked == 2


@pytest.mark.parametrize("kind", [EXCLUSIVE, FAILOVER])
@on_loop
async def test_a_cumulative_ack_acks_through_the_end_of_the_entry(kind):
    async with Rig() as rig:
        rig.topic("t")
        await fill_batch(rig, b"0", b"1", b"2")
        await fill(rig, b"3", b"4")
        peer = await reader(rig, kind)

        ack(peer, ids(rig, 1), ack_type=CUMULATIVE)  # one that contains it
        assert mark(rig) == 3
        ack(peer, ids(rig, 3), ack_type=CUMULATIVE)
        assert mark(rig) == 4
        ack(peer, ids(rig, 0), ack_type=CUMULATIVE)
        ack(peer, ids(rig, -1), ack_type=CUMULATIVE)
        assert mark(rig) == 4


@on_loop
async def test_ack_set_contains_the_remaining_messages_of_a_batch():
    """Bit i = batch index i, 1 = not acked; 10 messages, index 3 acked = 1015."""
    async with Rig() as rig:
        rig.topic("t")
        await fill_batch(rig, *[b"x"] * 10)
        peer = await reader(rig, SHARED)

        ack(peer, ids(rig, 0, ack_set=[1023 & ~8], batch_size=10))
        assert cursor(rig).ranges() == [(3, 4)]
        ack(peer, ids(rig, 0, ack_set=[1023 & ~3], batch_size=10))
        assert mark(rig) == 2
        assert peer.connection.consumers[1].unacked == 7
        peer.send_command("redeliverUnacknowledgedMessages", consumer_id=1)
        (found,) = await messages(peer)
        assert list(found.command.ack_set) == [1023 & ~11]
        ack(peer, ids(rig, 0))
        assert mark(rig) == 10
        assert peer.connection.consumers[1].unacked == 0


@on_loop
async def test_a_cumulative_ack_may_end_inside_of_a_batch():
    """docs/reference/wire/pulsar.md: cumulative ack at index i: bits 0..i cleared."""
    async with Rig() as rig:
        rig.topic("t")
        await fill_batch(rig, *[b"x"] * 70)
        peer = await reader(rig)

        ack(peer, ids(rig, 0, ack_set=[-(1 << 4), 63], batch_size=70), ack_type=CUMULATIVE)
        assert mark(rig) == 4
        ack(peer, ids(rig, 0, ack_set=[0, 48], batch_size=70), ack_type=CUMULATIVE)
        assert mark(rig) == 68
        peer.send_command("redeliverUnacknowledgedMessages", consumer_id=1)
        (found,) = await messages(peer)

        assert list(found.command.ack_set) == [0, 48]


@on_loop
async def test_messages_of_another_consumer_can_be_acked():
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, b"0", b"1")
        first = await reader(rig, SHARED)
        other = await reader(rig, SHARED)

        ack(other, ids(rig, 0, 1))
        await settle()

        assert mark(rig) == 2
        assert first.connection.consumers[1].unacked == 0


@on_loop
async def test_undelivered_messages_in_segments_can_be_acked():
    async with Rig() as rig:
        rig.topic("t")
        await fill_batch(rig, b"0", b"1", b"2")
        await fill(rig, b"3", b"4")
        await rig.flush()
        peer = await rig.connected()
        await subscribe(peer, kind=SHARED, permits=0)

        ack(peer, ids(rig, 0, 4), request_id=5)
        answer = await peer.answer("ackResponse")

        assert not answer.HasField("error")
        assert mark(rig) == 3
        assert cursor(rig).ranges() == [(4, 5)]
        peer.send_command("flow", consumer_id=1, messagePermits=100)
        assert await offsets(peer) == [3]


@on_loop
async def test_an_ack_is_answered_when_it_is_durable_and_only_on_request():
    """Protocol, AckResponse: for request_id; the client completes that request."""
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, b"0", b"1")
        peer = await reader(rig)

        ack(peer, ids(rig, 0))
        await settle()
        assert not peer.answered
        ack(peer, ids(rig, 1), request_id=2**63 + 1)
        assert not peer.answered, "before the disk has it"
        answer = await peer.answer("ackResponse")

        assert (answer.consumer_id, answer.request_id) == (1, 2**63 + 1)
        assert not answer.HasField("error")


@on_loop
async def test_an_ack_that_the_disk_does_not_keep_is_not_confirmed():
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, b"0")
        peer = await reader(rig)

        rig.fs.fail("write", errno.EIO)
        ack(peer, ids(rig, 0), request_id=5)
        answer = await peer.answer("ackResponse")

        assert answer.error == ServerError.PersistenceError


@pytest.mark.parametrize(
    ("kind", "fields", "entries", "code"),
    [
        (SHARED, {"ack_type": CUMULATIVE}, [1], ServerError.NotAllowedError),
        (KEY_SHARED, {"ack_type": CUMULATIVE}, [1], ServerError.NotAllowedError),
        (EXCLUSIVE, {"ack_type": CUMULATIVE}, [0, 1], ServerError.NotAllowedError),
        (EXCLUSIVE, {"txnid_least_bits": 99}, [0], ServerError.TransactionNotFound),
        (EXCLUSIVE, {"txnid_most_bits": 1}, [0], ServerError.TransactionNotFound),
        (EXCLUSIVE, {}, [77], ServerError.NotAllowedError),
        (SHARED, {}, [77], ServerError.NotAllowedError),
        (EXCLUSIVE, {}, [1], ServerError.NotAllowedError),  # inside of a batch
        (SHARED, {}, [1], ServerError.NotAllowedError),
    ],
)
@on_loop
async def test_invalid_ack_is_refused(kind, fields, entries, code):
    async with Rig() as rig:
        rig.topic("t")
        await fill_batch(rig, b"0", b"1", b"2")
        peer = await reader(rig, kind)

        ack(peer, ids(rig, *entries), request_id=9, **fields)
        answer = await peer.answer("ackResponse")

        assert (9, code) == (answer.request_id, answer.error)
        assert answer.message
        assert mark(rig) == 0


@on_loop
async def test_an_ack_of_very_many_ends_the_connection():
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, b"0")
        peer = await reader(rig)

        ack(peer, ids(rig, 0) * 100_001)

        assert peer.is_cut
        assert mark(rig) == 0


@on_loop
async def test_many_acks_of_what_no_client_has_let_others_have_their_turn():
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, b"0")
        peer = await rig.connected()
        await subscribe(peer, kind=SHARED, permits=0)

        ack(peer, ids(rig, *[0] * 1_000), request_id=5)
        await run_ready_tasks()
        await run_ready_tasks()
        assert not peer.answered
        await peer.answer("ackResponse")

        assert mark(rig) == 1


@on_loop
async def test_ids_of_another_ledger_are_refused():
    async with Rig() as rig:
        rig.topic("t")
        rig.topic("other")
        await fill(rig, b"0")
        peer = await reader(rig)

        ack(peer, ids(rig, 0, topic="other"), request_id=9)
        answer = await peer.answer("ackResponse")

        assert answer.error == ServerError.NotAllowedError
        assert mark(rig) == 0


@on_loop
async def test_ack_of_an_unknown_consumer_is_an_error_if_a_response_is_requested():
    async with Rig() as rig:
        rig.topic("t")
        peer = await rig.connected()

        ack(peer, ids(rig, 0), consumer_id=7)
        ack(peer, ids(rig, 0), consumer_id=7, request_id=3)
        answer = await peer.answer("ackResponse")

        assert answer.error == ServerError.ConsumerNotFound


@pytest.mark.parametrize("number", range(5))
@on_loop
async def test_a_message_that_could_not_be_read_is_counted_logged_and_acked(number, caplog):
    """Protocol, Ack: validation_error means that the consumer dropped the message."""
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, b"0")
        peer = await reader(rig)
        caplog.set_level(logging.WARNING)

        ack(peer, ids(rig, 0), validation_error=number)
        ack(peer, ids(rig, 0), validation_error=number)  # a client may send millions: one line
        await settle()

        name = CommandAck.ValidationError.Name(number)
        assert mark(rig) == 1
        assert {name: 2} == rig.gateway.bad_messages
        assert [name] == [record.problem for record in caplog.records]


@on_loop
async def test_properties_of_an_ack_are_taken():
    async with Rig() as rig:
        rig.topic("t")
        await fill(rig, b"0")
        peer = await reader(rig)

        ack(peer, ids(rig, 0), properties=[{"key": "a", "value": 1}])

        assert mark(rig) == 1


@on_loop
async def test_ack_of_a_removed_message_is_ignored():
    async with Rig() as rig:
        topic = rig.topic("t")
        await fill(rig, b"0", b"1", b"2")
        peer = await rig.connected()
        await subscribe(peer, kind=SHARED, permits=0)
        topic.partitions[0].log.retain_from(2)

        ack(peer, ids(rig, 0), request_id=4)
        answer = await peer.answer("ackResponse")

        assert not answer.HasField("error")


@on_loop
async def test_an_old_clients_acks_are_of_messages():
    """It was given the messages of a batch one by one (protocol below 4 knows no batches)."""
    async with Rig() as rig:
        rig.topic("t")
        await fill_batch(rig, b"0", b"1", b"2")
        peer = await reader(rig, SHARED, version=3)

        ack(peer, ids(rig, 1))

        await settle()
        assert cursor(rig).ranges() == [(1, 2)]
