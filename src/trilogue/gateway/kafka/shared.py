"""What all connections of a Kafka door share, and what a handler is given: `Shared` and `Call`.

A handler is a function `(call, request) -> Answer` and picks its way of answering by what it
returns:

    a response              leaves in its turn, now
    Durable(response, ...)  leaves when the journal has committed everything that was added so far
    Promise[response]       leaves when the broker keeps it (groups)
    Place                   decides itself when it is ready (long polls)
    a coroutine             a task of the door; the connection takes no other request meanwhile
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar, Unpack

from trilogue.broker.access import (
    ANONYMOUS,
    AllowAll,
    Operation,
    Principal,
    Resource,
    ResourceKind,
)
from trilogue.broker.broker import Broker
from trilogue.broker.errors import BrokerError
from trilogue.broker.names import parse_kafka
from trilogue.broker.promise import Promise
from trilogue.broker.topic import Topic
from trilogue.gateway.doorway import Behind, Doorway
from trilogue.gateway.kafka.fetch_sessions import FetchSessions
from trilogue.gateway.kafka.metadata_rows import Rows
from trilogue.gateway.kafka.metering import Metering
from trilogue.gateway.session import Place, Session, Unsent
from trilogue.wire.kafka.api_versions import ApiVersion
from trilogue.wire.kafka.errors import ErrorCode

log = logging.getLogger(__name__)

MIB = 1 << 20
BYTES_MAX = (1 << 31) - 1
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """What a node may set about its Kafka door."""

    auto_create_topics: bool = True
    fetch_bytes_max: int = 55 * MIB
    fetch_wait_max_ms: int = 300_000  # a longer poll is answered, empty, after this time
    fetch_sessions_max: int = 1_000  # that are remembered; more are not opened
    fetch_sessions_bytes_max: int = 256 * MIB  # that all of them together take
    unsent_bytes_max: int = 512 * MIB  # of replies nobody reads; then fetches bring little
    topics_per_request_max: int = 10_000  # made, changed or deleted by one request, as with KRaft
    described_per_request_max: int = 50_000  # told by one request: tools ask for all topics at once
    auto_create_per_request_max: int = 1_000  # made by mentioning them
    topics_timeout_max_ms: int = 60_000


class Shared(Doorway):
    """What every connection of one Kafka door works with."""

    versions: list[ApiVersion]  # that clients are told

    def __init__(self, *, settings: KafkaSettings, **behind: Unpack[Behind]) -> None:
        super().__init__(**behind)
        self.settings = settings
        self.quotas = self.broker.quotas
        self.is_open = isinstance(self.authorizer, AllowAll)  # whoever asks, it says yes
        self.cpu_s = time.thread_time  # of the thread that the loop runs in
        self.requests: Counter[int] = Counter()
        self.metadata_rows = Rows()
        self.unsent = Unsent()
        self.fetch_sessions = FetchSessions(
            sessions_max=settings.fetch_sessions_max, bytes_max=settings.fetch_sessions_bytes_max
        )
        self._topics: dict[str, Topic] = {}
        self._generation = 0  # of the cluster that they are of

    def topic(self, spelled: str) -> Topic:
        """The topic that a client of this door means by this name; UnknownTopic or InvalidName.

        Names are parsed once: what was found is remembered until a topic changes or is deleted.
        """
        if self._generation != self.broker.cluster.generation:
            self._generation = self.broker.cluster.generation
            self._topics.clear()
        topic = self._topics.get(spelled)
        if topic is not None and not topic.partitions[0].deleted:
            return topic
        topic = self.broker.cluster.topic(parse_kafka(spelled))
        if len(self._topics) > 2 * len(self.broker.cluster) + 100:
            self._topics.clear()
        self._topics[spelled] = topic
        return topic

    def find_topic(self, spelled: str) -> Topic | None:
        """The topic that a client of this door means by this name, if there is one."""
        try:
            return self.topic(spelled)
        except BrokerError:
            return None

    def topic_by_id(self, topic_id: bytes) -> Topic:
        """The topic with this id; UnknownTopicId."""
        return self.broker.cluster.topic_by_id(topic_id)


class Call:
    """One request on its way: who asks, which version, and what to ask the authorizer about it."""

    __slots__ = (
        "client_id",
        "correlation_id",
        "door",
        "kind",
        "metering",
        "operation",
        "principal",
        "session",
        "version",
    )

    def __init__(
        self,
        door: Shared,
        session: Session,
        version: int,
        *,
        correlation_id: int = 0,
        client_id: str | None = None,
        kind: ResourceKind = ResourceKind.CLUSTER,
        operation: Operation = Operation.CLUSTER_ACTION,
        principal: Principal = ANONYMOUS,
        metering: Metering | None = None,
    ) -> None:
        self.door = door
        self.session = session
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.kind = kind
        self.operation = operation
        self.principal = principal
        self.metering = metering

    @property
    def broker(self) -> Broker:
        """The broker behind the door."""
        return self.door.broker

    @property
    def throttle_ms(self) -> int:
        """What an answer written now tells: how long the client should wait, for its quotas."""
        return 0 if self.metering is None else self.metering.throttle_ms()

    @property
    def fetch_room(self) -> int:
        """How many bytes of messages an answer should hold at most, for the client's quota."""
        room = None if self.metering is None else self.metering.room
        return BYTES_MAX if room is None else room

    def fetched(self, size: int) -> int:
        """Count bytes of messages that are sent now, and return what the answer tells."""
        if self.metering is None:
            return 0
        self.metering.fetched(size)
        return self.metering.throttle_ms()

    def changed(self, count: int, *, strict: bool) -> None:
        """Count partitions that are made or deleted; `strict` raises QuotaExceeded."""
        if self.metering is not None:
            self.metering.changed(count, strict=strict)

    def find_topic(self, spelled: str) -> tuple[Topic | None, ErrorCode]:
        """Return the topic of a name, or None and why who asks does not get it."""
        try:
            topic = self.door.topic(spelled)
        except BrokerError:
            return None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not self.allowed(topic.name):
            return None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return topic, ErrorCode.NONE

    def allowed(self, name: object) -> bool:
        """Whether the caller may do what the request's row says, to the thing of this name."""
        return self.door.authorizer.allowed(
            self.principal, self.operation, Resource(self.kind, str(name))
        )

    def may(self, operation: Operation, kind: ResourceKind, name: object) -> bool:
        """The same for another operation or kind of thing than the row's."""
        return self.door.authorizer.allowed(self.principal, operation, Resource(kind, str(name)))


# A whole reply frame that waits for a commit; and the function that writes another one in its place
# if the commit fails, called with the correlation id, what it wants to know, and the error code.
Reply = tuple[bytearray, Callable[[int, Any, ErrorCode], bytearray], int, Any]


class Durable(NamedTuple):
    """A response that leaves when what it confirms is on disk; `failed` rewrites it if not."""

    response: Any
    failed: Callable[[Any, ErrorCode], Any]


class Mapped(Generic[R]):
    """A broker's promise and how its outcome becomes a response."""

    __slots__ = ("promise", "respond")

    def __init__(self, promise: Promise[R], respond: Callable[[Promise[R]], object]) -> None:
        self.promise = promise
        self.respond = respond


Answer = object | Durable | Mapped[Any] | Place | Coroutine[Any, Any, object]
Handler = Callable[[Call, Any], Answer]
