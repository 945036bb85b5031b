"""The options of the Pulsar client, its producers and consumers, checked when they are made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Any, Final

from trilogue.client.connection import Dial
from trilogue.client.errors import InvalidOption
from trilogue.client.options import (
    check_options,
    flag,
    function,
    instance_of,
    mapping,
    one_of,
    optional,
    seconds,
    text,
    whole_number,
)
from trilogue.client.pulsar.entry_memory import EntryMemory
from trilogue.client.pulsar.security import Security


class Compression(IntEnum):
    """The compression of an entry's payload; the broker never decompresses it."""

    NONE = 0
    LZ4 = 1
    ZLIB = 2
    ZSTD = 3
    SNAPPY = 4


class AccessMode(IntEnum):
    """Whether other producers may be attached to the topic at the same time (PIP-68)."""

    SHARED = 0
    EXCLUSIVE = 1
    WAIT_FOR_EXCLUSIVE = 2
    EXCLUSIVE_WITH_FENCING = 3


class SubscriptionType(IntEnum):
    """How the messages of a subscription are dispatched to its consumers."""

    EXCLUSIVE = 0
    SHARED = 1
    FAILOVER = 2
    KEY_SHARED = 3


class InitialPosition(IntEnum):
    """Where a new subscription starts."""

    LATEST = 0
    EARLIEST = 1


class Hashing(Enum):
    """The hash that maps a key to a partition, the same as in other clients."""

    JAVA_STRING = "java string"
    MURMUR3 = "murmur3"


class Routing(Enum):
    """The partition of messages without a key."""

    ROUND_ROBIN = "round robin"
    """One partition after the other, a new one for each batch."""
    SINGLE = "single"
    """One partition for all, chosen at random when the producer is made."""


class SchemaType(IntEnum):
    """The type of a schema."""

    NONE = 0
    STRING = 1
    JSON = 2
    PROTOBUF = 3
    AVRO = 4
    BOOL = 5
    INT8 = 6
    INT16 = 7
    INT32 = 8
    INT64 = 9
    FLOAT = 10
    DOUBLE = 11
    DATE = 12
    TIME = 13
    TIMESTAMP = 14
    KEY_VALUE = 15
    INSTANT = 16
    LOCAL_DATE = 17
    LOCAL_TIME = 18
    LOCAL_DATE_TIME = 19
    PROTOBUF_NATIVE = 20


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema for the broker's registry. The application itself encodes and decodes messages."""

    name: str
    type: SchemaType
    data: bytes = b""
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Batching:
    """The limits of a batch: it is sent when it reaches one of them."""

    max_messages: int = 1000
    max_bytes: int = 128 * 1024
    max_delay_s: float = 0.001

    def __post_init__(self) -> None:
        check_options(
            self,
            {
                "max_messages": whole_number(1),
                "max_bytes": whole_number(1),
                "max_delay_s": seconds(zero=True),
            },
        )


RENAMED_OPTIONS: Final = {
    "operation_timeout_s": "request_timeout_s",
    "send_timeout_s": "delivery_timeout_s",
}
"""Deprecated option names and the names that all three clients share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """What all producers and consumers of a client share."""

    request_timeout_s: float = 30.0
    """The limit for every request, and for creating a producer or a consumer."""
    connect_timeout_s: float = 10.0
    keep_alive_s: float = 30.0
    """PING after this time without a frame; the connection is closed after twice this time."""
    token: str | Callable[[], str] | None = field(default=None, repr=False)
    """A JSON web token, or a function that returns a fresh one; it is called at each login."""
    username: str = ""
    password: str = field(default="", repr=False)
    tls_trust_certs_file_path: str = ""
    """PEM file of the authorities; those of the machine without it."""
    tls_certificate_file_path: str = ""
    """PEM file of the client's certificate: its login, unless there is another."""
    tls_private_key_file_path: str = ""
    tls_validate_hostname: bool = True
    listener: str = ""
    """The name of the advertised listener to connect to (PIP-61)."""
    max_redirects: int = 20
    max_decompressed_size: int = 64 << 20
    """A payload that decompresses to more is a bad message."""
    dial: Dial | None = field(default=None, repr=False)
    """Connects instead of TCP: a coroutine function of host and port that returns a Unix socket."""

    entry_memory: EntryMemory | None = field(default=None, repr=False)
    """Of a client inside of a server; without it entries are decoded as they come."""

    def __post_init__(self) -> None:
        check_options(self, _CLIENT_CHECKS)
        _ = self.security  # what does not fit together is refused here

    @property
    def security(self) -> Security:
        """The login and TLS of its connections."""
        return Security(
            token=self.token,
            username=self.username,
            password=self.password,
            authorities=self.tls_trust_certs_file_path,
            certificate=self.tls_certificate_file_path,
            key=self.tls_private_key_file_path,
            check_hostname=self.tls_validate_hostname,
        )


def _token(name: str, value: Any) -> Any:
    return function(name, value) if callable(value) else text(name, value)


_CLIENT_CHECKS: Final = {
    "request_timeout_s": seconds(),
    "connect_timeout_s": seconds(),
    "keep_alive_s": seconds(),
    "token": optional(_token),
    "username": text,
    "password": text,
    "tls_trust_certs_file_path": text,
    "tls_certificate_file_path": text,
    "tls_private_key_file_path": text,
    "tls_validate_hostname": flag,
    "listener": text,
    "max_redirects": whole_number(0),
    "max_decompressed_size": whole_number(1),
    "dial": optional(function),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """How one producer sends; `docs/how-to/use-the-pulsar-client.md` explains each option."""

    name: str | None = None
    compression: Compression = Compression.NONE
    batching: Batching | None = field(default_factory=Batching)
    chunking: bool = False
    chunk_size: int = 0
    access: AccessMode = AccessMode.SHARED
    routing: Routing = Routing.ROUND_ROBIN
    hashing: Hashing = Hashing.JAVA_STRING
    first_sequence_id: int | None = None
    delivery_timeout_s: float = 30.0
    max_pending: int = 1000
    schema: Schema | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    initial_subscription: str | None = None

    def __post_init__(self) -> None:
        check_options(self, _PRODUCER_CHECKS)
        if self.chunking and self.batching is not None:
            raise InvalidOption("chunking=True needs batching=None: a chunk is an entry of its own")


_schema: Final = optional(instance_of(Schema, "a Schema"))
_PRODUCER_CHECKS: Final = {
    "name": optional(text),
    "compression": one_of(Compression),
    "batching": optional(instance_of(Batching, "a Batching, or None to send without batches")),
    "chunking": flag,
    "chunk_size": whole_number(0),
    "access": one_of(AccessMode),
    "routing": one_of(Routing),
    "hashing": one_of(Hashing),
    "first_sequence_id": optional(whole_number(0)),
    "delivery_timeout_s": seconds(zero=True),
    "max_pending": whole_number(1),
    "schema": _schema,
    "properties": mapping,
    "initial_subscription": optional(text),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """How one consumer receives; `docs/how-to/use-the-pulsar-client.md` explains each option."""

    subscription: str
    type: SubscriptionType = SubscriptionType.EXCLUSIVE
    name: str | None = None
    initial_position: InitialPosition = InitialPosition.LATEST
    durable: bool = True
    queue_size: int = 1000
    priority: int = 0
    read_compacted: bool = False
    batch_index_acks: bool = False
    ack_receipts: bool = False
    nack_delay_s: float = 1.0
    hash_ranges: tuple[tuple[int, int], ...] = ()
    allow_out_of_order: bool = False
    schema: Schema | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    subscription_properties: Mapping[str, str] = field(default_factory=dict)
    rollback_s: int = 0
    max_pending_chunked: int = 10

    def __post_init__(self) -> None:
        check_options(self, _CONSUMER_CHECKS)
        if self.hash_ranges and self.type is not SubscriptionType.KEY_SHARED:
            raise InvalidOption(
                f"hash_ranges needs type=SubscriptionType.KEY_SHARED, not {self.type!r}"
            )


_CONSUMER_CHECKS: Final = {
    "subscription": text,
    "type": one_of(SubscriptionType),
    "name": optional(text),
    "initial_position": one_of(InitialPosition),
    "durable": flag,
    "queue_size": whole_number(0),
    "priority": whole_number(0),
    "read_compacted": flag,
    "batch_index_acks": flag,
    "ack_receipts": flag,
    "nack_delay_s": seconds(zero=True),
    "hash_ranges": instance_of((tuple, list), "pairs of first and last hash"),
    "allow_out_of_order": flag,
    "schema": _schema,
    "properties": mapping,
    "subscription_properties": mapping,
    "rollback_s": whole_number(0),
    "max_pending_chunked": whole_number(0),
}
