"""The options of the TubeMQ client, its producers and consumers, checked when they are made."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Final

from trilogue.client.errors import InvalidOption
from trilogue.client.options import (
    check_options,
    flag,
    instance_of,
    mapping,
    one_of,
    optional,
    seconds,
    text,
    whole_number,
)
from trilogue.client.tls import make_client_context
from trilogue.wire.tubemq.frame import MAX_FRAME_SIZE


class BadFrames(Enum):
    """What the client does after bytes that are no frame.

    In each case the connection is closed, and the requests in flight on it fail.
    """

    CLOSE = "close"
    """The server is avoided for `avoid_s`, like any other faulty server."""
    RAISE = "raise"
    """Every request to that server raises BadFrame until the client is closed."""
    RECONNECT = "reconnect"
    """The client connects again at once."""


class Connections(Enum):
    """The scope in which connections are shared."""

    OBJECT = "object"
    """Each producer and each consumer has its own."""
    CLIENT = "client"
    """The producers and consumers of one client share them."""
    PROCESS = "process"
    """All clients of this process with equal options share them, where they run in one loop."""


class Position(IntEnum):
    """Where a group starts in a partition; the numbers are readStatus on the wire."""

    FIRST = 0
    """At the confirmed offset; a group without one at the first message."""
    LAST = 1
    """At the confirmed offset; a group without one after the last message."""
    ALWAYS_LAST = 2
    """After the last message, even if the group has a confirmed offset."""


class Balance(Enum):
    """What assigns the partitions to consumers."""

    SERVER = "server"
    """The master, in events of its heartbeats."""
    CLIENT = "client"
    """The consumer, by its number among a known number of consumers."""
    MANUAL = "manual"
    """The application, by `connect` and `disconnect`."""


class Confirm(Enum):
    """When a confirmation is sent to the broker."""

    AT_ONCE = "at once"
    """At once, in a request of its own: a confirmed batch never comes again."""
    NEXT_GET = "next get"
    """With the next get, or when the partition is released: one request less, more duplicates."""


RENAMED_OPTIONS: Final = {
    "position": "initial_position",
    "max_in_flight": "max_pending",
    "max_bytes_in_flight": "max_memory_bytes",
}
"""Deprecated option names and the names that all three clients share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """The options of a client; `docs/how-to/use-the-tubemq-client.md` explains each of them."""

    request_timeout_s: float = 10.0
    connect_timeout_s: float = 3.0
    heartbeat_s: float = 13.0
    first_heartbeats_s: float = 1.0
    register_timeout_s: float = 30.0
    close_timeout_s: float = 5.0
    idle_s: float = 300.0
    avoid_s: float = 30.0
    max_pending: int = 20_000
    max_frame_size: int = MAX_FRAME_SIZE
    connections: Connections = Connections.CLIENT
    bad_frames: BadFrames = BadFrames.CLOSE
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    host_name: str | None = None
    tls: bool = False
    tls_trust_certs_file_path: str = ""

    def __post_init__(self) -> None:
        check_options(self, _CLIENT_CHECKS)
        if (self.user is None) != (self.password is None):
            raise InvalidOption("user and password are given together, or neither of them")
        if self.tls_trust_certs_file_path and not self.tls:
            raise InvalidOption("tls_trust_certs_file_path needs tls=True")
        self.make_context()  # so that a wrong file is reported at once

    def make_context(self) -> ssl.SSLContext | None:
        """Return what connections are encrypted with, None for plain ones; InvalidOption."""
        return make_client_context(self.tls_trust_certs_file_path) if self.tls else None


_CLIENT_CHECKS: Final = {
    "request_timeout_s": seconds(),
    "connect_timeout_s": seconds(),
    "heartbeat_s": seconds(),
    "first_heartbeats_s": seconds(),
    "register_timeout_s": seconds(),
    "close_timeout_s": seconds(),
    "idle_s": seconds(),
    "avoid_s": seconds(zero=True),
    "max_pending": whole_number(1),
    "max_frame_size": whole_number(1),
    "connections": one_of(Connections),
    "bad_frames": one_of(BadFrames),
    "user": optional(text),
    "password": optional(text),
    "host_name": optional(text),
    "tls": flag,
    "tls_trust_certs_file_path": text,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """The options of one producer."""

    max_pending: int = 1000
    max_memory_bytes: int = 64 << 20
    tries: int = 3

    def __post_init__(self) -> None:
        check_options(
            self,
            {
                "max_pending": whole_number(1),
                "max_memory_bytes": whole_number(1),
                "tries": whole_number(1),
            },
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A consumption that starts at given offsets once all its consumers are registered.

    All consumers give the same `session_key`, `consumers` (their number) and `prefer_larger`: which
    of two offsets counts where two consumers name the same partition. `offsets` goes by partition
    key.
    """

    session_key: str
    consumers: int
    offsets: Mapping[str, int] = field(default_factory=dict)
    prefer_larger: bool = True

    def __post_init__(self) -> None:
        check_options(
            self,
            {
                "session_key": text,
                "consumers": whole_number(1),
                "offsets": mapping,
                "prefer_larger": flag,
            },
        )
        if not self.session_key:
            raise InvalidOption("session_key='' is not allowed: all consumers name the same key")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """The options of one consumer."""

    initial_position: Position = Position.FIRST
    balance: Balance = Balance.SERVER
    confirm: Confirm = Confirm.AT_ONCE
    bound: Bound | None = None
    source_count: int = 0
    node_id: int = 0
    not_found_wait_s: float = 0.1
    confirm_timeout_s: float = 90.0
    release_wait_s: float = 5.0
    fetch_at_once: int = 16
    skip_flow_control: bool = False

    def __post_init__(self) -> None:
        check_options(self, _CONSUMER_CHECKS)
        if self.bound is not None and self.balance is not Balance.SERVER:
            raise InvalidOption(f"bound needs balance=Balance.SERVER, not {self.balance!r}")
        if self.balance is Balance.SERVER and (self.source_count or self.node_id):
            raise InvalidOption("source_count and node_id need balance=Balance.CLIENT")
        if self.node_id >= max(1, self.source_count):
            raise InvalidOption(
                f"node_id={self.node_id} is not allowed: it is below source_count="
                f"{self.source_count}"
            )


_CONSUMER_CHECKS: Final = {
    "initial_position": one_of(Position),
    "balance": one_of(Balance),
    "confirm": one_of(Confirm),
    "bound": optional(instance_of(Bound, "a Bound")),
    "source_count": whole_number(0),
    "node_id": whole_number(0),
    "not_found_wait_s": seconds(zero=True),
    "confirm_timeout_s": seconds(),
    "release_wait_s": seconds(zero=True),
    "fetch_at_once": whole_number(1),
    "skip_flow_control": flag,
}
