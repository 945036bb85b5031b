"""A scripted Kafka server of one node, for what no real one does on
demand (offsets that skip, a leader that moves, an answer that never comes)."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.waiting import run_ready_tasks
from trilogue.entry.walk import walk_headers
from trilogue.wire.kafka.api import MESSAGES
from trilogue.wire.kafka.codec.compile import decoder, encoder
from trilogue.wire.kafka.codec.header import decode_request_header, encode_response_header
from trilogue.wire.kafka.errors import ErrorCode
from trilogue.wire.kafka.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from trilogue.wire.kafka.metadata.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from trilogue.wire.kafka.metadata.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from trilogue.wire.kafka.offsets.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from trilogue.wire.kafka.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

FETCH, OFFSETS, METADATA, PRODUCE = 1, 2, 3, 0
SILENCE, HANG_UP = "silence", "hang up"
SERVED = {0: (3, 9), 1: (4, 12), 2: (1, 7), 3: (1, 12), 18: (0, 3)}


@dataclass
class Part:
    """One partition: its batches at any offsets, and its end offsets."""

    batches: list[bytes] = field(default_factory=list)
    start: int = 0
    end: int = 0
    aborted: list[Any] = field(default_factory=list)


class ScriptedKafka:
    """Serves `parts`; `next_up[key]` holds what the next requests of an API are met with instead:
    an ErrorCode, SILENCE, HANG_UP, or a function that runs before the normal answer."""

    def __init__(self, parts: dict[tuple[str, int], Part]) -> None:
        self.parts = parts
        self.next_up: dict[int, deque[ErrorCode | str | Callable[[], None]]] = defaultdict(deque)
        self.requests: list[tuple[int, Any]] = []
        self.topic_ids: dict[str, bytes] = {}
        self.internal: set[str] = set()
        self.address = ""
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                answer = self.answer(await reader.readexactly(size))
                if answer is HANG_UP:
                    break
                if isinstance(answer, bytes):
                    writer.write(len(answer).to_bytes(4, "big") + answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def answer(self, body: bytes) -> bytes | str:
        header, position = decode_request_header(body)
        key, version = header.api_key, header.api_version
        request, _ = decoder(MESSAGES[key][0], version)(body, position)
        self.requests.append((key, request))
        upset = self.next_up[key].popleft() if self.next_up[key] else None
        if callable(upset):
            upset()
            upset = None
        if isinstance(upset, str):
            return upset
        code = ErrorCode.NONE if upset is None else upset
        message = getattr(self, f"on_{type(request).__name__}")(request, code)
        out = bytearray()
        encode_response_header(out, key, version, header.correlation_id)
        encoder(type(message), version)(message, out)
        return bytes(out)

    def on_ApiVersionsRequest(self, _request: ApiVersionsRequest, code: int):  # noqa: N802
        rows = [
            ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in SERVED.items()
        ]
        return ApiVersionsResponse(error_code=code, api_keys=rows)

    def on_MetadataRequest(self, request: MetadataRequest, code: int):  # noqa: N802
        names = sorted({topic for topic, _ in self.parts})
        if request.topics is not None:
            names = [one.name or "" for one in request.topics]
        topics = [self.topic(name, code) for name in names]
        node = MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.port)
        return MetadataResponse(brokers=[node], topics=topics)

    def topic(self, name: str, code: int) -> MetadataResponseTopic:
        numbers = sorted(number for topic, number in self.parts if topic == name)
        if not numbers:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        rows = [MetadataResponsePartition(partition_index=one, leader_id=1) for one in numbers]
        return MetadataResponseTopic(
            error_code=code, name=name, is_internal=name in self.internal,
            topic_id=self.topic_ids.get(name, bytes(16)), partitions=rows,
        )  # fmt: skip

    def on_ListOffsetsRequest(self, request: ListOffsetsRequest, code: int):  # noqa: N802
        topics = []
        for topic in request.topics:
            rows = []
            for one in topic.partitions:
                part = self.parts[topic.name, one.partition_index]
                offset = part.start if one.timestamp == -2 else part.end
                rows.append(
                    ListOffsetsPartitionResponse(
                        partition_index=one.partition_index, error_code=code, offset=offset
                    )
                )
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=rows))
        return ListOffsetsResponse(topics=topics)

    def on_FetchRequest(self, request: FetchRequest, code: int):  # noqa: N802
        (topic,) = request.topics
        (fetch,) = topic.partitions
        part = self.parts[topic.topic, fetch.partition]
        if not code and not part.start <= fetch.fetch_offset <= part.end:
            code = ErrorCode.OFFSET_OUT_OF_RANGE
        found = [] if code else [one for one in part.batches if ends(one) > fetch.fetch_offset]
        data = PartitionData(
            partition_index=fetch.partition, error_code=code, high_watermark=part.end,
            last_stable_offset=part.end, log_start_offset=part.start,
            aborted_transactions=part.aborted, records=b"".join(found[:1]),
        )  # fmt: skip
        response = FetchableTopicResponse(topic=topic.topic, partitions=[data])
        return FetchResponse(responses=[response])

    def on_ProduceRequest(self, request: ProduceRequest, code: int):  # noqa: N802
        topics = []
        for topic in request.topic_data:
            rows = []
            for one in topic.partition_data:
                part = self.parts[topic.name, one.index]
                if not code:
                    part.batches.append(bytes(one.records))
                rows.append(PartitionProduceResponse(index=one.index, error_code=code))
            topics.append(TopicProduceResponse(name=topic.name, partition_responses=rows))
        return ProduceResponse(responses=topics)


def ends(batch: bytes) -> int:
    (walked,) = walk_headers(batch)
    return walked[2] + walked[3] + 1


@contextlib.contextmanager
def scripted(parts: dict[tuple[str, int], Part]) -> Iterator[ScriptedKafka]:
    """Run one on a loop of its own, so that a client that blocks can be tested."""
    kafka = ScriptedKafka(parts)
    started, loop = threading.Event(), asyncio.new_event_loop()

    async def run(stop: asyncio.Event) -> None:
        server = await asyncio.start_server(kafka.serve, "127.0.0.1", 0)
        kafka.port = server.sockets[0].getsockname()[1]
        kafka.address = f"127.0.0.1:{kafka.port}"
        started.set()
        await stop.wait()
        server.close()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await run_ready_tasks()  # closed transports take a turn to go

    stop = asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(run(stop)))
    thread.start()
    started.wait()
    try:
        yield kafka
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
