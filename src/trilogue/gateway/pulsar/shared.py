"""What all connections of a Pulsar door share, and what a handler is given.

A handler is a function `(connection, command, frame)`. `command` is the parsed sub-message of its
row in `commands.py`, or None where the row says `raw`: then it reads the frame itself, with
`wire/pulsar/hot.py`. A frame is a view that is valid only until the handler returns. It returns
None, or a coroutine, which becomes a task of the door: other commands of the connection go on
meanwhile. It answers with

    connection.say("success", request_id=...)     a command by its field's name
    connection.reply(BaseCommand)                 one that was made elsewhere
    connection.error(request_id, problem, text)   ERROR
    connection.write(bytes)                       a frame that is made already

all of which leave together at the end of the turn. A BrokerError that a handler or its coroutine
raises is answered with ERROR where the command has a request id.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import Protocol, TypeVar, Unpack

from trilogue.broker.names import PulsarName, parse_pulsar
from trilogue.broker.naming import check_auto_create, find_partition
from trilogue.broker.partition import Partition
from trilogue.broker.promise import Promise
from trilogue.broker.topic import Topic
from trilogue.gateway.connection import Bounds
from trilogue.gateway.doorway import Behind, Doorway
from trilogue.gateway.pulsar.compacted import Compacted
from trilogue.gateway.pulsar.readers import Readers
from trilogue.wire.pulsar.frame import SLACK

T = TypeVar("T")
KIB, MIB = 1 << 10, 1 << 20
NO_REQUEST = (1 << 64) - 1  # the request id of what nobody asked for
PROTOCOL_VERSION = 21


@dataclass(frozen=True, slots=True)
class PulsarSettings:
    """What a node may set about its Pulsar door, and the bounds of what a connection may hold."""

    cluster: str = "standalone"
    protocol_min: int = 0
    keep_alive_s: float = 30.0
    connect_s: float = 30.0  # until CONNECT
    alive_s: float = 5.0  # to answer a PING when somebody wants what a connection holds
    message_bytes_max: int = 5 * MIB
    tells_timestamp: bool = False  # broker entry metadata for clients that declare it
    tells_index: bool = False
    auto_create_topics: bool = True
    command_bytes_max: int = 2 * MIB  # of a frame without a payload
    sends_in_flight_max: int = 5_000  # of a connection, not durable yet
    requests_in_flight_max: int = 1_000  # of a connection, being worked on
    requests_bytes_max: int = 8 * MIB  # of their frames
    producers_max: int = 10_000  # of a connection; so for the next
    consumers_max: int = 10_000
    said_bytes_max: int = 4 * MIB  # what these say about themselves, where it is much
    watchers_max: int = 32
    key_shared_ring: bool = True  # consistent hashing of keys; else ranges that are halved


class Attached(Protocol):
    """What a connection holds for its peer: a consumer, a watcher."""

    def gone(self) -> None:
        """The connection is closed: let go of everything."""

    def writable(self) -> None:
        """The peer reads again, or what was gathered has left: go on sending."""


class Shared(Doorway):
    """What every connection of one Pulsar door works with."""

    def __init__(self, *, settings: PulsarSettings, **behind: Unpack[Behind]) -> None:
        super().__init__(**behind)
        self.settings = settings
        self.bounds = Bounds(
            sends=settings.sends_in_flight_max,
            requests=settings.requests_in_flight_max,
            request_bytes=settings.requests_bytes_max,
        )
        self.commands: Counter[int] = Counter()  # handled, by type
        self.messages_in = self.bytes_in = 0
        self.messages_out = self.bytes_out = 0
        self.bad_messages: Counter[str] = Counter()  # that consumers could not read, by reason
        self.readers = Readers(self)
        self.compacted = Compacted(self)
        cluster = self.broker.cluster
        self.name_prefix = f"{settings.cluster}-{cluster.node_id}-{cluster.node_epoch}"
        self._topics: dict[str, tuple[Topic, Partition]] = {}
        self._producer_names = 0
        self._generation = 0  # of the cluster that they are of

    @property
    def frame_bytes_max(self) -> int:
        """How long a frame may be, its largest message and what real brokers allow beyond."""
        return self.settings.message_bytes_max + SLACK

    @property
    def url(self) -> str:
        """Where clients shall come to."""
        host, port = self.advertised()
        return f"pulsar://[{host}]:{port}" if ":" in host else f"pulsar://{host}:{port}"

    def topic(self, spelled: str) -> tuple[Topic, Partition]:
        """The topic and the partition that a client means by this name.

        UnknownTopic, InvalidName, or NotServed for what is not kept. Names are parsed once: what
        was found is remembered until a topic changes or is deleted.
        """
        cluster = self.broker.cluster
        if self._generation != cluster.generation:
            self._generation = cluster.generation
            self._topics.clear()
        found = self._topics.get(spelled)
        if found is not None and not found[1].deleted:
            return found
        found = find_partition(cluster, parse_pulsar(spelled))
        if len(self._topics) > 2 * len(cluster) + 100:
            self._topics.clear()
        self._topics[spelled] = found
        return found

    def new_producer_name(self, partition: Partition) -> str:
        """A name that was never given before: this life of this node and a number.

        Not one that an application chose for itself on the same topic.
        """
        there = self.broker.writers.of(partition.partition_id)
        while True:
            self._producer_names += 1
            name = f"{self.name_prefix}-{self._producer_names}"
            if not there.has(name):
                return name

    async def made(self, name: PulsarName) -> tuple[Topic, Partition]:
        """The same, and where there is no such topic one is made if the namespace's policy says so.

        Two who mention a new topic at once make it once.
        """
        cluster = self.broker.cluster
        if cluster.find(name.topic) is None:
            coming = cluster.creating(name.topic)
            if coming is None:
                allowed = self.settings.auto_create_topics
                plan = cluster.plan_create(check_auto_create(self.broker, name, allowed=allowed))
                await self.commit(plan)
            else:
                await self.kept(coming)
        return find_partition(cluster, name)

    async def kept(self, promise: Promise[T]) -> T:
        """Wait until a promise is settled; its result, or its error is raised."""
        if not promise.done:
            future: asyncio.Future[None] = self.loop.create_future()

            def settle(_promise: Promise[T]) -> None:
                if not future.done():
                    future.set_result(None)

            promise.then(settle)
            await future
        return promise.result()
