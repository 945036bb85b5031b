"""The connection itself: the handshake, pings, old brokers, and bytes that are no frames."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.client.harness import run_on_idle_clock
from tests.client.pulsar.scripted import (
    SILENCE,
    Peer,
    ScriptedPulsar,
    lookup_answer,
    on_broker,
    single,
)
from tests.waiting import run_ready_tasks
from trilogue.client.errors import ClientError, ConnectionLost, Unsupported
from trilogue.client.lifecycle import PRUNE_AT
from trilogue.client.pulsar import (
    ClosedError,
    MessageId,
    PulsarClient,
    PulsarError,
    TimedOut,
)
from trilogue.client.pulsar.connection import ANSWERS, PUSHED, PulsarConnection
from trilogue.client.pulsar.message import EARLIEST, LATEST
from trilogue.client.pulsar.options import ClientOptions
from trilogue.client.pulsar.pool import addresses
from trilogue.client.pulsar.topic_names import full_name, http_path, namespace_of, partition_number
from trilogue.wire.pulsar import pulsar_pb2 as pb
from trilogue.wire.pulsar.commands import COMMANDS, Sender
from trilogue.wire.pulsar.errors import ServerError
from trilogue.wire.pulsar.frame import MAX_MESSAGE_SIZE, SLACK, encode_command


@on_broker
async def test_connect_command_contains_client_and_protocol_version(
    broker: ScriptedPulsar, client: PulsarClient
):
    """Protocol, connection establishment: client_version, auth_method_name, protocol_version."""
    await client.partitions("t")
    (connect,) = broker.all("CONNECT")

    assert connect.client_version.startswith("trilogue")
    assert connect.protocol_version == 21
    assert connect.auth_method_name == "none"
    assert connect.feature_flags.supports_broker_entry_metadata
    assert not connect.HasField("proxy_to_broker_url")


@pytest.mark.parametrize("token", ["one", lambda: "one"], ids=["fixed", "fresh"])
def test_token_is_sent_on_connect_and_on_auth_challenge(token: Any):
    @on_broker(token=token)
    async def work(broker: ScriptedPulsar, client: PulsarClient):
        await client.partitions("t")
        broker.peers[0].send(authChallenge=pb.CommandAuthChallenge(server_version="x"))
        (response,) = await broker.saw("AUTH_RESPONSE")
        (connect,) = broker.all("CONNECT")

        assert (connect.auth_method_name, connect.auth_data) == ("token", b"one")
        assert connect.feature_flags.supports_auth_refresh
        assert response.response.auth_data == b"one"

    work()


@on_broker
async def test_refused_connect_raises_the_error_of_the_broker(
    broker: ScriptedPulsar, client: PulsarClient
):
    """Protocol: "if the broker doesn't validate the client authentication, it will reply
    with an
    Error command and close the TCP connection"."""

    def refuse(peer: Peer, _connect: Any) -> None:
        error = pb.CommandError(request_id=2**64 - 1, error=pb.AuthenticationError, message="no")
        peer.send(error=error)
        peer.hang_up()

    broker.next_up["CONNECT"].append(refuse)
    with pytest.raises(PulsarError, match="AuthenticationError"):
        await client.partitions("t")


@on_broker(connect_timeout_s=0.05)
async def test_a_server_that_does_not_greet_is_left(broker: ScriptedPulsar, client: PulsarClient):
    broker.next_up["CONNECT"].append(SILENCE)
    with pytest.raises(TimedOut, match="did not answer CONNECT"):
        await client.partitions("t")
    await broker.saw("GONE")


@pytest.mark.parametrize("size", [0, -1, 2**31 - 1])
def test_a_largest_message_that_cannot_be_is_not_believed(size: int):
    @on_broker(request_timeout_s=0.2)
    async def work(broker: ScriptedPulsar, client: PulsarClient):
        broker.max_message_size = size
        with pytest.raises(ConnectionLost, match="announced"):
            await client.partitions("t")

    work()


@on_broker
async def test_frames_may_be_as_long_as_the_broker_announces(
    broker: ScriptedPulsar, client: PulsarClient
):
    broker.max_message_size = 8 << 20
    consumer = await client.subscribe("t", "s")
    broker.peers[0].message(single(b"x" * (8 << 20)))
    assert len((await consumer.receive(5)).value or b"") == 8 << 20

    broker.peers[0].raw((broker.max_message_size + SLACK + 1).to_bytes(4, "big"))
    await broker.saw("GONE")


@on_broker
async def test_connections_to_where_nothing_is_any_more_are_forgotten(
    broker: ScriptedPulsar, client: PulsarClient
):
    for _ in range(3):
        async with ScriptedPulsar() as other:
            broker.next_up["LOOKUP"].append(lookup_answer(other.url))
            await (await client.producer("t")).close()
        await other.saw("GONE")

    assert len(client._pool._shared._open) <= 2


@on_broker
async def test_a_ping_is_answered_at_once(broker: ScriptedPulsar, client: PulsarClient):
    """Protocol, keep alive: the client "is required to promptly reply after receiving one
    from the
    broker"."""
    await client.partitions("t")
    broker.peers[0].send(ping=pb.CommandPing())
    await broker.saw("PONG")


@on_broker(keep_alive_s=0.02)
async def test_pings_are_sent_and_silence_after_one_ends_the_connection(
    broker: ScriptedPulsar, client: PulsarClient
):
    """Protocol, keep alive: "they will close the socket if a Pong response is not received"."""
    producer = await client.producer("t")
    await broker.saw("PING", 3)
    assert len(broker.peers) == 1

    broker.next_up["PING"].append(SILENCE)
    await broker.saw("GONE")
    await producer.send(b"x")
    assert len(broker.peers) == 2


@on_broker
async def test_a_connection_that_closes_with_unsent_bytes_sends_no_ping(
    broker: ScriptedPulsar, client: PulsarClient
):
    """Its probe comes while what was written is still being sent."""
    await client.partitions("t")
    connection = PulsarConnection(client.options)
    await connection.open("127.0.0.1", broker.port)
    connection.close()
    connection._tick()
    await connection.wait_closed()


@on_broker(keep_alive_s=0.02)
async def test_whatever_comes_is_a_sign_of_life(broker: ScriptedPulsar, client: PulsarClient):
    await client.subscribe("t", "s")
    for number in range(5):
        broker.next_up["PING"].append(lambda peer, _ping: peer.message(single(b"x")))
        await broker.saw("PING", number + 1)

    assert len(broker.peers) == 1


@on_broker
async def test_nothing_is_sent_that_the_broker_is_too_old_for(
    broker: ScriptedPulsar, client: PulsarClient
):
    """Pulsar protocol, CONNECTED: "Client must not attempt to send commands introduced in newer
    revisions
    of the protocol"."""
    broker.version = 11
    consumer = await client.subscribe("t", "s")
    with pytest.raises(Unsupported, match="GET_LAST_MESSAGE_ID needs protocol 12"):
        await consumer.last_message_ids()
    with pytest.raises(Unsupported, match="GET_TOPICS_OF_NAMESPACE needs protocol 12"):
        await client.topics()
    assert broker.names("GET_LAST_MESSAGE_ID", "GET_TOPICS_OF_NAMESPACE") == []


@on_broker(request_timeout_s=0.1, keep_alive_s=0.01)
async def test_a_broker_older_than_pings_and_lookups_gets_neither(
    broker: ScriptedPulsar, client: PulsarClient
):
    broker.version = 0
    with pytest.raises(Unsupported, match="LOOKUP needs protocol 7"):
        await client.producer("t")
    await client.partitions("t")

    assert broker.names("LOOKUP", "PING") == []


def frame(octets: bytes) -> bytes:
    return len(octets).to_bytes(4, "big") + octets


def command(octets: bytes) -> bytes:
    return frame(frame(octets))


BROKEN = {
    "4 GiB": b"\xff\xff\xff\xff",
    "a byte more than the largest": (MAX_MESSAGE_SIZE + SLACK + 1).to_bytes(4, "big"),
    "nothing": frame(b""),
    "half a size": frame(b"\x00\x00"),
    "a command of 4 GiB": frame(b"\xff\xff\xff\xff\x08\x03"),
    "a command longer than its frame": frame(b"\x00\x00\x00\x09\x08\x03"),
    "no protobuf": command(b"\xff\xff\xff\xff"),
    "no type": command(b"\x12\x00"),
    "an unknown type": command(b"\x08\x64"),
    "a type without its message": command(b"\x08\x0d"),
    "a required field missing": command(b"\x08\x0d\x6a\x00"),
    "a receipt without its id": command(b"\x08\x07\x3a\x04\x08\x00\x10\x00"),
    "a message without its id": command(b"\x08\x09\x4a\x02\x08\x00"),
    "another client's command": encode_command(
        pb.BaseCommand(
            type=pb.BaseCommand.LOOKUP,
            lookupTopic=pb.CommandLookupTopic(topic="t", request_id=1),
        )
    ),
    "a second greeting": encode_command(
        pb.BaseCommand(
            type=pb.BaseCommand.CONNECTED, connected=pb.CommandConnected(server_version="x")
        )
    ),
    "a challenge to who has nothing to show": encode_command(
        pb.BaseCommand(type=pb.BaseCommand.AUTH_CHALLENGE, authChallenge=pb.CommandAuthChallenge())
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_bytes_that_are_no_frames_cost_the_connection_and_nothing_else(name: str):
    @on_broker
    async def work(broker: ScriptedPulsar, client: PulsarClient):
        producer = await client.producer("t", batching=None)
        consumer = await client.subscribe("t", "s")
        broker.next_up["SEND"].append(SILENCE)
        sending = asyncio.ensure_future(producer.send(b"x"))
        await broker.saw("SEND")
        broker.peers[0].raw(BROKEN[name])
        await broker.saw("GONE")
        await broker.saw("FLOW", 2)
        broker.peers[1].message(single(b"y"), consumer=1)

        assert (await sending).entry_id == 0
        assert (await consumer.receive(5)).value == b"y"
        assert len(broker.peers) == 2

    work()


@pytest.mark.parametrize("name", sorted(BROKEN.keys() - {"a second greeting"}))
def test_a_greeting_that_is_no_frame_is_a_lost_connection(name: str):
    @on_broker(request_timeout_s=1)
    async def work(broker: ScriptedPulsar, client: PulsarClient):
        broker.next_up["CONNECT"].append(lambda peer, _connect: peer.raw(BROKEN[name]))
        with pytest.raises(ConnectionLost):
            await client.partitions("t")

    work()


@on_broker
async def test_a_frame_cut_anywhere_is_put_together(broker: ScriptedPulsar, client: PulsarClient):
    consumer = await client.subscribe("t", "s")
    peer, out = broker.peers[0], bytearray()
    whole = Peer.__new__(Peer)
    whole.raw = out.extend  # type: ignore[method-assign]
    whole.message(single(b"x" * 50))
    for octet in out:
        peer.raw(bytes([octet]))
        await peer.writer.drain()
        await run_ready_tasks()

    assert (await consumer.receive(5)).value == b"x" * 50


@on_broker
async def test_unmatched_commands_are_ignored(broker: ScriptedPulsar, client: PulsarClient):
    await client.partitions("t")
    peer = broker.peers[0]
    peer.send(success=pb.CommandSuccess(request_id=99))
    peer.message(single(b"x"), consumer=77)
    place = pb.MessageIdData(ledgerId=1, entryId=1)
    peer.send(send_receipt=pb.CommandSendReceipt(producer_id=7, sequence_id=0, message_id=place))
    error = pb.CommandSendError(producer_id=7, sequence_id=0, error=pb.UnknownError, message="")
    peer.send(send_error=error)
    peer.send(close_producer=pb.CommandCloseProducer(producer_id=7, request_id=0))
    peer.send(close_consumer=pb.CommandCloseConsumer(consumer_id=7, request_id=0))
    peer.send(reachedEndOfTopic=pb.CommandReachedEndOfTopic(consumer_id=7))
    peer.send(active_consumer_change=pb.CommandActiveConsumerChange(consumer_id=7))
    peer.send(topicMigrated=pb.CommandTopicMigrated(resource_id=7, resource_type=1))
    await client.partitions("t")

    assert len(broker.peers) == 1


def test_everything_that_brokers_send_has_a_place():
    """Commands of topic watching are unexpected: the client does not request them."""
    expected = {
        row.type
        for row in COMMANDS
        if row.sender in {Sender.BROKER, Sender.BOTH} and "WATCH_TOPIC" not in row.name
    }
    hot = {pb.BaseCommand.MESSAGE, pb.BaseCommand.SEND_RECEIPT, pb.BaseCommand.CONNECTED}

    assert set(ANSWERS) | set(PUSHED) | hot == expected


def test_an_error_code_of_the_future_is_an_unknown_error():
    assert PulsarError(99, "x", "y").error is ServerError.UnknownError
    assert PulsarError(99, "x", "y").code == 99


@on_broker
async def test_a_closed_client_makes_nothing(broker: ScriptedPulsar, client: PulsarClient):
    await client.producer("t")
    await client.subscribe("t", "s")
    await client.close()
    await client.close()

    assert broker.names("CLOSE_PRODUCER", "CLOSE_CONSUMER") == ["CLOSE_PRODUCER", "CLOSE_CONSUMER"]
    for making in (client.producer("t"), client.subscribe("t", "s"), client.reader("t")):
        with pytest.raises(ClosedError):
            await making


@on_broker
async def test_closed_consumers_are_pruned(broker: ScriptedPulsar, client: PulsarClient):
    kept = await client.producer("t")
    for _ in range(3 * PRUNE_AT):
        await (await client.subscribe("t", "s")).close()

    assert len(client._opened) <= PRUNE_AT
    assert kept in client._opened


@on_broker
async def test_giving_up_closes_what_was_being_made(broker: ScriptedPulsar, client: PulsarClient):
    broker.next_up["SUBSCRIBE"].append(SILENCE)
    making = asyncio.ensure_future(client.subscribe("t", "s"))
    await broker.saw("SUBSCRIBE")
    making.cancel()

    await broker.saw("CLOSE_CONSUMER")


def test_cancelled_connect_closes_the_connection():
    async def work() -> int:
        async with ScriptedPulsar() as broker:
            broker.next_up["CONNECT"].append(SILENCE)
            connection = PulsarConnection(ClientOptions())
            opening = asyncio.ensure_future(connection.open("127.0.0.1", broker.port))
            await broker.saw("CONNECT")
            opening.cancel()
            return len(await broker.saw("GONE"))

    assert run_on_idle_clock(work()) == 1


def test_message_ids_are_bytes_that_other_clients_read():
    plain = MessageId(1, 2)
    whole = MessageId(1, 2, batch_index=3, partition=4, batch_size=5, first_chunk=(1, 0))

    assert MessageId.from_bytes(plain.to_bytes()) == plain
    assert MessageId.from_bytes(whole.to_bytes()) == whole
    assert MessageId.from_bytes(EARLIEST.to_bytes()) == EARLIEST
    assert plain.to_bytes() == bytes.fromhex("0801 1002")
    assert EARLIEST.place < plain.place < whole.place < LATEST.place
    with pytest.raises(ClientError, match="no message id"):
        MessageId.from_bytes(b"\x08")


def test_topic_names_are_written_out():
    full = "persistent://public/default/t"

    assert [full_name(one) for one in ("t", "public/default/t", full)] == [full] * 3
    assert full_name("non-persistent://a/b/c") == "non-persistent://a/b/c"
    assert full_name("persistent://a/cluster/b/c") == "persistent://a/cluster/b/c"
    assert namespace_of("persistent://a/cluster/b/c") == "a/cluster/b"
    assert http_path("persistent://a/b/c d") == "persistent/a/b/c%20d"
    assert (partition_number(f"{full}-partition-12"), partition_number(full)) == (12, -1)
    for wrong in ("a/b", "a/b/c/d", "kafka://a/b/c", "persistent://a/b", "persistent:///b/c"):
        with pytest.raises(ClientError):
            full_name(wrong)


def test_addresses_are_read_as_people_write_them():
    assert addresses("pulsar://a:1,b:2/") == [("a", 1), ("b", 2)]
    assert addresses("pulsar://a") == [("a", 6650)]
    assert addresses("pulsar://[::1]:7,[::2]") == [("::1", 7), ("::2", 6650)]
