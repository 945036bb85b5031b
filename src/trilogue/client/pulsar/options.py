"""What one may choose: values and their defaults, checked when they are made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum

from trilogue.client.errors import ClientError


class Compression(IntEnum):
    """How the payload of an entry is compressed; the broker never opens it."""

    NONE = 0
    LZ4 = 1
    ZLIB = 2
    ZSTD = 3
    SNAPPY = 4


class AccessMode(IntEnum):
    """How many producers a topic may have beside this one."""

    SHARED = 0
    EXCLUSIVE = 1
    WAIT_FOR_EXCLUSIVE = 2
    EXCLUSIVE_WITH_FENCING = 3


class SubscriptionType(IntEnum):
    """How the consumers of one subscription divide its messages."""

    EXCLUSIVE = 0
    SHARED = 1
    FAILOVER = 2
    KEY_SHARED = 3


class InitialPosition(IntEnum):
    """Where a subscription that does not exist yet begins."""

    LATEST = 0
    EARLIEST = 1


class Hashing(Enum):
    """How a key becomes a number, to choose a partition by; both as the other clients do."""

    JAVA_STRING = "java string"
    MURMUR3 = "murmur3"


class Routing(Enum):
    """Where messages without a key go."""

    ROUND_ROBIN = "round robin"
    """To one partition after the other, changing with each batch."""
    SINGLE = "single"
    """All to one partition, chosen at random once."""


class SchemaType(IntEnum):
    """What kind of schema the bytes of a `Schema` are."""

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
    """A schema as the broker keeps it; messages stay bytes, encoding them is the application's."""

    name: str
    type: SchemaType
    data: bytes = b""
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Batching:
    """When a batch is sent: it is full, it is large, or its first message waited long enough."""

    max_messages: int = 1000
    max_bytes: int = 128 * 1024
    max_delay_s: float = 0.001

    def __post_init__(self) -> None:
        if self.max_messages < 1 or self.max_bytes < 1 or self.max_delay_s < 0:
            raise ClientError(f"a batch of at least one message and byte: {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """What all producers and consumers of a client share."""

    operation_timeout_s: float = 30.0
    """How long creating a producer or a consumer, and every request, may take."""
    connect_timeout_s: float = 10.0
    keep_alive_s: float = 30.0
    """PING after so long without hearing anything; closed after twice that."""
    token: str | Callable[[], str] | None = field(default=None, repr=False)
    """A JSON web token, or what returns a fresh one."""
    listener: str = ""
    """The name of the advertised listener to be led to."""
    max_redirects: int = 20
    max_decompressed_size: int = 64 << 20
    """A payload that would become larger is a bad message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """How one producer sends; `PulsarClient.producer` says what each is for."""

    name: str | None = None
    compression: Compression = Compression.NONE
    batching: Batching | None = field(default_factory=Batching)
    chunking: bool = False
    chunk_size: int = 0
    access: AccessMode = AccessMode.SHARED
    routing: Routing = Routing.ROUND_ROBIN
    hashing: Hashing = Hashing.JAVA_STRING
    first_sequence_id: int | None = None
    send_timeout_s: float = 30.0
    max_pending: int = 1000
    schema: Schema | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    initial_subscription: str | None = None

    def __post_init__(self) -> None:
        if self.chunking and self.batching is not None:
            raise ClientError("a chunk is an entry of its own: chunking wants batching=None")
        if self.max_pending < 1:
            raise ClientError("a producer must be allowed one message under way")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """How one consumer receives; `PulsarClient.subscribe` says what each is for."""

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
        if self.queue_size < 0:
            raise ClientError("a receive queue holds no negative number of messages")
        if self.hash_ranges and self.type is not SubscriptionType.KEY_SHARED:
            raise ClientError("hash ranges are for SubscriptionType.KEY_SHARED")
