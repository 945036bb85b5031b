"""The metadata of a Kafka cluster (addresses, leaders) and the connections to its nodes.

Responses come in the order of requests, so slow requests (a fetch that waits, a join) have
connections of their own: `lane` names their owner. The empty lane is for quick requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from trilogue.client.connection import Dial
from trilogue.client.errors import (
    ClientError,
    ConnectionLost,
    ServerUnreachable,
    Unsupported,
    describe_unreachable,
)
from trilogue.client.kafka.connection import CONNECT_S, IN_CLEAR, KafkaConnection
from trilogue.client.kafka.errors import ClosedError, KafkaError, topic_error
from trilogue.client.kafka.model import Node
from trilogue.client.kafka.security import Security
from trilogue.client.pool import Address, ConnectionPool, split_addresses
from trilogue.client.retry import Backoff, retry
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.metadata.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

METADATA_NEWEST = 12
CREATION_S = 5.0
"""The time for a server to create a topic; Kafka answers UNKNOWN_TOPIC_OR_PARTITION first."""
HANDSHAKE_S: Final = 1.0
"""The time after which a connection attempt without an outcome counts as an outage."""
AUTO_CREATE: Final = "auto.create.topics.enable"
BROKER_RESOURCE: Final = 4
KAFKA_PORT: Final = 9092
NO_NODE: Final = -1


def addresses(servers: str) -> list[Address]:
    """Split `host:port,host:port` (IPv6 in brackets); InvalidOption, InvalidOptionType."""
    return split_addresses("servers", servers, KAFKA_PORT)


@dataclass(slots=True)
class TopicMetadata:
    """The metadata of a topic: its id, its partitions, their leaders and epochs."""

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
    """Metadata and connections, requested on demand and cached."""

    def __init__(
        self,
        servers: str,
        *,
        client_id: str = "trilogue",
        timeout_s: float = 30.0,
        connect_timeout_s: float = CONNECT_S,
        security: Security = IN_CLEAR,
        dial: Dial | None = None,
    ) -> None:
        self._security = security
        self._dial = dial
        self.servers = servers
        self._bootstrap = addresses(servers)
        self._client_id = client_id
        self.timeout_s = timeout_s
        self._pool: ConnectionPool[tuple[Address, str], KafkaConnection] = ConnectionPool(
            self._open, ClosedError
        )
        self._connect_timeout_s = connect_timeout_s
        self._backoff = Backoff(time.monotonic)
        self._unreachable_since: float | None = None
        self._connect_error: ClientError | None = None
        self._last: Address | None = None
        self._in_flight: dict[tuple[str, ...], asyncio.Task[None]] = {}
        self.nodes: dict[int, Node] = {}
        self.controller_id = NO_NODE
        self.cluster_id: str | None = None
        self.topics: dict[str, TopicMetadata] = {}
        self._auto_create: bool | None = None

    # Connections.

    async def _open(self, key: tuple[Address, str]) -> KafkaConnection:
        where, _ = key
        if self._unreachable_since is None and not self._pool.has_open:
            self._unreachable_since = time.monotonic()
        await asyncio.sleep(self._backoff.remaining_s(where))
        made = KafkaConnection(
            self._client_id, self.timeout_s, self._connect_timeout_s, self._security, self._dial
        )
        try:
            await made.open(*where)
        except ClientError as problem:
            self._backoff.record_failure(where)
            self._connect_error = problem
            raise
        self._backoff.record_success(where)
        self._unreachable_since = self._connect_error = None
        return made

    def check_reachable(self, waited_s: float) -> None:
        """Raise ServerUnreachable where no connection was open for half of `waited_s` or more.

        The caller waited that long in vain. A connection attempt that has not failed yet counts
        only after a second: a slow handshake is no outage.
        """
        if self._unreachable_since is None or self._pool.has_open:
            return
        for_s = time.monotonic() - self._unreachable_since
        least_s = waited_s / 2 if self._connect_error else max(waited_s / 2, HANDSHAKE_S)
        if for_s >= least_s:
            raise self._unreachable(self._connect_error or "no answer yet")

    def was_reached(self) -> bool:
        """Whether a connection to any node was ever open."""
        return self._pool.was_reached

    def _unreachable(self, problem: object) -> ServerUnreachable:
        return ServerUnreachable(describe_unreachable(self.servers, problem))

    async def connect(self, where: Address, lane: str = "") -> KafkaConnection:
        """The open connection to an address, made now if there is none."""
        made = await self._pool.get((where, lane))
        if not lane:
            self._last = where
        return made

    async def node(self, node_id: int, lane: str = "") -> KafkaConnection:
        """A connection to a node of the metadata."""
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
        """A connection to any node: the one used last, else the first address that answers.

        ServerUnreachable where none answers within the request time-out.
        """
        self._pool.check_loop()
        if self._last is not None:
            known = self._pool.peek((self._last, ""))
            if known is not None:
                return known
        problem: ClientError | None = None
        known_nodes = [(node.host, node.port) for node in self.nodes.values()]
        candidates = dict.fromkeys([*self._bootstrap, *known_nodes])
        try:
            async with asyncio.timeout(self.timeout_s):
                for where in sorted(candidates, key=self._backoff.remaining_s):
                    try:
                        return await self.connect(where)
                    except ConnectionLost as lost:
                        problem = lost
        except ClientError:
            raise
        except TimeoutError:
            problem = problem or ConnectionLost(f"no connection within {self.timeout_s:g} s")
        raise self._unreachable(problem) from problem

    # Metadata.

    async def refresh(
        self,
        topics: Iterable[str],
        *,
        create: bool = False,
        is_new: bool = False,
        needed_leaders: Iterable[tuple[str, int]] | None = None,
    ) -> None:
        """Request metadata of these topics until all their partitions have leaders.

        With `needed_leaders`, only these partitions need one. A topic that `is_new` was created a
        moment ago: a node that does not know it yet is queried again.
        """
        wanted = list(topics)
        needed = None if needed_leaders is None else list(needed_leaders)
        loop = asyncio.get_running_loop()
        appears_until = loop.time() + CREATION_S if create or is_new else 0.0

        async def attempt() -> None:
            nonlocal appears_until
            try:
                self._apply_metadata(await self.request_metadata(wanted, create=create), needed)
            except KafkaError as refused:
                if refused.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    if create and not is_new and not await self._creates_topics():
                        appears_until = 0.0
                    refused.retriable = loop.time() < appears_until
                raise

        await retry(
            attempt,
            about=f"metadata of {', '.join(wanted)}",
            server=self.servers,
            total_s=self.timeout_s,
            may_pass=lambda problem: (
                isinstance(problem, ConnectionLost)
                or (isinstance(problem, KafkaError) and problem.retriable)
            ),
            was_reached=self.was_reached,
        )

    async def _creates_topics(self) -> bool:
        """Whether the servers create topics on request; True where they do not reveal it.

        Kafka creates in the background and answers UNKNOWN_TOPIC_OR_PARTITION meanwhile, the same
        as with `auto.create.topics.enable=false`: only this setting distinguishes the two cases.
        """
        if self._auto_create is None and self.nodes:
            from trilogue.wire.kafka.configs.configs import (
                DescribeConfigsRequest,
                DescribeConfigsResource,
                DescribeConfigsResponse,
            )

            try:
                connection = await self.any_connection()
                answer: DescribeConfigsResponse = await connection.request(
                    DescribeConfigsRequest(
                        resources=[
                            DescribeConfigsResource(
                                resource_type=BROKER_RESOURCE,
                                resource_name=str(min(self.nodes)),
                                configuration_keys=[AUTO_CREATE],
                            )
                        ]
                    )
                )
            except Unsupported:
                self._auto_create = True
            else:
                values = [row.value for one in answer.results for row in one.configs]
                self._auto_create = values != ["false"]
        return self._auto_create is not False

    async def topic_names(self) -> list[str]:
        """The names of all topics that are not the cluster's own, as of now."""
        answer = await retry(
            lambda: self.request_metadata(None),
            about="names of topics",
            server=self.servers,
            total_s=self.timeout_s,
            may_pass=lambda problem: isinstance(problem, ConnectionLost),
            was_reached=self.was_reached,
        )
        return sorted(row.name for row in answer.topics if row.name and not row.is_internal)

    async def refresh_nodes(self) -> None:
        """Request the list of nodes only."""
        await self.request_metadata([])

    async def request_metadata(
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

    def _apply_metadata(
        self, answer: MetadataResponse, needed: list[tuple[str, int]] | None
    ) -> None:
        """Keep what is known; then KafkaError where something that is needed is not."""
        failure: KafkaError | None = None
        for topic in answer.topics:
            name = topic.name or ""
            if topic.error_code:
                failure = failure or topic_error(topic.error_code, name)
                continue
            view = self.topics[name] = TopicMetadata(bytes(topic.topic_id))
            for partition in topic.partitions:
                number = partition.partition_index
                view.epochs[number] = partition.leader_epoch
                if partition.leader_id >= 0:
                    view.leaders[number] = partition.leader_id
                elif needed is None or (name, number) in needed:
                    missing = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{name}-{number}")
                    failure = failure or missing
        if failure is not None:
            raise failure

    async def partitions(self, topic: str, *, create: bool = False) -> list[int]:
        """The partition numbers of a topic, ascending, requested now."""
        await self.refresh([topic], create=create, needed_leaders=())
        return sorted(self.topics[topic].epochs)

    async def topic_metadata(self, topic: str, *, create: bool = False) -> TopicMetadata:
        """The metadata of a topic, from the cache or by one request that all callers share."""
        known = self.topics.get(topic)
        if known is None:
            task = self._in_flight.get((topic,))
            if task is None:
                work = self.refresh([topic], create=create, needed_leaders=())
                task = asyncio.get_running_loop().create_task(work)
                self._in_flight[topic,] = task
                task.add_done_callback(lambda task: self._on_metadata_done((topic,), task))
            await asyncio.shield(task)
            known = self.topics[topic]
        return known

    def _on_metadata_done(self, key: tuple[str, ...], task: asyncio.Task[None]) -> None:
        self._in_flight.pop(key, None)
        if not task.cancelled():
            task.exception()  # every caller may be cancelled

    async def leader(self, topic: str, partition: int, lane: str = "") -> KafkaConnection:
        """A connection to the node that serves this partition."""
        if self.known_leader(topic, partition) is None:
            await self.refresh([topic], needed_leaders=[(topic, partition)])
        node = self.known_leader(topic, partition)
        if node is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{partition}")
        return await self.node(node, lane)

    def known_leader(self, topic: str, partition: int) -> int | None:
        """The node that serves a partition, as far as that is known and not in doubt."""
        view = self.topics.get(topic)
        return None if view is None else view.leaders.get(partition)

    def invalidate_leader(self, topic: str, partition: int | None = None) -> None:
        """Drop a leader that moved, or whose topic was recreated: the next use requests metadata.

        Without a partition: those of all of them.
        """
        view = self.topics.get(topic)
        if view is None:
            return
        if partition is None:
            view.leaders.clear()
        else:
            view.leaders.pop(partition, None)

    def forget_topic(self, topic: str) -> None:
        """Drop what is known of a topic."""
        self.topics.pop(topic, None)

    async def connections_by_leader(
        self, partitions: Iterable[tuple[str, int]], lane: str = ""
    ) -> Mapping[KafkaConnection, list[tuple[str, int]]]:
        """Group partitions by the connection to their leader."""
        wanted = list(partitions)
        unknown = [one for one in wanted if self.known_leader(*one) is None]
        if unknown:
            await self.refresh(sorted({topic for topic, _ in unknown}), needed_leaders=unknown)
        grouped: dict[KafkaConnection, list[tuple[str, int]]] = {}
        for topic, partition in wanted:
            connection = await self.leader(topic, partition, lane)
            grouped.setdefault(connection, []).append((topic, partition))
        return grouped

    async def close(self) -> None:
        """Close every connection."""
        in_flight = list(self._in_flight.values())
        for task in in_flight:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*in_flight, return_exceptions=True)
        await self._pool.close()
