"""Values of administrative requests and responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

from trilogue.client.kafka.model import Node, Partition

SERVERS_DEFAULT: Final = -1
NO_TOPIC_ID: Final = bytes(16)
OPERATIONS_UNKNOWN: Final = -0x80000000
_OPERATIONS: Final = (
    "unknown", "any", "all", "read", "write", "create", "delete", "alter", "describe",
    "cluster-action", "describe-configs", "alter-configs", "idempotent-write", "create-tokens",
    "describe-tokens", "two-phase-commit",
)  # fmt: skip


class ResourceType(IntEnum):
    """The type of a resource with configs."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Resource(NamedTuple):
    """A resource with configs; the broker "" stands for the default of all brokers."""

    type: ResourceType
    name: str


class Source(IntEnum):
    """Where a setting's value comes from."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class SettingType(IntEnum):
    """What kind of value a setting has."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Acl(NamedTuple):
    """A rule of an access control list; the numbers are those of Kafka's protocol (KIP-290)."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int


class AclFilter(NamedTuple):
    """What rules have to match; None and 1 match all."""

    resource_type: int = 1
    resource_name: str | None = None
    pattern_type: int = 1
    principal: str | None = None
    host: str | None = None
    operation: int = 1
    permission: int = 1


class Operation(IntEnum):
    """The operation of an incremental change (KIP-339)."""

    SET = 0
    DELETE = 1
    """Back to the default."""
    APPEND = 2
    """To a list."""
    SUBTRACT = 3
    """From a list."""


class Change(NamedTuple):
    """A change of one setting."""

    operation: Operation
    value: str | None = None


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; -1 is the default of the server (CreateTopics v4, Kafka 2.4)."""

    name: str
    partitions: int = SERVERS_DEFAULT
    replication: int = SERVERS_DEFAULT
    settings: Mapping[str, str] = field(default_factory=dict)
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """Partition to the nodes of its replicas, instead of the two numbers."""


class Synonym(NamedTuple):
    """A value of lower precedence for the same setting."""

    name: str
    value: str | None
    source: Source


@dataclass(frozen=True, slots=True)
class Setting:
    """A config entry."""

    name: str
    value: str | None
    """None where it is not shown (`sensitive`), or not set at all."""
    source: Source = Source.UNKNOWN
    read_only: bool = False
    sensitive: bool = False
    type: SettingType = SettingType.UNKNOWN
    synonyms: tuple[Synonym, ...] = ()
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        """Whether the value is the default."""
        return self.source is Source.DEFAULT


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A created topic; -1 and empty fields where the server is too old."""

    name: str
    topic_id: bytes = NO_TOPIC_ID
    partitions: int = -1
    replication: int = -1
    settings: Mapping[str, Setting] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicListing:
    """A topic in short."""

    name: str
    topic_id: bytes
    is_internal: bool
    partitions: int
    replication: int


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """A partition: its leader (-1: none) and its replicas."""

    number: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    offline: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic and its partitions."""

    name: str
    topic_id: bytes
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]
    operations: frozenset[str] = frozenset()
    """The operations that the client may perform, where they were requested."""


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group in short; "" where the server is too old."""

    name: str
    protocol_type: str
    state: str = ""
    type: str = ""
    """"Classic" or "Consumer" (KIP-848)."""


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a group."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[Partition, ...]
    topics: tuple[str, ...] = ()
    """What it wants to read."""
    target: tuple[Partition, ...] = ()
    """The target assignment (KIP-848)."""
    epoch: int = -1
    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group and its members."""

    name: str
    type: str
    """"classic" or "consumer"."""
    state: str
    protocol_type: str
    assignor: str
    """The protocol that a classic group chose; the assignor of a consumer group."""
    members: tuple[MemberDescription, ...]
    coordinator: Node
    epoch: int = -1
    assignment_epoch: int = -1
    operations: frozenset[str] = frozenset()


class GroupOffset(NamedTuple):
    """A committed offset: the next offset to read, and metadata."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class TransactionListing(NamedTuple):
    """A transactional id: its producer, and the state of its transaction as Kafka names it."""

    name: str
    producer_id: int
    state: str


class CommittedBatch(NamedTuple):
    """The last batch that an application has committed; `committed_ms` is since 1970."""

    application_id: str
    batch_id: int
    committed_ms: int


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id, its producer, and the partitions of its transaction.

    `started_ms` is since 1970, -1 without a transaction.
    """

    name: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int
    partitions: tuple[Partition, ...]
    coordinator: Node


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster's id and its nodes; -1 is no controller."""

    cluster_id: str | None
    controller_id: int
    nodes: tuple[Node, ...]
    operations: frozenset[str] = frozenset()


class ReplicaSize(NamedTuple):
    """The size of a replica in a log directory."""

    size_bytes: int
    offset_lag: int
    is_future: bool = False


@dataclass(frozen=True, slots=True)
class LogDir:
    """A log directory of a node; -1 where the server is too old."""

    path: str
    partitions: Mapping[Partition, ReplicaSize]
    total_bytes: int = -1
    usable_bytes: int = -1


def operations_of(bits: int) -> frozenset[str]:
    """The names of the operations in a bit field; none where it was not requested."""
    if bits == OPERATIONS_UNKNOWN:
        return frozenset()
    return frozenset(name for at, name in enumerate(_OPERATIONS) if bits >> at & 1)
