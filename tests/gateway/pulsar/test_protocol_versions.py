"""Every version of the protocol: what is agreed, what is refused, what is kept from old clients."""

from __future__ import annotations

import pytest

from tests.gateway.loop import on_loop
from tests.gateway.pulsar.rig import Rig, settle
from trilogue.gateway.pulsar.connection import SINCE, TYPES
from trilogue.gateway.pulsar.settings import NO_REQUEST, PulsarSettings
from trilogue.wire.pulsar.errors import ServerError

VERSIONS = list(range(22))


@pytest.mark.parametrize("version", VERSIONS)
def test_the_session_speaks_the_smaller_version(version):
    """Protocol, Connected: "protocol_version: protocol version supported by the broker"."""

    @on_loop
    async def scenario():
        async with Rig() as rig:
            peer = rig.peer()

            connected = await peer.connect(version)

            assert connected.protocol_version == version
            assert connected.max_message_size == 5 << 20
            assert connected.server_version.startswith("Trilogue ")
            assert connected.feature_flags.supports_topic_watchers
            assert not connected.feature_flags.supports_auth_refresh

    scenario()


@on_loop
async def test_a_newer_client_is_answered_with_what_we_know():
    async with Rig() as rig:
        assert (await rig.peer().connect(99)).protocol_version == 21


@pytest.mark.parametrize("version", VERSIONS)
def test_client_below_the_minimum_version_is_refused_and_disconnected(version):
    """Protocol, Connect: "Broker might be enforcing a minimum version"."""

    @on_loop
    async def scenario():
        async with Rig(pulsar=PulsarSettings(protocol_min=12)) as rig:
            peer = rig.peer()
            peer.send_command("connect", client_version="rig", protocol_version=version)

            answer = peer.next()

            if version >= 12:
                assert answer.field == "connected"
                assert not peer.is_cut
            else:
                assert answer.command.error == ServerError.UnsupportedVersionError
                assert answer.command.request_id == NO_REQUEST
                assert peer.is_cut

    scenario()


@pytest.mark.parametrize("version", VERSIONS)
def test_commands_that_a_client_does_not_know_are_not_sent_to_it(version):
    """Protocol, Connect: "Broker will not send commands introduced in newer revisions"."""

    @on_loop
    async def scenario():
        async with Rig() as rig:
            peer = await rig.connected(version)
            connection = peer.connection

            sent = {
                "ping": connection.send_command("ping"),
                "reachedEndOfTopic": connection.send_command("reachedEndOfTopic", consumer_id=1),
                "active_consumer_change": connection.send_command(
                    "active_consumer_change", consumer_id=1, is_active=True
                ),
            }
            await settle()

            assert sent == {
                "ping": version >= 1,
                "reachedEndOfTopic": version >= 9,
                "active_consumer_change": version >= 12,
            }
            assert peer.answered == sum(sent.values())

    scenario()


@pytest.mark.parametrize("version", VERSIONS)
def test_closing_a_producer_sends_close_producer_or_ends_the_connection(version):
    """Protocol, CloseProducer: clients since protocol version 5 keep the TCP connection."""

    @on_loop
    async def scenario():
        async with Rig() as rig:
            rig.topic("t")
            peer = await rig.connected(version)
            await peer.producer("t")

            peer.connection.close_producer(1)
            await settle()

            assert peer.is_cut == (version < 5)
            if version >= 5:
                closed = await peer.answer("close_producer")
                assert (closed.producer_id, closed.request_id) == (1, NO_REQUEST)

    scenario()


def test_close_is_sent_since_version_5():
    assert {TYPES[name]: 5 for name in ("close_producer", "close_consumer")}.items() <= (
        SINCE.items()
    )
