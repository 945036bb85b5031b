"""What a handler gets (`RequestContext`) and what it may return.

A handler is a function `(context, request) -> HandlerResult`. The type of its result selects how
the response is sent:

    a response                        sent in the order of the requests, now
    DurableResponse(response, ...)    sent when the journal has synced everything added so far
    PromisedResponse(promise, ...)    sent when the broker settles the promise (groups)
    ReplySlot                         decides itself when it is ready (long polls)
    a coroutine                       runs as a task of the gateway; the connection reads no other
                                      request meanwhile

`GatewayContext` is the state that all connections of the Kafka gateway share.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, Generic, NamedTuple, TypeVar, Unpack

import msgspec

from trilogue.broker.access.authorizer import (
    ANONYMOUS,
    Operation,
    Principal,
    Resource,
    ResourceKind,
)
from trilogue.broker.access.client_access import ClientAccess
from trilogue.broker.broker import Broker
from trilogue.broker.errors import AccessDenied, BrokerError, UnknownTopic
from trilogue.broker.names import TopicName, parse_kafka
from trilogue.broker.promise import Promise
from trilogue.broker.quotas.topic_rates import ROOM_MAX, SubscriptionLimiter
from trilogue.broker.topics.partition import Partition
from trilogue.broker.topics.topic import Topic
from trilogue.gateway.address_turns import AddressTurns
from trilogue.gateway.dependencies import GatewayDependencies, ProtocolGateway
from trilogue.gateway.kafka.fetch.sessions import FetchSessionCache
from trilogue.gateway.kafka.metadata.encoded_topics import EncodedTopics
from trilogue.gateway.kafka.metadata.name_collisions import NameCollisions
from trilogue.gateway.kafka.quotas.metering import Metering
from trilogue.gateway.kafka.share.sessions import ShareSessionCache
from trilogue.gateway.listener_security import ListenerSecurity
from trilogue.gateway.reply_queue import PipelinedConnection
from trilogue.gateway.reply_slots import ReplySlot
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.metadata.api_versions import ApiVersion

log = logging.getLogger(__name__)

MIB = 1 << 20
BYTES_MAX = (1 << 31) - 1
R = TypeVar("R")
# Of batches, each with up to 32 MiB decompressed: the other threads are for readers.
VALIDATIONS_AT_ONCE = min(4, max(2, (os.cpu_count() or 1) // 2))
# Of other nodes, which answer them among the requests for transactions, and in one step each.
LISTS_OF_OTHERS_AT_ONCE = 2


class KafkaSettings(msgspec.Struct, frozen=True):
    """Limits and switches of the Kafka gateway, from the settings of the node."""

    auto_create_topics: bool = True
    accept_replication: bool = False  # take a replication factor above 1 as 1
    fetch_bytes_max: int = 55 * MIB
    fetch_wait_max_ms: int = 300_000  # a longer poll gets an empty response after this time
    fetch_sessions_max: int = 1_000  # sessions kept; no more are opened
    fetch_sessions_bytes_max: int = 256 * MIB  # memory of all sessions together
    topics_per_request_max: int = (
        10_000  # created, altered or deleted by one request, as with KRaft
    )
    described_per_request_max: int = 50_000  # in one response: tools describe all topics at once
    auto_create_per_request_max: int = 1_000  # created because Metadata names them
    topics_timeout_max_ms: int = 60_000
    sasl_mechanisms: tuple[str, ...] = ()
    sasl_session_max_ms: int = 0  # 0: sessions end with their tokens only
    cluster_principals: frozenset[Principal] = frozenset()  # of the internal listener


KAFKA_LISTENER = "kafka"


class BrokerAddress(NamedTuple):
    """Where clients reach a node."""

    node_id: int
    host: str
    port: int


class GatewayContext(ProtocolGateway):
    """The state that all connections of the Kafka gateway share."""

    protocol = "kafka"
    # The ranges in ApiVersions: of which listener, and whether for Trilogue's client.
    advertised_versions: Callable[[ListenerSecurity | None, bool], list[ApiVersion]]

    def __init__(
        self, *, settings: KafkaSettings, **dependencies: Unpack[GatewayDependencies]
    ) -> None:
        super().__init__(**dependencies)
        self.settings = settings
        self.allows_all = self.authorizer.allows_all  # every principal may do everything
        self.cpu_s = time.thread_time  # CPU time of the event loop's thread
        self.requests: Counter[int] = Counter()
        self.encoded_topics = EncodedTopics()
        self.name_collisions = NameCollisions(self.broker.cluster)
        self.validations = AddressTurns(VALIDATIONS_AT_ONCE)
        self.lists_of_others = asyncio.Semaphore(LISTS_OF_OTHERS_AT_ONCE)
        self.fetch_sessions = FetchSessionCache(
            sessions_max=settings.fetch_sessions_max, bytes_max=settings.fetch_sessions_bytes_max
        )
        self.share_sessions = ShareSessionCache(
            self.broker.share_partitions.release_member,
            sessions_max=self.broker.share_groups.settings.sessions_max,
        )
        self.controller_epoch = self.broker.cluster.node_epoch  # the highest that was sent
        self._topics: dict[str, Topic] = {}
        self._generation = 0  # of the cluster, when the names were cached

    async def in_executor(self, work: Callable[[], R]) -> R:
        """Run work in the executor and return its result."""
        return await self.loop.run_in_executor(self.executor, work)

    def topic(self, spelled: str) -> Topic:
        """Return the topic with this Kafka name; raises UnknownTopic or InvalidName.

        Parsed names are cached until a topic changes or is deleted.
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
        """Return the topic with this Kafka name, or None."""
        try:
            return self.topic(spelled)
        except BrokerError:
            return None

    def is_cluster_principal(self, principal: Principal) -> bool:
        """Whether a client is a broker of the cluster."""
        return principal in self.settings.cluster_principals

    def has_topic(self, name: TopicName) -> bool:
        """Whether a topic has this full name."""
        return self.broker.cluster.find_topic(name) is not None

    def topic_by_id(self, topic_id: bytes) -> Topic:
        """Return the topic with this id; raises UnknownTopicId."""
        return self.broker.cluster.topic_by_id(topic_id)


class ClientConnection(PipelinedConnection, ABC):
    """What handlers use of the connection that their request came by."""

    def __init__(self) -> None:
        super().__init__()
        self.client_version = ""  # client id, name and version of its library, where it sent them
        self.closing: dict[object, Callable[[], None]] = {}  # called when the client has gone
        self.dispatch_limiters: dict[int, SubscriptionLimiter] = {}  # by partition id
        self.has_read_segments = False  # a response had bytes of segments

    @abstractmethod
    def require_metering(self) -> Metering:
        """Return the object that counts this connection's requests, made if there is none."""


class RequestContext:
    """One request: its client, principal and version, and the access that its API needs."""

    __slots__ = (
        "access",
        "client_id",
        "correlation_id",
        "gateway",
        "kind",
        "metering",
        "operation",
        "session",
        "version",
    )

    def __init__(
        self,
        gateway: GatewayContext,
        session: ClientConnection,
        version: int,
        *,
        correlation_id: int = 0,
        client_id: str | None = None,
        kind: ResourceKind = ResourceKind.CLUSTER,
        operation: Operation = Operation.CLUSTER_ACTION,
        access: ClientAccess | None = None,
        metering: Metering | None = None,
    ) -> None:
        self.gateway = gateway
        self.session = session
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.kind = kind
        self.operation = operation
        self.access = access or gateway.make_access("")
        self.metering = metering

    @property
    def broker(self) -> Broker:
        """The broker that the gateway serves."""
        return self.gateway.broker

    def advertised(self) -> tuple[str, int]:
        """Return the address that the client is given: that of the listener it came by."""
        listener = self._listener
        return self.gateway.advertised() if listener is None else listener.advertised()

    def advertised_versions(self, *, own: bool) -> list[ApiVersion]:
        """Return the ranges that ApiVersions lists here; `own`: to Trilogue's client."""
        return self.gateway.advertised_versions(self._listener, own)

    @property
    def is_from_broker(self) -> bool:
        """Whether a broker of the cluster sent the request: it came by the internal listener."""
        listener = self._listener
        return listener is not None and listener.is_internal

    @property
    def _listener(self) -> ListenerSecurity | None:
        return getattr(self.session, "listener", None)

    @property
    def principal(self) -> Principal:
        """The identity of the client."""
        return self.access.principal

    @property
    def creator(self) -> str:
        """The principal that what this request creates is counted for; "" without a login."""
        return "" if self.principal == ANONYMOUS else str(self.principal)

    @property
    def throttle_ms(self) -> int:
        """`throttle_time_ms` of a response encoded now: how long the client is over its quotas."""
        return 0 if self.metering is None else self.metering.throttle_ms()

    @property
    def fetch_quota_bytes(self) -> int:
        """The most bytes of records that the client's quota allows in one response."""
        room = None if self.metering is None else self.metering.fetch_bytes_max
        return BYTES_MAX if room is None else room

    def count_fetched(self, size: int) -> int:
        """Count bytes of records against the quota; returns `throttle_time_ms` of the response."""
        if self.metering is None:
            return 0
        self.metering.count_fetched(size)
        return self.metering.throttle_ms()

    def count_published(self, partition: Partition, messages: int, size: int) -> None:
        """Count what was appended to a partition against its publish rate."""
        rates, session = partition.rates, self.session
        if rates is None or rates.publish is None or session.is_gone:
            return
        if self.metering is None:
            self.metering = session.require_metering()
        self.metering.count_published(rates.publish, messages, size)

    def count_dispatched(self, partition: Partition, messages: int, size: int) -> float:
        """Count what is sent of a partition; returns for how many seconds the rest waits.

        A fetch names no group, so each connection is a subscription of its own.
        """
        rates = partition.rates
        if rates is None:
            return 0.0
        limiter = self._dispatch_limiter(partition)
        return limiter.count(rates, messages, size, self.gateway.loop.time())

    def dispatch_room(self, partition: Partition) -> tuple[int, int]:
        """Return how many messages and bytes of a partition may be sent at once."""
        rates = partition.rates
        if rates is None:
            return ROOM_MAX, ROOM_MAX
        return self._dispatch_limiter(partition).room(rates, self.gateway.loop.time())

    def _dispatch_limiter(self, partition: Partition) -> SubscriptionLimiter:
        limiters = self.session.dispatch_limiters
        limiter = limiters.get(partition.partition_id)
        if limiter is None:
            limiter = limiters[partition.partition_id] = SubscriptionLimiter()
        return limiter

    def count_mutations(self, count: int, *, strict: bool) -> None:
        """Count created or deleted partitions; raises QuotaExceeded if `strict` (KIP-599)."""
        if self.metering is not None:
            self.metering.count_mutations(count, strict=strict)

    def find_topic(self, spelled: str) -> tuple[Topic | None, ErrorCode]:
        """Return the topic and NONE, or None and the error code for this client."""
        return self.find_topic_for(self.operation, spelled)

    def find_topic_for(self, operation: Operation, spelled: str) -> tuple[Topic | None, ErrorCode]:
        """Return the same for another operation than that of the API."""
        try:
            return self.require_topic(operation, spelled), ErrorCode.NONE
        except AccessDenied:
            return None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        except BrokerError:
            return None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def require_topic(self, operation: Operation, spelled: str) -> Topic:
        """Return a topic; raises InvalidName, then AccessDenied, then UnknownTopic.

        In this order, so that no answer reveals whether a topic exists.
        """
        try:
            topic = self.gateway.topic(spelled)
        except UnknownTopic:
            self._check_topic(operation, parse_kafka(spelled))
            raise
        self._check_topic(operation, topic.name)
        return topic

    def _check_topic(self, operation: Operation, name: TopicName) -> None:
        if not self.is_allowed_to(operation, ResourceKind.TOPIC, name):
            raise AccessDenied(operation, Resource(ResourceKind.TOPIC, str(name)))

    def find_topic_for_replica(
        self, spelled: str, *, is_follower: bool
    ) -> tuple[Topic | None, ErrorCode]:
        """Return the same; a follower has every topic at the internal listener, else none."""
        if not is_follower:
            return self.find_topic(spelled)
        if not self.is_from_broker:
            return None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        topic = self.gateway.find_topic(spelled)
        if topic is None:
            return None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return topic, ErrorCode.NONE

    def is_allowed(self, name: object) -> bool:
        """Whether the client may perform the operation of its API on the resource of this name."""
        return self.access.is_allowed(self.operation, self.kind, str(name))

    def group_refusal(self, name: str) -> ErrorCode:
        """Return why the client may not do this to a group, or to this node's; NONE: it may."""
        if not self.is_allowed(name):
            return ErrorCode.GROUP_AUTHORIZATION_FAILED
        if not self.broker.cluster.ownership.owns_name(name):
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.NONE

    def brokers(self) -> list[BrokerAddress]:
        """Return the nodes of the cluster, with their addresses for clients of this listener."""
        cluster, listener = self.broker.cluster, self._listener
        name = KAFKA_LISTENER if listener is None else listener.name
        found = [BrokerAddress(cluster.node_id, *self.advertised())]
        for node_id in cluster.ownership.node_ids:
            address = cluster.ownership.listeners(node_id).get(name)
            if node_id != cluster.node_id and address is not None:
                host, _, port = address.rpartition(":")
                found.append(BrokerAddress(node_id, host.strip("[]"), int(port)))
        return sorted(found)

    def broker_address(self, node_id: int) -> BrokerAddress | None:
        """Return one of them; None while it has not started."""
        return next((each for each in self.brokers() if each.node_id == node_id), None)

    def is_allowed_to(self, operation: Operation, kind: ResourceKind, name: object) -> bool:
        """Whether the client may perform this operation on this resource."""
        if operation is Operation.CLUSTER_ACTION and self.is_from_broker:
            return True
        return self.access.is_allowed(operation, kind, str(name))

    def can_see(self, operation: Operation, kind: ResourceKind, name: object) -> bool:
        """The same for lists and bit fields, which leave out what the client may not do."""
        return self.access.can_see(operation, kind, str(name))


# A response frame that waits for a sync of the journal, and the function that encodes its
# replacement if the sync fails: called with the correlation id, its argument and the error code.
CommitReply = tuple[bytearray, Callable[[int, Any, ErrorCode], bytearray], int, Any]


class DurableResponse(NamedTuple):
    """A response that is sent after the journal has synced; `failed` rewrites it if that fails."""

    response: Any
    failed: Callable[[Any, ErrorCode], Any]


class PromisedResponse(Generic[R]):
    """A promise of the broker and the function that makes a response of its outcome."""

    __slots__ = ("promise", "respond")

    def __init__(self, promise: Promise[R], respond: Callable[[Promise[R]], object]) -> None:
        self.promise = promise
        self.respond = respond


async def wait_for_commit(gateway: GatewayContext) -> BaseException | None:
    """Wait until all appended batches are durable; return the failure if they never will be."""
    committed: asyncio.Future[BaseException | None] = gateway.loop.create_future()

    def report(failure: BaseException | None) -> None:
        if not committed.done():  # the gateway may have closed
            committed.set_result(failure)

    gateway.journal.on_commit(report)
    return await committed


HandlerResult = (
    object | DurableResponse | PromisedResponse[Any] | ReplySlot | Coroutine[Any, Any, object]
)
Handler = Callable[[RequestContext, Any], HandlerResult]
