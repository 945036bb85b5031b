"""Where things are in a Kafka cluster: addresses, leaders, and one connection to each node."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from trilogue.client.errors import ClientError, ConnectionLost, ServerRefused
from trilogue.client.kafka.connection import KafkaConnection
from trilogue.client.retry import pauses
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

METADATA_NEWEST = 12
CREATION_S = 5.0
"""How long a server may take to make a topic that it was asked for (Kafka says "unknown" first)."""


def refuse(code: int, about: str) -> None:
    """Raise what a non-zero error code says."""
    if code:
        known = ErrorCode.of(code)
        raise ServerRefused(code, known.name, about, retriable=known.retriable)


def addresses(servers: str) -> list[tuple[str, int]]:
    """Split `host:port,host:port` (IPv6 in brackets)."""
    found = []
    for server in servers.split(","):
        host, _, port = server.strip().rpartition(":")
        if not host or not port.isdigit():
            raise ClientError(f"not a host:port address: {server!r}")
        found.append((host.strip("[]"), int(port)))
    return found


@dataclass(slots=True)
class TopicView:
    """What metadata says of a topic: its id and the leader of each partition."""

    topic_id: bytes
    leaders: dict[int, int] = field(default_factory=dict)


class KafkaCluster:
    """Metadata and connections, made when they are needed and kept."""

    def __init__(
        self, servers: str, *, client_id: str = "trilogue", timeout_s: float = 30.0
    ) -> None:
        self._bootstrap = addresses(servers)
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._nodes: dict[int, tuple[str, int]] = {}
        self._connections: dict[tuple[str, int], KafkaConnection] = {}
        self._opening = asyncio.Lock()
        self.topics: dict[str, TopicView] = {}

    async def connect(self, address: tuple[str, int]) -> KafkaConnection:
        """The open connection to an address, made now if there is none."""
        known = self._connections.get(address)
        if known is not None and known.is_open:
            return known
        async with self._opening:
            known = self._connections.get(address)
            if known is not None and known.is_open:
                return known
            made = KafkaConnection(self._client_id, self._timeout_s)
            await made.open(*address)
            self._connections[address] = made
            return made

    async def any_connection(self) -> KafkaConnection:
        """A connection to some node: one that is open, else the first address that answers."""
        for known in self._connections.values():
            if known.is_open:
                return known
        problem: ClientError = ConnectionLost("no bootstrap address given")
        for address in dict.fromkeys([*self._bootstrap, *self._nodes.values()]):
            try:
                return await self.connect(address)
            except ClientError as failed:
                problem = failed
        raise problem

    async def refresh(
        self, topics: Iterable[str], *, create: bool = False, is_new: bool = False
    ) -> None:
        """Ask for metadata of these topics until every one has all its leaders.

        One that `is_new` was made a moment ago: not every node need know of it yet.
        """
        wanted = list(topics)
        trouble: ClientError | None = None
        for pause in pauses(
            total_s=min(self._timeout_s, CREATION_S) if create or is_new else self._timeout_s
        ):
            try:
                answer = await self._ask(wanted, create)
                self._learn(answer)
            except ConnectionLost as lost:
                trouble = lost
            except ServerRefused as refused:
                unknown = refused.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if unknown and not (create or is_new):
                    refused.retriable = False  # the server knows its topics
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
        for pause in pauses(total_s=self._timeout_s):
            try:
                answer = await self._ask(None, create=False)
            except ConnectionLost as lost:
                trouble = lost
                await asyncio.sleep(pause)
            else:
                return sorted(row.name for row in answer.topics if row.name and not row.is_internal)
        raise trouble

    async def _ask(self, topics: list[str] | None, create: bool) -> MetadataResponse:
        connection = await self.any_connection()
        rows = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        answer: MetadataResponse = await connection.request(
            MetadataRequest(topics=rows, allow_auto_topic_creation=create), most=METADATA_NEWEST
        )
        return answer

    def _learn(self, answer: MetadataResponse) -> None:
        self._nodes = {node.node_id: (node.host, node.port) for node in answer.brokers}
        for topic in answer.topics:
            name = topic.name or ""
            refuse(topic.error_code, f"topic {name}")
            view = TopicView(bytes(topic.topic_id))
            for partition in topic.partitions:
                if partition.leader_id < 0:
                    refuse(ErrorCode.LEADER_NOT_AVAILABLE, f"{name}-{partition.partition_index}")
                view.leaders[partition.partition_index] = partition.leader_id
            self.topics[name] = view

    async def partitions(self, topic: str, *, create: bool = False) -> list[int]:
        """The partition numbers of a topic, ascending, freshly asked for."""
        await self.refresh([topic], create=create)
        return sorted(self.topics[topic].leaders)

    async def leader(self, topic: str, partition: int) -> KafkaConnection:
        """A connection to the node that serves this partition."""
        if topic not in self.topics or partition not in self.topics[topic].leaders:
            await self.refresh([topic])
        node = self.topics[topic].leaders.get(partition)
        if node is None:
            refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{partition}")
            raise AssertionError
        return await self.connect(self._nodes[node])

    def forget(self, topic: str) -> None:
        """Drop what is known of a topic: its leaders moved, or it was made again."""
        self.topics.pop(topic, None)

    async def by_leader(
        self, partitions: Iterable[tuple[str, int]]
    ) -> Mapping[KafkaConnection, list[tuple[str, int]]]:
        """Group partitions by the connection to their leader."""
        grouped: dict[KafkaConnection, list[tuple[str, int]]] = {}
        for topic, partition in partitions:
            connection = await self.leader(topic, partition)
            grouped.setdefault(connection, []).append((topic, partition))
        return grouped

    def close(self) -> None:
        """Close every connection."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
