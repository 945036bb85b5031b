"""Where things are in a Kafka cluster: addresses, leaders, coordinators, and connections to nodes.

Answers come in the order of requests, so who asks for something slow (a fetch that waits, a join)
has connections of its own: `lane` names whose they are. The empty lane is for what is quick.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from trilogue.client.errors import ClientError, ConnectionLost
from trilogue.client.kafka.connection import KafkaConnection
from trilogue.client.kafka.errors import ClosedError, KafkaError, refuse
from trilogue.client.kafka.shapes import Node
from trilogue.client.pool import Address, SharedPool, address
from trilogue.client.retry import pauses
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
    """What metadata says of a topic: its id, the leader of each partition, and its epoch."""

    topic_id: bytes
    leaders: dict[int, int] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)
    is_doubted: bool = False
    """Whether somebody found it to be wrong; it is asked for again before it is used again."""


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
        self._last: Address | None = None
        self._asking: dict[tuple[str, ...], asyncio.Task[None]] = {}
        self.nodes: dict[int, Node] = {}
        self.controller_id = NO_NODE
        self.cluster_id: str | None = None
        self.topics: dict[str, TopicView] = {}

    # Connections.

    async def _open(self, key: tuple[Address, str]) -> KafkaConnection:
        made = KafkaConnection(self._client_id, self.timeout_s)
        await made.open(*key[0])
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
        for where in dict.fromkeys([*self._bootstrap, *known_nodes]):
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
        self, topics: Iterable[str], *, create: bool = False, is_new: bool = False
    ) -> None:
        """Ask for metadata of these topics until every one has all its leaders.

        One that `is_new` was made a moment ago: not every node need know of it yet.
        """
        wanted = list(topics)
        trouble: ClientError | None = None
        unknown_s = CREATION_S if create or is_new else 0.0
        for pause in pauses(total_s=self.timeout_s):
            try:
                answer = await self.ask(wanted, create=create)
                self._learn(answer)
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
        self._learn(await self.ask([]))

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

    def _learn(self, answer: MetadataResponse) -> None:
        for topic in answer.topics:
            name = topic.name or ""
            refuse(topic.error_code, f"topic {name}")
            view = TopicView(bytes(topic.topic_id))
            for partition in topic.partitions:
                number = partition.partition_index
                if partition.leader_id < 0:
                    refuse(ErrorCode.LEADER_NOT_AVAILABLE, f"{name}-{number}")
                view.leaders[number] = partition.leader_id
                view.epochs[number] = partition.leader_epoch
            self.topics[name] = view

    async def partitions(self, topic: str, *, create: bool = False) -> list[int]:
        """The partition numbers of a topic, ascending, freshly asked for."""
        await self.refresh([topic], create=create)
        return sorted(self.topics[topic].leaders)

    async def view(self, topic: str, *, create: bool = False) -> TopicView:
        """What is known of a topic; asked for once if it is not known, whoever wants it."""
        known = self.topics.get(topic)
        if known is None:
            asked = self._asking.get((topic,))
            if asked is None:
                asked = asyncio.get_running_loop().create_task(self.refresh([topic], create=create))
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
        view = self.topics.get(topic)
        if view is None or view.is_doubted or partition not in view.leaders:
            await self.refresh([topic])
        node = self.topics[topic].leaders.get(partition)
        if node is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{partition}")
        return await self.node(node, lane)

    def known_leader(self, topic: str, partition: int) -> int | None:
        """The node that serves a partition, as far as that is known and not in doubt."""
        view = self.topics.get(topic)
        return None if view is None or view.is_doubted else view.leaders.get(partition)

    def doubt(self, topic: str) -> None:
        """What is known of a topic was wrong: its leaders moved, or it was made again."""
        view = self.topics.get(topic)
        if view is not None:
            view.is_doubted = True

    def forget(self, topic: str) -> None:
        """Drop what is known of a topic."""
        self.topics.pop(topic, None)

    async def by_leader(
        self, partitions: Iterable[tuple[str, int]], lane: str = ""
    ) -> Mapping[KafkaConnection, list[tuple[str, int]]]:
        """Group partitions by the connection to their leader."""
        wanted = list(partitions)
        unknown = {one[0] for one in wanted if self.known_leader(*one) is None}
        if unknown:
            await self.refresh(sorted(unknown))
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
