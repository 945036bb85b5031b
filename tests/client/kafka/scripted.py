"""A Kafka cluster in the test's own loop that does what a test wants: for what no real one does on
demand (codes about sequences, sessions that are gone, silence, throttling).

`next_up[request's name]` holds the reactions to the next requests of a kind: an ErrorCode (for
every item), SILENCE, HANG_UP, or a function that gets request and usual answer, and may change it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

from tests.client.harness import ScriptedServer, in_one_loop
from tests.waiting import run_ready_tasks
from trilogue.client.kafka import KafkaClient
from trilogue.entry.entry import EntryHeader
from trilogue.entry.kafka.record_batch import read_header, set_base
from trilogue.wire.kafka import fetch, produce
from trilogue.wire.kafka.api import MESSAGES
from trilogue.wire.kafka.codec.compile import decoder, encoder
from trilogue.wire.kafka.codec.header import decode_request_header, encode_response_header
from trilogue.wire.kafka.configs import configs
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.metadata import metadata
from trilogue.wire.kafka.metadata.api_versions import ApiVersion, ApiVersionsResponse
from trilogue.wire.kafka.offsets import list_offsets
from trilogue.wire.kafka.transactions.init_producer_id import InitProducerIdResponse

SILENCE, HANG_UP = "silence", "hang up"
TOPIC = "t"
PRODUCE, FETCH, METADATA = "ProduceRequest", "FetchRequest", "MetadataRequest"
IDS, OFFSETS = "InitProducerIdRequest", "ListOffsetsRequest"
SERVED = {0: (0, 12), 1: (4, 12), 2: (1, 7), 3: (1, 12), 18: (0, 3), 22: (0, 4), 32: (1, 4)}


class Peer:
    """One connection, seen from a node."""

    def __init__(self, writer: asyncio.StreamWriter, node: int) -> None:
        self.writer = writer
        self.node = node

    def hang_up(self) -> None:
        self.writer.close()


class ScriptedKafkaCluster(ScriptedServer[Peer]):
    """Nodes 1, 2, ...; partition n of every topic is led by node 1 + n % nodes."""

    def __init__(self, topics: dict[str, int] | None = None, nodes: int = 1) -> None:
        super().__init__()
        self.topics = {TOPIC: 3} if topics is None else topics
        self.served = dict(SERVED)
        self.ports: list[int] = []
        self.batches: dict[tuple[str, int], list[bytes]] = {}
        self.ends: dict[tuple[str, int], int] = {}
        self.at_node: list[tuple[int, str, Any]] = []
        self.headers: list[tuple[int, int]] = []
        """Key and version of each request."""
        self.creates_topics = True
        self._nodes = nodes
        self._servers: list[asyncio.Server] = []
        self._ids = itertools.count(1000)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.ports[0]}"

    async def open(self) -> None:
        for node in range(1, self._nodes + 1):

            async def serve(
                reader: asyncio.StreamReader, writer: asyncio.StreamWriter, node: int = node
            ) -> None:
                await self.serve_node(reader, writer, node)

            server = await asyncio.start_server(serve, "127.0.0.1", 0)
            self._servers.append(server)
            self.ports.append(server.sockets[0].getsockname()[1])

    async def shut(self) -> None:
        for server in self._servers:
            server.close()
        for peer in self.peers:
            peer.hang_up()
        for _ in range(5):
            await run_ready_tasks()

    async def serve_node(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, node: int
    ) -> None:
        peer = Peer(writer, node)
        self.peers.append(peer)
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                answer = self.answer(await reader.readexactly(size), node)
                if answer is HANG_UP:
                    break
                if isinstance(answer, bytes):
                    writer.write(len(answer).to_bytes(4, "big") + answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def answer(self, body: bytes, node: int) -> bytes | str | None:
        header, position = decode_request_header(body)
        key, version = header.api_key, header.api_version
        request, _ = decoder(MESSAGES[key][0], version)(body, position)
        name = type(request).__name__
        self.headers.append((key, version))
        self.at_node.append((node, name, request))
        upset = self.upset(name)
        if isinstance(upset, str):
            self.note(name, request)
            return upset
        code = upset if isinstance(upset, ErrorCode) else ErrorCode.NONE
        message = getattr(self, f"on_{name}")(request, code)
        if callable(upset):
            message = upset(request, message)
        self.note(name, request)
        if message is None:
            return None
        out = bytearray()
        encode_response_header(out, key, version, header.correlation_id)
        encoder(type(message), version)(message, out)
        return bytes(out)

    def on_ApiVersionsRequest(self, _request: Any, code: int) -> Any:  # noqa: N802
        rows = [
            ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in self.served.items()
        ]
        return ApiVersionsResponse(error_code=code, api_keys=rows)

    def on_MetadataRequest(self, request: Any, code: int) -> Any:  # noqa: N802
        names = sorted(self.topics)
        if request.topics is not None:
            names = [one.name or "" for one in request.topics]
        nodes = [
            metadata.MetadataResponseBroker(node_id=at, host="127.0.0.1", port=port)
            for at, port in enumerate(self.ports, 1)
        ]
        rows = []
        for name in names:
            count = self.topics.get(name, 0)
            parts = [
                metadata.MetadataResponsePartition(
                    partition_index=number, leader_id=1 + number % self._nodes, leader_epoch=3
                )
                for number in range(count)
            ]
            wrong = code or (0 if count else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            rows.append(
                metadata.MetadataResponseTopic(error_code=wrong, name=name, partitions=parts)
            )
        return metadata.MetadataResponse(brokers=nodes, controller_id=1, topics=rows)

    def on_InitProducerIdRequest(self, _request: Any, code: int) -> Any:  # noqa: N802
        return InitProducerIdResponse(
            error_code=code, producer_id=next(self._ids), producer_epoch=0
        )

    def on_DescribeConfigsRequest(self, request: Any, _code: int) -> Any:  # noqa: N802
        row = configs.DescribeConfigsResourceResult(
            name="auto.create.topics.enable", value=str(self.creates_topics).lower()
        )
        return configs.DescribeConfigsResponse(
            results=[
                configs.DescribeConfigsResult(
                    resource_type=one.resource_type, resource_name=one.resource_name, configs=[row]
                )
                for one in request.resources
            ]
        )

    def on_ProduceRequest(self, request: Any, code: int) -> Any:  # noqa: N802
        topics = []
        for topic in request.topic_data:
            rows = []
            for one in topic.partition_data:
                place = topic.name, one.index
                offset = self.ends.get(place, 0)
                if not code:
                    batch = bytearray(one.records)
                    set_base(batch, offset, 3)
                    self.batches.setdefault(place, []).append(bytes(batch))
                    self.ends[place] = offset + read_header(batch).record_count
                rows.append(
                    produce.PartitionProduceResponse(
                        index=one.index, error_code=code, base_offset=offset
                    )
                )
            topics.append(produce.TopicProduceResponse(name=topic.name, partition_responses=rows))
        return None if request.acks == 0 else produce.ProduceResponse(responses=topics)

    def on_ListOffsetsRequest(self, request: Any, code: int) -> Any:  # noqa: N802
        topics = []
        for topic in request.topics:
            rows = [
                list_offsets.ListOffsetsPartitionResponse(
                    partition_index=one.partition_index,
                    error_code=code,
                    offset=0
                    if one.timestamp == -2
                    else self.ends.get((topic.name, one.partition_index), 0),
                )
                for one in topic.partitions
            ]
            topics.append(list_offsets.ListOffsetsTopicResponse(name=topic.name, partitions=rows))
        return list_offsets.ListOffsetsResponse(topics=topics)

    def on_FetchRequest(self, request: Any, code: int) -> Any:  # noqa: N802
        """Serves what is named; the session, if one is wanted, is number 77."""
        topics = []
        for topic in request.topics:
            rows = []
            for one in topic.partitions:
                place = topic.topic, one.partition
                found = [
                    batch
                    for batch in self.batches.get(place, [])
                    if read_header(batch).last_offset >= one.fetch_offset
                ]
                end = self.ends.get(place, 0)
                rows.append(
                    fetch.PartitionData(
                        partition_index=one.partition, high_watermark=end,
                        last_stable_offset=end, log_start_offset=0, error_code=code,
                        aborted_transactions=None, records=b"" if code else b"".join(found),
                    )
                )  # fmt: skip
            topics.append(fetch.FetchableTopicResponse(topic=topic.topic, partitions=rows))
        session = 77 if request.session_epoch >= 0 else 0
        return fetch.FetchResponse(session_id=session, responses=topics)

    def sent(self) -> list[EntryHeader]:
        """Headers of all batches that came, in the order of coming."""
        return [
            read_header(one.records)
            for request in self.all(PRODUCE)
            for topic in request.topic_data
            for one in topic.partition_data
        ]


Test = Callable[..., Awaitable[None]]


def refusing(codes: dict[int, ErrorCode]) -> Callable[[Any, Any], Any]:
    """An answer to Produce that refuses some partitions."""

    def change(_request: Any, answer: Any) -> Any:
        for topic in answer.responses:
            for row in topic.partition_responses:
                row.error_code = codes.get(row.index, 0)
        return answer

    return change


def on_cluster(
    test: Test | None = None, *, topics: dict[str, int] | None = None, nodes: int = 1
) -> Any:
    """Run a test with a scripted cluster and a client of it."""

    def decorate(test: Test) -> Any:
        async def work(**arguments: Any) -> None:
            async with (
                asyncio.timeout(120),
                ScriptedKafkaCluster(topics, nodes) as cluster,
                KafkaClient(cluster.address, request_timeout_s=5.0) as client,
            ):
                await test(cluster, client, **arguments)

        return in_one_loop(test, work)

    return decorate if test is None else decorate(test)
