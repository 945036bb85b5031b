"""CONNECT, AUTH_RESPONSE, PING and PONG.

The broker speaks protocol versions 0 to 21 and answers with the smaller of the client's version and
its own. Where `access.authenticate` is on, CONNECT has credentials (login.py), and the connection
is not read while they are checked. Where it is off, a client may name any method and data, stays
anonymous, and may set the fields of a proxy, which have no effect then: Apache Pulsar does the
same.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine

from trilogue import __version__
from trilogue.broker.errors import AuthenticationFailed
from trilogue.gateway.pulsar.auth.login import (
    Credentials,
    LoginExpiry,
    log_in,
    refuse,
    verify_credentials,
)
from trilogue.gateway.pulsar.connection import PulsarConnection
from trilogue.gateway.pulsar.settings import NO_REQUEST, PROTOCOL_VERSION
from trilogue.gateway.stream import STOP_WORK, Close
from trilogue.wire.pulsar.errors import ServerError
from trilogue.wire.pulsar.pulsar_pb2 import (
    CommandAuthResponse,
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
) -> Coroutine[None, None, None] | None:
    """Check version and credentials; refuse a version that is too old, and close."""
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
        return None
    connection.protocol_version = min(max(command.protocol_version, 0), PROTOCOL_VERSION)
    connection.features.CopyFrom(command.feature_flags)
    connection.features.DiscardUnknownFields()  # their size has no bound
    connection.client_version = command.client_version[:TEXT_MAX]
    if not connection.gateway.requires_login:
        _send_connected(connection)
        return None
    connection.stream.stop(STOP_WORK)
    return _log_in(connection, command)


def handle_auth_response(
    connection: PulsarConnection, command: CommandAuthResponse, _frame: memoryview
) -> Coroutine[None, None, None]:
    """Check the new credentials that AUTH_CHALLENGE requested."""
    expiry = connection.expiry
    if expiry is None or not expiry.is_challenged:
        raise Close("connection.no_challenge")
    connection.stream.stop(STOP_WORK)
    return _renew(connection, expiry, Credentials.of_auth_data(command.response))


async def _log_in(connection: PulsarConnection, command: CommandConnect) -> None:
    try:
        login = await log_in(connection.gateway, command, connection.stream)
    except AuthenticationFailed as problem:
        _send_refusal(connection, problem)
        return
    if not connection.is_gone:
        connection.set_login(login)
        _send_connected(connection)
        connection.stream.go_on(STOP_WORK)


async def _renew(connection: PulsarConnection, expiry: LoginExpiry, sent: Credentials) -> None:
    gateway, host = connection.gateway, connection.stream.peer[0]
    known = expiry.login.client
    try:
        if sent.method != known.method:
            raise refuse(gateway, host, sent.method, "another method", known.principal.name)
        login = await verify_credentials(gateway, sent, host)
        if login.principal != known.principal:
            raise refuse(gateway, host, sent.method, "another user", login.principal.name)
    except AuthenticationFailed as problem:
        _send_refusal(connection, problem)
        return
    if not connection.is_gone:
        expiry.renew(login)
        gateway.authenticator.set_signers(connection, [login])
        connection.stream.go_on(STOP_WORK)


def _send_refusal(connection: PulsarConnection, problem: AuthenticationFailed) -> None:
    if not connection.is_gone:
        connection.send_error(NO_REQUEST, problem)
        connection.flush_and_close()


def _send_connected(connection: PulsarConnection) -> None:
    connection.establish()
    connection.send_command(
        "connected",
        server_version=f"Trilogue {__version__}",
        protocol_version=connection.protocol_version,
        max_message_size=connection.gateway.settings.message_bytes_max,
        feature_flags=FEATURES,
    )


def handle_ping(connection: PulsarConnection, _command: CommandPing, _frame: memoryview) -> None:
    """Send PONG."""
    connection.send_command("pong")


def handle_pong(_connection: PulsarConnection, _command: CommandPong, _frame: memoryview) -> None:
    """Do nothing: every frame shows that the client is alive."""
