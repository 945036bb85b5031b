"""The options of the Kafka client, its producers and consumers, checked when they are made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from functools import cached_property
from typing import Any, Final

from trilogue.client.connection import Dial
from trilogue.client.errors import InvalidOption
from trilogue.client.kafka.consumer.assignors import Assignor
from trilogue.client.kafka.model import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED
from trilogue.client.kafka.security import Security
from trilogue.client.options import (
    check_options,
    flag,
    function,
    number_by_name,
    one_of,
    optional,
    seconds,
    several_of,
    text,
    whole_number,
)
from trilogue.entry.entry import Codec

Compression = Codec
"""The compression of batches; the server stores them as they are."""
Partitioner = Callable[[bytes | None, int], int]
"""Takes a key and the number of partitions; returns a partition."""
IN_FLIGHT_MAX: Final = 5
"""Batches of one idempotent producer and partition that a server remembers."""


class Acks(IntEnum):
    """Which replicas must have a batch before the server answers."""

    NONE = 0
    """The server sends no answer: the client never knows whether the batch arrived."""
    LEADER = 1
    ALL = -1


class Hashing(Enum):
    """The hash that maps a key to a partition, the same as in other clients."""

    MURMUR2 = "murmur2"
    """Java, kafka-python, aiokafka, kafkajs, franz-go."""
    CRC32 = "crc32"
    """librdkafka's default (consistent)."""


class WhenFull(Enum):
    """What `submit` does when the producer's memory is used up."""

    WAIT = "wait"
    RAISE = "raise"


class GroupProtocol(Enum):
    """How the partitions of a group are assigned to its members."""

    CLASSIC = "classic"
    """One member assigns them, by an assignor that all members support."""
    CONSUMER = "consumer"
    """The server assigns them (KIP-848)."""


@dataclass(frozen=True, kw_only=True)
class ClientOptions:
    """The options of a client; `docs/how-to/use-the-kafka-client.md` explains each of them."""

    client_id: str = "trilogue"
    request_timeout_s: float = 30.0
    connect_timeout_s: float = 10.0
    security_protocol: str = "plaintext"
    sasl_mechanism: str = "PLAIN"
    sasl_username: str = ""
    sasl_password: str = field(default="", repr=False)
    oauth_token: Callable[[], str] | None = None
    ssl_ca_location: str = ""
    ssl_certificate_location: str = ""
    ssl_key_location: str = ""
    ssl_key_password: str = field(default="", repr=False)
    ssl_endpoint_identification_algorithm: str = "https"
    dial: Dial | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_options(
            self,
            {
                "client_id": text,
                "dial": optional(function),
                "request_timeout_s": seconds(),
                "connect_timeout_s": seconds(),
                "oauth_token": optional(function),
                **dict.fromkeys(_SECURITY_TEXTS, text),
                "ssl_endpoint_identification_algorithm": _endpoint_identification,
            },
        )
        _ = self.security  # what does not fit together is refused here

    @cached_property
    def security(self) -> Security:
        """TLS and the login of its connections; making it reads the files of certificates."""
        return Security(
            protocol=self.security_protocol.lower(),
            mechanism=self.sasl_mechanism.upper(),
            username=self.sasl_username,
            password=self.sasl_password,
            oauth_token=self.oauth_token,
            ca=self.ssl_ca_location,
            certificate=self.ssl_certificate_location,
            key=self.ssl_key_location,
            key_password=self.ssl_key_password,
            check_hostname=self.ssl_endpoint_identification_algorithm == "https",
        )


def _endpoint_identification(name: str, value: Any) -> str:
    """Check that it is `https`, or one of the two words for no check of the server's name."""
    if str(value).lower() not in {"https", "none", ""}:
        raise InvalidOption(f"{name}={value!r} is not one of https, none")
    return str(value).lower()


_SECURITY_TEXTS: Final = (
    "security_protocol",
    "sasl_mechanism",
    "sasl_username",
    "sasl_password",
    "ssl_ca_location",
    "ssl_certificate_location",
    "ssl_key_location",
    "ssl_key_password",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """The options of one producer."""

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
    transactional_id: str | None = None
    transaction_timeout_s: float = 60.0

    def __post_init__(self) -> None:
        check_options(self, _PRODUCER_CHECKS)
        if self.transactional_id is not None and not self.is_idempotent:
            raise InvalidOption("transactional_id needs acks=Acks.ALL and an idempotent producer")
        if self.idempotent and self.acks is not Acks.ALL:
            raise InvalidOption(f"idempotent=True needs acks=Acks.ALL, not {self.acks!r}")
        if self.is_idempotent and self.max_in_flight > IN_FLIGHT_MAX:
            raise InvalidOption(
                f"max_in_flight={self.max_in_flight} is not allowed: "
                f"an idempotent producer has at most {IN_FLIGHT_MAX} requests in flight"
            )
        if not self.batch_bytes <= self.max_request_bytes <= self.max_memory_bytes:
            raise InvalidOption(
                f"batch_bytes={self.batch_bytes}, max_request_bytes={self.max_request_bytes}, "
                f"max_memory_bytes={self.max_memory_bytes}: none may be above the next one"
            )

    @property
    def is_idempotent(self) -> bool:
        """Whether the server drops duplicates: by default wherever the other options allow it."""
        if self.idempotent is None:
            return self.acks is Acks.ALL and self.max_in_flight <= IN_FLIGHT_MAX
        return self.idempotent


_PRODUCER_CHECKS: Final = {
    "acks": one_of(Acks),
    "idempotent": optional(flag),
    "compression": one_of(Compression),
    "linger_s": seconds(zero=True),
    "batch_bytes": whole_number(1),
    "max_request_bytes": whole_number(1),
    "max_memory_bytes": whole_number(1),
    "when_full": one_of(WhenFull),
    "max_wait_s": seconds(),
    "max_in_flight": whole_number(1),
    "delivery_timeout_s": seconds(),
    "retry_pause_s": seconds(),
    "hashing": one_of(Hashing),
    "partitioner": optional(function),
    "create_topics": flag,
    "metadata_age_s": seconds(),
    "close_timeout_s": seconds(),
    "transactional_id": optional(text),
    "transaction_timeout_s": seconds(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """The options of one consumer."""

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
        check_options(self, _CONSUMER_CHECKS)
        if self.instance_id is not None and self.group is None:
            raise InvalidOption(f"instance_id={self.instance_id!r} needs a group")
        if self.heartbeat_s >= self.session_timeout_s:
            raise InvalidOption(
                f"heartbeat_s={self.heartbeat_s:g} must be below "
                f"session_timeout_s={self.session_timeout_s:g}"
            )

    @property
    def is_cooperative(self) -> bool:
        """Whether members keep their partitions during a rebalance: only if all assignors do."""
        return all(one.is_cooperative for one in self.assignors)


_CONSUMER_CHECKS: Final = {
    "group": optional(text),
    "instance_id": optional(text),
    "protocol": one_of(GroupProtocol),
    "assignors": several_of(Assignor),
    "reset_to": optional(number_by_name({"latest": LATEST, "earliest": EARLIEST})),
    "isolation": number_by_name(
        {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}
    ),
    "auto_commit_s": optional(seconds()),
    "session_timeout_s": seconds(),
    "heartbeat_s": seconds(),
    "max_poll_s": seconds(),
    "min_bytes": whole_number(0),
    "max_bytes": whole_number(1),
    "max_partition_bytes": whole_number(1),
    "max_wait_s": seconds(zero=True),
    "max_buffered_bytes": whole_number(1),
    "check_crcs": flag,
    "create_topics": flag,
    "metadata_age_s": seconds(),
    "retry_pause_s": seconds(),
    "close_timeout_s": seconds(),
}
