"""CONNECT, PING and PONG: how a session begins and stays.

Protocol versions 0 to 21. We answer with the smaller of the client's and ours. There is no
authentication yet: whatever method and data a client brings, it is nobody in particular, as with a
real broker whose authentication is off. For the same reason anybody may name the fields that a
proxy adds (seed 000: only "when authentication and authorization are enabled" are they for
proxyRoles); they change nothing here.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from trilogue import __version__
from trilogue.gateway.pulsar.shared import NO_REQUEST, PROTOCOL_VERSION
from trilogue.gateway.stream import Close
from trilogue.wire.pulsar.errors import ServerError
from trilogue.wire.pulsar.pulsar_pb2 import (
    CommandConnect,
    CommandPing,
    CommandPong,
    FeatureFlags,
)

if TYPE_CHECKING:
    from trilogue.gateway.pulsar.connection import PulsarConnection

log = logging.getLogger(__name__)

# What we serve of what a broker may say it supports; a flag more is a promise more.
FEATURES = FeatureFlags(
    supports_topic_watchers=True,
    supports_get_partitioned_metadata_without_auto_creation=True,
)
TEXT_MAX = 256  # of what a client says about itself


def connect(connection: PulsarConnection, command: CommandConnect, _frame: memoryview) -> None:
    """Agree on a version, or refuse one that is too old and close."""
    if connection.connected:
        raise Close("connection.second_connect")
    settings = connection.door.settings
    if command.protocol_version < settings.protocol_min:
        connection.error(
            NO_REQUEST,
            ServerError.UnsupportedVersionError,
            f"protocol version {command.protocol_version}, at least {settings.protocol_min} "
            "is needed here",
        )
        log.warning(
            "connection.old_protocol",
            extra={"address": connection.stream.peer[0], "version": command.protocol_version},
        )
        connection.end()
        return
    connection.protocol_version = min(max(command.protocol_version, 0), PROTOCOL_VERSION)
    connection.features.CopyFrom(command.feature_flags)
    connection.features.DiscardUnknownFields()  # nobody bounds what may stand there
    connection.client_version = command.client_version[:TEXT_MAX]
    connection.established()
    connection.say(
        "connected",
        server_version=f"Trilogue {__version__}",
        protocol_version=connection.protocol_version,
        max_message_size=settings.message_bytes_max,
        feature_flags=FEATURES,
    )


def ping(connection: PulsarConnection, _command: CommandPing, _frame: memoryview) -> None:
    """Answer at once."""
    connection.say("pong")


def pong(_connection: PulsarConnection, _command: CommandPong, _frame: memoryview) -> None:
    """The client is there; any frame says so."""
