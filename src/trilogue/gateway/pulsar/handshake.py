"""CONNECT, PING and PONG.

The broker speaks protocol versions 0 to 21 and answers with the smaller of the client's version and
its own. There is no authentication: a client may name any method and data and stays anonymous, as
with an Apache Pulsar broker whose authentication is off. For the same reason every client may set
the fields that a proxy sets, which Apache Pulsar restricts to its proxyRoles only where
authentication and authorization are enabled; they have no effect.
"""

from __future__ import annotations

import logging

from trilogue import __version__
from trilogue.gateway.pulsar.connection import PulsarConnection
from trilogue.gateway.pulsar.settings import NO_REQUEST, PROTOCOL_VERSION
from trilogue.gateway.stream import Close
from trilogue.wire.pulsar.errors import ServerError
from trilogue.wire.pulsar.pulsar_pb2 import (
    CommandConnect,
    CommandPing,
    CommandPong,
    FeatureFlags,
)

log = logging.getLogger(__name__)

# The features of a broker that are served; clients rely on each flag.
FEATURES = FeatureFlags(
    supports_topic_watchers=True,
    supports_get_partitioned_metadata_without_auto_creation=True,
)
TEXT_MAX = 256  # characters of the client version that are kept


def handle_connect(
    connection: PulsarConnection, command: CommandConnect, _frame: memoryview
) -> None:
    """Agree on a protocol version; refuse one that is too old, and close."""
    if connection.connected:
        raise Close("connection.second_connect")
    settings = connection.gateway.settings
    if command.protocol_version < settings.protocol_min:
        connection.send_error(
            NO_REQUEST,
            ServerError.UnsupportedVersionError,
            f"protocol version {command.protocol_version}, at least {settings.protocol_min} "
            "is needed here",
        )
        log.warning(
            "connection.old_protocol",
            extra={"address": connection.stream.peer[0], "version": command.protocol_version},
        )
        connection.flush_and_close()
        return
    connection.protocol_version = min(max(command.protocol_version, 0), PROTOCOL_VERSION)
    connection.features.CopyFrom(command.feature_flags)
    connection.features.DiscardUnknownFields()  # their size has no bound
    connection.client_version = command.client_version[:TEXT_MAX]
    connection.establish()
    connection.send_command(
        "connected",
        server_version=f"Trilogue {__version__}",
        protocol_version=connection.protocol_version,
        max_message_size=settings.message_bytes_max,
        feature_flags=FEATURES,
    )


def handle_ping(connection: PulsarConnection, _command: CommandPing, _frame: memoryview) -> None:
    """Send PONG."""
    connection.send_command("pong")


def handle_pong(_connection: PulsarConnection, _command: CommandPong, _frame: memoryview) -> None:
    """Do nothing: every frame shows that the client is alive."""
