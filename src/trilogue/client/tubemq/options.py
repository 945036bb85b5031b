"""What one may choose: values and their defaults, checked when they are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum

from trilogue.client.errors import ClientError
from trilogue.wire.tubemq.frame import MAX_FRAME_SIZE


class BadFrames(Enum):
    """What bytes that are no frame do to a connection (seed 002, MsgToken).

    In each case the connection is closed and what waits for an answer on it fails.
    """

    CLOSE = "close"
    """The server is left alone for `avoid_s`, like any other faulty one."""
    RAISE = "raise"
    """Whatever needs that server raises BadFrame from then on, until the client is closed."""
    RECONNECT = "reconnect"
    """There is a new connection at once."""


class Connections(Enum):
    """Who shares connections (seed 002: by object or by process, as the application likes)."""

    OBJECT = "object"
    """Each producer and each consumer has its own."""
    CLIENT = "client"
    """The producers and consumers of one client share them."""
    PROCESS = "process"
    """All clients of this process do that were given the same options (and run in one loop)."""


class Position(IntEnum):
    """Where a group begins in a partition; the numbers are readStatus on the wire."""

    FIRST = 0
    """Where it was; a group that never was there at the first message."""
    LAST = 1
    """Where it was; a group that never was there behind the last message."""
    ALWAYS_LAST = 2
    """Behind the last message, whatever the group has read before."""


class Balance(Enum):
    """Who says which partitions a consumer reads."""

    SERVER = "server"
    """The master, in events of its heartbeats."""
    CLIENT = "client"
    """The consumer, by its number among a known number of consumers."""
    MANUAL = "manual"
    """The application, by `connect` and `disconnect`."""


class Confirm(Enum):
    """When a broker is told what was consumed."""

    AT_ONCE = "at once"
    """By a request of its own: what was confirmed stays confirmed."""
    NEXT_GET = "next get"
    """With the next get or the end of the reading: one request less, more that comes twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """How a client talks; `docs/how-to/use-the-tubemq-client.md` says what each is for."""

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

    def __post_init__(self) -> None:
        if (self.user is None) != (self.password is None):
            raise ClientError("a user and a password, or neither")
        if self.max_pending < 1:
            raise ClientError("a connection must be allowed one request under way")
        times = (
            self.request_timeout_s, self.connect_timeout_s, self.heartbeat_s,
            self.first_heartbeats_s, self.register_timeout_s, self.close_timeout_s, self.idle_s,
        )  # fmt: skip
        if min(times) <= 0 or self.avoid_s < 0:
            raise ClientError(f"times must be positive: {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """How one producer sends."""

    max_in_flight: int = 1000
    max_bytes_in_flight: int = 64 << 20
    tries: int = 3

    def __post_init__(self) -> None:
        if min(self.max_in_flight, self.max_bytes_in_flight, self.tries) < 1:
            raise ClientError("a producer must be allowed one message under way, and one try")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A reading that begins at given offsets, once all its consumers are there.

    All give the same `session_key`, `consumers` (how many they are) and `prefer_larger`: which of
    two offsets counts where two consumers name the same partition. Offsets go by partition key.
    """

    session_key: str
    consumers: int
    offsets: Mapping[str, int] = field(default_factory=dict)
    prefer_larger: bool = True

    def __post_init__(self) -> None:
        if not self.session_key or self.consumers < 1:
            raise ClientError(f"a bound reading has a session key and a consumer: {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """How one consumer reads."""

    position: Position = Position.FIRST
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
        if self.bound is not None and self.balance is not Balance.SERVER:
            raise ClientError("a bound reading is balanced by the server")
        if self.balance is Balance.SERVER and (self.source_count or self.node_id):
            raise ClientError("source_count and node_id are for balancing by the client")
        if self.source_count < 0 or not 0 <= self.node_id < max(1, self.source_count):
            raise ClientError(f"node {self.node_id} of {self.source_count}")
        if self.fetch_at_once < 1:
            raise ClientError("a consumer must be allowed to ask one partition")
        if min(self.not_found_wait_s, self.release_wait_s) < 0 or self.confirm_timeout_s <= 0:
            raise ClientError(f"times must be positive: {self}")
