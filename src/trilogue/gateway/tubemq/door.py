"""The TubeMQ doors, master and broker: two ways in, one state behind them.

A node opens them as it opens the others (`kafka/connection.py` says how), with a listener for each
side:

    door = TubeDoor(settings=TubeSettings(), authentication=..., broker=..., log=..., ...)
    async with door:
        Listener(door.master_side, ...), Listener(door.broker_side, ...)
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple, Self, Unpack

from trilogue.broker.access import Resource, ResourceKind
from trilogue.broker.errors import InvalidName, UnknownTopic
from trilogue.broker.names import parse_tubemq, spelled_tubemq
from trilogue.broker.topic import Topic
from trilogue.gateway.connection import Bounds
from trilogue.gateway.doorway import Behind, Doorway
from trilogue.gateway.tubemq import methods
from trilogue.gateway.tubemq.assignments import Master
from trilogue.gateway.tubemq.authentication import Authentication, Role
from trilogue.gateway.tubemq.connection import TubeConnection
from trilogue.gateway.tubemq.getting import Gets
from trilogue.gateway.tubemq.methods import Row
from trilogue.gateway.tubemq.producers import Producers
from trilogue.gateway.tubemq.settings import MIB, TubeSettings
from trilogue.wire.frames import Frames
from trilogue.wire.tubemq.frame import BlockFrames

BROKER_ID = 1
TICK_S = 1.0
INT63 = (1 << 63) - 1
SLACK = 10 << 10  # what real brokers allow beyond a topic's largest message


class Target(NamedTuple):
    """A topic by the name that clients use, and what a send wants to know of it."""

    topic: Topic
    resource: Resource  # by its canonical name, for the authorizer
    data_bytes_max: int
    takes_messages: bool


class Side:
    """What one of the two listeners opens connections for."""

    def __init__(self, door: TubeDoor, name: str, rows: Iterable[Row], frame_bytes: int) -> None:
        self.door = door
        self.name = f"tubemq-{name}"
        self.rows = {row.method.number: row for row in rows}
        self.services = methods.SERVICES[name]
        self.frame_bytes_max = frame_bytes
        self.requests: Counter[int] = Counter()  # taken, by method
        self.connections: dict[TubeConnection, None] = {}

    def session(self) -> TubeConnection:
        """What stands behind a new connection."""
        return TubeConnection(self)

    def frames(self, limit: int) -> Frames:
        """What cuts the bytes of a new connection into frames."""
        return BlockFrames(limit)


class TubeDoor(Doorway):
    """Where TubeMQ clients come in, to the master and to the broker."""

    def __init__(
        self, *, settings: TubeSettings, authentication: Authentication, **behind: Unpack[Behind]
    ) -> None:
        super().__init__(**behind)
        self.settings = settings
        self.authentication = authentication
        self.tokens = authentication.tokens
        demands = authentication.settings
        self.guards_sends = demands.checks_visit or Role.PRODUCER in demands.authenticate
        self.bounds = Bounds(
            sends=settings.sends_in_flight_max,
            requests=settings.requests_in_flight_max,
            request_bytes=settings.requests_bytes_max,
        )
        self.master_side = Side(self, "master", methods.MASTER, settings.request_bytes_max)
        self.broker_side = Side(self, "broker", methods.BROKER, settings.frame_bytes_max)
        self.producers = Producers(settings)
        self.gets = Gets(self)
        self.master = Master(self)
        self.messages_in = self.bytes_in = 0
        self.messages_out = self.bytes_out = 0
        self.dropped = 0  # requests older than their own timeout
        self.overflows = 0  # sends answered with 419
        self.empty_frames = 0  # of no blocks, ignored
        self._targets: dict[str, Target] = {}
        self._generation = 0  # of the cluster that they are of

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self.spawn(self._tick())
        self.broker.rules.listeners.append(self._forget_targets)
        self.gets.open()
        self.master.open()
        return self

    async def __aexit__(self, *problem: object) -> None:
        self.broker.rules.listeners.remove(self._forget_targets)
        self.master.close()
        self.gets.close()
        await super().__aexit__(*problem)

    # ---- names

    def target(self, spelled: str) -> Target:
        """The topic that a client means by this name; UnknownTopic, as a real broker says it.

        Names are parsed once: what was found is remembered until a topic changes or is deleted.
        """
        cluster = self.broker.cluster
        if self._generation != cluster.generation:
            self._generation = cluster.generation
            self._targets.clear()
        found = self._targets.get(spelled)
        if found is not None and not found.topic.partitions[0].deleted:
            return found
        topic = self.find(spelled)
        if topic is None:
            raise UnknownTopic(f"topicName {spelled} not existed, please check your configure")
        if len(self._targets) > 2 * len(cluster) + 100:
            self._targets.clear()
        found = self._targets[spelled] = Target(
            topic,
            Resource(ResourceKind.TOPIC, str(topic.name)),
            self.largest_message(topic) + SLACK,
            self.takes_messages(topic),
        )
        return found

    def find(self, spelled: str) -> Topic | None:
        """The topic of this name, None where there is none that TubeMQ clients can know."""
        try:
            topic = self.broker.cluster.find(parse_tubemq(spelled))
        except InvalidName:
            return None
        if topic is None or not self.broker.rules.is_deployed(topic):
            return None
        return topic

    def takes_messages(self, topic: Topic) -> bool:
        """Whether producers are told of it."""
        if any(partition.terminated for partition in topic.partitions):
            return False
        return self.broker.rules.accepts_publish(topic)

    def largest_message(self, topic: Topic) -> int:
        """Bytes of it, as producers are told."""
        return self.broker.rules.message_size_max(topic)

    @property
    def message_bytes_max(self) -> int:
        """The largest message of topics that say nothing of their own."""
        return self.broker.rules.cluster.message_mib_max * MIB or self.settings.message_bytes_max

    def _forget_targets(self) -> None:
        self._targets.clear()

    # ---- what the master tells of the broker

    @property
    def broker_address(self) -> str:
        """`host:port` of the broker, as clients are told it."""
        host, port = self.advertised()
        return f"{host}:{port}"

    @property
    def broker_info(self) -> str:
        """`brokerId:host:port`."""
        return f"{BROKER_ID}:{self.broker_address}"

    @property
    def broker_checksum(self) -> int:
        """What tells this broker's address from another one, over restarts too; not negative."""
        digest = blake2b(self.broker_info.encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") & INT63

    def topic_info(self, topic: Topic) -> str:
        """What a producer is told: `topic#brokerId:partitions:stores#largest message`."""
        size = self.largest_message(topic)
        name = spelled_tubemq(topic.name)
        return f"{name}#{BROKER_ID}:{len(topic.partitions)}:1#{size}"

    # ---- time

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self.producers.expire(self.loop.time())
            self.master.tick()
