"""What producers, consumers and handlers stand on: shared services, and their connection.

`PulsarServices` is what all connections share: settings, counters, topics by name.
`ClientConnection` is what a producer or consumer needs of its connection (connection.py).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Hashable, Sequence
from typing import Any, Final, Protocol, TypeVar, Unpack

from trilogue.broker.access.authorizer import Principal
from trilogue.broker.creators import CreatorCounts
from trilogue.broker.errors import NotAllowed, NotServed, TopicExists
from trilogue.broker.names import PulsarName
from trilogue.broker.producers.access_modes import PartitionWriters
from trilogue.broker.promise import Promise
from trilogue.broker.quotas.subscribe_rates import ConsumerKey, SubscribeRates
from trilogue.broker.quotas.topic_rates import Rate
from trilogue.broker.topics.lookup import check_auto_create, find_partition
from trilogue.broker.topics.partition import Partition
from trilogue.broker.topics.topic import Topic
from trilogue.gateway.connection import InFlightLimits
from trilogue.gateway.dependencies import GatewayDependencies, ProtocolGateway
from trilogue.gateway.pulsar.advertised_listeners import NamedAddresses, of_other_node
from trilogue.gateway.pulsar.settings import PulsarSettings
from trilogue.gateway.quota_wait import ByteQuotas
from trilogue.gateway.steps import wait_until_settled
from trilogue.gateway.stream import Buffer, Stream
from trilogue.wire.pulsar.errors import ServerError
from trilogue.wire.pulsar.frame import SLACK
from trilogue.wire.pulsar.pulsar_pb2 import FeatureFlags

MEMBERS_PER_BLOCK: Final = 16
T = TypeVar("T")


class MemberBlocks:
    """The producers and consumers of all connections, in blocks that connections reserve.

    A principal, or the address of clients without a login, has as many as it leaves free.
    """

    def __init__(self, members_max: int) -> None:
        self._free = max(2, members_max // MEMBERS_PER_BLOCK)
        self._creators = CreatorCounts()

    def reserve(self, name: Hashable, creator: str) -> bool:
        """Take one more block; False where there is no room."""
        if not self._free or not self._creators.has_room(creator, self._free):
            return False
        self._free -= 1
        self._creators.add(name, creator)
        return True

    def release(self, names: Collection[Hashable]) -> None:
        """Return the blocks of a connection that is closed."""
        self._free += len(names)
        for name in names:
            self._creators.remove(name)


class PulsarServices(ProtocolGateway):
    """The Pulsar gateway as its connections, consumers and handlers see it."""

    def __init__(
        self, *, settings: PulsarSettings, **dependencies: Unpack[GatewayDependencies]
    ) -> None:
        super().__init__(**dependencies)
        self.settings = settings
        self.bounds = InFlightLimits(
            receipts=settings.sends_in_flight_max,
            requests=settings.requests_in_flight_max,
            request_bytes=settings.requests_bytes_max,
        )
        self.commands: Counter[int] = Counter()  # handled, by type
        self.messages_in = self.bytes_in = 0
        self.messages_out = self.bytes_out = 0
        self.messages_dropped = self.bytes_dropped = 0  # of non-persistent topics
        self.bad_messages: Counter[str] = Counter()  # that consumers could not read, by reason
        self.subscribe_rates = SubscribeRates()
        self.members = MemberBlocks(settings.all_members_max)
        self.long_lists = asyncio.Lock()  # of topics: one is made at a time
        self.watches = self.watched_topics = 0  # of topic lists
        cluster = self.broker.cluster
        self.name_prefix = f"{settings.cluster}-{cluster.node_id}-{cluster.node_epoch}"
        self._producer_names = 0

    @property
    def frame_bytes_max(self) -> int:
        """The largest frame in bytes: the largest message and what real brokers allow beyond."""
        return self.settings.message_bytes_max + SLACK

    def service_urls(self, node_id: int, listener: str = "") -> tuple[str | None, str | None]:
        """Return the service URLs of a node, in clear and with TLS, as far as it has them.

        With the name of an advertised listener these are its; NotServed where there is none.
        """
        if listener:
            return self._listener_urls(node_id, listener)
        if node_id == self.broker.cluster.node_id:
            return self.url, self.tls_url
        addresses = self.broker.cluster.ownership.listeners(node_id)
        plain, tls = addresses.get("pulsar"), addresses.get("pulsar-ssl")
        return plain and f"pulsar://{plain}", tls and f"pulsar+ssl://{tls}"

    def _listener_urls(self, node_id: int, listener: str) -> tuple[str | None, str | None]:
        if node_id == self.broker.cluster.node_id:
            found = self.settings.advertised_listeners.get(listener, NamedAddresses())
        else:
            found = of_other_node(self.broker.cluster.ownership.listeners(node_id), listener)
        if found == NamedAddresses():
            raise NotServed(f"node {node_id} has no advertised listener {listener[:60]!r}")
        return found.urls

    @property
    def url(self) -> str | None:
        """The service URL in clear, if there is a listener without TLS."""
        if self.is_tls_only:
            return None
        host, port = self.advertised()
        return f"pulsar://[{host}]:{port}" if ":" in host else f"pulsar://{host}:{port}"

    @property
    def tls_url(self) -> str | None:
        """The service URL with TLS, if there is a listener with it."""
        if self.tls_advertised is None:
            return None
        host, port = self.tls_advertised()
        return f"pulsar+ssl://[{host}]:{port}" if ":" in host else f"pulsar+ssl://{host}:{port}"

    def generate_producer_name(self, partition: Partition) -> str:
        """Return a name that no producer had before: this start of this node and a number.

        Names that an application chose for a producer of the same topic are left out.
        """
        return self.next_producer_name(self.broker.writers.get_or_create(partition.partition_id))

    def next_producer_name(self, writers: PartitionWriters) -> str:
        """Return the same for a topic with these producers."""
        while True:
            self._producer_names += 1
            name = f"{self.name_prefix}-{self._producer_names}"
            if not writers.has(name):
                return name

    def check_subscribe_rate(self, consumer: ConsumerKey, rate: Rate | None) -> None:
        """Refuse a consumer that subscribes too often: NotAllowed."""
        if rate is not None and not self.subscribe_rates.try_subscribe(
            consumer, rate, self.loop.time()
        ):
            raise NotAllowed("Subscribe limited by subscribe rate limit per consumer.")

    async def find_or_create_topic(self, name: PulsarName) -> tuple[Topic, Partition]:
        """Return the topic and partition of a name; create the topic where policies allow it.

        Two requests that name a new topic at the same time create it once. Raises UnknownTopic,
        PartitionRequired, and what creating a topic raises.
        """
        cluster = self.broker.cluster
        if cluster.find_topic(name.topic) is None and self.catch_up is not None:
            await self.catch_up()
        if cluster.find_topic(name.topic) is None:
            await self.create_topic(name)
        return find_partition(cluster, name)

    async def create_topic(self, name: PulsarName) -> None:
        """Create the topic of a name that has none, or wait for a request that creates it already.

        Raises what creating a topic raises, except where another node has created it meanwhile.
        """
        cluster = self.broker.cluster
        creating = cluster.pending_creation(name.topic)
        try:
            if creating is not None:
                await self.wait_for(creating)
            else:
                allowed = self.settings.auto_create_topics
                plan = cluster.plan_create(check_auto_create(self.broker, name, allowed=allowed))
                await self.write_metadata(plan)
        except TopicExists:
            if self.catch_up is not None:
                await self.catch_up()
            if cluster.find_topic(name.topic) is None:
                raise

    async def wait_for(self, promise: Promise[T]) -> T:
        """Wait until a promise is settled; return its result, or raise its error."""
        await wait_until_settled(promise)
        return promise.result()


class ClientConnection(Protocol):
    """The connection of one Pulsar client."""

    gateway: PulsarServices
    stream: Stream
    is_gone: bool
    protocol_version: int
    client_version: str
    features: FeatureFlags
    gathered: list[Buffer]  # frames that leave at the end of the step

    @property
    def principal(self) -> Principal:
        """The identity of the client."""

    @property
    def byte_quotas(self) -> ByteQuotas:
        """What counts the bytes of the client, if there are quotas."""

    @property
    def write_paused(self) -> bool:
        """Whether no messages should be sent now: the peer has enough to read, or waits."""

    def write(self, buffer: Buffer) -> None:
        """Send bytes of frames."""

    def write_all(self, buffers: Sequence[Buffer]) -> None:
        """Send several."""

    def send_command(self, field: str, **fields: Any) -> bool:
        """Send a command by the name of its field; return whether the client knows it."""

    def send_error(
        self, request_id: int, problem: BaseException | ServerError, text: str = ""
    ) -> None:
        """Send ERROR."""

    def guarded(self, call: Callable[[], None]) -> None:
        """Run a callback whose failure ends this connection only."""

    def spawn(self, work: Coroutine[Any, Any, None], size: int = 0) -> None:
        """Run a request to its end."""

    def check_alive(self) -> None:
        """Send PING now, because another client wants what this connection holds."""

    def has_producer(self, producer_id: int, producer: object) -> bool:
        """Whether this producer id still stands for this producer."""

    def close_producer(self, producer_id: int) -> None:
        """Send CLOSE_PRODUCER after the receipts of what the producer sent."""

    def forget_producer(self, producer_id: int) -> None:
        """Remember an id as one whose messages may still be in flight."""

    def close_consumer(self, consumer_id: int) -> None:
        """Send CLOSE_CONSUMER."""

    def forget_consumer(self, consumer_id: int) -> None:
        """Take nothing more of a consumer, whose client is told later."""
