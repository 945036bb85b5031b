"""What one may choose: values and their defaults, checked when they are made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final

from trilogue.client.errors import ClientError
from trilogue.client.kafka.assignors import Assignor
from trilogue.client.kafka.shapes import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED
from trilogue.entry.entry import Codec

Compression = Codec
"""How batches are compressed; the server keeps them so."""
Partitioner = Callable[[bytes | None, int], int]
"""Key and number of partitions to a partition."""
IN_FLIGHT_MAX: Final = 5
"""Batches of one producer and partition that a server remembers (wire fact)."""


class Acks(IntEnum):
    """Who must have a batch before it is answered."""

    NONE = 0
    """There is no answer: whether it arrived is never known."""
    LEADER = 1
    ALL = -1


class Hashing(Enum):
    """How a key becomes a partition, as other clients do it."""

    MURMUR2 = "murmur2"
    """Java, kafka-python, aiokafka, kafkajs, franz-go."""
    CRC32 = "crc32"
    """librdkafka's default (consistent)."""


class WhenFull(Enum):
    """What happens to a message for which there is no memory."""

    WAIT = "wait"
    RAISE = "raise"


class GroupProtocol(Enum):
    """Who shares the partitions of a group among its members."""

    CLASSIC = "classic"
    """One of the members, by an assignor that all know."""
    CONSUMER = "consumer"
    """The server (KIP-848)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """How a client talks; `docs/how-to/use-the-kafka-client.md` says what each is for."""

    client_id: str = "trilogue"
    request_timeout_s: float = 30.0

    def __post_init__(self) -> None:
        if self.request_timeout_s <= 0:
            raise ClientError(f"times must be positive: {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """How one producer sends."""

    acks: Acks = Acks.ALL
    idempotent: bool | None = None
    compression: Compression = Compression.NONE
    linger_s: float = 0.0
    batch_bytes: int = 64 << 10
    max_request_bytes: int = 1 << 20
    max_memory_bytes: int = 64 << 20
    when_full: WhenFull = WhenFull.WAIT
    max_wait_s: float = 60.0
    max_in_flight: int = IN_FLIGHT_MAX
    delivery_timeout_s: float = 120.0
    retry_pause_s: float = 0.1
    hashing: Hashing = Hashing.MURMUR2
    partitioner: Partitioner | None = None
    create_topics: bool = True
    metadata_age_s: float = 300.0
    close_timeout_s: float = 30.0

    def __post_init__(self) -> None:
        if self.idempotent and self.acks is not Acks.ALL:
            raise ClientError("an idempotent producer wants acks=Acks.ALL")
        if self.max_in_flight < 1:
            raise ClientError("a producer must be allowed one request under way")
        if self.is_idempotent and self.max_in_flight > IN_FLIGHT_MAX:
            raise ClientError(f"an idempotent producer has at most {IN_FLIGHT_MAX} under way")
        if not 0 < self.batch_bytes <= self.max_request_bytes <= self.max_memory_bytes:
            raise ClientError("a batch fits into a request, and a request into the memory")
        times = (
            self.max_wait_s, self.delivery_timeout_s, self.retry_pause_s, self.metadata_age_s,
            self.close_timeout_s,
        )  # fmt: skip
        if min(times) <= 0 or self.linger_s < 0:
            raise ClientError(f"times must be positive: {self}")

    @property
    def is_idempotent(self) -> bool:
        """Whether the server is to notice what is sent twice: unless said otherwise, if it can."""
        if self.idempotent is None:
            return self.acks is Acks.ALL and self.max_in_flight <= IN_FLIGHT_MAX
        return self.idempotent


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """How one consumer reads."""

    group: str | None = None
    instance_id: str | None = None
    protocol: GroupProtocol = GroupProtocol.CLASSIC
    assignors: tuple[Assignor, ...] = (Assignor.RANGE, Assignor.COOPERATIVE_STICKY)
    reset_to: int | None = LATEST
    isolation: int = READ_UNCOMMITTED
    auto_commit_s: float | None = 5.0
    session_timeout_s: float = 45.0
    heartbeat_s: float = 3.0
    max_poll_s: float = 300.0
    min_bytes: int = 1
    max_bytes: int = 50 << 20
    max_partition_bytes: int = 1 << 20
    max_wait_s: float = 0.5
    max_buffered_bytes: int = 64 << 20
    check_crcs: bool = True
    create_topics: bool = False
    metadata_age_s: float = 300.0
    retry_pause_s: float = 0.1
    close_timeout_s: float = 10.0

    def __post_init__(self) -> None:
        if self.instance_id is not None and self.group is None:
            raise ClientError("a static member is a member of a group")
        if not self.assignors or len(set(self.assignors)) < len(self.assignors):
            raise ClientError("a member votes for at least one assignor, and once for each")
        if self.reset_to not in {None, LATEST, EARLIEST}:
            raise ClientError(f"begin at LATEST, EARLIEST or nowhere (None): {self.reset_to}")
        if self.isolation not in {READ_UNCOMMITTED, READ_COMMITTED}:
            raise ClientError(f"no isolation {self.isolation}")
        sizes = (self.max_bytes, self.max_partition_bytes, self.max_buffered_bytes)
        if min(sizes) < 1 or self.min_bytes < 0:
            raise ClientError(f"sizes must be positive: {self}")
        times = (
            self.session_timeout_s, self.heartbeat_s, self.max_poll_s, self.metadata_age_s,
            self.retry_pause_s, self.close_timeout_s, self.auto_commit_s or 1.0,
        )  # fmt: skip
        if min(times) <= 0 or self.max_wait_s < 0:
            raise ClientError(f"times must be positive: {self}")
        if self.heartbeat_s >= self.session_timeout_s:
            raise ClientError("heartbeats come more often than sessions end")

    @property
    def is_cooperative(self) -> bool:
        """Whether partitions are kept over a rebalance: only if all assignors can do that."""
        return all(one.is_cooperative for one in self.assignors)
