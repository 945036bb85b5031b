"""Where things are in a Kafka cluster: addresses, leaders, coordinators, and connections to nodes.

Answers come in the order of requests, so who asks for something slow (a fetch that waits, a join)
has connections of its own: `lane` names whose they are. The empty lane is for what is quick.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from trilogue.client.errors import ClientError, ConnectionLost
from trilogue.client.kafka.connection import KafkaConnection
from trilogue.client.kafka.errors import ClosedError, KafkaError
from trilogue.client.kafka.shapes import Node
from trilogue.client.pool import Address, SharedPool, address
from trilogue.client.retry import Backoff, pauses
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

METADATA_NEWEST = 12
CREATION_S = 5.0
"""How long a server may take to make a topic that it was asked for (Kafka says "unknown" first)."""
KAFKA_PORT: Final = 9092
NO_NODE: Final = -1


def addresses(servers: str) -> list[Address]:
    """Split `host:port,host:port` (IPv6 in brackets)."""
    return [address(server, KAFKA_PORT) for server in servers.split(",")]


@dataclass(slots=True)
class TopicView:
    """What metadata says of a topic: its id, its partitions, their leaders and epochs."""

    topic_id: bytes
    leaders: dict[int, int] = field(default_factory=dict)
    """The nodes that serve partitions: those without one now, or that are in doubt, are missing."""
    epochs: dict[int, int] = field(default_factory=dict)
    """Of every partition that there is."""

    @property
    def count(self) -> int:
        """How many partitions there are."""
        return len(self.epochs)


class KafkaCluster:
    """Metadata and connections, made when they are needed and kept."""

    def __init__(
        self, servers: str, *, client_id: str = "trilogue", timeout_s: float = 30.0
    ) -> None:
        self._bootstrap = addresses(servers)
        self._client_id = client_id
        self.timeout_s = timeout_s
        self._pool: SharedPool[tuple[Address, str], KafkaConnection] = SharedPool(
            self._open, ClosedError
        )
        self._backoff = Backoff(time.monotonic)
        self._last: Address | None = None
        self._asking: dict[tuple[str, ...], asyncio.Task[None]] = {}
        self.nodes: dict[int, Node] = {}
        self.controller_id = NO_NODE
        self.cluster_id: str | None = None
        self.topics: dict[str, TopicView] = {}

    # Connections.

    async def _open(self, key: tuple[Address, str]) -> KafkaConnection:
        where, _ = key
        await asyncio.sleep(self._backoff.left_s(where))
        made = KafkaConnection(self._client_id, self.timeout_s)
        try:
            await made.open(*where)
        except ClientError:
            self._backoff.failed(where)
            raise
        self._backoff.worked(where)
        return made

    async def connect(self, where: Address, lane: str = "") -> KafkaConnection:
        """The open connection to an address, made now if there is none."""
        made = await self._pool.get((where, lane))
        if not lane:
            self._last = where
        return made

    async def node(self, node_id: int, lane: str = "") -> KafkaConnection:
        """A connection to a node that metadata told of."""
        known = self.nodes.get(node_id)
        if known is None:
            raise ConnectionLost(f"no node {node_id} in the cluster")
        return await self.connect((known.host, known.port), lane)

    def peek(self, node_id: int, lane: str = "") -> KafkaConnection | None:
        """The open connection to a node, if there is one now."""
        known = self.nodes.get(node_id)
        return None if known is None else self.peek_at((known.host, known.port), lane)

    def peek_at(self, where: Address, lane: str = "") -> KafkaConnection | None:
        """The open connection to an address, if there is one now."""
        return self._pool.peek((where, lane))

    async def any_connection(self) -> KafkaConnection:
        """A connection to some node: the one used last, else the first address that answers."""
        if self._last is not None:
            known = self._pool.peek((self._last, ""))
            if known is not None:
                return known
        problem: ClientError = ConnectionLost("no bootstrap address given")
        known_nodes = [(node.host, node.port) for node in self.nodes.values()]
        tried = dict.fromkeys([*self._bootstrap, *known_nodes])
        for where in sorted(tried, key=self._backoff.left_s):  # first who did not just fail
            try:
                return await self.connect(where)
            except ClosedError:
                raise
            except ClientError as failed:
                problem = failed
        raise problem

    async def controller(self) -> KafkaConnection:
        """A connection to the controller, or to who passes requests on to it."""
        if self.controller_id == NO_NODE:
            await self.learn_nodes()
        if self.controller_id == NO_NODE:
            return await self.any_connection()
        return await self.node(self.controller_id)

    # Metadata.

    async def refresh(
        self,
        topics: Iterable[str],
        *,
        create: bool = False,
        is_new: bool = False,
        led: Iterable[tuple[str, int]] | None = None,
    ) -> None:
        """Ask for metadata of these topics until all their partitions have leaders.

        With `led`, only these partitions need one: what else has none holds nobody up. A topic that
        `is_new` was made a moment ago: not every node need know of it yet.
        """
        wanted = list(topics)
        needed = None if led is None else list(led)
        trouble: ClientError | None = None
        unknown_s = CREATION_S if create or is_new else 0.0
        for pause in pauses(total_s=self.timeout_s):
            try:
                self._learn(await self.ask(wanted, create=create), needed)
            except ConnectionLost as lost:
                trouble = lost
            except KafkaError as refused:
                if refused.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    refused.retriable = unknown_s > 0  # the server knows its topics
                    unknown_s -= pause
                if not refused.retriable:
                    raise
                trouble = refused
            else:
                return
            await asyncio.sleep(pause)
        raise trouble or ConnectionLost("no metadata")

    async def names(self) -> list[str]:
        """The names of all topics that are not the cluster's own, as of now."""
        trouble: ClientError = ConnectionLost("no metadata")
        for pause in pauses(total_s=self.timeout_s):
            try:
                answer = await self.ask(None)
            except ConnectionLost as lost:
                trouble = lost
                await asyncio.sleep(pause)
            else:
                return sorted(row.name for row in answer.topics if row.name and not row.is_internal)
        raise trouble

    async def learn_nodes(self) -> None:
        """Ask who the nodes are, and nothing else."""
        await self.ask([])

    async def ask(
        self, topics: Iterable[str] | None, *, create: bool = False, operations: bool = False
    ) -> MetadataResponse:
        """One request for metadata, of all topics or of some; learns the nodes."""
        connection = await self.any_connection()
        rows = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        answer: MetadataResponse = await connection.request(
            MetadataRequest(
                topics=rows,
                allow_auto_topic_creation=create,
                include_topic_authorized_operations=operations,
            ),
            most=METADATA_NEWEST,
        )
        if answer.brokers:  # a node that has just started may not know the others yet
            self.nodes = {
                row.node_id: Node(row.node_id, row.host, row.port, row.rack)
                for row in answer.brokers
            }
        self.controller_id = answer.controller_id
        self.cluster_id = answer.cluster_id
        return answer

    def _learn(self, answer: MetadataResponse, needed: list[tuple[str, int]] | None) -> None:
        """Keep what is known; then KafkaError where something that is needed is not."""
        trouble: KafkaError | None = None
        for topic in answer.topics:
            name = topic.name or ""
            if topic.error_code:
                trouble = trouble or KafkaError(topic.error_code, f"topic {name}")
                continue
            view = self.topics[name] = TopicView(bytes(topic.topic_id))
            for partition in topic.partitions:
                number = partition.partition_index
                view.epochs[number] = partition.leader_epoch
                if partition.leader_id >= 0:
                    view.leaders[number] = partition.leader_id
                elif needed is None or (name, number) in needed:
                    missing = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{name}-{number}")
                    trouble = trouble or missing
        if trouble is not None:
            raise trouble

    async def partitions(self, topic: str, *, create: bool = False) -> list[int]:
        """The partition numbers of a topic, ascending, freshly asked for."""
        await self.refresh([topic], create=create, led=())
        return sorted(self.topics[topic].epochs)

    async def view(self, topic: str, *, create: bool = False) -> TopicView:
        """What is known of a topic; asked for once if it is not known, whoever wants it."""
        known = self.topics.get(topic)
        if known is None:
            asked = self._asking.get((topic,))
            if asked is None:
                work = self.refresh([topic], create=create, led=())
                asked = asyncio.get_running_loop().create_task(work)
                self._asking[topic,] = asked
                asked.add_done_callback(lambda task: self._asked((topic,), task))
            await asyncio.shield(asked)
            known = self.topics[topic]
        return known

    def _asked(self, key: tuple[str, ...], task: asyncio.Task[None]) -> None:
        self._asking.pop(key, None)
        if not task.cancelled():
            task.exception()  # everybody who waited may have given up

    async def leader(self, topic: str, partition: int, lane: str = "") -> KafkaConnection:
        """A connection to the node that serves this partition."""
        if self.known_leader(topic, partition) is None:
            await self.refresh([topic], led=[(topic, partition)])
        node = self.known_leader(topic, partition)
        if node is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{partition}")
        return await self.node(node, lane)

    def known_leader(self, topic: str, partition: int) -> int | None:
        """The node that serves a partition, as far as that is known and not in doubt."""
        view = self.topics.get(topic)
        return None if view is None else view.leaders.get(partition)

    def doubt(self, topic: str, partition: int | None = None) -> None:
        """The leader of a partition moved, or its topic was made again: ask before it is used.

        Without a partition: those of all of them.
        """
        view = self.topics.get(topic)
        if view is None:
            return
        if partition is None:
            view.leaders.clear()
        else:
            view.leaders.pop(partition, None)

    def forget(self, topic: str) -> None:
        """Drop what is known of a topic."""
        self.topics.pop(topic, None)

    async def by_leader(
        self, partitions: Iterable[tuple[str, int]], lane: str = ""
    ) -> Mapping[KafkaConnection, list[tuple[str, int]]]:
        """Group partitions by the connection to their leader."""
        wanted = list(partitions)
        unknown = [one for one in wanted if self.known_leader(*one) is None]
        if unknown:
            await self.refresh(sorted({topic for topic, _ in unknown}), led=unknown)
        grouped: dict[KafkaConnection, list[tuple[str, int]]] = {}
        for topic, partition in wanted:
            connection = await self.leader(topic, partition, lane)
            grouped.setdefault(connection, []).append((topic, partition))
        return grouped

    async def close(self) -> None:
        """Close every connection."""
        asking = list(self._asking.values())
        for task in asking:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*asking, return_exceptions=True)
        await self._pool.close()
