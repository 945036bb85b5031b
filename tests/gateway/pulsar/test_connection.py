"""Sessions: what comes before CONNECT, what keeps them alive, what ends them, and back-pressure."""

from __future__ import annotations

import logging

import pytest
from google.protobuf.descriptor import FieldDescriptor

from tests.gateway.loop import on_loop
from tests.gateway.pulsar.rig import Rig, frame_of, send_frame, settle
from tests.waiting import pass_time
from trilogue.gateway.pulsar.commands import TABLE
from trilogue.gateway.pulsar.settings import PulsarSettings
from trilogue.gateway.stream import STOP_BROKER, STOP_SESSION
from trilogue.wire.pulsar.commands import COMMANDS, Sender
from trilogue.wire.pulsar.errors import ServerError
from trilogue.wire.pulsar.frame import encode_command
from trilogue.wire.pulsar.pulsar_pb2 import BaseCommand


@pytest.mark.parametrize("kind", [row.field for row in COMMANDS if row.field != "connect"])
def test_anything_before_connect_ends_the_connection(kind, caplog):
    """Protocol, Connection: "the client is responsible to initiate the session"."""

    @on_loop
    async def scenario():
        async with Rig() as rig:
            peer = rig.peer()
            peer.give(anything(kind))

            assert peer.is_cut
            assert peer.answered == 0
            assert len(caplog.records) == 1

    caplog.set_level(logging.WARNING)
    scenario()


@pytest.mark.parametrize(
    "kind",
    [row.field for row in COMMANDS if row.sender is Sender.BROKER],
)
def test_command_of_brokers_ends_the_connection(kind, caplog):
    @on_loop
    async def scenario():
        async with Rig() as rig:
            peer = await rig.connected()
            peer.give(anything(kind))

            assert peer.is_cut
            assert len(caplog.records) == 1

    caplog.set_level(logging.WARNING)
    scenario()


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0\0\0\0",
        b"\0\0\0\x04\x08\x02",
        b"\0\0\0\x02\x08\x63",
        b"\xff\xff\xff\xff",
        b"\0\0\0\x02\x08\x05",
        frame_of("ping")[4:] + b"more",
    ],
    ids=["empty", "no command", "cut", "unknown", "long", "no message", "trailing"],
)
def test_bytes_that_are_no_command_end_the_connection(frame, caplog):
    @on_loop
    async def scenario():
        async with Rig() as rig:
            peer = await rig.connected()
            peer.give(len(frame).to_bytes(4, "big") + frame)

            assert peer.is_cut
            assert len(caplog.records) == 1

    caplog.set_level(logging.WARNING)
    scenario()


@on_loop
async def test_a_second_connect_ends_the_connection():
    async with Rig() as rig:
        peer = await rig.connected()
        peer.send_command("connect", client_version="rig", protocol_version=21)

        assert peer.is_cut


@on_loop
async def test_a_peer_without_connect_for_half_a_minute_is_cut():
    async with Rig() as rig:
        peer = rig.peer()

        await pass_time(28)
        assert not peer.is_cut
        await pass_time(4)

        assert peer.is_cut


@on_loop
async def test_frames_are_small_before_connect_and_as_large_as_messages_after():
    async with Rig() as rig:
        peer = rig.peer()
        peer.give((rig.limits.unauthenticated_frame_bytes + 1).to_bytes(4, "big"))
        assert peer.is_cut

        rig.topic("t")
        peer = await rig.connected()
        await peer.producer("t")
        peer.give(send_frame(1, 0, b"x" * ((5 << 20) + 10_000)))
        assert (await peer.answer("send_receipt")).sequence_id == 0

        peer.give(((5 << 20) + 10_241).to_bytes(4, "big"))
        assert peer.is_cut


@on_loop
async def test_a_ping_is_answered_at_once():
    """Protocol, Keep Alive: "required to promptly reply"."""
    async with Rig() as rig:
        peer = await rig.connected()
        peer.send_command("ping")

        assert peer.next().field == "pong"


@on_loop
async def test_a_client_is_pinged_and_cut_after_a_minute_of_silence():
    """Protocol, Keep Alive: "they will close the socket if a Pong response is not received"."""
    async with Rig() as rig:
        peer = await rig.connected()

        await pass_time(32)
        assert peer.next().field == "ping"
        await pass_time(26)
        assert not peer.is_cut
        await pass_time(5)

        assert peer.is_cut


@on_loop
async def test_a_node_that_was_held_up_cuts_no_client():
    """What the clients sent meanwhile is not read yet."""
    async with Rig() as rig:
        peer = await rig.connected()
        now_s = rig.gateway.loop.time()
        peer.connection.tick(now_s)  # what it has heard counts no more

        peer.connection.tick(now_s + 3_600, is_late=True)
        assert not peer.is_cut

        peer.connection.tick(now_s + 7_200)
        assert peer.is_cut


@on_loop
async def test_any_frame_is_a_sign_of_life():
    async with Rig() as rig:
        peer = await rig.connected()
        for kind in ("pong", "ping", "pong"):
            await pass_time(45)
            peer.send_command(kind)

        assert not peer.is_cut


@on_loop
async def test_a_client_too_old_for_ping_is_left_alone():
    async with Rig() as rig:
        peer = await rig.connected(0)

        await pass_time(120)

        assert peer.answered == 0
        assert not peer.is_cut


@on_loop
async def test_a_connection_that_we_do_not_read_from_is_not_cut_for_its_silence():
    async with Rig() as rig:
        peer = await rig.connected()
        peer.stream.stop(STOP_BROKER)

        await pass_time(300)
        assert not peer.is_cut
        peer.stream.go_on(STOP_BROKER)
        await pass_time(62)

        assert peer.is_cut


@on_loop
async def test_receipts_leave_only_when_the_messages_are_durable():
    """Protocol, SendReceipt: after the message "has been persisted"."""
    async with Rig() as rig:
        rig.topic("t")
        peer = await rig.connected()
        await peer.producer("t")
        durable = rig.log.journal.durable_through

        peer.send(1, 0)
        assert peer.answered == 0
        await settle()

        assert (await peer.answer("send_receipt")).message_id.entryId == 0
        assert rig.log.journal.durable_through == durable + 1


@on_loop
async def test_the_sends_of_a_turn_share_one_commit_and_one_write():
    async with Rig() as rig:
        rig.topic("t")
        peer = await rig.connected()
        await peer.producer("t")
        commits, writes = rig.log.journal.counts.commits, peer.transport.writes

        peer.give(b"".join(send_frame(1, number) for number in range(50)))
        await settle()

        assert [peer.next().command.sequence_id for _ in range(50)] == list(range(50))
        assert rig.log.journal.counts.commits == commits + 1
        assert peer.transport.writes == writes + 1


@on_loop
async def test_after_a_failed_write_nothing_is_confirmed():
    async with Rig() as rig:
        rig.topic("t")
        peer = await rig.connected()
        await peer.producer("t")
        rig.fail_disk("write")

        peer.send(1, 7)
        error = await peer.answer("send_error")

        assert (error.producer_id, error.sequence_id) == (1, 7)
        assert error.error == ServerError.PersistenceError
        peer.send(1, 8)
        assert (await peer.answer("send_error")).error == ServerError.PersistenceError


@on_loop
async def test_with_much_in_flight_a_connection_is_not_read():
    async with Rig(pulsar=PulsarSettings(sends_in_flight_max=10)) as rig:
        rig.topic("t")
        peer = await rig.connected()
        await peer.producer("t")

        peer.give(b"".join(send_frame(1, number) for number in range(10)))
        assert peer.stream.stops & STOP_SESSION
        await settle()

        assert not peer.stream.stops
        assert peer.answered == 10


@on_loop
async def test_producers_wait_while_the_log_is_under_pressure():
    async with Rig() as rig:
        rig.topic("t")
        peer = await rig.connected()
        await peer.producer("t")
        peer.stream.stop(STOP_BROKER)
        rig.gateway.wait_for_relief(peer.connection)
        assert peer.stream.stops & STOP_BROKER

        await settle()

        assert not peer.stream.stops


@on_loop
async def test_a_peer_that_does_not_read_gets_no_more_and_is_not_read():
    async with Rig() as rig:
        peer = await rig.connected()
        peer.transport.stuck = True
        connection = peer.connection
        connection.write(b"\0\0\0\1x" * 100_000)
        connection.flush()
        written = len(peer.transport.written)

        connection.send_command("ping")
        connection.flush()
        assert connection.write_paused
        assert not peer.transport.reading
        assert len(peer.transport.written) == written
        peer.transport.unstick()

        assert not connection.write_paused
        assert len(peer.transport.written) > written
        await settle()
        assert peer.transport.reading


@pytest.mark.parametrize("waiting", [False, True])
@on_loop
async def test_consumers_are_notified_when_the_connection_is_writable(waiting):
    async with Rig() as rig:
        peer = await rig.connected()
        reported = []

        class Attached:
            def gone(self):
                reported.append("gone")

            def writable(self):
                reported.append("writable")

        peer.connection.consumers[1] = Attached()
        peer.transport.stuck = True
        peer.connection.write(b"\0\0\0\1x" * 100_000)
        peer.connection.flush()
        if waiting:  # for example a receipt
            peer.connection.send_command("ping")
        peer.transport.unstick()
        peer.transport.close()

        assert reported == ["writable", "gone"]


@on_loop
async def test_drain_acknowledges_messages_in_flight_and_closes_producers():
    """Protocol, CloseProducer: sent by a broker that "is being restarted"."""
    async with Rig() as rig:
        rig.topic("t")
        peer = await rig.connected()
        await peer.producer("t")
        peer.send(1, 0)

        peer.connection.drain()
        assert not peer.is_cut
        await settle()

        assert [peer.next().field for _ in range(2)] == ["send_receipt", "close_producer"]
        assert peer.is_cut


@on_loop
async def test_any_method_of_authentication_is_accepted_while_there_is_none():
    async with Rig() as rig:
        await rig.connected(auth_method_name="none", auth_data=b"")
        await rig.connected(auth_method_name="token", auth_data=b"secret")
        await rig.connected(auth_method=1)


@on_loop
async def test_proxy_fields_are_accepted_without_authentication():
    """Protocol, Connect: `proxy_version` is for proxyRoles only "when authentication and
    authorization are enabled in the broker"; `original_principal` likewise."""
    async with Rig() as rig:
        await rig.connected(proxy_version="4", original_principal="someone")


def test_every_row_names_its_resource_and_operation():
    for row in TABLE:
        assert row.resource
        assert row.operation
        assert row.field == {each.type: each.field for each in COMMANDS}[row.type]


def test_every_client_command_is_served():
    """What is left out is named, with its reason."""
    later = {"authResponse": "we never challenge", "getSchema": "", "getOrCreateSchema": ""}
    sent = {row.field for row in COMMANDS if row.sender in {Sender.CLIENT, Sender.BOTH}}

    assert sent - {row.field for row in TABLE} <= set(later)


BY_FIELD = {row.field: row.type for row in COMMANDS}


def anything(kind: str) -> bytes:
    """A frame of a command with all its required fields."""
    command = BaseCommand(type=BY_FIELD[kind])

    def fill(message):
        for field in message.DESCRIPTOR.fields:
            if not field.is_required:
                continue
            if field.type == FieldDescriptor.TYPE_MESSAGE:
                fill(getattr(message, field.name))
            elif field.type == FieldDescriptor.TYPE_STRING:
                setattr(message, field.name, "x")
            elif field.type == FieldDescriptor.TYPE_BYTES:
                setattr(message, field.name, b"x")
            elif field.type == FieldDescriptor.TYPE_ENUM:
                setattr(message, field.name, field.enum_type.values[0].number)
            else:
                setattr(message, field.name, 1)

    getattr(command, kind).SetInParent()
    fill(getattr(command, kind))
    return encode_command(command)
