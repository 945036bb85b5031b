"""What one may choose: values and their defaults, checked when they are made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final

from trilogue.client.errors import ClientError
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
